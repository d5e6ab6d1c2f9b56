//! Sessions: connections whose codec multiplexes, and the streams that they own.
//!
//! A session is a connection with a socket whose application is [`SessionApplication`]: it gets the events of the codec
//! ([`Mux`](tidegate_codec::mux::Mux)) and passes them to streams. A stream is a connection *without* a socket, in a slot
//! of its own: it has a codec, an application, a queue, an input, water marks, a write position and a deadline like any
//! other, and the session takes the place of the driver.
//!
//! - A stream's bytes are dispatched to it at once, within the dispatch of the session.
//! - A stream's request to its session is a [`StreamRequest`]. Requests wait in the session's [`SessionLinks`], since
//!   the session may be the one that is dispatched. They are handled before the session writes.
//! - The bytes of a stream stay in its queue until the session writes them, at most as many at a time as one send takes.
//!
//! Read next: `application.rs`.

mod application;
mod handle;
mod make;
mod streams;

use slab::Slab;
use tidegate_codec::mux::ResetCause;
use tidegate_sys::{Address, Token};

pub(crate) use self::application::SessionApplication;
pub use self::handle::{Session, SessionError};
pub(crate) use self::make::{MakeSession, MakeStream, MakeStreamHandler, MakeStreamTask};
pub use self::streams::Streams;
use crate::connection::PeerAddress;

/// The sessions of a loop, as their streams see them.
#[derive(Default)]
pub(crate) struct Sessions {
    links: Slab<SessionLinks>,
    /// The memory for requests of the session that is dispatched next. A session keeps none while its streams wait.
    spare: Option<Box<Requests>>,
    /// Sessions of endpoints whose streams have requests.
    requested: Vec<u32>,
    /// The endpoint that is dispatched: it looks at requests before that is over.
    dispatched: Option<Token>,
}

/// The state that a session and its streams share.
pub(crate) struct SessionLinks {
    token: Token,
    peer: PeerAddress,
    /// Requests of streams that the session has not seen.
    requests: Option<Box<Requests>>,
    /// For how many requests there was room, when there were some last. Growing to it once more would cost more than they.
    room: u16,
    /// The session looks before its dispatch ends, or in one that is scheduled.
    is_scheduled: bool,
    /// It is one of the sessions of an endpoint, which has the token.
    is_of_endpoint: bool,
}

/// Requests in their order.
pub(crate) struct Requests {
    list: Vec<StreamRequest>,
    /// One of them is that a queue be sent.
    has_send: bool,
}

impl Requests {
    fn with_room(room: u16) -> Self {
        Self { list: Vec::with_capacity(room.into()), has_send: false }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StreamRequest> {
        self.list.iter()
    }
}

/// A stream's request to its session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamRequest {
    /// The stream's place in the table of the codec.
    pub(crate) index: u32,
    pub(crate) kind: StreamRequestKind,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum StreamRequestKind {
    /// Its queue has bytes.
    Send,
    /// Its queue is empty, and nothing follows.
    End,
    /// Fewer of its bytes may be unread than the codec knows. The session asks how many when it handles the request: more
    /// may have come since.
    Unread,
    /// It is closed.
    Close {
        /// Why, if the peer has to be notified.
        cause: Option<ResetCause>,
        /// Unsent bytes are dropped.
        resets: bool,
    },
}

/// Identifies a stream in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamId {
    /// The session among those of the loop.
    pub(crate) session: u32,
    /// The place in the table of the session's codec.
    pub(crate) index: u32,
}

impl Sessions {
    /// Adds a session. `None` if the loop has as many as it can number.
    pub(crate) fn add(&mut self, token: Token, peer: PeerAddress) -> Option<u32> {
        if self.links.len() >= SESSIONS_MAX {
            return None;
        }
        if self.links.len() == self.links.capacity() {
            // By a quarter: doubling would waste half a record for each session.
            self.links.reserve_exact((self.links.len() / 4).max(4));
        }
        let links = SessionLinks { token, peer, requests: None, room: 0, is_scheduled: false, is_of_endpoint: false };
        Some(self.links.insert(links) as u32)
    }

    /// Adds a session of an endpoint. `None` if the loop has as many as it can number.
    pub(crate) fn add_of_endpoint(&mut self, endpoint: Token, peer: PeerAddress) -> Option<u32> {
        let session = self.add(endpoint, peer)?;
        self.links[session as usize].is_of_endpoint = true;
        Some(session)
    }

    /// The peer of a session has another address now.
    pub(crate) fn set_peer(&mut self, session: u32, peer: PeerAddress) {
        if let Some(links) = self.links.get_mut(session as usize) {
            links.peer = peer;
        }
    }

    /// One more than the highest number of a session.
    pub(crate) fn end(&self) -> u32 {
        self.links.capacity() as u32
    }

    /// The address of a session's peer.
    pub(crate) fn peer(&self, session: u32) -> Option<Address> {
        self.links.get(session as usize).map(|links| links.peer.address())
    }

    /// The endpoint of a session, if it is one of an endpoint.
    pub(crate) fn endpoint(&self, session: u32) -> Option<Token> {
        self.links.get(session as usize).filter(|links| links.is_of_endpoint).map(|links| links.token)
    }

    /// An endpoint is dispatched, or its dispatch is over.
    pub(crate) fn set_dispatched_endpoint(&mut self, endpoint: Option<Token>) {
        self.dispatched = endpoint;
    }

    /// Whether streams of an endpoint have requests.
    pub(crate) fn has_requested(&self, endpoint: Token) -> bool {
        let is_of = |session: &u32| self.links.get(*session as usize).is_some_and(|links| links.token == endpoint);
        self.requested.iter().any(is_of)
    }

    /// A session of an endpoint whose streams have requests.
    pub(crate) fn take_requested(&mut self, endpoint: Token) -> Option<u32> {
        let is_of = |session: &u32| self.links.get(*session as usize).is_some_and(|links| links.token == endpoint);
        let place = self.requested.iter().position(is_of)?;
        let session = self.requested.swap_remove(place);
        self.links[session as usize].is_scheduled = false;
        Some(session)
    }

    pub(crate) fn remove(&mut self, session: u32) {
        self.requested.retain(|requested| *requested != session);
        self.links.try_remove(session as usize);
        if self.links.is_empty() {
            *self = Self { dispatched: self.dispatched, ..Self::default() };
        }
    }

    /// Takes note of a request. Returns the session if it has to be dispatched for that.
    pub(crate) fn request(&mut self, stream: StreamId, kind: StreamRequestKind) -> Option<Token> {
        let links = self.links.get_mut(stream.session as usize)?;
        let (room, spare) = (links.room, &mut self.spare);
        let empty = || spare.take().unwrap_or_else(|| Box::new(Requests::with_room(room)));
        let requests = links.requests.get_or_insert_with(empty);
        requests.has_send |= matches!(kind, StreamRequestKind::Send);
        requests.list.push(StreamRequest { index: stream.index, kind });
        if std::mem::replace(&mut links.is_scheduled, true) {
            return None;
        }
        if links.is_of_endpoint {
            self.requested.push(stream.session);
        }
        (self.dispatched != Some(links.token)).then_some(links.token)
    }

    /// The session is dispatched: it looks at requests before that is over.
    pub(crate) fn begin_dispatch(&mut self, session: u32) {
        if let Some(links) = self.links.get_mut(session as usize) {
            links.is_scheduled = true;
        }
    }

    /// The dispatch of the session is over. Returns whether there are requests that it has not seen.
    pub(crate) fn end_dispatch(&mut self, session: u32) -> bool {
        let Some(links) = self.links.get_mut(session as usize) else { return false };
        links.is_scheduled = links.requests.as_ref().is_some_and(|requests| !requests.list.is_empty());
        links.is_scheduled
    }

    /// Whether streams have requested that their queues be sent, and the session has not seen that.
    #[inline]
    pub(crate) fn has_send_requests(&self, session: u32) -> bool {
        let links = self.links.get(session as usize);
        links.is_some_and(|links| links.requests.as_ref().is_some_and(|requests| requests.has_send))
    }

    /// The requests of the streams.
    pub(crate) fn take_requests(&mut self, session: u32) -> Option<Box<Requests>> {
        self.links.get_mut(session as usize)?.requests.take_if(|requests| !requests.list.is_empty())
    }

    /// Gives the memory of requests back, to be used again by any session.
    pub(crate) fn recycle(&mut self, session: u32, mut requests: Box<Requests>) {
        if requests.list.capacity() > REQUESTS_KEPT_MAX {
            return;
        }
        if let Some(links) = self.links.get_mut(session as usize) {
            links.room = requests.list.len() as u16;
        }
        requests.list.clear();
        requests.has_send = false;
        self.spare = Some(requests);
    }

    /// A session has no stream left: the loop keeps no memory for requests while nothing happens.
    pub(crate) fn release_requests(&mut self) {
        self.spare = None;
    }

    /// The token and the peer of a stream's session.
    pub(crate) fn of(&self, stream: StreamId) -> Option<(Token, Address)> {
        self.links.get(stream.session as usize).map(|links| (links.token, links.peer.address()))
    }
}

/// How many sessions a loop can number: three bytes of a stream's identity.
const SESSIONS_MAX: usize = 1 << 24;

/// A loop keeps the memory of so many requests: three each of as many streams as a peer may have by default.
const REQUESTS_KEPT_MAX: usize = 512;
