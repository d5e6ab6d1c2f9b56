//! HTTP/2: how a connection becomes a session, and what its streams know of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tidegate_codec::mux::{Mux, StreamEvent};
use tidegate_codec::{Filters, Pipeline};
use tidegate_engine::{Context, Outcome, Streams};
use tidegate_http1::Error;
use tidegate_http2::{Config, Connection, ServerStream};
use tidegate_sys::Address;

use crate::app::App;
use crate::codec::HttpCodec;
use crate::connection::HttpHandler;

/// A multiplexing pipeline: what a connection of HTTP/2 has below its streams.
pub trait SessionCodec: Pipeline<In = StreamEvent, Codec: Mux> {}

impl<P: Pipeline<In = StreamEvent, Codec: Mux>> SessionCodec for P {}

/// What the connections of one loop need for HTTP/2.
pub(crate) struct Http2 {
    config: Arc<Config>,
    /// What serves streams of connections without an address that a proxy has reported: without and with encryption.
    /// It has the application, so it is taken out when no listener is left.
    streams: RefCell<[Option<Streams>; 2]>,
    is_closed: Cell<bool>,
}

impl Http2 {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config, streams: RefCell::default(), is_closed: Cell::new(false) }
    }

    /// No listener is left that accepts connections.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        drop(self.streams.take());
    }

    fn streams(&self, app: &Rc<App>, is_secure: bool, reported: Option<Address>) -> Streams {
        if reported.is_some() || self.is_closed.get() {
            return self.make_streams(app, is_secure, reported);
        }
        let known = self.streams.borrow()[usize::from(is_secure)].clone();
        known.unwrap_or_else(|| {
            let streams = self.make_streams(app, is_secure, None);
            self.streams.borrow_mut()[usize::from(is_secure)] = Some(streams.clone());
            streams
        })
    }

    fn make_streams(&self, app: &Rc<App>, is_secure: bool, reported: Option<Address>) -> Streams {
        let (config, app, reported) = (self.config.clone(), app.clone(), reported.map(Rc::new));
        Streams::handle(move || {
            let client = StreamClient { reported: reported.clone(), is_secure };
            (ServerStream::with_data(config.clone(), client), HttpHandler::new(app.clone()))
        })
    }
}

/// The outcome for a connection whose peer has sent the preface.
#[cold]
pub(crate) fn go_on<C: HttpCodec>(app: &Rc<App>, cx: &Context<'_, C>) -> Outcome<C> {
    let Some(http2) = &app.http2 else { return Outcome::Close };
    let config = http2.config.clone();
    let streams = http2.streams(app, cx.codec().is_secure(), cx.codec().reported_peer());
    Outcome::session(move |codec: C| codec.into_http2(Connection::server(config)), &streams)
}

/// What a stream knows of its connection.
#[derive(Debug)]
pub struct StreamClient {
    reported: Option<Rc<Address>>,
    is_secure: bool,
}

impl HttpCodec for ServerStream<StreamClient> {
    type Http2 = Connection;

    fn into_http2(self, connection: Connection) -> Connection {
        connection
    }

    fn reported_peer(&self) -> Option<Address> {
        self.data().reported.as_deref().cloned()
    }

    fn is_secure(&self) -> bool {
        self.data().is_secure
    }

    fn into_filters(self) -> Filters {
        Filters::default()
    }

    /// Another protocol on a stream of HTTP/2 needs extended CONNECT (RFC 8441), which is not offered.
    fn has_left_http(&self) -> bool {
        false
    }

    fn misuse(error: &Error) -> &'static str {
        match error {
            Error::Caller(misuse) => misuse.text(),
            _ => "the stream failed",
        }
    }
}
