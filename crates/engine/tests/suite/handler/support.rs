//! A handler made of a closure, with a journal of its calls; a codec with commands; socket pairs on a loop.

use std::cell::RefCell;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_buffer::{Pool, WaterMarks};
use tidegate_codec::framing::{FramingError, Lines, Payload};
use tidegate_codec::{Blame, Codec, CodecStatus, Fault, FileRegion, Input, Lifecycle, Output, Pipeline, Slice, Step};
use tidegate_engine::{CloseReason, Context, Event, EventLoop, Handler, Limits, Outcome, Remote};
use tidegate_sys::readiness::Readiness;
use tidegate_sys::{Address, Socket};

/// The type that is posted to handlers of these tests.
pub(crate) type Post = &'static str;

/// An action on a connection, as a line of a table.
pub(crate) type Happening = fn(&mut tidegate_testkit::Embedded<Post>);

pub(crate) type Cx<'a, C> = Context<'a, C, Post>;

/// The calls of a handler, as one type.
#[derive(Debug)]
pub(crate) enum Call {
    Open,
    Message(Slice),
    Event(Event<Post>),
}

/// Notes in order; shared by a test and its handlers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(Rc<RefCell<Vec<String>>>);

impl Journal {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.borrow_mut().push(what.into());
    }

    /// The notes since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        self.0.take()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.borrow().iter().filter(|line| *line == what).count()
    }
}

/// A handler that notes its calls and then runs the closure.
pub(crate) struct Probe<F> {
    journal: Journal,
    act: F,
}

impl<F> Probe<F> {
    pub(crate) fn new<C: Pipeline>(journal: &Journal, act: F) -> Self
    where
        F: FnMut(Call, &mut Cx<'_, C>) -> Outcome<C> + 'static,
    {
        Self { journal: journal.clone(), act }
    }

    /// Runs the closure, without a note.
    pub(crate) fn act<C: Pipeline>(&mut self, call: Call, cx: &mut Cx<'_, C>) -> Outcome<C>
    where
        F: FnMut(Call, &mut Cx<'_, C>) -> Outcome<C> + 'static,
    {
        (self.act)(call, cx)
    }
}

impl<C, F> Handler<C> for Probe<F>
where
    C: Pipeline<In = Slice>,
    F: FnMut(Call, &mut Cx<'_, C>) -> Outcome<C> + 'static,
{
    type Post = Post;

    fn open(&mut self, cx: &mut Cx<'_, C>) -> Outcome<C> {
        self.journal.note("open");
        (self.act)(Call::Open, cx)
    }

    fn message(&mut self, message: Slice, cx: &mut Cx<'_, C>) -> Outcome<C> {
        self.journal.note(format!("message {}", message.escape_ascii()));
        (self.act)(Call::Message(message), cx)
    }

    fn event(&mut self, event: Event<Post>, cx: &mut Cx<'_, C>) -> Outcome<C> {
        self.journal.note(format!("{event:?}"));
        (self.act)(Call::Event(event), cx)
    }

    fn closed(&mut self, reason: &CloseReason) {
        self.journal.note(format!("closed: {reason}"));
    }
}

/// The default handling of an event.
pub(crate) fn by_default<C: Pipeline>(call: &Call, cx: &Cx<'_, C>) -> Outcome<C> {
    match call {
        Call::Event(Event::ReadClosed | Event::Drain) if !cx.codec().status().reports_finish => Outcome::Close,
        _ => Outcome::Continue,
    }
}

/// Echoes every message, and handles events by default.
pub(crate) fn echo<C: Pipeline<Out = Payload>>(call: Call, cx: &mut Cx<'_, C>) -> Outcome<C> {
    match call {
        Call::Message(message) => cx.send(message.into()).into(),
        call => by_default(&call, cx),
    }
}

/// A payload of `count` bytes.
pub(crate) fn bytes(count: usize) -> Payload {
    vec![b'x'; count].into()
}

/// Limits with these water marks; both caps are four times the high one.
pub(crate) fn marks(high: u64, low: u64) -> Limits {
    Limits { water: WaterMarks::new(high, low), ..Limits::default() }
}

/// Lines, with everything beside messages that a protocol may do.
///
/// Inbound, the codec itself answers `reply N` with N bytes; it refuses `error` with final bytes; `panic` panics;
/// `end` ends the messages; `quit` finishes the protocol. It fails with `failed`, closes with `bye`, drains with
/// `draining`. Outbound, a [`Parcel`] may be a file.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    pub(crate) lines: Lines,
    pub(crate) reports_finish: bool,
    pub(crate) says_bye: bool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) ended: bool,
    pub(crate) finished: bool,
}

#[derive(Debug)]
pub(crate) enum Parcel {
    Line(Payload),
    File(FileRegion),
}

impl From<Slice> for Parcel {
    fn from(line: Slice) -> Self {
        Self::Line(line.into())
    }
}

impl Codec for Habits {
    type In = Slice;
    type Out = Parcel;
    type Error = HabitError;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, HabitError> {
        loop {
            if self.ended {
                return Ok(Step::End);
            }
            let line = match self.lines.decode(input, reply).map_err(HabitError::Framing)? {
                Step::Message(line) => line,
                other => return Ok(other),
            };
            match &*line {
                b"error" => {
                    reply.write(b"sorry\n");
                    return Err(HabitError::Refused);
                }
                b"panic" => panic!("the codec panics on request"),
                b"end" => self.ended = true,
                b"quit" => self.finished = true,
                command if command.starts_with(b"reply ") => {
                    let count = std::str::from_utf8(&command[6..]).expect("digits").parse().expect("a number");
                    reply.write(&vec![b'r'; count]);
                }
                _ => return Ok(Step::Message(line)),
            }
        }
    }

    fn encode(&mut self, parcel: Parcel, out: &mut Output<'_>) -> Result<(), HabitError> {
        match parcel {
            Parcel::Line(line) => self.lines.encode(line, out).map_err(HabitError::Framing)?,
            Parcel::File(region) => out.link_file(region),
        }
        Ok(())
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), HabitError> {
        match event {
            Lifecycle::Fail => out.write(b"failed\n"),
            Lifecycle::Drain => out.write(b"draining\n"),
            Lifecycle::Close if self.says_bye => out.write(b"bye\n"),
            _ => {}
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        CodecStatus { is_finished: self.finished, reports_finish: self.reports_finish, ..CodecStatus::default() }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    fn handle_timeout(&mut self, _: &Input, reply: &mut Output<'_>) -> Result<(), HabitError> {
        assert!(self.deadline.take().is_some_and(|at| at <= reply.now()), "called before its time");
        reply.write(b"late\n");
        Err(HabitError::Late)
    }
}

#[derive(Debug)]
pub(crate) enum HabitError {
    Framing(FramingError),
    Refused,
    Late,
}

impl Fault for HabitError {
    fn blame(&self) -> Blame {
        match self {
            Self::Framing(error) => error.blame(),
            Self::Refused => Blame::Peer,
            Self::Late => Blame::Limit,
        }
    }
}

impl fmt::Display for HabitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(error) => error.fmt(f),
            Self::Refused => f.write_str("refused"),
            Self::Late => f.write_str("late"),
        }
    }
}

impl std::error::Error for HabitError {}

/// A file with `content` that is removed when it is dropped.
pub(crate) fn file(content: &[u8]) -> std::fs::File {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("handler-{}-{number}", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("the target directory can be written to");
    let file = std::fs::File::open(&path).expect("it was just written");
    std::fs::remove_file(&path).expect("it was just opened");
    file
}

/// A loop on the real driver, turned by hand, with connections over socket pairs.
pub(crate) struct Pairs {
    pub(crate) event_loop: EventLoop,
    pub(crate) pool: Pool,
}

impl Pairs {
    pub(crate) fn new(budget: usize) -> Self {
        let pool = Pool::new();
        pool.ledger().set_budget(budget);
        let driver = Readiness::new(&pool).expect("there is a descriptor left");
        Self { event_loop: EventLoop::new(Box::new(driver), pool.clone()), pool }
    }

    /// A connection; the test gets the other end, which blocks.
    pub(crate) fn connect<C: Pipeline, H: Handler<C>>(
        &mut self,
        limits: Limits,
        codec: C,
        handler: H,
    ) -> (UnixStream, Remote<H::Post>) {
        let (ours, theirs) = UnixStream::pair().expect("there are descriptors left");
        theirs.set_read_timeout(Some(PATIENCE)).expect("a timeout that is not zero");
        theirs.set_write_timeout(Some(PATIENCE)).expect("a timeout that is not zero");
        let ours = Socket::from_stream(ours).expect("a stream");
        let peer = Address::Unix(PathBuf::new());
        (theirs, self.event_loop.adopt(ours, &peer, limits, codec, handler).expect("the driver takes it"))
    }

    /// Turns until `done`.
    #[track_caller]
    pub(crate) fn turn_until(&mut self, mut done: impl FnMut() -> bool) {
        for _ in 0..TURNS_MAX {
            if done() {
                return;
            }
            self.turn();
        }
        panic!("it has not come to it after {TURNS_MAX} turns");
    }

    /// `count` turns, none of which waits for long.
    pub(crate) fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.event_loop.turn(Some(Duration::from_millis(1))).expect("waiting does not fail");
    }
}

/// Writes and reads as far as the socket allows, without blocking the thread that turns the loop.
pub(crate) fn exchange(stream: &mut UnixStream, rest: &mut &[u8], seen: &mut Vec<u8>) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    if let Ok(count) = stream.write(rest) {
        *rest = &rest[count..];
    }
    let mut room = [0; 64 * 1024];
    let ended = loop {
        match stream.read(&mut room) {
            Ok(0) => break true,
            Ok(count) => seen.extend_from_slice(&room[..count]),
            Err(_) => break false,
        }
    };
    stream.set_nonblocking(false).expect("a socket");
    ended
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const TURNS_MAX: usize = 20_000;
