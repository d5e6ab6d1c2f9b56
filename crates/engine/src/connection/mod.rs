//! One connection: its events and its state.
//!
//! A connection is an entry of a slot (`slot_entry.rs`). Its dispatch is in `dispatch.rs`, in the order in which things
//! happen; its deadlines are in `deadlines.rs`; its application, a handler or a channel, is in `application.rs`; the
//! calls of a channel's handles outside of dispatches are in `pull.rs`. Its other parts, beside the codec and the
//! application, are the [`Link`].

mod application;
mod closing;
mod deadlines;
mod describe;
mod dispatch;
mod finished;
mod link;
mod opening;
mod parked;
mod peer;
mod pull;
mod rare_events;
mod sending;
mod settings;
mod shaping;
mod switch;

use std::io;

use tidegate_codec::Pipeline;
use tidegate_sys::{Address, Socket};

pub(crate) use self::application::{Application, MessageReader, SessionHooks};
pub(crate) use self::link::Link;
pub(crate) use self::peer::PeerAddress;
pub(crate) use self::pull::{ChannelState, Half, Refusal};
pub(crate) use self::settings::Settings;
pub(crate) use self::switch::InstallProtocol;
pub use self::switch::Switch;
use crate::loop_core::Core;

/// A codec and its application on a link.
pub(crate) struct Connection<C, A> {
    link: Link,
    codec: C,
    application: A,
}

impl<C: Pipeline, A: Application<C>> Connection<C, A> {
    pub(crate) fn with_application(link: Link, codec: C, application: A) -> Self {
        Self { link, codec, application }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn application(&self) -> &A {
        &self.application
    }

    pub(crate) fn parts(&mut self) -> (&mut Link, &mut C, &mut A) {
        (&mut self.link, &mut self.codec, &mut self.application)
    }
}

/// Makes connections from streams.
pub(crate) trait MakeConnection: 'static {
    fn make_connection(&mut self, core: &mut Core, link: Link, socket: Socket, peer: &Address) -> io::Result<()>;
}
