//! Sent bytes arrive unchanged: all of them, in order, in whatever pieces the kernel takes them.
//!
//! If a connection is cut off, the bytes that arrived before are correct to the last one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tidegate_buffer::{LINK_BYTES_MIN, WaterMarks, WritePosition};
use tidegate_codec::framing::{Lines, Payload};
use tidegate_engine::{Channel, ChannelError, Client, Event, Limits, Outcome, Remote, SendError, task};
use tidegate_sys::Address;

use crate::caller::Caller;
use crate::echo::pattern;
use crate::parcels::{Packer, Parcel, Parcels, TIDES, short_region};
use crate::stack::Stack;
use crate::stage::{Call, Cx, Post, Served, Site, Stage};

/// Limits of a connection on which any number of bytes may wait.
fn unlimited() -> Limits {
    Limits { water: WaterMarks::new(1 << 40, 1), ..Limits::default() }
}

/// A server that sends all of these messages at once after the peer's first message, and closes.
fn says<S: Stack>(stage: &Stage, server: &Site, messages: Vec<Vec<Parcel>>) -> Address {
    let messages = Rc::new(RefCell::new(messages));
    stage.listen(
        server,
        unlimited(),
        || S::server_with(Parcels),
        move || {
            let messages = messages.take();
            move |call: Call, cx: &mut Cx<'_, S::With<Parcels>>| {
                if let Call::Message(_) = call {
                    for message in messages.clone() {
                        if let Err(error) = cx.send(message) {
                            return Outcome::fail(error);
                        }
                    }
                    return Outcome::Close;
                }
                call.by_default(cx)
            }
        },
    )
}

/// Sends it to a peer that reads intermittently.
fn arrives<S: Stack>(stage: &Stage, server: &Site, messages: Vec<Vec<Parcel>>, said: &[u8]) {
    let to = says::<S>(stage, server, messages);
    let caller = Caller::<S>::not_reading(stage, &to);
    caller.say(b"go on");
    let mut random = stage.random();
    for _ in 0..5 {
        caller.set_reading(random.once_in(2));
        stage.rest(MOMENT * random.below(8) as u32);
    }
    caller.set_reading(true);
    assert!(caller.all_received(stage) == said, "other bytes arrived");
    caller.end(stage);
    stage.until("the server is done", || server.counts().closed_done == 1);
}

pub(crate) fn three_thousand_linked_pieces_leave_in_order<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let mut packer = Packer::new(stage.random(), server.pool());
    let message = (0..3000).map(|piece| packer.linked(1 + piece % 20)).collect();
    arrives::<S>(stage, &server, vec![message], &packer.said);
}

pub(crate) fn linked_pieces_that_no_buffer_holds_leave_in_order<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let mut packer = Packer::new(stage.random(), server.pool());
    let message = (0..stage.bulk() / LINK_BYTES_MIN).map(|_| packer.static_linked()).collect();
    arrives::<S>(stage, &server, vec![message], &packer.said);
}

pub(crate) fn pieces_of_every_kind_leave_in_order<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let mut packer = Packer::new(stage.random(), server.pool());
    let mut messages = Vec::new();
    for _ in 0..30 {
        let length = packer.random.below(5);
        messages.push((0..length).map(|_| packer.any()).collect());
    }
    arrives::<S>(stage, &server, messages, &packer.said);
}

/// Empty messages and empty regions send nothing; their positions are flushed at once.
pub(crate) fn an_empty_message_is_sent_at_once<S: Stack>(stage: &Stage) {
    let (server, flushed) = (stage.server(), Rc::new(Cell::new(0)));
    let note = flushed.clone();
    let to = stage.listen(
        &server,
        Limits::default(),
        || S::server_with(Parcels),
        move || {
            let note = note.clone();
            move |call: Call, cx: &mut Cx<'_, S::With<Parcels>>| {
                let nothing = || [vec![], vec![Parcel::Copied(Vec::new())], vec![Parcel::File(short_region(0, 0))]];
                match call {
                    Call::Message(_) => {
                        for message in nothing() {
                            match cx.send(message) {
                                Ok(mark) => cx.watch(mark),
                                Err(error) => return Outcome::fail(error),
                            }
                        }
                    }
                    Call::Event(Event::Flushed) => note.set(note.get() + 1),
                    call => return call.by_default(cx),
                }
                Outcome::Continue
            }
        },
    );
    let caller = Caller::<S>::new(stage, &to);
    caller.say(b"x");
    stage.until("nothing was flushed", || flushed.get() == 1);
    assert!(server.comes_to_rest(), "the loop has nothing to do");
    caller.end(stage);
    assert!(caller.all_received(stage).is_empty());
    assert_eq!(flushed.get(), 1, "one mark was watched");
}

/// The peer gets the bytes that the file has, nothing after them, and can see that the message is incomplete.
pub(crate) fn a_file_shorter_than_its_region_cuts_off_what_follows<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let there = 5000;
    let mut message = vec![Parcel::Copied(TIDES[..100].to_vec()), Parcel::File(short_region(there, 9000))];
    message.extend((0..20).map(|_| Parcel::Shared(TIDES.to_vec().into())));
    let expected = [&TIDES[..100], &TIDES[..there]].concat();
    let to = says::<S>(stage, &server, vec![message]);
    let caller = Caller::<S>::new(stage, &to);
    caller.say(b"go on");
    stage.until("the connection is cut off", || caller.is_over() && server.counts().closed_failed == 1);
    assert!(expected.starts_with(&caller.received()), "other bytes arrived");
    assert_eq!(caller.inspect(|seen| (seen.ended, seen.failed.len())), (0, 1), "ends, and failures");
    assert!(server.comes_to_rest(), "the loop has nothing to do");
    assert!(server.used() < 10 * TIDES.len(), "the queue behind is gone");
}

/// A client's handler sends before the socket could take any byte; through a filter even before its hello.
pub(crate) fn messages_sent_in_open_arrive<S: Stack>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let received = Rc::<RefCell<Vec<u8>>>::default();
    let note = received.clone();
    let to = stage.listen(&server, Limits::default(), S::server, move || {
        let note = note.clone();
        move |call, cx: &mut Cx<'_, S::Codec>| match call {
            Call::Open => cx.send(Payload::from("ebb")).into(),
            Call::Message(message) => {
                note.borrow_mut().extend_from_slice(&message);
                Outcome::Continue
            }
            call => call.by_default(cx),
        }
    });
    let greeting = Rc::<RefCell<Vec<u8>>>::default();
    let (note, bytes) = (greeting.clone(), pattern(50_000));
    let said = bytes.clone();
    let probe = stage.probe(move |call, cx: &mut Cx<'_, S::Codec>| match call {
        Call::Open => cx.send(Payload::from(said.clone())).into(),
        Call::Message(message) => {
            note.borrow_mut().extend_from_slice(&message);
            cx.shutdown_write();
            Outcome::Continue
        }
        call => call.by_default(cx),
    });
    let connected = stage.start(&client, async move { Client::at(to).connect_with(S::client(), probe).await.is_ok() });
    assert!(stage.outcome(&connected), "connecting succeeds");
    stage.until("both are done", || server.counts().closed_done == 1 && client.counts().closed_done == 1);
    assert!(*received.borrow() == bytes, "other bytes arrived");
    assert_eq!(*greeting.borrow(), b"ebb");
}

pub(crate) fn messages_sent_as_soon_as_a_channel_opens_arrive<S: Stack>(stage: &Stage) {
    async fn greet<S: Stack>(mut channel: Channel<S::Codec>) -> Served {
        channel.send(Payload::from("ebb"))?;
        Ok(())
    }
    async fn greeted<S: Stack>(to: Address) -> Result<Vec<u8>, String> {
        let mut channel = Client::at(to).connect(S::client()).await.map_err(|error| error.to_string())?;
        channel.send(Payload::from("flow")).map_err(|error| error.to_string())?;
        let mut come = Vec::new();
        while let Some(bytes) = channel.recv().await.map_err(|error| error.to_string())? {
            come.extend_from_slice(&bytes);
        }
        Ok(come)
    }
    let (server, client) = (stage.server(), stage.client());
    let to = stage.serve(&server, Limits::default(), S::server, greet::<S>);
    let started = stage.start(&client, greeted::<S>(to));
    assert_eq!(stage.outcome(&started).as_deref(), Ok(&b"ebb"[..]));
}

/// The record of a handler.
#[derive(Default)]
struct Found {
    received: RefCell<Vec<u8>>,
    refused: Cell<usize>,
    accepted: Cell<usize>,
    remote: RefCell<Option<Remote<Post>>>,
}

impl Found {
    fn note<M, E>(&self, sent: &Result<WritePosition, SendError<M, E>>) {
        let count = if matches!(sent, Err(SendError::Closed(_))) { &self.refused } else { &self.accepted };
        count.set(count.get() + 1);
    }
}

pub(crate) fn after_shutdown_a_handler_sends_nothing_and_receives_all<S: Stack>(stage: &Stage) {
    let (server, found) = (stage.server(), Rc::<Found>::default());
    let note = found.clone();
    let to = stage.listen(&server, Limits::default(), S::server, move || {
        let note = note.clone();
        move |call, cx: &mut Cx<'_, S::Codec>| {
            note.note(&cx.send(Payload::from("word")));
            cx.shutdown_write();
            match call {
                Call::Message(message) => {
                    note.received.borrow_mut().extend_from_slice(&message);
                    Outcome::Continue
                }
                call => call.by_default(cx),
            }
        }
    });
    let caller = Caller::<S>::new(stage, &to);
    assert_eq!(caller.all_received(stage), b"word");
    let bytes = pattern(20_000);
    for piece in bytes.chunks(7000) {
        caller.say(piece);
        stage.rest(MOMENT);
    }
    caller.end(stage);
    stage.until("the server is done", || server.counts().closed_done == 1);
    assert!(*found.received.borrow() == bytes, "other bytes arrived");
    assert_eq!(found.accepted.get(), 1, "sends that were taken");
    assert!(found.refused.get() >= 2, "sends that were refused");
}

pub(crate) fn after_shutdown_a_channel_sends_nothing_and_receives_all<S: Stack>(stage: &Stage) {
    async fn serve<S: Stack>(mut channel: Channel<S::Codec>, found: Rc<Found>) -> Served {
        found.note(&channel.send(Payload::from("word")));
        channel.shutdown_write();
        while let Some(bytes) = channel.recv().await? {
            found.received.borrow_mut().extend_from_slice(&bytes);
            found.note(&channel.send(Payload::from("word")));
        }
        Ok(channel.close().await?)
    }
    let (server, found) = (stage.server(), Rc::<Found>::default());
    let note = found.clone();
    let to = stage.serve(&server, Limits::default(), S::server, move |channel| serve::<S>(channel, note.clone()));
    let caller = Caller::<S>::new(stage, &to);
    assert_eq!(caller.all_received(stage), b"word");
    let bytes = pattern(20_000);
    caller.say(&bytes);
    caller.end(stage);
    stage.until("the server is done", || server.counts().closed_done == 1);
    assert!(*found.received.borrow() == bytes, "other bytes arrived");
    assert_eq!(found.accepted.get(), 1, "sends that were taken");
    assert!(found.refused.get() >= 1, "sends that were refused");
}

/// Closing a raw_peer socket drops its pending bytes: the bytes that were sent are correct to the last one.
pub(crate) fn bytes_before_a_cut_off_arrive_unchanged<S: Stack>(stage: &Stage) {
    let (server, found) = (stage.server(), Rc::<Found>::default());
    let note = found.clone();
    let to = stage.listen(&server, Limits::default(), S::server, move || {
        let note = note.clone();
        move |call, cx: &mut Cx<'_, S::Codec>| {
            match call {
                Call::Open => {
                    *note.remote.borrow_mut() = Some(cx.remote());
                    cx.pause();
                }
                Call::Event(Event::Posted(_)) => cx.resume(),
                Call::Message(message) => note.received.borrow_mut().extend_from_slice(&message),
                call => return call.by_default(cx),
            }
            Outcome::Continue
        }
    });
    let caller = Caller::<S>::new(stage, &to);
    // Otherwise unread bytes would reset the server.
    caller.is_greeted(stage);
    let bytes = pattern(stage.bulk());
    caller.say(&bytes);
    stage.until("something has left", || caller.inspect(|seen| seen.sent > S::hello().len()));
    stage.rest(MOMENT * 20);
    assert!(caller.pending() > 0, "more than anybody takes");
    caller.close();
    stage.until("the unsent bytes are gone", || caller.pending() == 0 && found.remote.borrow().is_some());
    // A server that waits for a PROXY header receives although its application pauses, so it may know already.
    let posted = found.remote.take().expect("it has opened").post(1);
    assert!(posted.is_ok() || S::NAME == "proxied", "the connection is there: {posted:?}");
    stage.until("the server listen_receiving of it", || {
        server.counts().accepted == 1 && server.counts().connections == 0
    });
    let received = found.received.take();
    assert!(received.len() < bytes.len() && bytes.starts_with(&received), "{} arrived", received.len());
}

/// A line, numbered, and longer than its number.
fn line(number: usize) -> Vec<u8> {
    let mut line = format!("{number} ").into_bytes();
    line.resize(100 + number * 37 % 1900, b'.');
    line
}

/// More lines than the buffers take, as messages and as bytes.
fn lines(stage: &Stage) -> (Vec<Vec<u8>>, Vec<u8>) {
    let lines: Vec<_> = (0..stage.bulk() / 1000).map(line).collect();
    let mut bytes = lines.join(&b'\n');
    bytes.push(b'\n');
    (lines, bytes)
}

/// Serves lines, all at once, and then runs `then` on the channel.
fn serves_lines<S, F>(
    stage: &Stage,
    server: &Site,
    lines: Vec<Vec<u8>>,
    then: impl Fn(Channel<S::With<Lines>>, WritePosition) -> F + 'static,
) -> Address
where
    S: Stack,
    F: Future<Output = Served> + 'static,
{
    let (lines, then) = (Rc::new(lines), Rc::new(then));
    let codec = || S::server_with(Lines::new());
    stage.serve(server, unlimited(), codec, move |mut channel| {
        let (lines, then) = (lines.clone(), then.clone());
        async move {
            let mut mark = WritePosition::default();
            for line in lines.iter() {
                mark = channel.send(Payload::from(line.clone())).map_err(|_| "refused")?;
            }
            then(channel, mark).await
        }
    })
}

pub(crate) fn pending_bytes_of_a_dropped_channel_arrive_whole<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let (lines, bytes) = lines(stage);
    let to = serves_lines::<S, _>(stage, &server, lines, async |channel, _| {
        drop(channel);
        Ok(())
    });
    let caller = Caller::<S>::not_reading(stage, &to);
    stage.rest(stage.units(1));
    assert!((server.counts().sent_bytes as usize) < bytes.len(), "not everything can have left");
    caller.set_reading(true);
    assert!(caller.all_received(stage) == bytes, "other bytes arrived");
}

pub(crate) fn a_close_completes_when_everything_has_left<S: Stack>(stage: &Stage) {
    let (server, over) = (stage.server(), Rc::new(Cell::new(false)));
    let (lines, bytes) = lines(stage);
    let note = over.clone();
    let to = serves_lines::<S, _>(stage, &server, lines, move |channel, _| {
        let note = note.clone();
        async move {
            channel.close().await?;
            note.set(true);
            Ok(())
        }
    });
    let caller = Caller::<S>::not_reading(stage, &to);
    stage.rest(stage.units(1));
    assert!(!over.get(), "not everything can have left");
    caller.set_reading(true);
    assert!(caller.all_received(stage) == bytes, "other bytes arrived");
    caller.end(stage);
    stage.until("the close is over", || over.get());
}

/// If a protocol can report a failure, the peer need not doubt the messages before it.
pub(crate) fn pending_messages_of_a_failed_handler_arrive_whole<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let (lines, bytes) = lines(stage);
    let lines = Rc::new(lines);
    let to = stage.listen(
        &server,
        unlimited(),
        || S::server_with(Lines::new()),
        move || {
            let lines = lines.clone();
            move |call, cx: &mut Cx<'_, S::With<Lines>>| match call {
                Call::Open => {
                    let sent = lines.iter().try_for_each(|line| cx.send(Payload::from(line.clone())).map(drop));
                    sent.map_or_else(Outcome::fail, |()| Outcome::fail("as was to be seen"))
                }
                call => call.by_default(cx),
            }
        },
    );
    let caller = Caller::<S>::not_reading(stage, &to);
    stage.rest(stage.units(1));
    assert!((server.counts().sent_bytes as usize) < bytes.len(), "not everything can have left");
    caller.set_reading(true);
    assert!(caller.all_received(stage) == bytes, "other bytes arrived");
    caller.end(stage);
    stage.until("the server is done", || server.counts().closed_failed == 1);
}

/// Dropping a future of `flushed` has no effect on the bytes.
pub(crate) fn dropping_a_flushed_future_loses_no_bytes<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let (lines, bytes) = lines(stage);
    let was_late = Rc::new(Cell::new(false));
    let note = was_late.clone();
    let to = serves_lines::<S, _>(stage, &server, lines, move |mut channel, mark| {
        let note = note.clone();
        async move {
            let late = channel.flushed(mark).within(MOMENT).await;
            drop(task::timeout(MOMENT, channel.flushed(mark)).await);
            note.set(matches!(late, Err(ChannelError::Deadline)));
            Ok(channel.flushed(mark).await?)
        }
    });
    let caller = Caller::<S>::not_reading(stage, &to);
    stage.until("a promise is late", || was_late.get());
    caller.set_reading(true);
    assert!(caller.all_received(stage) == bytes, "other bytes arrived");
    caller.end(stage);
    stage.until("the server is done", || server.counts().closed_done == 1);
}

/// Messages of several pieces that are too few to be worth a call of their own, to several connections at once.
pub(crate) fn bytes_to_many_connections_in_one_turn_do_not_mix<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let mut all = Vec::new();
    for _ in 0..6 {
        let mut packer = Packer::new(stage.random(), server.pool());
        // Each connection gets other bytes.
        (0..all.len()).for_each(|_| drop(packer.linked(100)));
        packer.said.clear();
        let message = (0..3).map(|_| packer.linked(LINK_BYTES_MIN)).collect();
        let to = says::<S>(stage, &server, vec![message]);
        all.push((stage.connect::<S>(&raw_peer, &to), packer.said));
    }
    let greeted = |end| raw_peer.inspect(end, |seen| seen.received.len() >= S::hello().len());
    stage.until("all are greeted", || all.iter().all(|(end, _)| greeted(*end)));
    all.iter().for_each(|(end, _)| raw_peer.send(*end, &S::encoded(b"go on")));
    for (end, said) in &all {
        stage.until("the server ends", || raw_peer.inspect(*end, |call| call.ended == 1));
        assert!(S::decoded(&raw_peer.completions(*end).received) == *said, "other bytes arrived");
        stage.send_goodbye::<S>(&raw_peer, *end);
    }
    stage.until("the server is done", || server.counts().closed_done == all.len() as u64);
}

/// A time that is short on every backend.
const MOMENT: Duration = Duration::from_millis(1);
