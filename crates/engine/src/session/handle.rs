//! `Session`: the handle of a session, with which a program opens streams.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use tidegate_codec::mux::{Mux, OpenError, StreamEvent};
use tidegate_codec::{DatagramRefused, Output, Pipeline};
use tidegate_sys::Token;

use super::SessionApplication;
use super::application::owner;
use crate::channel::{Channel, ChannelError, Handle as ChannelHandle};
use crate::connection::{Connection, Switch};
use crate::handler::Handler;
use crate::local::{HandleLocal, Local};
use crate::loop_core::Core;
use crate::remote::Remote;
use crate::slot_entry::Disposition;
use crate::slots::connection_id;

/// A session of a [`Client`](crate::Client): a connection on which it opens streams, each of which is a
/// [`Channel`](crate::Channel) or has a [`Handler`](crate::Handler), like a connection of its own.
///
/// When the handle is dropped, the session closes in good order after its last stream.
pub struct Session<P: Pipeline<In = StreamEvent, Codec: Mux>> {
    local: HandleLocal,
    token: Token,
    pipeline: PhantomData<fn() -> P>,
}

/// Why a session did not open a stream, or send or receive a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// The protocol allows none.
    Open(OpenError),
    /// The session is closed.
    Closed,
    /// The session was used from within a handler; spawn a task that uses it.
    Busy,
    /// A datagram cannot be sent.
    Datagram(DatagramRefused),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Datagram(refused) => refused.fmt(f),
            Self::Closed => f.write_str("the session is closed"),
            Self::Busy => f.write_str("a session was used from within a handler; spawn a task that uses it"),
        }
    }
}

impl std::error::Error for SessionError {}

type SessionConnection<P> = Connection<P, SessionApplication>;

impl<P: Pipeline<In = StreamEvent, Codec: Mux>> Session<P> {
    pub(crate) fn new(local: Rc<Local>, token: Token) -> Self {
        Self { local: HandleLocal::new(local), token, pipeline: PhantomData }
    }

    /// Opens a stream as a channel.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn open<C: Pipeline>(&self, codec: C) -> Result<Channel<C>, SessionError> {
        let token = self.open_with(|core, token, link| {
            core.open_stream(token, Box::new(Connection::with_outbound_channel(link, codec)));
        })?;
        Ok(Channel::new(ChannelHandle::new(Rc::clone(&self.local), token)))
    }

    /// Opens a stream with a handler.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn open_handler<C, H>(&self, codec: C, handler: H) -> Result<Remote<H::Post>, SessionError>
    where
        C: Pipeline,
        H: Handler<C>,
    {
        let token = self.open_with(|core, token, link| {
            core.open_stream(token, Box::new(Connection::new(link, codec, handler)));
        })?;
        let mut core = self.local.core.try_borrow_mut().map_err(|_| SessionError::Busy)?;
        Ok(core.remote(token))
    }

    fn open_with(&self, make: impl FnOnce(&mut Core, Token, crate::connection::Link)) -> Result<Token, SessionError> {
        let mut core = self.local.core.try_borrow_mut().map_err(|_| SessionError::Busy)?;
        let session = self.token;
        let opened = core.with(session, |entry: &mut SessionConnection<P>, core| {
            (entry.open_stream(core, session), Disposition::Keep)
        });
        let (token, link) = opened.ok_or(SessionError::Closed)??;
        make(&mut core, token, link);
        Ok(token)
    }

    /// Reads or changes the protocol, to set the urgency of a stream for example.
    ///
    /// # Errors
    /// [`SessionError::Closed`], [`SessionError::Busy`].
    pub fn with_mux<T>(&self, act: impl FnOnce(&mut P::Codec) -> T) -> Result<T, SessionError> {
        let mut core = self.local.core.try_borrow_mut().map_err(|_| SessionError::Busy)?;
        let session = self.token;
        let done = core.with(session, |entry: &mut SessionConnection<P>, core| {
            let is_open = !entry.application().is_session_closed();
            (is_open.then(|| entry.with_mux(core, session, act)), Disposition::Keep)
        });
        done.flatten().ok_or(SessionError::Closed)
    }

    /// How many streams are open.
    ///
    /// # Errors
    /// [`SessionError::Closed`], [`SessionError::Busy`].
    pub fn streams(&self) -> Result<usize, SessionError> {
        self.with_mux(|mux| mux.streams().len())
    }
}

impl<C: Pipeline> Channel<C> {
    /// Continues as a session, with the multiplexing codec that `to` makes of the present codec: this side opens
    /// streams on it, and refuses those of the peer. The channel's queue is sent first, and bytes that its codec has
    /// not decoded go to the new one. The session has the limits of the channel.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] if the connection is closed, [`ChannelError::Busy`] from within a handler.
    pub fn into_session<P>(mut self, to: impl FnOnce(C) -> P + 'static) -> Result<Session<P>, ChannelError>
    where
        P: Pipeline<In = StreamEvent, Codec: Mux>,
    {
        let handle = self.handle_mut();
        let (local, token) = (handle.local().clone(), handle.token());
        handle.switch_by(Switch::client_session(to))?;
        Ok(Session::new(local, token))
    }
}

impl<P: Pipeline<In = StreamEvent, Codec: Mux>> Connection<P, SessionApplication> {
    /// Opens a stream, and reserves its slot.
    fn open_stream(
        &mut self,
        core: &mut Core,
        session: Token,
    ) -> Result<(Token, crate::connection::Link), SessionError> {
        if self.application().is_session_closed() || self.link().is_closing() {
            return Err(SessionError::Closed);
        }
        let (link, codec, application) = self.parts();
        // Streams that are over, or were reset, count no more.
        application.handle_requests(codec, link, core);
        let (mux, mut out) = codec.uppermost(Output::new(link.outbound(), &core.pool, &core.time));
        let key = mux.open(&mut out).map_err(SessionError::Open)?;
        let token = core.slots.reserve();
        mux.streams_mut().set_owner(key, owner(token));
        let link = self.application().link(core, key);
        self.schedule_unless_pending(core, session);
        Ok((token, link))
    }

    /// Returns whether nothing else is left of the session.
    fn on_session_handle_dropped(&mut self, core: &mut Core, session: Token) -> bool {
        let (_, _, application) = self.parts();
        application.on_handle_dropped();
        let is_closed = application.is_session_closed();
        self.schedule_unless_pending(core, session);
        is_closed
    }

    fn with_mux<T>(&mut self, core: &mut Core, session: Token, act: impl FnOnce(&mut P::Codec) -> T) -> T {
        let (link, codec, _) = self.parts();
        let (mux, _) = codec.uppermost(Output::new(link.outbound(), &core.pool, &core.time));
        let value = act(mux);
        self.schedule_unless_pending(core, session);
        value
    }
}

impl<P: Pipeline<In = StreamEvent, Codec: Mux>> Drop for Session<P> {
    fn drop(&mut self) {
        let token = self.token;
        self.local.with_core(move |core| {
            let closed = core.with(token, |entry: &mut SessionConnection<P>, core| {
                let is_closed = entry.on_session_handle_dropped(core, token);
                (is_closed, Disposition::Keep)
            });
            if closed == Some(true) {
                core.release(token);
            }
        });
    }
}

impl<P: Pipeline<In = StreamEvent, Codec: Mux>> fmt::Debug for Session<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", connection_id(self.token))
    }
}
