//! Bytes come back as they were sent, whole, in pieces, with pauses.

use std::cell::Cell;
use std::rc::Rc;

use tidegate_codec::framing::Payload;
use tidegate_engine::{Channel, Client, Event, Limits, Outcome};
use tidegate_sys::Address;

use crate::stack::Stack;
use crate::stage::{Cx, Served, Stage, Told};

/// Sends every message back.
pub(crate) fn echo<S: Stack>(told: Told, cx: &mut Cx<'_, S::Codec>) -> Outcome<S::Codec> {
    match told {
        Told::Message(message) => cx.send(message.into()).into(),
        told => told.by_default(cx),
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

/// Bytes that tell where they belong.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8 ^ (index / 251) as u8).collect()
}

/// Sends bytes in pieces, ends, and says what came back by the end of the other side.
pub(crate) async fn exchange<S: Stack>(to: Address, bytes: Vec<u8>, piece: usize) -> Result<Vec<u8>, String> {
    let channel = Client::at(to).connect(S::client()).await.map_err(|error| error.to_string())?;
    let (mut reader, mut writer) = channel.split();
    let sending = tidegate_engine::task::spawn(async move {
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

fn echoes<S: Stack>(stage: &Stage, length: usize, piece: usize) {
    let (server, client) = (stage.server(), stage.client());
    let to = stage.listen(&server, Limits::default(), S::server, || echo::<S>);
    let bytes = pattern(length);
    let started = stage.start(&client, exchange::<S>(to, bytes.clone(), piece));
    assert!(stage.outcome(&started).expect("nothing breaks") == bytes, "other bytes came back");
}

pub(crate) fn comes_back_whole<S: Stack>(stage: &Stage) {
    echoes::<S>(stage, 100_000, 100_000);
}

pub(crate) fn comes_back_byte_by_byte<S: Stack>(stage: &Stage) {
    echoes::<S>(stage, 60, 1);
}

pub(crate) fn comes_back_to_a_channel<S: Stack>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let to = stage.serve(&server, Limits::default(), S::server, echo_task::<S>);
    let bytes = pattern(50_000);
    let started = stage.start(&client, exchange::<S>(to, bytes.clone(), 3000));
    assert!(stage.outcome(&started).expect("nothing breaks") == bytes, "other bytes came back");
}
