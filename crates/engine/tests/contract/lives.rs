//! Whole lives of connections, in which both sides act at random: the invariants hold all the same.
//!
//! The backend's seed decides. The received bytes are a prefix of the sent bytes, whichever side closed; they are all
//! of them if the connection closed in good order; the end is reported once, and last; and every connection closes.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::time::Duration;

use tidegate_engine::{Event, Limits, Outcome, Remote};
use tidegate_testkit::Random;

use crate::raw_peer::RawPeer;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Post, Stage};

/// The record of one life, as its handler saw it.
#[derive(Default)]
struct Record {
    /// The number of its handler, once it is made.
    number: Cell<Option<usize>>,
    /// The bytes received from the peer, and the bytes sent to it.
    received: RefCell<Vec<u8>>,
    sent: RefCell<Vec<u8>>,
    remote: RefCell<Option<Remote<Post>>>,
    opened: Cell<u32>,
    read_closed: Cell<u32>,
    /// The handler closed before it had seen the end of the peer.
    left_early: Cell<bool>,
    /// An invariant that was violated.
    wrong: RefCell<Vec<&'static str>>,
}

impl Record {
    fn assert(&self, is_so: bool, what: &'static str) {
        if !is_so {
            self.wrong.borrow_mut().push(what);
        }
    }

    fn note<S: Stack>(&self, call: &Call, cx: &mut Cx<'_, S::Codec>) {
        self.assert((self.opened.get() == 0) == matches!(call, Call::Open), "it is opened once, and first");
        match call {
            Call::Open => {
                self.opened.set(1);
                *self.remote.borrow_mut() = Some(cx.remote());
            }
            Call::Message(bytes) => {
                self.assert(self.read_closed.get() == 0, "no message comes after the end");
                self.received.borrow_mut().extend_from_slice(bytes);
            }
            Call::Event(Event::ReadClosed) => self.read_closed.set(self.read_closed.get() + 1),
            Call::Event(_) => {}
        }
    }

    fn send<S: Stack>(&self, length: usize, cx: &mut Cx<'_, S::Codec>) {
        let mut sent = self.sent.borrow_mut();
        let bytes: Vec<_> = (sent.len()..sent.len() + length).map(byte).collect();
        if let Ok(mark) = cx.send(bytes.clone().into()) {
            sent.extend(bytes);
            cx.watch(mark);
        }
    }
}

/// A handler that acts at random, but not for ever.
struct Whim {
    record: Rc<Record>,
    random: Random,
    acts: usize,
}

impl Whim {
    fn act_on<S: Stack>(&mut self, call: Call, cx: &mut Cx<'_, S::Codec>) -> Outcome<S::Codec> {
        self.record.note::<S>(&call, cx);
        if let Call::Event(Event::Deadline) = call {
            cx.resume();
            cx.block_writes(false);
            if self.record.read_closed.get() > 0 {
                return Outcome::Close;
            }
        }
        for _ in 0..self.random.below(3).min(self.acts) {
            self.acts -= 1;
            if let Some(outcome) = self.act::<S>(cx) {
                return outcome;
            }
        }
        match call {
            // The deadline closes it later.
            Call::Event(Event::ReadClosed) if self.random.once_in(2) => {
                cx.deadline_after(SHORT);
                Outcome::Continue
            }
            call => call.by_default(cx),
        }
    }

    fn act<S: Stack>(&mut self, cx: &mut Cx<'_, S::Codec>) -> Option<Outcome<S::Codec>> {
        let pause = SHORT * self.random.below(4) as u32;
        match self.random.below(20) {
            0..=6 => self.record.send::<S>(1 + self.random.below(LENGTH_MAX), cx),
            7 | 8 => {
                cx.pause();
                cx.deadline_after(pause);
            }
            9 => {
                cx.block_writes(true);
                cx.deadline_after(pause);
            }
            10 | 11 => cx.deadline_after(pause),
            12 => cx.shutdown_write(),
            13 => drop(cx.remote().post(0)),
            14 => {
                self.record.left_early.set(self.record.read_closed.get() == 0);
                return Some(Outcome::Close);
            }
            15 if self.random.once_in(4) => return Some(Outcome::fail("on purpose")),
            16 if self.random.once_in(4) => resume_unwind(Box::new("on purpose")),
            _ => {}
        }
        None
    }
}

/// One life, as its peer sees it.
struct Life {
    record: Rc<Record>,
    end: usize,
    said: Vec<u8>,
    hung_up: bool,
    /// The peer closed its socket, and receives nothing more.
    closed: bool,
}

impl Life {
    fn begin<S: Stack>(stage: &Stage, server: &crate::stage::Site, raw_peer: &RawPeer, random: &mut Random) -> Self {
        let record = Rc::new(Record::default());
        let (kept, seed, life) = (record.clone(), random.bits(), stage.life());
        let limits = Limits { linger_timeout: Duration::from_secs(20), ..Limits::default() };
        let to = stage.listen(server, limits, S::server, move || {
            kept.number.set(Some(life.made()));
            let mut whim = Whim { record: kept.clone(), random: Random::new(seed), acts: ACTS };
            move |call: Call, cx: &mut Cx<'_, S::Codec>| whim.act_on::<S>(call, cx)
        });
        let end = raw_peer.connect(&to);
        raw_peer.receive(end, true);
        raw_peer.send(end, &S::hello());
        Self { record, end, said: Vec::new(), hung_up: false, closed: false }
    }

    /// One random action of the peer.
    fn step<S: Stack>(&mut self, stage: &Stage, raw_peer: &RawPeer, random: &mut Random) {
        let (brief, act) = (stage.units(1) * random.below(8) as u32 / 4_000, random.below(20));
        let broken = raw_peer.inspect(self.end, |seen| !seen.failed.is_empty());
        match act {
            0..=5 if !self.hung_up && !self.closed && !broken => {
                let length = 1 + random.below(LENGTH_MAX);
                let bytes: Vec<_> = (self.said.len()..self.said.len() + length).map(byte).collect();
                raw_peer.send(self.end, &S::encoded(&bytes));
                self.said.extend(bytes);
            }
            6 | 7 if !self.closed => raw_peer.receive(self.end, random.once_in(2)),
            8 => self.send_goodbye::<S>(stage, raw_peer),
            9 if !self.closed && random.once_in(2) => {
                raw_peer.close(self.end, random.once_in(2));
                self.closed = true;
            }
            10 | 11 => {
                if let Some(remote) = &*self.record.remote.borrow() {
                    let _ = remote.post(0);
                }
            }
            _ => stage.rest(brief),
        }
    }

    fn send_goodbye<S: Stack>(&mut self, stage: &Stage, raw_peer: &RawPeer) {
        let broken = raw_peer.inspect(self.end, |seen| !seen.failed.is_empty());
        if !self.hung_up && !self.closed && !broken {
            self.hung_up = true;
            stage.until("it is connected", || raw_peer.inspect(self.end, |seen| seen.connected.is_some()));
            // Or each side might wait for the other to read.
            raw_peer.receive(self.end, true);
            stage.send_goodbye::<S>(raw_peer, self.end);
        }
    }

    fn assert_sound<S: Stack>(&self, raw_peer: &RawPeer, reason: &str) {
        let (record, said) = (&*self.record, raw_peer.completions(self.end));
        let (received, sent, arrived) = (record.received.borrow(), record.sent.borrow(), S::decoded(&said.received));
        assert!(record.wrong.borrow().is_empty(), "{:?}", record.wrong.borrow());
        assert!(self.said.starts_with(&received), "other bytes have come");
        assert!(sent.starts_with(&arrived), "the peer was sent other bytes");
        assert!(record.read_closed.get() <= 1, "the end is reported once");
        assert!(said.ended <= 1, "the end is reported once");
        if reason == "done" && !self.closed {
            assert_eq!((arrived.len(), said.ended), (sent.len(), 1), "the peer missed something: {:?}", said.failed);
            let whole = record.left_early.get() || received.len() == self.said.len();
            assert!(whole, "{} of {} bytes have come", received.len(), self.said.len());
        }
    }
}

pub(crate) fn of_random_kinds_end_correctly<S: Stack>(stage: &Stage) {
    stage.expect_panics();
    let (server, raw_peer, mut random) = (stage.server(), stage.raw_peer(), Random::new(stage.seed()));
    let mut lives: Vec<_> = (0..LIVES).map(|_| Life::begin::<S>(stage, &server, &raw_peer, &mut random)).collect();
    for _ in 0..STEPS {
        let which = random.below(LIVES);
        lives[which].step::<S>(stage, &raw_peer, &mut random);
    }
    for life in &mut lives {
        life.send_goodbye::<S>(stage, &raw_peer);
        raw_peer.receive(life.end, true);
    }
    stage.until("every life has ended", || {
        server.counts().connections == 0
            && lives
                .iter()
                .all(|life| life.closed || raw_peer.inspect(life.end, |seen| seen.ended + seen.failed.len() > 0))
    });
    for life in &lives {
        let reason = life.record.number.get().and_then(|number| stage.life().reason_of(number));
        life.assert_sound::<S>(&raw_peer, &reason.unwrap_or_default());
    }
}

/// The byte at a position of the sent bytes.
fn byte(place: usize) -> u8 {
    (place % 251) as u8 ^ (place / 251) as u8
}

const LIVES: usize = 4;
const STEPS: usize = 30;
const ACTS: usize = 12;
const LENGTH_MAX: usize = 12_000;
const SHORT: Duration = Duration::from_millis(2);
