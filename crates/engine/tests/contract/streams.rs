//! Sessions and streams: a stream is like a connection, whatever the others of its session do; and peers that break the
//! protocol, or use it up.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use tidegate_buffer::WaterMarks;
use tidegate_codec::framing::Payload;
use tidegate_codec::mux::{Mux, OpenError};
use tidegate_codec::{Pipeline, Slice};
use tidegate_engine::{
    Channel, ChannelError, Client, CloseReason, Event, Limits, Outcome, Session, SessionError, task,
};
use tidegate_sys::Address;
use tidegate_testkit::ToyMuxConfig;

use crate::multiplexer::{DATA, Frame, Multiplexer, OPEN, PING, REFUSED, RESET, WINDOW};
use crate::raw_peer::RawPeer;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Site, Stage, Started, panic_on_request};

/// The pipeline of a session.
type Muxed<S, M> = <S as Stack>::With<<M as Multiplexer>::Mux>;

/// A pipeline of lines.
pub(crate) trait Lines: Pipeline<In = Slice, Out = Payload> {}

impl<C: Pipeline<In = Slice, Out = Payload>> Lines for C {}

/// Little may wait, so that windows and marks are reached soon.
pub(crate) const NARROW: ToyMuxConfig = ToyMuxConfig { stream_window: 8_000, session_window: 20_000, streams_max: 50 };

pub(crate) fn limits() -> Limits {
    let linger_timeout = Duration::from_millis(50);
    Limits { water: WaterMarks::new(16 * 1024, 8 * 1024), linger_timeout, ..Limits::default() }
}

/// A server with a handler for each stream, made of a closure.
pub(crate) fn listen<S, M, A>(
    stage: &Stage,
    site: &Site,
    config: ToyMuxConfig,
    limits: Limits,
    act: impl Fn() -> A + 'static,
) -> Address
where
    S: Stack,
    M: Multiplexer,
    A: FnMut(Call, &mut Cx<'_, M::Server>) -> Outcome<M::Server> + 'static,
{
    let mux = move || S::server_with(M::server(config));
    stage.listen_streams(site, limits, mux, M::server_stream, act)
}

pub(crate) fn echo<C: Lines>(call: Call, cx: &mut Cx<'_, C>) -> Outcome<C> {
    match call {
        Call::Message(line) => cx.send(line.into()).into(),
        call => call.by_default(cx),
    }
}

/// Runs a client with a session.
fn with_session<S, M, T, F>(
    stage: &Stage,
    site: &Site,
    to: &Address,
    config: ToyMuxConfig,
    act: impl FnOnce(Session<Muxed<S, M>>) -> F + 'static,
) -> Started<T>
where
    S: Stack,
    M: Multiplexer,
    T: 'static,
    F: Future<Output = T> + 'static,
{
    let client = Client::at(to.clone()).limits(stage.limits(limits()));
    stage.start(site, async move {
        let session = client.open_session(S::client_with(M::client(config))).await.expect("it listens");
        act(session).await
    })
}

async fn ask<C: Lines>(channel: &mut Channel<C>, line: &str) -> String {
    channel.send(line.to_owned().into()).expect("the stream is open");
    received(channel).await
}

async fn received<C: Lines>(channel: &mut Channel<C>) -> String {
    text(&channel.recv().await.expect("the stream is open").expect("a line"))
}

pub(crate) fn text(line: &Slice) -> String {
    String::from_utf8(line.to_vec()).expect("it is text")
}

pub(crate) fn messages_come_back_on_each_of_many<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || echo);
    let done = with_session::<S, M, _, _>(stage, &client, &to, NARROW, |session| async move {
        let mut channels: Vec<_> = (0..40).map(|_| session.open(M::client_stream()).expect("a stream")).collect();
        for round in 0..3 {
            for (number, channel) in channels.iter_mut().enumerate() {
                channel.send(format!("{round} on {number}").into()).expect("the stream is open");
            }
            for (number, channel) in channels.iter_mut().enumerate() {
                assert_eq!(received(channel).await, format!("{round} on {number}"));
            }
        }
        for mut channel in channels {
            channel.shutdown_write();
            assert!(channel.recv().await.expect("all was in order").is_none());
            channel.close().await.expect("all was in order");
        }
    });
    stage.outcome(&done);
    stage.until("all streams are closed", || server.counts().streams + client.counts().streams == 0);
    assert_eq!(stage.reasons(), vec!["done"; 40]);
}

pub(crate) fn long_messages_pass_through_small_windows<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let config = ToyMuxConfig { stream_window: 900, session_window: 1_500, streams_max: 10 };
    let to = listen::<S, M, _>(stage, &server, config, Limits::default(), || echo);
    let done = with_session::<S, M, _, _>(stage, &client, &to, config, |session| async move {
        let mut channels =
            [session.open(M::client_stream()).expect("a stream"), session.open(M::client_stream()).expect("a stream")];
        let line = "0123456789".repeat(3_000);
        for channel in &mut channels {
            channel.send(line.clone().into()).expect("there is room");
        }
        for channel in &mut channels {
            assert_eq!(received(channel).await, line);
        }
    });
    stage.outcome(&done);
}

/// The windows of all but one stream are used up, at either end, for good.
pub(crate) fn streams_that_are_not_read_stop_no_other<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let config = ToyMuxConfig { session_window: 1 << 20, ..NARROW };
    let to = listen::<S, M, _>(stage, &server, config, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            // As much as may wait: more than the window.
            Call::Message(line) if &*line == b"pour" => {
                while cx.is_writable() {
                    cx.send("p".repeat(1_000).into()).expect("it is writable");
                }
                cx.pause();
                Outcome::Continue
            }
            call => echo(call, cx),
        }
    });
    let done = with_session::<S, M, _, _>(stage, &client, &to, config, |session| async move {
        let mut stuck = Vec::new();
        for _ in 0..20 {
            let mut channel = session.open(M::client_stream()).expect("a stream");
            channel.send("pour".into()).expect("the stream is open");
            // Not received by the server, which has paused.
            while channel.is_writable() {
                channel.send("q".repeat(1_000).into()).expect("it is writable");
            }
            stuck.push(channel);
        }
        let mut free = session.open(M::client_stream()).expect("a stream");
        for round in 0..50 {
            let line = format!("{round} {}", "f".repeat(2_000));
            assert_eq!(ask(&mut free, &line).await, line);
        }
        for channel in stuck {
            channel.abort();
        }
    });
    stage.outcome(&done);
    stage.until("all streams are closed", || server.counts().streams + client.counts().streams == 0);
}

pub(crate) fn an_end_leaves_the_other_side_of_the_stream_open<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || {
        let mut lines_received = Vec::new();
        move |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(line) => {
                lines_received.push(text(&line));
                Outcome::Continue
            }
            Call::Event(Event::ReadClosed) => {
                cx.send(lines_received.concat().into()).expect("our side is open");
                Outcome::Close
            }
            call => call.by_default(cx),
        }
    });
    let done = with_session::<S, M, _, _>(stage, &client, &to, NARROW, |session| async move {
        let mut channel = session.open(M::client_stream()).expect("a stream");
        for line in ["ebb", " and ", "flow"] {
            channel.send(line.into()).expect("our side is open");
        }
        channel.shutdown_write();
        assert!(channel.send("late".into()).is_err());
        assert_eq!(received(&mut channel).await, "ebb and flow");
        assert!(channel.recv().await.expect("all was in order").is_none());
        channel.close().await.expect("all was in order");
        // The session is as good as new.
        let mut channel = session.open(M::client_stream()).expect("a stream");
        channel.shutdown_write();
        assert_eq!(received(&mut channel).await, "");
    });
    stage.outcome(&done);
    assert_eq!(stage.reasons()[0], "done");
}

pub(crate) fn resets_arrive_with_their_code_on_either_side<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(line) if &*line == b"reset" => Outcome::Reset(77),
            call => echo(call, cx),
        }
    });
    let done = with_session::<S, M, _, _>(stage, &client, &to, NARROW, |session| async move {
        let mut channel = session.open(M::client_stream()).expect("a stream");
        assert_eq!(ask(&mut channel, "ebb").await, "ebb");
        channel.reset(1234);
        let mut channel = session.open(M::client_stream()).expect("a stream");
        channel.send("reset".into()).expect("the stream is open");
        match channel.recv().await {
            Err(ChannelError::Closed(reason)) => {
                assert!(matches!(*reason, CloseReason::StreamReset { code: 77, by_peer: true }), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        // The session is not affected.
        let mut channel = session.open(M::client_stream()).expect("a stream");
        assert_eq!(ask(&mut channel, "flow").await, "flow");
    });
    stage.outcome(&done);
    let reasons = stage.reasons();
    assert!(reasons.contains(&"the peer reset the stream with code 1234".to_owned()), "{reasons:?}");
    assert!(reasons.contains(&"the application reset the stream with code 77".to_owned()), "{reasons:?}");
}

/// Bytes received before both sides ended a stream can be read, whatever comes behind it.
pub(crate) fn a_reset_behind_the_end_takes_nothing_back<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(_) => {
                for number in 0..10 {
                    cx.send(format!("{number}").into()).expect("there is room");
                }
                // The peer's side is open: the session resets the stream behind our end.
                Outcome::Close
            }
            call => call.by_default(cx),
        }
    });
    let unit = stage.units(1);
    let done = with_session::<S, M, _, _>(stage, &client, &to, NARROW, move |session| async move {
        let mut channel = session.open(M::client_stream()).expect("a stream");
        channel.send("go".into()).expect("the stream is open");
        assert_eq!(received(&mut channel).await, "0");
        task::sleep(unit).await;
        for number in 1..10 {
            assert_eq!(received(&mut channel).await, format!("{number}"));
        }
    });
    stage.outcome(&done);
}

pub(crate) fn a_session_that_breaks_ends_all_of_its_streams<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || echo);
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    for number in 0..10 {
        open::<S, M>(&raw_peer, end, 1 + 2 * number);
    }
    stage.until("all are open", || server.counts().streams == 10);
    raw_peer.close(end, true);
    stage.until("all are closed", || server.counts().streams == 0 && server.counts().connections == 0);
    assert_eq!(stage.reasons().len(), 10);
    assert!(stage.reasons().iter().all(|reason| reason.contains("its session is closed")), "{:?}", stage.reasons());
}

pub(crate) fn a_drain_waits_for_streams_and_refuses_new_ones<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Event(Event::Drain) => Outcome::Continue,
            Call::Message(line) => {
                cx.send(line.into()).expect("there is room");
                if cx.is_draining() { Outcome::Close } else { Outcome::Continue }
            }
            call => call.by_default(cx),
        }
    });
    let opened = Rc::new(RefCell::new(None));
    let place = opened.clone();
    let ready = with_session::<S, M, _, _>(stage, &client, &to, NARROW, |session| async move {
        let mut channel = session.open(M::client_stream()).expect("a stream");
        assert_eq!(ask(&mut channel, "ebb").await, "ebb");
        *place.borrow_mut() = Some((session, channel));
    });
    stage.outcome(&ready);
    server.with(|event_loop| event_loop.drain(Duration::from_secs(3_600)));
    let place = opened.clone();
    let done = stage.start(&client, async move {
        let (session, mut channel) = place.take().expect("it was opened");
        while session.open(M::client_stream()).is_ok_and(drop_in_time) {
            task::sleep(Duration::from_millis(1)).await;
        }
        assert!(matches!(session.open(M::client_stream()), Err(SessionError::Open(OpenError::Ending))));
        assert_eq!(ask(&mut channel, "flow").await, "flow");
        assert!(channel.recv().await.expect("all was in order").is_none());
    });
    stage.outcome(&done);
    stage.until("the loop is drained", || server.is_drained());
}

/// A stream that was opened before the client knew of the drain.
fn drop_in_time<C: Lines>(channel: Channel<C>) -> bool {
    channel.abort();
    true
}

pub(crate) fn a_panic_ends_its_own_stream_only<S: Stack, M: Multiplexer>(stage: &Stage) {
    stage.expect_panics();
    let (server, client) = (stage.server(), stage.client());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(line) if &*line == b"panic" => panic_on_request(),
            call => echo(call, cx),
        }
    });
    let done = with_session::<S, M, _, _>(stage, &client, &to, NARROW, |session| async move {
        let [mut good, mut bad] =
            [session.open(M::client_stream()).expect("a stream"), session.open(M::client_stream()).expect("a stream")];
        assert_eq!(ask(&mut good, "ebb").await, "ebb");
        bad.send("panic".into()).expect("the stream is open");
        assert!(bad.recv().await.ok().flatten().is_none());
        assert_eq!(ask(&mut good, "flow").await, "flow");
    });
    stage.outcome(&done);
    stage.until("it is closed", || stage.reasons().contains(&"the handler panicked".to_owned()));
}

pub(crate) fn streams_that_come_and_go_leave_nothing<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client, unit) = (stage.server(), stage.client(), stage.units(1));
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || echo);
    let done = with_session::<S, M, _, _>(stage, &client, &to, NARROW, move |session| async move {
        for round in 0..20 {
            let mut channels: Vec<_> = (0..20).map(|_| session.open(M::client_stream()).expect("a stream")).collect();
            for channel in &mut channels {
                channel.send(format!("{round} {}", "s".repeat(300)).into()).expect("the stream is open");
            }
            if round == 10 {
                // The answers arrive, and are unread when the streams are closed.
                task::sleep(unit).await;
            }
            // Some are answered, some closed before, some reset.
            for (number, mut channel) in channels.into_iter().enumerate() {
                match number % 4 {
                    0 => channel.abort(),
                    1 => drop(channel),
                    2 => drop(channel.close().await),
                    _ => assert!(received(&mut channel).await.starts_with(&round.to_string())),
                }
            }
        }
        while session.streams() != Ok(0) {
            task::sleep(Duration::from_millis(1)).await;
        }
        let unconsumed = session.with_mux(|mux| mux.streams().unconsumed_bytes());
        assert_eq!(unconsumed, Ok(0), "bytes that hold the session's window");
    });
    stage.outcome(&done);
    stage.until("all streams are closed", || server.counts().streams + client.counts().streams == 0);
}

/// The window is granted again when the application requests the next message, not before.
pub(crate) fn a_message_at_work_holds_its_window<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let config = M::fit(ToyMuxConfig { stream_window: 1_000, session_window: 100_000, streams_max: 10 });
    let line_bytes = (config.stream_window - config.stream_window / 10 - 1) as usize;
    let worked = Rc::new(RefCell::new(Vec::new()));
    let (notes, unit) = (worked.clone(), stage.units(1));
    let mux = move || S::server_with(M::server(config));
    let to = stage.serve_streams(&server, limits(), mux, M::server_stream, move |mut channel: Channel<M::Server>| {
        let notes = notes.clone();
        async move {
            while let Some(line) = channel.recv().await? {
                notes.borrow_mut().push(line.len());
                task::sleep(unit).await;
            }
            Ok(())
        }
    });
    let seen = worked.clone();
    let done = with_session::<S, M, _, _>(stage, &client, &to, config, move |session| async move {
        let mut channel = session.open(M::client_stream()).expect("a stream");
        for _ in 0..4 {
            let position = channel.send("w".repeat(line_bytes).into()).expect("there is room");
            channel.flushed(position).await.expect("it is granted");
        }
        // The third message has left at the latest when the first one is done with, so two of them are at work.
        assert!(seen.borrow().len() >= 2, "{:?}", seen.borrow());
        channel.close().await.expect("all was in order");
    });
    stage.outcome(&done);
    stage.until("all have come", || worked.borrow().len() == 4);
}

pub(crate) fn a_stream_becomes_writable_again_when_it_is_granted_window<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    // The write deadline would dispatch the stream as well.
    let limits = Limits { write_timeout: Duration::from_secs(10 * 86_400), ..limits() };
    let to = listen::<S, M, _>(stage, &server, NARROW, limits, || {
        let mut left = 0;
        move |call: Call, cx: &mut Cx<'_, M::Server>| {
            match call {
                Call::Message(_) => left = 200,
                Call::Event(Event::Writable) => {}
                call => return call.by_default(cx),
            }
            while left > 0 && cx.is_writable() {
                left -= 1;
                cx.send(format!("{left:0>999}").into()).expect("it is writable");
            }
            Outcome::Continue
        }
    });
    let done = with_session::<S, M, _, _>(stage, &client, &to, NARROW, |session| async move {
        let mut channel = session.open(M::client_stream()).expect("a stream");
        channel.send("go".into()).expect("the stream is open");
        for left in (0..200).rev() {
            assert_eq!(received(&mut channel).await, format!("{left:0>999}"));
        }
    });
    stage.outcome(&done);
}

pub(crate) fn deadlines_and_posts_reach_streams<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let (remote, unit) = (Rc::new(RefCell::new(None)), stage.units(1));
    let place = remote.clone();
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), move || {
        let place = place.clone();
        move |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(_) => {
                cx.deadline_after(unit);
                Outcome::Continue
            }
            Call::Event(Event::Deadline) => {
                *place.borrow_mut() = Some(cx.remote());
                cx.send("late".into()).into()
            }
            Call::Event(Event::Posted(post)) => cx.send(format!("posted {post}").into()).into(),
            call => call.by_default(cx),
        }
    });
    let done = with_session::<S, M, _, _>(stage, &client, &to, NARROW, move |session| async move {
        let mut channel = session.open(M::client_stream()).expect("a stream");
        assert_eq!(ask(&mut channel, "wait").await, "late");
        remote.borrow().as_ref().expect("it was stored").post(5).expect("the stream is there");
        assert_eq!(received(&mut channel).await, "posted 5");
        let peer = channel.peer().expect("it is open");
        assert!(peer.ip().is_some(), "the address of the session: {peer}");
        channel.local().expect("the session has a socket");
    });
    stage.outcome(&done);
}

// Peers that break the protocol, or use it up.

/// Connects a raw client, whose windows are those of `config`.
pub(crate) fn connect<S: Stack, M: Multiplexer>(
    stage: &Stage,
    raw_peer: &RawPeer,
    to: &Address,
    config: ToyMuxConfig,
) -> usize {
    let end = stage.connect::<S>(raw_peer, to);
    raw_peer.send(end, &S::encoded(&M::hello(config)));
    end
}

pub(crate) fn open<S: Stack, M: Multiplexer>(raw_peer: &RawPeer, end: usize, id: u32) {
    raw_peer.send(end, &S::encoded(&M::frame(OPEN, 0, id, &[3])));
}

/// The frames of a server so far.
pub(crate) fn frames<S: Stack, M: Multiplexer>(raw_peer: &RawPeer, end: usize) -> Rc<[Frame]> {
    raw_peer.frames(end, |bytes| M::frames(&S::decoded(bytes)))
}

/// Bytes that the server has sent on a stream.
fn data<S: Stack, M: Multiplexer>(raw_peer: &RawPeer, end: usize, id: u32) -> usize {
    let frames = frames::<S, M>(raw_peer, end);
    frames.iter().filter(|(kind, _, stream, _)| (*kind, *stream) == (DATA, id)).map(|frame| frame.3.len()).sum()
}

pub(crate) fn more_streams_than_allowed_are_refused<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let config = ToyMuxConfig { streams_max: 3, ..NARROW };
    let to = listen::<S, M, _>(stage, &server, config, limits(), || echo);
    let end = connect::<S, M>(stage, &raw_peer, &to, config);
    for number in 0..100 {
        open::<S, M>(&raw_peer, end, 1 + 2 * number);
        raw_peer.send(end, &S::encoded(&M::frame(DATA, 0, 1 + 2 * number, b"ebb\n")));
    }
    raw_peer.send(end, &S::encoded(&M::frame(PING, 0, 0, b"last")));
    stage.until("all was read", || frames::<S, M>(&raw_peer, end).iter().any(|frame| frame.0 == PING));
    let frames = frames::<S, M>(&raw_peer, end);
    let refused = frames.iter().filter(|frame| frame.0 == RESET).map(|frame| (frame.2, &*frame.3));
    assert!(refused.eq((3..100).map(|number| (1 + 2 * number, &REFUSED[..]))));
    assert_eq!((server.counts().streams, stage.life().made()), (3, 3));
    stage.until("the others are answered", || [1, 3, 5].map(|id| data::<S, M>(&raw_peer, end, id)) == [4; 3]);
}

pub(crate) fn a_flood_of_streams_reset_at_once_ends_the_session<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || echo);
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    for number in 0..300 {
        open::<S, M>(&raw_peer, end, 1 + 2 * number);
        raw_peer.send(end, &S::encoded(&M::frame(RESET, 0, 1 + 2 * number, &[0; 4])));
    }
    // A multiplexer may end the session in order, if a stream is open when its limit is reached.
    let ends = || server.counts().closed_protocol + server.counts().closed_done;
    stage.until("the session ends", || ends() == 1);
    assert!(stage.life().made() < 250, "{} streams", stage.life().made());
    assert_eq!(server.counts().streams, 0);
}

pub(crate) fn bytes_to_a_closed_stream_hold_no_window<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Open => Outcome::Reset(9),
            call => call.by_default(cx),
        }
    });
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    open::<S, M>(&raw_peer, end, 1);
    stage.until("it is reset", || frames::<S, M>(&raw_peer, end).iter().any(|frame| frame.0 == RESET));
    // Ten times the session's window in all, as the server grants it.
    let half = vec![b'd'; M::fit(NARROW).session_window as usize / 2];
    let count_updates = || {
        let frames = frames::<S, M>(&raw_peer, end);
        frames.iter().filter(|frame| (frame.0, frame.2) == (WINDOW, 0)).count()
    };
    let before = count_updates();
    for round in 1..=20 {
        raw_peer.send(end, &S::encoded(&M::frame(DATA, 0, 1, &half)));
        stage.until("the session's window is granted again", || count_updates() == before + round);
    }
    // Nor do an end, a reset and credit for it have an effect.
    for (kind, payload) in [(DATA, &b""[..]), (RESET, &[0; 4]), (WINDOW, &[0, 0, 1, 0])] {
        raw_peer.send(end, &S::encoded(&M::frame(kind, u8::from(kind == DATA), 1, payload)));
    }
    open::<S, M>(&raw_peer, end, 3);
    stage.until("the session goes on", || {
        frames::<S, M>(&raw_peer, end).iter().filter(|frame| frame.0 == RESET).count() == 2
    });
    assert_eq!(server.counts().connections, 1);
}

/// A server that sends without end on every stream.
fn pour<C: Lines>(call: Call, cx: &mut Cx<'_, C>) -> Outcome<C> {
    match call {
        Call::Open | Call::Event(Event::Writable) => {
            while cx.is_writable() {
                cx.send("p".repeat(999).into()).expect("it is writable");
            }
            Outcome::Continue
        }
        call => call.by_default(cx),
    }
}

pub(crate) fn a_peer_that_grants_nothing_loses_its_stream_in_time<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let limits = Limits { write_timeout: stage.units(3), write_rate_min: 0, ..limits() };
    let to = listen::<S, M, _>(stage, &server, NARROW, limits, || pour);
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    open::<S, M>(&raw_peer, end, 1);
    assert!(stage.reason(1).contains("too few bytes"), "{:?}", stage.reasons());
    assert_eq!(data::<S, M>(&raw_peer, end, 1), NARROW.stream_window as usize, "the window, and no more");
    stage.until("the peer is notified", || {
        frames::<S, M>(&raw_peer, end).iter().any(|frame| (frame.0, frame.2) == (RESET, 1))
    });
    // The session takes no harm.
    raw_peer.send(end, &S::encoded(&M::frame(PING, 0, 0, b"alive")));
    stage.until("the session goes on", || frames::<S, M>(&raw_peer, end).iter().any(|frame| frame.0 == PING));
    assert_eq!((server.counts().connections, server.counts().streams), (1, 0));
}

/// The deadline for the peer to take bytes ends with the bytes.
pub(crate) fn a_stream_that_has_sent_all_is_not_late<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let limits = Limits { write_timeout: stage.units(3), ..limits() };
    let to = listen::<S, M, _>(stage, &server, NARROW, limits, || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Open => cx.send("welcome".into()).into(),
            call => call.by_default(cx),
        }
    });
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    open::<S, M>(&raw_peer, end, 1);
    stage.until("all was sent", || data::<S, M>(&raw_peer, end, 1) == 8);
    stage.rest(stage.units(8));
    assert_eq!(server.counts().streams, 1, "{:?}", stage.reasons());
}

pub(crate) fn a_peer_that_grants_byte_by_byte_gets_them_so<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || pour);
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    open::<S, M>(&raw_peer, end, 1);
    let window = NARROW.stream_window as usize;
    stage.until("the window is used up", || data::<S, M>(&raw_peer, end, 1) == window);
    for more in 1..=100 {
        raw_peer.send(end, &S::encoded(&M::frame(WINDOW, 0, 1, &[0, 0, 0, 1])));
        stage.until("a byte comes", || data::<S, M>(&raw_peer, end, 1) >= window + more);
    }
    assert_eq!(data::<S, M>(&raw_peer, end, 1), window + 100);
    assert!(server.used() < 200_000, "{} bytes", server.used());
}

pub(crate) fn a_peer_that_ignores_windows_ends_its_session<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Open => {
                cx.pause();
                Outcome::Continue
            }
            call => call.by_default(cx),
        }
    });
    let ToyMuxConfig { stream_window, session_window, .. } = M::fit(NARROW);
    let data = |id, bytes: u32| (DATA, id, vec![b'd'; bytes as usize]);
    let beyond_stream = vec![data(1, stream_window + 1)];
    let third = session_window / 3 + 1;
    let beyond_session = vec![data(1, third), data(3, third), data(5, third)];
    let overflow_stream = vec![(WINDOW, 1, vec![0x7f, 0xff, 0xff, 0xff])];
    let overflow_session = vec![(WINDOW, 0, vec![0xff, 0xff, 0xff, 0xff])];
    let idle = vec![data(7, 1)];
    let mut attacks = vec![beyond_stream, overflow_session, idle];
    if M::HAS_FIXED_WINDOWS {
        attacks.extend([beyond_session, overflow_stream]);
    }
    for (count, attack) in attacks.iter().enumerate() {
        let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
        for id in [1, 3, 5] {
            open::<S, M>(&raw_peer, end, id);
        }
        for (kind, id, payload) in attack {
            raw_peer.send(end, &S::encoded(&M::frame(*kind, 0, *id, payload)));
        }
        stage.until("the session ends", || server.counts().closed_protocol == count as u64 + 1);
        assert_eq!(server.counts().streams, 0, "{attack:?}");
    }
}

/// Whatever its applications do, a session reads control frames.
pub(crate) fn a_session_reads_whatever_its_applications_do<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Open => {
                cx.pause();
                pour(Call::Open, cx)
            }
            call => call.by_default(cx),
        }
    });
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    for number in 0..10 {
        let id = 1 + 2 * number;
        open::<S, M>(&raw_peer, end, id);
        raw_peer.send(end, &S::encoded(&M::frame(DATA, 0, id, &[b'd'; 1_500])));
    }
    stage.until("the session's window is used up", || {
        (0..10).map(|number| data::<S, M>(&raw_peer, end, 1 + 2 * number)).sum::<usize>()
            == M::fit(NARROW).session_window as usize
    });
    for number in 0..20_u8 {
        raw_peer.send(end, &S::encoded(&M::frame(PING, 0, 0, &[number])));
        stage.until("it is answered", || {
            frames::<S, M>(&raw_peer, end).iter().filter(|frame| frame.0 == PING).count() > usize::from(number)
        });
    }
    assert_eq!(server.counts().messages, 0, "messages that paused streams received");
}

/// Urgent streams come first, and those of one urgency take turns.
pub(crate) fn urgent_streams_overtake_others<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let config = ToyMuxConfig { streams_max: 10, ..M::closed_windows(1 << 18) };
    let to = listen::<S, M, _>(stage, &server, config, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Open => {
                cx.send("u".repeat(39_999).into()).expect("there is room");
                Outcome::Continue
            }
            call => call.by_default(cx),
        }
    });
    let end = connect::<S, M>(stage, &raw_peer, &to, config);
    for (id, urgency) in [(1, 5), (3, 5), (5, 1), (7, 0)] {
        raw_peer.send(end, &S::encoded(&M::frame(OPEN, 0, id, &[urgency])));
    }
    stage.until("all are open", || server.counts().streams == 4);
    raw_peer.send(end, &S::encoded(&M::open_windows(1 << 18)));
    stage.until("all has come", || [1, 3, 5, 7].iter().all(|id| data::<S, M>(&raw_peer, end, *id) == 40_000));
    let frames = frames::<S, M>(&raw_peer, end);
    let mut order: Vec<_> = frames.iter().filter(|frame| frame.0 == DATA).map(|frame| frame.2).collect();
    order.dedup();
    assert_eq!(order, [7, 5, 1, 3, 1, 3, 1, 3]);
}
