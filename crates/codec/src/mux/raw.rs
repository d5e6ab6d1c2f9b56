//! `RawStreams`: a multiplexing protocol as an ordinary codec, for an application that takes the events of all streams.

use std::convert::Infallible;
use std::time::Instant;

use tidegate_buffer::{Input, Outbound};

use super::{Mux, ResetCause, StreamEvent, StreamKey, StreamQueues, transmit};
use crate::codec::{Codec, CodecStatus, Lifecycle, Step};
use crate::framing::Payload;
use crate::output::Output;

/// A command of an application to a stream of [`RawStreams`].
#[derive(Debug)]
pub enum StreamCommand {
    /// Sends bytes, as far as the windows allow; the others wait, and count as buffered.
    Data(StreamKey, Payload),
    /// Sends no more: the end follows the bytes that wait.
    End(StreamKey),
    /// Resets the stream.
    Reset(StreamKey, ResetCause),
    /// Grants the bytes of an event again, since the application has no further use for them.
    Consumed(StreamKey, u32),
}

/// The codec `M` with the queues of its streams: its messages are the events of all streams, by number.
///
/// An application on it has one connection, whose water marks the bytes of all streams share. The engine itself gives
/// each stream of a [`Mux`] its own application, with its own marks.
#[derive(Debug)]
pub struct RawStreams<M> {
    mux: M,
    queues: Queues,
}

#[derive(Debug, Default)]
struct Queues {
    /// By the places of the streams.
    queues: Vec<Queue>,
    bytes: usize,
    /// Places of streams whose end was written.
    ended: Vec<u32>,
}

#[derive(Debug, Default)]
struct Queue {
    outbound: Outbound,
    ends: bool,
}

impl StreamQueues for Queues {
    fn with(&mut self, owner: [u32; 2], act: impl FnOnce(&mut Outbound, bool) -> bool) {
        let Some(queue) = self.queues.get_mut(owner[0] as usize) else { return };
        let before = queue.outbound.cost();
        if act(&mut queue.outbound, queue.ends) && std::mem::take(&mut queue.ends) {
            self.ended.push(owner[0]);
        }
        self.bytes -= (before - queue.outbound.cost()) as usize;
    }
}

impl<M: Mux> RawStreams<M> {
    /// The protocol `mux`, with the events of all its streams as messages.
    #[must_use]
    pub fn new(mux: M) -> Self {
        Self { mux, queues: Queues::default() }
    }

    /// The protocol.
    pub fn mux(&self) -> &M {
        &self.mux
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// As [`Mux::open`].
    pub fn open(&mut self, out: &mut Output<'_>) -> Result<StreamKey, super::OpenError> {
        let key = self.mux.open(out)?;
        self.add(key);
        Ok(key)
    }

    fn add(&mut self, key: StreamKey) {
        let index = key.index() as usize;
        if index >= self.queues.queues.len() {
            self.queues.queues.resize_with(index + 1, Queue::default);
        }
        self.mux.streams_mut().set_owner(key, [key.index(), 0]);
    }

    fn close(&mut self, key: StreamKey) {
        if let Some(queue) = self.queues.queues.get_mut(key.index() as usize) {
            self.queues.bytes -= queue.outbound.cost() as usize;
            *queue = Queue::default();
        }
        self.mux.streams_mut().close(key);
        if self.mux.streams().is_empty() {
            self.queues.queues = Vec::new();
        }
    }

    fn transmit(&mut self, out: &mut Output<'_>) {
        transmit(&mut self.mux, &mut self.queues, u64::MAX, out);
        while let Some(index) = self.queues.ended.pop() {
            if let Some(key) = self.mux.streams().at(index)
                && self.mux.streams().has_ended(key)
            {
                self.close(key);
            }
        }
    }

    fn on_event(&mut self, step: Step<StreamEvent>, out: &mut Output<'_>) -> Step<StreamEvent> {
        match &step {
            Step::Message(StreamEvent::Opened(key)) => self.add(*key),
            Step::Message(StreamEvent::Reset { stream, .. }) => self.close(*stream),
            Step::Message(StreamEvent::Ended(key)) if self.mux.streams().has_ended(*key) => self.close(*key),
            _ => {}
        }
        self.transmit(out);
        step
    }
}

impl<M: Mux<Out = Infallible>> Codec for RawStreams<M> {
    type In = StreamEvent;
    type Out = StreamCommand;
    type Error = M::Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<StreamEvent>, M::Error> {
        let step = self.mux.decode(input, reply)?;
        Ok(self.on_event(step, reply))
    }

    /// A command for a stream that is closed has no effect.
    fn encode(&mut self, command: StreamCommand, out: &mut Output<'_>) -> Result<(), M::Error> {
        let (StreamCommand::Data(key, _)
        | StreamCommand::End(key)
        | StreamCommand::Reset(key, _)
        | StreamCommand::Consumed(key, _)) = command;
        if self.mux.streams().owner(key).is_none() {
            return Ok(());
        }
        match command {
            StreamCommand::Data(_, payload) => {
                let queue = &mut self.queues.queues[key.index() as usize];
                let before = queue.outbound.cost();
                payload.write_bare(&mut out.with_queue(&mut queue.outbound));
                self.queues.bytes += (queue.outbound.cost() - before) as usize;
                self.mux.streams_mut().set_ready(key);
            }
            StreamCommand::End(_) => {
                self.queues.queues[key.index() as usize].ends = true;
                self.mux.streams_mut().set_ready(key);
            }
            StreamCommand::Reset(_, cause) => {
                self.mux.write_reset(key, cause, out);
                self.close(key);
            }
            StreamCommand::Consumed(_, bytes) => self.mux.streams_mut().consume(key, bytes),
        }
        self.transmit(out);
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<StreamEvent>, M::Error> {
        let step = self.mux.decode_eof(input, reply)?;
        Ok(self.on_event(step, reply))
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), M::Error> {
        self.mux.on(event, out)
    }

    fn status(&self) -> CodecStatus {
        let status = self.mux.status();
        CodecStatus { buffered_bytes: status.buffered_bytes + self.queues.bytes, ..status }
    }

    fn kept_bytes(&self) -> usize {
        self.mux.kept_bytes()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.mux.poll_timeout()
    }

    fn handle_timeout(&mut self, input: &Input, reply: &mut Output<'_>) -> Result<(), M::Error> {
        self.mux.handle_timeout(input, reply)
    }

    fn is_between_messages(&self) -> bool {
        self.mux.is_between_messages()
    }
}
