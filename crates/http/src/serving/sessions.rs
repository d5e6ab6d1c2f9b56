//! `Sessions`: the state that one loop's connections need to go on in HTTP/2.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use tidegate_engine::Streams;
use tidegate_http2::Config;

/// The configuration of HTTP/2 connections, and the service of their streams.
pub(crate) struct Sessions {
    pub(crate) config: Arc<Config>,
    /// The service of streams on connections without an address that a proxy has reported: without and with encryption.
    /// It has the application, so it is taken out when no listener is left.
    streams: RefCell<[Option<Streams>; 2]>,
    is_closed: Cell<bool>,
}

impl Sessions {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config, streams: RefCell::default(), is_closed: Cell::new(false) }
    }

    /// No listener is left that accepts connections.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        drop(self.streams.take());
    }

    /// The service of a connection's streams, which `make` makes for the first one.
    pub(crate) fn streams(&self, is_secure: bool, make: impl FnOnce() -> Streams) -> Streams {
        if self.is_closed.get() {
            return make();
        }
        let known = self.streams.borrow()[usize::from(is_secure)].clone();
        known.unwrap_or_else(|| {
            let streams = make();
            self.streams.borrow_mut()[usize::from(is_secure)] = Some(streams.clone());
            streams
        })
    }
}
