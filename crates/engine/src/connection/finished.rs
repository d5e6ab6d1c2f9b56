//! A stream whose response is complete and waits for the window of its peer: it gives up its codec and its handler.
//!
//! Such a stream has nothing left but its queue, whose bytes are those of the wire. The peer decides how long that takes, so
//! the stream keeps its [`Link`], which has the queue, its deadlines and its end, and no other memory. If the queue is short, it
//! is *parked* as well (`parked.rs`).

use std::convert::Infallible;

use tidegate_codec::{Codec, CodecStatus, Input, Output, Pipeline, Step};

use super::application::{Application, LastCall, MessageReader, SessionHooks};
use super::closing::WriteSide;
use super::parked::ParkedStream;
use super::{Connection, Link};
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::handler::{Event, Outcome};
use crate::slot_entry::{Reduction, SlotEntry};
use crate::unwind::catch_and_log;

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    /// The function that takes the codec and the application of this stream away, if nothing needs them.
    pub(super) fn finished_reduction(&self) -> Option<Reduction> {
        if A::IS_FINISHED {
            return Some(ParkedStream::park);
        }
        let is_finished = A::IS_HANDLER
            && self.link.is_stream()
            && self.link.is_closing()
            && self.link.write_side() == WriteSide::Flushing
            && !self.link.has_write_failed()
            && self.codec.is_established()
            && self.codec.buffered_bytes() == 0;
        if !is_finished {
            return None;
        }
        let status = self.codec.status();
        (status.is_finished && !status.is_close_delimited).then_some(Self::reduced as Reduction)
    }

    /// The stream without its codec, and without its application unless that observes the end of the stream.
    fn reduced(entry: Box<dyn SlotEntry>) -> Box<dyn SlotEntry> {
        let connection = entry.into_any().downcast::<Self>().expect("the connection offers this itself");
        let Self { mut link, codec, application } = *connection;
        link.stop_watching();
        let last_call = application.into_last_call();
        catch_and_log(move || drop(codec));
        ParkedStream::park(Box::new(FinishedConnection::finished(link, FinishedApplication(last_call))))
    }
}

/// A stream that has its queue left.
pub(super) type FinishedConnection = Connection<FinishedCodec, FinishedApplication>;

impl FinishedConnection {
    pub(super) fn finished(link: Link, application: FinishedApplication) -> Self {
        Self { link, codec: FinishedCodec, application }
    }

    pub(super) fn into_finished(self) -> (Link, FinishedApplication) {
        (self.link, self.application)
    }
}

/// The codec of a stream whose bytes are all in its queue.
pub(super) struct FinishedCodec;

impl Codec for FinishedCodec {
    type In = Infallible;
    type Out = Infallible;
    type Error = Infallible;

    fn decode(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<Step<Infallible>, Infallible> {
        Ok(Step::End)
    }

    fn encode(&mut self, message: Infallible, _: &mut Output<'_>) -> Result<(), Infallible> {
        match message {}
    }

    fn status(&self) -> CodecStatus {
        CodecStatus { is_finished: true, reports_finish: true, ..CodecStatus::default() }
    }
}

/// The application of such a stream. The box around the box keeps the usual case, which is without a call, at one word.
pub(super) struct FinishedApplication(Option<Box<LastCall>>);

impl Application<FinishedCodec> for FinishedApplication {
    const PULLS: bool = false;
    const IS_FINISHED: bool = true;

    type Post = ();

    fn open(&mut self, _: &mut Context<'_, FinishedCodec>) -> Outcome<FinishedCodec> {
        Outcome::Continue
    }

    fn message(&mut self, message: Infallible, _: &mut Context<'_, FinishedCodec>) -> Outcome<FinishedCodec> {
        match message {}
    }

    fn event(&mut self, _: Event<()>, _: &mut Context<'_, FinishedCodec>) -> Outcome<FinishedCodec> {
        Outcome::Continue
    }

    fn closed(&mut self, reason: &CloseReason) {
        if let Some(last_call) = self.0.take() {
            last_call(reason);
        }
    }
}

impl MessageReader for FinishedApplication {}

impl SessionHooks<FinishedCodec> for FinishedApplication {}

const _: () = assert!(size_of::<FinishedConnection>() <= size_of::<Link>() + 8);
