//! A client with a connection of its own for good: a subscriber, or one whose commands depend on the connection in other
//! ways. Commands and replies pass through in both directions.

use std::pin::pin;

use futures_util::future::{Either, select};
use tidegate::redis::{
    ClientCodec, Command, CommandBuffer, IncomingCommand, IncomingReply, OutgoingCommand, OutgoingReply,
    ProtocolLimits, ReplyWriter, ServerCodec, Value, Version,
};
use tidegate::{Channel, Client, ReadHalf, WriteHalf};

use crate::Any;
use crate::upstream::{ConnectionKey, Upstream, error_for};

/// Serves the client until either side ends. `first` is the command that needs it.
pub(crate) async fn relay(
    mut near: Channel<ServerCodec>,
    upstream: &Upstream,
    key: ConnectionKey,
    first: &Command,
) -> Result<(), Any> {
    let mut far = match connect(upstream, key).await {
        Ok(far) => far,
        Err(error) => {
            near.send(error_for(&*error))?;
            return Ok(near.close().await?);
        }
    };
    far.send(CommandBuffer::from(first).into())?;
    let (near_reader, near_writer) = near.split();
    let (far_reader, far_writer) = far.split();
    let commands = pin!(pass_commands(near_reader, far_writer));
    let replies = pin!(pass_replies(far_reader, near_writer));
    match select(commands, replies).await {
        // The client sends nothing more, and may still read.
        Either::Left((Ok(()), replies)) => replies.await,
        Either::Left((end, _)) | Either::Right((end, _)) => end,
    }
}

/// A connection in the state that the client expects.
async fn connect(upstream: &Upstream, key: ConnectionKey) -> Result<Channel<ClientCodec>, Any> {
    let limits = ProtocolLimits { whole_bytes_max: 64 << 10, ..ProtocolLimits::default() };
    let mut far = Client::to(&upstream.target)?.connect(ClientCodec::new(limits)).await?;
    far.ignore_drain();
    let password = upstream.password.as_ref().map(|password| CommandBuffer::new("AUTH").arg(password));
    let hello = (key.version == Version::Resp3).then(|| CommandBuffer::new("HELLO").arg("3"));
    let select = (key.database != 0).then(|| CommandBuffer::new("SELECT").arg(key.database.to_string()));
    for command in [password, hello, select].into_iter().flatten() {
        far.send(command.into())?;
        match far.recv().await?.ok_or("the upstream has closed the connection")? {
            IncomingReply::Reply(reply) => match reply.value() {
                Value::Error(text) => return Err(String::from_utf8_lossy(text).into()),
                _ => continue,
            },
            _ => return Err("the upstream has sent no reply".into()),
        }
    }
    Ok(far)
}

async fn pass_commands(mut near: ReadHalf<ServerCodec>, mut far: WriteHalf<ClientCodec>) -> Result<(), Any> {
    while let Some(command) = near.recv().await? {
        match command {
            IncomingCommand::Whole(command) => far.send(CommandBuffer::from(&command).into())?,
            IncomingCommand::Begin(arguments) => far.send(OutgoingCommand::Begin(arguments))?,
            IncomingCommand::Argument(bytes) => far.send(OutgoingCommand::ArgumentHead(bytes))?,
            IncomingCommand::Data(bytes) => far.send(OutgoingCommand::Data(bytes.into()))?,
            _ => continue,
        };
        far.ready().await?;
    }
    far.shutdown_write();
    Ok(())
}

/// A subscriber that reads too slowly is not read for, so the upstream disconnects it by its own bound.
async fn pass_replies(mut far: ReadHalf<ClientCodec>, mut near: WriteHalf<ServerCodec>) -> Result<(), Any> {
    let mut writer = ReplyWriter::default();
    while let Some(reply) = far.recv().await? {
        let bytes = match reply {
            IncomingReply::Reply(reply) | IncomingReply::Push(reply) => reply.wire().clone().into(),
            IncomingReply::Piece(piece) => {
                let mut bytes = Vec::new();
                writer.write(&piece, &mut bytes);
                bytes.into()
            }
            _ => continue,
        };
        near.send(OutgoingReply::Wire(bytes))?;
        near.ready().await?;
    }
    Ok(())
}
