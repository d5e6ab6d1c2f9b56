//! HTTP/2: how a connection becomes a session, and its streams' data about it.

use std::rc::Rc;

use tidegate_codec::framing::Raw;
use tidegate_codec::{Filters, Over};
use tidegate_engine::{Context, Handler, Outcome, Streams};
use tidegate_http1::Error;
use tidegate_http2::{Connection, ServerStream};
use tidegate_sys::Address;

use crate::app::App;
use crate::codec::HttpCodec;
use crate::middleware;
use crate::request::SharedState;
use crate::tls_info::TlsInfo;

/// The outcome for a connection whose peer has sent the preface. `handler` makes the application of a stream.
#[cold]
pub(crate) fn upgrade_to_http2<C: HttpCodec, H: Handler<ServerStream<StreamClient>>>(
    app: &Rc<App>,
    cx: &Context<'_, C>,
    handler: fn(Rc<App>) -> H,
) -> Outcome<C> {
    let Some(sessions) = &app.sessions else { return Outcome::Close };
    let config = sessions.config.clone();
    let codec = cx.codec();
    let is_secure = codec.is_secure();
    let reported =
        codec.reported_peer().map(|peer| ReportedAddresses { peer, destination: codec.reported_destination() });
    let tls = if is_secure && app.table().any_reads_tls() { codec.tls_info() } else { None };
    let make = |reported: Option<ReportedAddresses>, state: Option<SharedState>| {
        let (config, app, tls) = (sessions.config.clone(), app.clone(), tls.clone());
        let client = StreamClient(Rc::new(SessionClient { reported, state, is_secure, tls }));
        Streams::handle(move || {
            (ServerStream::with_data(config.stream().clone(), client.clone()), handler(app.clone()))
        })
    };
    let state = app.table().connection_state.is_some().then(SharedState::default);
    let streams = match (reported, state) {
        (None, None) if tls.is_none() => sessions.streams(is_secure, || make(None, None)),
        (reported, state) => make(reported, state),
    };
    let mut connection = Connection::server(config);
    if !app.table().middleware.is_empty() {
        let (app, peer) = (app.clone(), codec.reported_peer().unwrap_or_else(|| cx.peer()));
        connection = connection
            .on_refused(move |status| middleware::refused_of_http2(&app.table().middleware, status, peer.clone()));
    }
    Outcome::session(move |codec: C| codec.into_http2(connection), &streams)
}

/// The facts of a connection, shared by its streams: one word in each.
#[derive(Debug, Clone)]
pub struct StreamClient(Rc<SessionClient>);

/// The facts of a connection: its reported peer, its state, its security.
#[derive(Debug)]
struct SessionClient {
    reported: Option<ReportedAddresses>,
    /// If the router makes a state for each connection.
    state: Option<SharedState>,
    is_secure: bool,
    /// If middleware reads it.
    tls: Option<TlsInfo>,
}

/// A trusted proxy's report about the connection.
#[derive(Debug)]
struct ReportedAddresses {
    peer: Address,
    destination: Option<Address>,
}

impl StreamClient {
    /// The facts of a QUIC connection.
    #[cfg(feature = "http3")]
    pub(crate) fn of_quic(app: &App, handshake: Option<&tidegate_codec::Handshake>) -> Self {
        let table = app.table();
        let state = table.connection_state.is_some().then(SharedState::default);
        let tls = handshake.filter(|_| table.any_reads_tls()).map(TlsInfo::of_quic);
        Self(Rc::new(SessionClient { reported: None, state, is_secure: true, tls }))
    }
}

impl HttpCodec for ServerStream<StreamClient> {
    type Http2 = Connection;

    const HOLDS_REQUESTS: bool = true;

    fn into_http2(self, connection: Connection) -> Connection {
        connection
    }

    fn reported_peer(&self) -> Option<Address> {
        self.data().0.reported.as_ref().map(|reported| reported.peer.clone())
    }

    fn reported_destination(&self) -> Option<Address> {
        self.data().0.reported.as_ref().and_then(|reported| reported.destination.clone())
    }

    fn is_secure(&self) -> bool {
        self.data().0.is_secure
    }

    fn tls_info(&self) -> Option<TlsInfo> {
        self.data().0.tls.clone()
    }

    fn shared_state(&self) -> Option<&SharedState> {
        self.data().0.state.as_ref()
    }

    fn into_filters(self) -> Filters {
        Over::new(self.into_tunnel(), Raw).into_filters(|_| Filters::default())
    }

    fn has_left_http(&self) -> bool {
        self.is_switched()
    }

    fn misuse(error: &Error) -> &'static str {
        match error {
            Error::Caller(misuse) => misuse.text(),
            _ => "the stream failed",
        }
    }
}
