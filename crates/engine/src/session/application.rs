//! `SessionApplication`: the application of a session, which passes events on to streams and writes their bytes.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use tidegate_buffer::injected::{self, Bug};
use tidegate_buffer::{Outbound, Slice};
use tidegate_codec::mux::{Mux, ResetCause, StreamEvent, StreamKey, StreamQueues, answers_at_once, transmit};
use tidegate_codec::{Output, Pipeline};
use tidegate_sys::Token;

use super::{MakeStream, StreamId, StreamRequest, StreamRequestKind};
use crate::close_reason::CloseReason;
use crate::connection::{Application, Link, MessageReader, SessionHooks, Settings};
use crate::context::Context;
use crate::handler::{Event, Outcome};
use crate::limits::Limits;
use crate::loop_core::{Core, DispatchQueues};
use crate::slot_entry::{SlotEntry, SlotEvent};
use crate::slots::Slots;
use crate::unwind::discard;

/// The application of a session.
pub(crate) struct SessionApplication {
    /// Its number among the sessions of the loop, once it is open.
    session: u32,
    /// The number of the stream whose end came with its last bytes; the codec reports it once more.
    ended: u32,
    /// The handles of the session are gone, and the last stream closes it.
    closes_when_empty: bool,
    /// A handle is left.
    has_handle: bool,
    /// Its streams are closed, since it closes.
    is_closing: bool,
    is_closed: bool,
    /// The service of the streams that the peer opens; without it they are refused.
    make: Option<Rc<dyn MakeStream>>,
    /// The limits of streams.
    settings: Rc<Settings>,
}

impl SessionApplication {
    pub(crate) fn new(make: Option<Rc<dyn MakeStream>>, settings: Rc<Settings>, has_handle: bool) -> Self {
        Self {
            session: u32::MAX,
            ended: 0,
            closes_when_empty: false,
            has_handle,
            is_closing: false,
            is_closed: false,
            make,
            settings,
        }
    }

    /// The application of a session that a client has made: with a handle, and without streams of the peer.
    pub(crate) fn of_client(limits: Limits) -> Self {
        Self::new(None, Settings::new(limits, Arc::default()), true)
    }

    /// The last handle is gone.
    pub(crate) fn on_handle_dropped(&mut self) {
        self.has_handle = false;
        self.closes_when_empty = true;
    }

    pub(crate) fn is_session_closed(&self) -> bool {
        self.is_closed
    }

    /// A link for a stream of the session.
    pub(crate) fn link(&self, core: &Core, key: StreamKey) -> Link {
        self.link_with(Outbound::new(&core.pool), key)
    }

    #[inline]
    fn link_with(&self, queue: Outbound, key: StreamKey) -> Link {
        Link::of_stream(self.settings.clone(), StreamId { session: self.session, index: key.index() }, queue)
    }

    /// The peer has opened a stream.
    fn accept<C: Pipeline<Codec: Mux>>(&mut self, key: StreamKey, cx: &mut Context<'_, C>) {
        let Some(make) = &self.make else { return reset(key, ResetCause::Refused, cx) };
        let opening = if make.answers_at_once() { self.take_opening(key, cx) } else { None };
        let queue = if opening.is_some() { cx.core_mut().take_answer_queue() } else { Outbound::new(&cx.core().pool) };
        let link = self.link_with(queue, key);
        let token = cx.core_mut().slots.reserve();
        cx.with_mux(|mux, _| mux.streams_mut().set_owner(key, owner(token)));
        let core = cx.core_mut();
        let made = catch_unwind(AssertUnwindSafe(|| match opening {
            Some(bytes) => make.answer_stream(core, token, link, bytes),
            None => {
                make.make_stream(core, token, link);
                None
            }
        }));
        match made {
            Ok(None) => {}
            Ok(Some(stream)) => answer(key, token, stream, cx),
            Err(panic) => {
                // That stream is lost, and no other.
                discard(panic);
                cx.core_mut().release(token);
                reset(key, ResetCause::Failed, cx);
            }
        }
    }

    /// Takes all bytes of the peer that have come with the opening of a stream, if its answer would be written at once.
    #[inline]
    fn take_opening<C: Pipeline<Codec: Mux>>(&self, key: StreamKey, cx: &mut Context<'_, C>) -> Option<Slice> {
        let (codec, link, core) = cx.parts();
        let is_free = link.is_free()
            && codec.is_established()
            && !core.drain.is_under_way()
            && !core.sessions.has_send_requests(self.session)
            && room_for_streams(codec, link) > 0;
        let (mux, _) = codec.uppermost(Output::new(link.outbound(), &core.pool, &core.time));
        if is_free && answers_at_once(mux, key) { mux.take_opening(key) } else { None }
    }

    /// Passes bytes of the peer to a stream.
    fn receive<C: Pipeline<Codec: Mux>>(&mut self, key: StreamKey, bytes: Slice, cx: &mut Context<'_, C>) {
        let (codec, _, core) = cx.parts();
        let streams = codec.codec().streams();
        let Some(token) = streams.owner(key).and_then(token) else { return };
        if !streams.has_peer_ended(key) {
            return core.dispatch(token, SlotEvent::Received(bytes));
        }
        // One dispatch for the last bytes and the end.
        self.ended = key.id();
        core.dispatch(token, SlotEvent::ReceivedLast(bytes));
    }

    /// Handles the requests of streams to the session.
    pub(super) fn handle_requests<C: Pipeline<Codec: Mux>>(&self, codec: &mut C, link: &mut Link, core: &mut Core) {
        while let Some(requests) = core.sessions.take_requests(self.session) {
            let (slots, _, pool, time) = core.stream_parts();
            let (mux, mut out) = codec.uppermost(Output::new(link.outbound(), pool, time));
            for request in requests.iter() {
                self.handle_request(*request, slots, mux, &mut out);
            }
            core.sessions.recycle(self.session, requests);
        }
    }

    fn handle_request<M: Mux>(
        &self,
        request: StreamRequest,
        slots: &mut Slots<dyn SlotEntry>,
        mux: &mut M,
        out: &mut Output<'_>,
    ) {
        let Some(key) = mux.streams().at(request.index) else { return };
        match request.kind {
            StreamRequestKind::Send => mux.streams_mut().set_ready(key),
            StreamRequestKind::End if mux.streams().has_ended_locally(key) => {}
            StreamRequestKind::End => {
                mux.write_data(key, &mut Outbound::default(), 0, true, out);
                mux.streams_mut().end_locally(key);
            }
            StreamRequestKind::Unread => {
                let entry = mux.streams().owner(key).and_then(token).and_then(|token| slots.get_mut(token));
                if let Some(entry) = entry {
                    mux.streams_mut().set_unread(key, entry.unread_bytes());
                }
            }
            StreamRequestKind::Close { cause, resets } => {
                if !resets && !mux.streams().has_ended_locally(key) {
                    mux.write_data(key, &mut Outbound::default(), 0, true, out);
                    mux.streams_mut().end_locally(key);
                }
                if let Some(cause) = cause
                    && !mux.streams().has_ended(key)
                {
                    mux.write_reset(key, cause, out);
                }
                mux.streams_mut().close(key);
            }
        }
    }
}

impl<C: Pipeline<In = StreamEvent, Codec: Mux>> Application<C> for SessionApplication {
    const PULLS: bool = false;
    const IS_SESSION: bool = true;

    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        let (token, peer) = (cx.token(), cx.peer_address());
        match cx.core_mut().sessions.add(token, peer) {
            Some(session) => {
                self.session = session;
                cx.core_mut().sessions.begin_dispatch(session);
                Outcome::Continue
            }
            None => Outcome::Abort,
        }
    }

    fn message(&mut self, event: StreamEvent, cx: &mut Context<'_, C>) -> Outcome<C> {
        let (key, event) = match event {
            StreamEvent::Opened(key) => {
                self.accept(key, cx);
                return Outcome::Continue;
            }
            StreamEvent::Data { stream, bytes } => {
                if injected::is_injected(Bug::SessionStopsReading) {
                    cx.pause();
                }
                self.receive(stream, bytes, cx);
                return Outcome::Continue;
            }
            StreamEvent::Ended(stream) if std::mem::take(&mut self.ended) == stream.id() => return Outcome::Continue,
            StreamEvent::Ended(stream) => (stream, SlotEvent::Ended),
            StreamEvent::Reset { stream, code } => (stream, SlotEvent::StreamReset(code)),
        };
        if let Some(token) = cx.with_mux(|mux, _| mux.streams().owner(key)).and_then(token) {
            cx.core_mut().dispatch(token, event);
        }
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        if event == Event::Drain && self.make.is_some() && !cx.is_draining() {
            // The connection has reached its age. With its loop, each stream drains by itself.
            let drained = cx.with_mux(|mux, _| owners(mux));
            for token in drained {
                cx.core_mut().dispatch(token, SlotEvent::Drain);
            }
        }
        if event == Event::ReadClosed {
            // The codec is finished once the streams that are left are closed.
            let ended = cx.with_mux(|mux, _| {
                let (streams, ends_all) = (mux.streams(), mux.ends_streams_with_peer());
                streams
                    .iter()
                    .filter_map(|key| Some((token(streams.owner(key)?)?, streams.has_peer_ended(key))))
                    .filter(|(_, has_peer_ended)| ends_all || !has_peer_ended)
                    .collect::<Vec<_>>()
            });
            let mut reason = None;
            for (token, has_peer_ended) in ended {
                // A stream that the peer has ended, and whose last bytes are queued, is not cut off.
                if !(has_peer_ended && cx.core_mut().slots.get_mut(token).is_some_and(|stream| stream.is_ending())) {
                    let reason = reason.get_or_insert_with(|| CloseReason::of_streams(None)).clone();
                    cx.core_mut().dispatch(token, SlotEvent::SessionClosed(reason));
                }
            }
        }
        Outcome::Continue
    }

    fn closed(&mut self, _: &CloseReason) {
        self.is_closed = true;
    }

    /// Control frames are read whatever applications do; the replies to them have a cap.
    fn reads_while_unwritable(&self) -> bool {
        true
    }

    /// As for a channel: tasks that serve may need a session that a client has made.
    fn observes_drain(&self) -> bool {
        self.make.is_some()
    }

    fn has_handles(&self) -> bool {
        self.has_handle
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl MessageReader for SessionApplication {}

impl<C: Pipeline<In = StreamEvent, Codec: Mux>> SessionHooks<C> for SessionApplication {
    fn begin_session_dispatch(&mut self, core: &mut Core) {
        core.sessions.begin_dispatch(self.session);
    }

    fn end_session_dispatch(&mut self, core: &mut Core) -> bool {
        core.release_answer_queue();
        core.sessions.end_dispatch(self.session)
    }

    fn transmit(&mut self, codec: &mut C, link: &mut Link, core: &mut Core) -> bool {
        self.handle_requests(codec, link, core);
        if injected::is_injected(Bug::SessionStopsReading) && codec.codec().streams().unconsumed_bytes() == 0 {
            link.pause(false);
        }
        if self.closes_when_empty && codec.codec().streams().is_empty() {
            link.close_in_order();
        }
        if codec.codec().streams().is_empty() {
            core.sessions.release_requests();
            let (mux, _) = codec.uppermost(Output::new(link.outbound(), &core.pool, &core.time));
            mux.streams_mut().release();
        }
        if !codec.is_established() {
            return false;
        }
        // It writes the bytes of one send and no more: more urgent ones may come meanwhile.
        let room = room_for_streams(codec, link);
        let (slots, dispatches, pool, time) = core.stream_parts();
        let (mux, mut out) = codec.uppermost(Output::new(link.outbound(), pool, time));
        let before = out.written();
        let bytes_max = out.pending() + room;
        let mut queues = Queues { slots, dispatches, stopped: Vec::new() };
        transmit(mux, &mut queues, bytes_max, &mut out);
        let has_more = mux.streams().has_ready() && (out.written() > before || room == 0);
        for token in queues.stopped {
            core.dispatch(token, SlotEvent::Ended);
        }
        has_more
    }

    #[cold]
    fn on_session_closing(&mut self, codec: &mut C, link: &mut Link, core: &mut Core, reason: Option<Rc<CloseReason>>) {
        if !std::mem::replace(&mut self.is_closing, true) {
            codec.codec().on_session_closed();
            close_streams(codec.codec(), core, reason.as_ref());
        }
        // Nothing more is written for streams: their requests have no effect but that they are closed.
        while let Some(requests) = core.sessions.take_requests(self.session) {
            let (mux, _) = codec.uppermost(Output::new(link.outbound(), &core.pool, &core.time));
            for request in requests.iter() {
                if let StreamRequestKind::Close { .. } = request.kind
                    && let Some(key) = mux.streams().at(request.index)
                {
                    mux.streams_mut().close(key);
                }
            }
            core.sessions.recycle(self.session, requests);
        }
    }

    fn on_session_closed(&mut self, codec: &mut C, core: &mut Core, reason: &Rc<CloseReason>) {
        core.sessions.remove(self.session);
        codec.codec().on_session_closed();
        close_streams(codec.codec(), core, Some(reason));
    }
}

/// Closes all streams of a session that closes.
fn close_streams(mux: &impl Mux, core: &mut Core, reason: Option<&Rc<CloseReason>>) {
    let owners = owners(mux);
    if owners.is_empty() {
        return;
    }
    let reason = CloseReason::of_streams(reason.map(|reason| reason as &dyn fmt::Display));
    for token in owners {
        core.dispatch(token, SlotEvent::SessionClosed(reason.clone()));
    }
}

/// The streams of a session.
fn owners(mux: &impl Mux) -> Vec<Token> {
    let streams = mux.streams();
    streams.iter().filter_map(|key| streams.owner(key)).filter_map(token).collect()
}

/// Writes the complete answer of a stream that is not in its slot, and closes it. An answer that finds no window waits.
#[inline]
fn answer<C: Pipeline<Codec: Mux>>(
    key: StreamKey,
    token: Token,
    mut stream: Box<dyn SlotEntry>,
    cx: &mut Context<'_, C>,
) {
    let (codec, link, core) = cx.parts();
    let (mux, mut out) = codec.uppermost(Output::new(link.outbound(), &core.pool, &core.time));
    if let Some(queue) = stream.outbound()
        && mux.write_answer(key, queue, &mut out)
    {
        core.keep_answer_queue(queue);
        core.close_answered(token, stream);
    } else {
        core.dispatch_entry(token, stream, SlotEvent::Scheduled);
    }
}

/// Resets a stream that has no application.
fn reset<C: Pipeline<Codec: Mux>>(key: StreamKey, cause: ResetCause, cx: &mut Context<'_, C>) {
    cx.with_mux(|mux, out| {
        mux.write_reset(key, cause, out);
        mux.streams_mut().close(key);
    });
}

/// The queues of streams, in their slots.
struct Queues<'a> {
    slots: &'a mut Slots<dyn SlotEntry>,
    dispatches: &'a mut DispatchQueues,
    /// Streams whose peer sends no more, without an event.
    stopped: Vec<Token>,
}

impl StreamQueues for Queues<'_> {
    fn with(&mut self, owner: [u32; 2], act: impl FnOnce(&mut Outbound, bool) -> bool) {
        let Some(token) = token(owner) else { return };
        let Some(entry) = self.slots.restored(token) else { return };
        let mut act = Some(act);
        let mut once = |queue: &mut Outbound, ends| act.take().is_some_and(|act| act(queue, ends));
        if entry.transmit(&mut once) {
            self.dispatches.schedule(token);
        }
    }

    fn on_window_used_up(&mut self, owner: [u32; 2]) {
        if let Some(token) = token(owner) {
            self.slots.reduce(token);
        }
    }

    fn on_peer_stopped(&mut self, owner: [u32; 2]) {
        self.stopped.extend(token(owner));
    }
}

/// A token as the owner of a stream's queue. No token has the generation 0.
pub(crate) fn owner(token: Token) -> [u32; 2] {
    [token.slot, token.generation]
}

fn token([slot, generation]: [u32; 2]) -> Option<Token> {
    (generation != 0).then_some(Token { slot, generation })
}

/// How many more bytes of streams may wait in the session, in its filters and in its queue: the bytes of one send, but
/// not above the high mark. With the bytes of streams above the mark, a reply of the codec could exceed the cap of
/// replies although the peer reads.
#[inline]
fn room_for_streams(codec: &impl Pipeline, link: &mut Link) -> u64 {
    let bytes_max = SEND_BYTES.min(link.settings().limits.water.high);
    bytes_max.saturating_sub(link.outbound().pending() + codec.buffered_bytes() as u64)
}

/// Bytes that one send takes.
const SEND_BYTES: u64 = 64 * 1024;
