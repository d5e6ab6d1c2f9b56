//! Bytes come back as they were sent: whole, in pieces, with pauses, to many at once, between handlers and channels.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::framing::Payload;
use tidegate_engine::{Channel, ChannelError, Client, Event, Limits, Outcome, task};
use tidegate_sys::Address;

use crate::caller::Caller;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Served, Stage};

/// Sends every message back.
pub(crate) fn echo<S: Stack>(call: Call, cx: &mut Cx<'_, S::Codec>) -> Outcome<S::Codec> {
    match call {
        Call::Message(message) => cx.send(message.into()).into(),
        call => call.by_default(cx),
    }
}

/// Sends every message back, as a task.
pub(crate) async fn echo_task<S: Stack>(mut channel: Channel<S::Codec>) -> Served {
    while let Some(message) = channel.recv().await? {
        channel.ready().await?;
        channel.send(message.into()).map_err(|_| "refused")?;
    }
    Ok(())
}

/// Bytes that identify their position: row by row, each row another. They repeat after 256 rows, so these are copied: a
/// computation for each byte of megabytes takes most of the time of a test without optimisation.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    static ROWS: OnceLock<Vec<u8>> = OnceLock::new();
    let rows = ROWS.get_or_init(|| (0..=255_u8).flat_map(|row| (0..251_u8).map(move |column| column ^ row)).collect());
    let mut bytes = rows.repeat(length / rows.len());
    bytes.extend_from_slice(&rows[..length % rows.len()]);
    bytes
}

/// Sends bytes in pieces, shuts down, and returns the bytes that came back until the other side's end.
pub(crate) async fn exchange<S: Stack>(to: Address, bytes: Vec<u8>, piece: usize) -> Result<Vec<u8>, String> {
    let channel = Client::at(to).connect(S::client()).await.map_err(|error| error.to_string())?;
    let (mut reader, mut writer) = channel.split();
    let sending = task::spawn(async move {
        for piece in bytes.chunks(piece) {
            writer.ready().await.map_err(|error| error.to_string())?;
            let mark = writer.send(Payload::from(piece.to_vec())).map_err(|error| error.to_string())?;
            if piece.len() == 1 {
                writer.flushed(mark).await.map_err(|error| error.to_string())?;
            }
        }
        writer.shutdown_write();
        Ok::<_, String>(writer)
    });
    let mut come = Vec::new();
    while let Some(bytes) = reader.recv().await.map_err(|error| error.to_string())? {
        come.extend_from_slice(&bytes);
    }
    drop(sending.await.map_err(|error| error.to_string())??);
    Ok(come)
}

/// Bytes are sent to a server in pieces, and have to come back.
fn come_back<S: Stack>(stage: &Stage, to: Address, length: usize, piece: usize) {
    let client = stage.client();
    let bytes = pattern(length);
    let started = stage.start(&client, exchange::<S>(to, bytes.clone(), piece));
    assert!(stage.outcome(&started).expect("nothing breaks") == bytes, "other bytes came back");
}

fn echoes<S: Stack>(stage: &Stage, length: usize, piece: usize) {
    let server = stage.server();
    let to = stage.listen(&server, Limits::default(), S::server, || echo::<S>);
    come_back::<S>(stage, to, length, piece);
}

pub(crate) fn comes_back_whole<S: Stack>(stage: &Stage) {
    echoes::<S>(stage, 100_000, 100_000);
}

pub(crate) fn comes_back_byte_by_byte<S: Stack>(stage: &Stage) {
    echoes::<S>(stage, 60, 1);
}

pub(crate) fn comes_back_though_no_buffer_holds_it<S: Stack>(stage: &Stage) {
    echoes::<S>(stage, stage.bulk(), 10_000);
}

pub(crate) fn comes_back_to_a_channel<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let to = stage.serve(&server, Limits::default(), S::server, echo_task::<S>);
    come_back::<S>(stage, to, 50_000, 3000);
}

pub(crate) fn comes_back_to_a_raw_peer_in_random_pieces<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let to = stage.listen(&server, Limits::default(), S::server, || echo::<S>);
    let caller = Caller::<S>::new(stage, &to);
    let mut random = stage.random();
    let bytes = pattern(10_000);
    let wire = S::encoded(&bytes);
    let mut rest = &wire[..];
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(1 + random.below(1000)));
        caller.send(piece);
        if random.once_in(3) {
            stage.rest(MOMENT);
        }
        rest = behind;
    }
    caller.end(stage);
    assert!(caller.all_received(stage) == bytes, "other bytes came back");
}

pub(crate) fn comes_back_to_each_of_many<S: Stack>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let to = stage.listen(&server, Limits::default(), S::server, || echo::<S>);
    let all: Vec<_> = (0..MANY).map(|caller| pattern(300 + caller)[caller..].to_vec()).collect();
    let started = all.iter().map(|bytes| stage.start(&client, exchange::<S>(to.clone(), bytes.clone(), 200)));
    for (bytes, started) in all.iter().zip(started.collect::<Vec<_>>()) {
        assert!(stage.outcome(&started).expect("nothing breaks") == *bytes, "another connection's bytes came back");
    }
    assert_eq!(server.counts().accepted, MANY as u64);
}

pub(crate) fn comes_back_though_a_handler_pauses<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let to = stage.listen(&server, Limits::default(), S::server, || {
        |call, cx: &mut Cx<'_, S::Codec>| match call {
            Call::Message(message) => {
                cx.pause();
                cx.deadline_after(MOMENT);
                cx.send(message.into()).into()
            }
            Call::Event(Event::Deadline) => {
                cx.resume();
                Outcome::Continue
            }
            call => call.by_default(cx),
        }
    });
    come_back::<S>(stage, to, 50_000, 3000);
}

/// Between messages, and in the middle of waiting for one.
pub(crate) fn comes_back_though_a_channel_pauses<S: Stack>(stage: &Stage) {
    async fn serve<S: Stack>(mut channel: Channel<S::Codec>) -> Served {
        loop {
            let come = match channel.recv().within(MOMENT).await {
                Err(ChannelError::Deadline) => None,
                come => Some(come?),
            };
            channel.pause();
            task::sleep(MOMENT).await;
            channel.resume();
            match come {
                None => {}
                Some(None) => return Ok(()),
                Some(Some(message)) => drop(channel.send(message.into()).map_err(|_| "refused")?),
            }
        }
    }
    let server = stage.server();
    let to = stage.serve(&server, Limits::default(), S::server, serve::<S>);
    come_back::<S>(stage, to, 50_000, 3000);
}

/// The record of a handler at the client's end.
#[derive(Clone, Default)]
struct Come {
    bytes: Rc<RefCell<Vec<u8>>>,
    over: Rc<Cell<bool>>,
}

/// Sends its bytes while the connection is writable, shuts down, and stores the bytes that come back.
fn ask<S: Stack>(come: &Come, bytes: &[u8]) -> impl FnMut(Call, &mut Cx<'_, S::Codec>) -> Outcome<S::Codec> + 'static {
    let (come, mut left) = (come.clone(), Bytes::copy_from_slice(bytes));
    move |call, cx| {
        match call {
            Call::Message(message) => come.bytes.borrow_mut().extend_from_slice(&message),
            Call::Event(Event::ReadClosed) => {
                come.over.set(true);
                return Outcome::Close;
            }
            _ => {}
        }
        while cx.is_writable() && !left.is_empty() {
            let piece = left.split_to(left.len().min(3000));
            if let Err(error) = cx.send(piece.into()) {
                return Outcome::fail(error);
            }
            if left.is_empty() {
                cx.shutdown_write();
            }
        }
        Outcome::Continue
    }
}

/// A handler sends the requests; a handler or a channel answers.
fn comes_back_to_a_handler<S: Stack>(stage: &Stage, to: Address) {
    let client = stage.client();
    let (come, bytes) = (Come::default(), pattern(60_000));
    let probe = stage.probe(ask::<S>(&come, &bytes));
    let connected = stage.start(&client, async move { Client::at(to).connect_with(S::client(), probe).await.is_ok() });
    assert!(stage.outcome(&connected), "connecting succeeds");
    stage.until("the answer has ended", || come.over.get());
    assert!(*come.bytes.borrow() == bytes, "other bytes came back");
    stage.until("the client is done", || client.counts().closed_done == 1);
}

pub(crate) fn comes_back_from_a_handler_to_a_handler<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let to = stage.listen(&server, Limits::default(), S::server, || echo::<S>);
    comes_back_to_a_handler::<S>(stage, to);
}

pub(crate) fn comes_back_from_a_channel_to_a_handler<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let to = stage.serve(&server, Limits::default(), S::server, echo_task::<S>);
    comes_back_to_a_handler::<S>(stage, to);
}

/// Connections at once.
const MANY: usize = 50;

/// A time that is short on every backend.
const MOMENT: Duration = Duration::from_millis(1);
