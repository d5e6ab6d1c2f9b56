//! What happens to one connection.
//!
//! The loop takes whoever occupies a slot out of it and *visits* them with an [`Occasion`]; the visit ends with a
//! [`Fate`]. A connection's visit is in `visit.rs`, in the order in which things happen; its deadlines are in
//! `deadlines.rs`; its user, a handler or a channel, is in `application.rs`; what a channel's handles do with it outside of
//! visits is in `pull.rs`. What it is made of, apart from its codec and its application, is the [`Link`].

mod application;
mod deadlines;
mod link;
mod pull;
mod visit;

use std::any::Any;
use std::io;
use std::rc::Rc;

use tidegate_buffer::Slice;
use tidegate_codec::Codec;
use tidegate_sys::{Accepted, Token};

pub(crate) use self::application::{Application, Pushed};
pub(crate) use self::link::{Link, Settings};
pub(crate) use self::pull::{Ends, Half};
use crate::closed::Closed;
use crate::core::Core;
use crate::group::{Cast, Heard};
use crate::handler::Handler;

/// A codec and its application on a link.
pub(crate) struct Connection<C, A> {
    link: Link,
    codec: C,
    application: A,
}

impl<C: Codec, H: Handler<C>> Connection<C, Pushed<H>> {
    pub(crate) fn new(link: Link, codec: C, handler: H) -> Self {
        Self { link, codec, application: Pushed(handler) }
    }
}

/// Whoever has a slot: a connection, a listener, an alarm.
pub(crate) trait Occupant {
    /// Something happened. Meanwhile the slot is empty.
    fn visit(&mut self, core: &mut Core, token: Token, occasion: Occasion) -> Fate;

    /// A message comes to a group of which it is a member. Meanwhile the slot is empty.
    fn hear(&mut self, _core: &mut Core, _token: Token, _cast: &Cast) -> (Heard, Fate) {
        (Heard::Gone, Fate::Keep)
    }

    /// Its socket is closed. What it leaves behind, if anything, keeps the slot.
    fn gone(self: Box<Self>, _core: &mut Core, _reason: Rc<Closed>) -> Option<Box<dyn Occupant>> {
        None
    }

    /// Bytes of memory that wait with it, in either direction: who has most of them is shed first.
    fn holds(&self) -> usize {
        0
    }

    /// The task that serves it has failed: that becomes the reason why it is closed, unless there is another one.
    fn fail(&mut self, _core: &mut Core, _token: Token, _reason: &mut Option<Closed>) -> Fate {
        Fate::Keep
    }

    /// Whether the driver has something of it.
    fn presence(&self) -> Presence {
        Presence::Open
    }

    fn as_any(&mut self) -> &mut dyn Any;

    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// What the driver has of an occupant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// A socket.
    Open,
    /// A socket that is being closed.
    Closing,
    /// Nothing; and no drain waits for it.
    Gone,
}

/// Why somebody is visited.
pub(crate) enum Occasion {
    /// It is new.
    Opened,
    /// It has a new codec and a new application.
    Switched,
    Received(Slice),
    /// The peer sends no more.
    Ended,
    Sent(io::Result<usize>),
    Failed(io::Error),
    Accepted(io::Result<Accepted>),
    Connected(io::Result<()>),
    /// The driver's last word.
    Closed,
    /// The slot's timer fired.
    Timer,
    Posted(Box<dyn Any + Send>),
    /// It asked to be visited again.
    Again,
    Drain,
    /// The loop drains, and none of the tasks that serve is left.
    Forsaken,
    /// The deadline of the drain has come.
    Overdue,
    Shed,
    /// The last visit panicked.
    Panicked,
}

/// What a visit came to.
pub(crate) enum Fate {
    Keep,
    /// Somebody else takes the place.
    Switch(Succession),
    Close {
        reason: Rc<Closed>,
        reset: bool,
    },
    /// The driver has said its last word on somebody whom a visit closed.
    Bury,
}

impl Fate {
    pub(crate) fn close(reason: Closed) -> Self {
        Self::Close { reason: Rc::new(reason), reset: false }
    }
}

/// Makes the new occupant of a place out of the old one.
pub(crate) type Succession = Box<dyn FnOnce(Box<dyn Occupant>) -> Box<dyn Occupant>>;

/// The codec and the application that a connection goes on with.
pub(crate) trait Successor {
    fn install(self: Box<Self>, link: Link) -> Box<dyn Occupant>;
}

impl<D: Codec, A: Application<D>> Successor for (D, A) {
    fn install(self: Box<Self>, mut link: Link) -> Box<dyn Occupant> {
        let (codec, application) = *self;
        link.input.set_escaping(A::PULLS);
        Box::new(Connection { link, codec, application })
    }
}
