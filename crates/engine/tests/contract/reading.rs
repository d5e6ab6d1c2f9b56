//! Back-pressure: a connection that does not read is not fed, its sender is notified, and memory stays bounded
//! meanwhile.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_buffer::{HEADROOM_BYTES, RECEIVE_BYTES_MAX, SEGMENT_BYTES, WaterMarks};
use tidegate_codec::Pipeline;
use tidegate_codec::framing::{Lines, Payload};
use tidegate_engine::{Channel, Client, Event, Limits, Outcome, Remote, task};
use tidegate_sys::Address;

use crate::caller::Caller;
use crate::echo::pattern;
use crate::journal::Journal;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Post, Served, Site, Stage};

/// Limits of a connection on which little may wait.
fn narrow() -> Limits {
    Limits { water: WaterMarks::new(HIGH_MARK_BYTES as u64, HIGH_MARK_BYTES as u64 / 2), ..Limits::default() }
}

/// The messages of a server, and the handle by which a test resumes it.
#[derive(Default)]
struct ReceivedBytes {
    bytes: RefCell<Vec<u8>>,
    messages: Cell<usize>,
    remote: RefCell<Option<Remote<Post>>>,
}

impl ReceivedBytes {
    fn note(&self, message: &[u8]) {
        self.bytes.borrow_mut().extend_from_slice(message);
        self.messages.set(self.messages.get() + 1);
    }

    fn post(&self, post: Post) {
        let remote = self.remote.borrow();
        remote.as_ref().expect("a handler has opened").post(post).expect("the connection is there");
    }
}

/// A handler that pauses when it opens and whenever `pauses` returns true, and resumes on a post.
fn listen_receiving<S: Stack, C: Pipeline<In = tidegate_codec::Slice>>(
    stage: &Stage,
    server: &Site,
    codec: impl Fn() -> C + 'static,
    pauses: impl Fn(&ReceivedBytes) -> bool + 'static,
) -> (Address, Rc<ReceivedBytes>) {
    let received = Rc::<ReceivedBytes>::default();
    let (note, pauses) = (received.clone(), Rc::new(pauses));
    let to = stage.listen(server, Limits::default(), codec, move || {
        let (received, pauses) = (note.clone(), pauses.clone());
        move |call, cx: &mut Cx<'_, C>| {
            match call {
                Call::Open => *received.remote.borrow_mut() = Some(cx.remote()),
                Call::Message(message) => received.note(&message),
                Call::Event(Event::Posted(_)) => {
                    cx.resume();
                    return Outcome::Continue;
                }
                call => return call.by_default(cx),
            }
            if pauses(&received) {
                cx.pause();
            }
            Outcome::Continue
        }
    });
    (to, received)
}

/// Bytes before the end are unread, and are not lost.
pub(crate) fn a_watched_end_is_reported_to_a_handler_that_has_paused<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let has_hung_up = Cell::new(false);
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| {
        match call {
            Call::Message(_) if !has_hung_up.get() => {
                cx.pause();
                cx.watch_end();
            }
            Call::Event(Event::HungUp) => {
                has_hung_up.set(true);
                cx.resume();
            }
            call => return call.by_default(cx),
        }
        Outcome::Continue
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    let bytes = pattern(3_000);
    raw_peer.send(end, &S::encoded(&bytes));
    stage.send_goodbye::<S>(&raw_peer, end);
    assert_eq!(stage.reason(1), "done");
    assert!(journal.bytes() == bytes, "other bytes have come");
    let mut events = journal.events();
    events.retain(|event| event == "HungUp" || event == "ReadClosed");
    assert_eq!(events, ["HungUp", "ReadClosed"]);
}

/// Watches how much memory a server uses at most while its queue fills.
fn watch(stage: &Stage, site: &Site, time: Duration) -> usize {
    let mut most = 0;
    stage.happens(time, || {
        most = most.max(site.used());
        false
    });
    most
}

pub(crate) fn a_handler_that_pauses_from_the_start_is_delivered_nothing<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let (to, received) = listen_receiving::<S, _>(stage, &server, S::server, |received| received.messages.get() == 0);
    let caller = Caller::<S>::not_reading(stage, &to);
    let bytes = pattern(2 * stage.bulk());
    caller.say(&bytes);
    let most = watch(stage, &server, stage.units(1));
    assert_eq!(received.messages.get(), 0, "messages that were delivered");
    assert!(caller.pending() > 0, "more than anybody takes");
    assert!(most < buffered_bytes_max(stage), "{most} bytes were buffered while reading paused");
    received.post(1);
    stage.until("all has left", || caller.pending() == 0);
    caller.end(stage);
    stage.until("the server is done", || server.counts().closed_done == 1);
    assert!(*received.bytes.borrow() == bytes, "other bytes arrived");
}

/// `count` short lines, and their content without line ends.
fn lines(count: usize) -> (Vec<u8>, Vec<u8>) {
    let lines: Vec<_> = (0..count).map(|number| format!("line {number}")).collect();
    ((lines.join("\n") + "\n").into_bytes(), lines.concat().into_bytes())
}

/// Many messages come in one segment, and a handler pauses after some of them.
pub(crate) fn a_pause_in_a_batch_of_messages_applies_to_the_next_one<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let batch = 50 + stage.random().below(400);
    let pauses =
        move |received: &ReceivedBytes| received.messages.get() > 0 && received.messages.get().is_multiple_of(batch);
    let (to, received) = listen_receiving::<S, _>(stage, &server, || S::server_with(Lines::new()), pauses);
    let caller = Caller::<S>::new(stage, &to);
    let count = 1000;
    let (wire, plain) = lines(count);
    caller.say(&wire);
    for delivered in (batch..=count).step_by(batch) {
        stage.until("a batch is delivered", || received.messages.get() >= delivered);
        stage.rest(MOMENT);
        assert_eq!(received.messages.get(), delivered, "messages that were delivered");
        received.post(1);
    }
    stage.until("all were delivered", || received.messages.get() == count);
    caller.end(stage);
    assert!(caller.all_received(stage).is_empty());
    assert!(*received.bytes.borrow() == plain, "other messages arrived");
}

/// The first half of a message has come when the handler pauses.
pub(crate) fn a_pause_in_the_middle_of_a_message_delays_it<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let (to, received) = listen_receiving::<S, _>(
        stage,
        &server,
        || S::server_with(Lines::new()),
        |received| received.messages.get() == 1,
    );
    let caller = Caller::<S>::new(stage, &to);
    let rest = "flow, slack".repeat(300);
    caller.say(b"ebb\nflow, sl");
    stage.until("a line is delivered", || received.messages.get() == 1);
    for piece in [&rest.as_bytes()[8..], b"\nebb", b" again\n"] {
        caller.say(piece);
        stage.rest(MOMENT);
    }
    assert_eq!(received.messages.get(), 1, "messages that were delivered");
    received.post(1);
    stage.until("the rest is delivered", || received.messages.get() == 3);
    assert!(*received.bytes.borrow() == ["ebb", &rest, "ebb again"].concat().as_bytes(), "other messages arrived");
    caller.end(stage);
    assert!(caller.all_received(stage).is_empty());
}

/// A task that receives messages only when `goes_on` is set.
async fn hear_late<C: Pipeline<In = tidegate_codec::Slice>>(
    mut channel: Channel<C>,
    received: Rc<ReceivedBytes>,
    goes_on: Rc<Cell<bool>>,
) -> Served {
    // While no task waits in `recv`, the loop receives nothing; a `recv` that was dropped changes nothing.
    drop(channel.recv().within(Duration::ZERO).await);
    while !goes_on.get() {
        task::sleep(MOMENT * 50).await;
    }
    while let Some(message) = channel.recv().await? {
        received.note(&message);
    }
    Ok(())
}

pub(crate) fn a_channel_that_does_not_receive_buffers_nothing<S: Stack>(stage: &Stage) {
    let (server, received, goes_on) = (stage.server(), Rc::<ReceivedBytes>::default(), Rc::new(Cell::new(false)));
    let (note, may) = (received.clone(), goes_on.clone());
    let serve = move |channel| hear_late(channel, note.clone(), may.clone());
    let to = stage.serve(&server, Limits::default(), S::server, serve);
    let caller = Caller::<S>::not_reading(stage, &to);
    let bytes = pattern(2 * stage.bulk());
    caller.say(&bytes);
    let most = watch(stage, &server, stage.units(1) / 10);
    assert!(caller.pending() > 0, "more than anybody takes");
    assert!(most < buffered_bytes_max(stage), "{most} bytes were buffered while reading paused");
    goes_on.set(true);
    stage.until("all has left", || caller.pending() == 0);
    caller.end(stage);
    stage.until("the server is done", || server.counts().closed_done == 1);
    assert!(*received.bytes.borrow() == bytes, "other bytes arrived");
}

/// The observations of a handler that sends.
#[derive(Default)]
struct Poured {
    writable: Cell<u64>,
    is_inside: Cell<bool>,
    nested: Cell<bool>,
    left: Cell<usize>,
}

/// Sends until the connection is unwritable, and continues at `Writable`, not before.
fn pour<S: Stack>(
    poured: &Rc<Poured>,
    bytes: &[u8],
) -> impl FnMut(Call, &mut Cx<'_, S::Codec>) -> Outcome<S::Codec> + use<S> {
    let (poured, mut left) = (poured.clone(), Bytes::copy_from_slice(bytes));
    move |call, cx| {
        poured.nested.set(poured.nested.get() || poured.is_inside.get());
        match call {
            Call::Event(Event::Writable) => poured.writable.set(poured.writable.get() + 1),
            Call::Open => {}
            call => return call.by_default(cx),
        }
        while cx.is_writable() && !left.is_empty() {
            poured.is_inside.set(true);
            let sent = cx.send(left.split_to(left.len().min(5000)).into());
            poured.is_inside.set(false);
            if let Err(error) = sent {
                return Outcome::fail(error);
            }
        }
        poured.left.set(left.len());
        if left.is_empty() { Outcome::Close } else { Outcome::Continue }
    }
}

pub(crate) fn writability_alone_moves_everything<S: Stack>(stage: &Stage) {
    let (server, poured) = (stage.server(), Rc::<Poured>::default());
    let (note, bytes) = (poured.clone(), pattern(2 * stage.bulk()));
    let said = bytes.clone();
    let to = stage.listen(&server, narrow(), S::server, move || pour::<S>(&note, &said));
    let caller = Caller::<S>::not_reading(stage, &to);
    let (mut turns, mut edges, mut most) = (0, 0, 0);
    let mut once_a_turn = true;
    let mut inspect = || {
        let counts = server.counts();
        once_a_turn &= poured.writable.get() - edges <= counts.turns - turns;
        (turns, edges) = (counts.turns, poured.writable.get());
        most = most.max(server.used());
    };
    stage.until("as much has left as anybody takes", || {
        inspect();
        poured.left.get() > 0
    });
    stage.happens(stage.units(1) / 10, || {
        inspect();
        false
    });
    assert!(poured.left.get() > 0, "more than anybody takes");
    let before = poured.writable.get();
    caller.set_reading(true);
    stage.until("the server ends", || {
        inspect();
        caller.is_over()
    });
    assert!(caller.all_received(stage) == bytes, "other bytes arrived");
    caller.end(stage);
    assert!(once_a_turn, "two edges in one turn");
    assert!(!poured.nested.get(), "an edge within a send");
    assert!(poured.writable.get() > before, "an edge");
    assert!(most < 2 * RECEIVE_BYTES_MAX, "{most} bytes waited");
}

/// Pours and reads with a task each.
async fn pour_and_read<C: Pipeline<In = tidegate_codec::Slice, Out = Payload>>(
    channel: Channel<C>,
    bytes: Vec<u8>,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (mut reader, mut writer) = channel.split();
    let pouring = task::spawn(async move {
        for piece in bytes.chunks(5000) {
            writer.ready().await?;
            writer.send(Payload::from(piece.to_vec()))?;
        }
        writer.shutdown_write();
        Ok::<_, tidegate_engine::ChannelError>(writer)
    });
    let mut come = Vec::new();
    while let Some(bytes) = reader.recv().await? {
        come.extend_from_slice(&bytes);
    }
    drop(pouring.await??);
    Ok(come)
}

pub(crate) fn two_ends_that_write_and_read_do_not_wait_for_each_other<S: Stack>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let (here, there) = (pattern(stage.bulk()), pattern(stage.bulk() + 1000)[1000..].to_vec());
    let (come, said) = (Rc::<RefCell<Vec<u8>>>::default(), there.clone());
    let note = come.clone();
    let to = stage.serve(&server, narrow(), S::server, move |channel| {
        let (note, said) = (note.clone(), said.clone());
        async move {
            *note.borrow_mut() = pour_and_read(channel, said).await?;
            Ok(())
        }
    });
    let (said, limits) = (here.clone(), stage.limits(narrow()));
    let started = stage.start(&client, async move {
        let channel = Client::at(to).limits(limits).connect(S::client()).await.map_err(|error| error.to_string())?;
        pour_and_read(channel, said).await.map_err(|error| error.to_string())
    });
    assert!(stage.outcome(&started).expect("nothing breaks") == there, "other bytes came to the client");
    stage.until("the server is done", || server.counts().closed_done == 1);
    assert!(*come.borrow() == here, "other bytes came to the server");
}

/// Sends everything when it opens, so that it is unwritable before it has read anything.
fn flood<S: Stack>(bytes: &[u8]) -> impl FnMut(Call, &mut Cx<'_, S::Codec>) -> Outcome<S::Codec> + use<S> {
    let bytes = Bytes::copy_from_slice(bytes);
    move |call, cx| match call {
        Call::Open => cx.send(bytes.clone().into()).into(),
        _ => Outcome::Continue,
    }
}

/// Both stop reading while they are unwritable, so neither goes on: the write deadline parts them.
pub(crate) fn two_handlers_that_block_each_other_end_by_the_write_deadline<S: Stack>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let limits = Limits { write_timeout: stage.units(1), ..narrow() };
    let bytes = pattern(2 * stage.bulk());
    let said = bytes.clone();
    let to = stage.listen(&server, limits.clone(), S::server, move || flood::<S>(&said));
    let probe = stage.probe(flood::<S>(&bytes));
    let connected = stage
        .start(&client, async move { Client::at(to).limits(limits).connect_with(S::client(), probe).await.is_ok() });
    assert!(stage.outcome(&connected), "connecting succeeds");
    let counts = || [server.counts(), client.counts()];
    let parted = || counts().iter().all(|counts| counts.closed_write_timeout + counts.closed_broken == 1);
    stage.until("they are parted", parted);
    assert!(counts().iter().any(|counts| counts.closed_write_timeout == 1), "{:?}", counts());
}

/// Two reasons not to read: as long as there is one, nothing is delivered.
pub(crate) fn a_pause_outlasts_being_unwritable<S: Stack>(stage: &Stage) {
    let (server, received) = (stage.server(), Rc::<ReceivedBytes>::default());
    let (note, writable) = (received.clone(), Rc::new(Cell::new(0)));
    let (edges, answer) = (writable.clone(), pattern(stage.bulk()));
    let said = answer.clone();
    let limits = Limits { water: WaterMarks { cap: u64::MAX, ..narrow().water }, ..narrow() };
    let to = stage.listen(
        &server,
        limits,
        || S::server_with(Lines::new()),
        move || {
            let (received, edges, said) = (note.clone(), edges.clone(), said.clone());
            move |what, cx: &mut Cx<'_, S::With<Lines>>| {
                match what {
                    Call::Open => *received.remote.borrow_mut() = Some(cx.remote()),
                    Call::Message(message) => {
                        received.note(&message);
                        if received.messages.get() == 1 {
                            cx.pause();
                            for piece in said.chunks(5000) {
                                if let Err(error) = cx.send(Payload::from(hex(piece))) {
                                    return Outcome::fail(error);
                                }
                            }
                        }
                    }
                    Call::Event(Event::Writable) => edges.set(edges.get() + 1),
                    Call::Event(Event::Posted(_)) => cx.resume(),
                    call => return call.by_default(cx),
                }
                Outcome::Continue
            }
        },
    );
    let caller = Caller::<S>::not_reading(stage, &to);
    let (wire, plain) = lines(100);
    caller.say(&wire);
    stage.until("a line is delivered", || received.messages.get() == 1);
    stage.rest(MOMENT * 10);
    assert_eq!((received.messages.get(), writable.get()), (1, 0), "messages, and edges");
    // The peer reads: only the pause is left.
    caller.set_reading(true);
    stage.until("the server is writable", || writable.get() == 1);
    stage.rest(MOMENT * 10);
    assert_eq!(received.messages.get(), 1, "messages that were delivered");
    received.post(1);
    stage.until("all were delivered", || received.messages.get() == 100);
    caller.end(stage);
    let expected: Vec<u8> = answer.chunks(5000).flat_map(|piece| [hex(piece), vec![b'\n']].concat()).collect();
    assert!(caller.all_received(stage) == expected, "other bytes arrived");
    assert!(*received.bytes.borrow() == plain, "other messages arrived");
}

/// Blocked writes count like a full queue: nothing is read, and `Writable` comes when the block ends.
pub(crate) fn blocked_writes_stop_reading<S: Stack>(stage: &Stage) {
    let (server, received, writable) = (stage.server(), Rc::<ReceivedBytes>::default(), Rc::new(Cell::new(0)));
    let (note, edges) = (received.clone(), writable.clone());
    let to = stage.listen(
        &server,
        Limits::default(),
        || S::server_with(Lines::new()),
        move || {
            let (received, edges) = (note.clone(), edges.clone());
            move |what, cx: &mut Cx<'_, S::With<Lines>>| {
                match what {
                    Call::Open => *received.remote.borrow_mut() = Some(cx.remote()),
                    Call::Message(message) => {
                        received.note(&message);
                        cx.block_writes(received.messages.get() == 10);
                    }
                    Call::Event(Event::Writable) => edges.set(edges.get() + 1),
                    Call::Event(Event::Posted(_)) => cx.block_writes(false),
                    what => return what.by_default(cx),
                }
                Outcome::Continue
            }
        },
    );
    let caller = Caller::<S>::new(stage, &to);
    let (wire, plain) = lines(100);
    caller.say(&wire);
    stage.until("some were delivered", || received.messages.get() >= 10);
    stage.rest(MOMENT * 10);
    assert_eq!((received.messages.get(), writable.get()), (10, 0), "messages, and edges");
    received.post(1);
    stage.until("all were delivered", || received.messages.get() == 100);
    // The edge may come a turn later than the messages.
    stage.until("the server is writable", || writable.get() >= 1);
    caller.end(stage);
    assert!(caller.all_received(stage).is_empty());
    assert_eq!(writable.get(), 1, "edges");
    assert!(*received.bytes.borrow() == plain, "other messages arrived");
}

/// A line of the same length, without line ends.
fn hex(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| b'a' + byte % 16).collect()
}

/// An echo to a peer that does not read buffers as much as the water marks allow, however many bytes come.
pub(crate) fn memory_in_transit_is_bounded_by_the_water_marks<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let to = stage.listen(&server, narrow(), S::server, || crate::echo::echo::<S>);
    let caller = Caller::<S>::not_reading(stage, &to);
    let bytes = pattern(3 * stage.bulk());
    caller.say(&bytes);
    let mut most = watch(stage, &server, stage.units(1) / 10);
    assert!(caller.pending() > 0, "more than anybody takes");
    caller.set_reading(true);
    stage.until("all has left", || {
        most = most.max(server.used());
        caller.pending() == 0
    });
    caller.end(stage);
    assert!(caller.all_received(stage) == bytes, "other bytes came back");
    println!("{most} bytes were buffered, of at most {}", buffered_bytes_max(stage));
    assert!(most < buffered_bytes_max(stage), "{most} bytes were buffered");
}

/// A peer that never reads keeps its connection, and our memory, until the write deadline.
pub(crate) fn a_peer_that_never_reads_is_cut_off_and_its_memory_comes_back<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let limits = Limits { water: WaterMarks::new(1 << 40, 1), write_timeout: stage.units(2), ..Limits::default() };
    let bytes = pattern(2 * stage.bulk());
    let said = bytes.clone();
    let to = stage.listen(&server, limits, S::server, move || {
        let said = said.clone();
        move |call, cx: &mut Cx<'_, S::Codec>| match call {
            Call::Message(_) => cx.send(Payload::from(said.clone())).into(),
            call => call.by_default(cx),
        }
    });
    let caller = Caller::<S>::not_reading(stage, &to);
    caller.say(b"go on");
    let used = || server.used();
    // The loop's scratch stays.
    let memory_max = BUFFERED_BYTES_MAX.min(stage.bulk() * 3 / 4);
    stage.until("the waiting bytes are counted", || used() > memory_max);
    stage.until("the peer is cut off", || server.counts().closed_write_timeout == 1);
    stage.until("the memory comes back", || used() < memory_max);
    caller.set_reading(true);
    stage.until("the peer sees the end", || caller.is_over());
    assert!(bytes.starts_with(&caller.received()), "other bytes arrived");
}

/// A handler that keeps slices of all messages finds their content unchanged.
pub(crate) fn slices_that_a_handler_keeps_do_not_change<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let kept = Rc::new(RefCell::new(Vec::new()));
    let keeps = kept.clone();
    let to = stage.listen(&server, Limits::default(), S::server, move || {
        let keeps = keeps.clone();
        move |call: Call, cx: &mut Cx<'_, S::Codec>| match call {
            Call::Message(message) => {
                keeps.borrow_mut().push(message);
                Outcome::Continue
            }
            call => call.by_default(cx),
        }
    });
    let caller = Caller::<S>::new(stage, &to);
    let bytes = pattern(80_000);
    let come = || kept.borrow().iter().map(|message| message.len()).sum::<usize>();
    let mut said = 0;
    // In separate pieces, more of them than a driver has buffers, and of all sizes; a large one at the end.
    for length in (1..=100).map(|piece| piece * 10).chain([20_000]) {
        caller.say(&bytes[said..said + length]);
        said += length;
        stage.until("it has come", || come() == said);
    }
    assert!(kept.take().iter().flat_map(|message| message.to_vec()).eq(bytes[..said].iter().copied()), "other bytes");
    caller.end(stage);
    stage.until("the server is done", || server.counts().closed_done == 1);
}

/// The memory that a loop may use for one connection with narrow marks. Bytes that come after the loop has stopped receiving
/// are copied into memory that grows by doubling, and while it grows there are both.
fn buffered_bytes_max(stage: &Stage) -> usize {
    BUFFERED_BYTES_MAX + 3 * stage.late_bytes_max()
}

/// The memory that a connection with narrow marks may use, as long as no byte comes late.
///
/// Without a filter three blocks of receive memory can exist: one of which the kernel has sent a part, one that was received when
/// that part left less than the mark, and a fresh one for the next receive, which an input leaves when the dispatch ends.
/// Pieces of less than a quarter of a block are copied, and as many wait as the mark permits, in segments of which two are used
/// in part. With a filter there is one block, and the bytes of one receive wait as input, as a message and as output; each
/// move between them has both places at a time.
const BUFFERED_BYTES_MAX: usize = {
    let unfiltered = 3 * (HEADROOM_BYTES + RECEIVE_BYTES_MAX) + HIGH_MARK_BYTES + 2 * SEGMENT_BYTES + ENTRIES_BYTES;
    let filtered = HEADROOM_BYTES + 4 * RECEIVE_BYTES_MAX + SEGMENT_BYTES;
    if unfiltered > filtered { unfiltered } else { filtered }
};

const HIGH_MARK_BYTES: usize = 16 * 1024;

/// The entries of a queue, of 48 bytes each.
const ENTRIES_BYTES: usize = 1024;

/// A time that is short on every backend.
const MOMENT: Duration = Duration::from_millis(1);
