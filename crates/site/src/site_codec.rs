//! `SiteCodec`: the site's requirements on its codec, which is HTTP behind a PROXY header or without one, alone or over
//! filters.

use std::net::SocketAddr;
use std::rc::Rc;

use tidegate::bytelog::{ByteLog, ConnectionCapture};
use tidegate::codec::{DynOver, Filters, Over, Pipeline};
use tidegate::framing::Raw;
use tidegate::http::SessionCodec;
use tidegate::http1::{Incoming, Outgoing, Server};
use tidegate::http2::{Connection, ServerStream};
use tidegate::http3;
use tidegate::proxy_protocol::{ProxyHeaderFilter, ReceivesHeader};
use tidegate::tls::Tls;

use crate::byte_log::Sink;

/// HTTP/1.1, with or without a PROXY header in front, alone or over filters; or an HTTP/2 stream.
pub(crate) trait SiteCodec: Pipeline<In = Incoming, Out = Outgoing> {
    /// The pipeline of a connection whose peer turns out to speak HTTP/2.
    type Http2: SessionCodec;

    /// Continues as an HTTP/2 connection, over the same filters.
    fn into_http2(self, connection: Connection) -> Self::Http2;

    /// The addresses that a proxy has reported: the client's, and that at which the proxy received the connection.
    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)>;

    /// The connection's part of the capture file, if there is one.
    fn capture(&mut self) -> Option<&mut ConnectionCapture> {
        None
    }

    /// The filters below HTTP, for another protocol.
    fn filters(self) -> Filters;
}

impl SiteCodec for Server {
    type Http2 = Connection;

    fn into_http2(self, connection: Connection) -> Connection {
        connection
    }

    fn filters(self) -> Filters {
        Filters::default()
    }

    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
}

/// The addresses that a proxy has reported for the connection of a stream.
pub(crate) type StreamAddresses = Option<Rc<(SocketAddr, SocketAddr)>>;

impl SiteCodec for ServerStream<StreamAddresses> {
    type Http2 = Connection;

    fn into_http2(self, connection: Connection) -> Connection {
        connection
    }

    fn filters(self) -> Filters {
        Over::new(self.into_tunnel(), Raw).into_filters(|_| Filters::default())
    }

    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.data().as_deref().copied()
    }
}

impl SiteCodec for http3::ServerStream<StreamAddresses> {
    type Http2 = DynOver<Connection>;

    fn into_http2(self, connection: Connection) -> Self::Http2 {
        self.filters().stack(connection)
    }

    fn filters(self) -> Filters {
        self.into_filters(SiteCodec::filters)
    }

    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
}

impl SiteCodec for ReceivesHeader<Server> {
    type Http2 = Connection;

    fn into_http2(self, connection: Connection) -> Connection {
        connection
    }

    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let header = self.header()?;
        header.source().zip(header.destination())
    }

    fn filters(self) -> Filters {
        Filters::default()
    }
}

impl SiteCodec for Over<Tls, Server> {
    /// The same type for all filters: each pipeline is code of its own.
    type Http2 = DynOver<Connection>;

    fn into_http2(self, connection: Connection) -> Self::Http2 {
        self.filters().stack(connection)
    }

    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    fn filters(self) -> Filters {
        self.into_filters(Server::filters)
    }
}

/// Any other filters: a log of bytes, or a PROXY header below TLS.
impl SiteCodec for DynOver<Server> {
    type Http2 = DynOver<Connection>;

    fn into_http2(self, connection: Connection) -> Self::Http2 {
        self.filters().stack(connection)
    }

    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let header = self.filter::<ProxyHeaderFilter>()?.header()?;
        header.source().zip(header.destination())
    }

    fn capture(&mut self) -> Option<&mut ConnectionCapture> {
        self.filter_mut::<ByteLog<Sink>>()?.sink_mut().1.as_mut()
    }

    fn filters(self) -> Filters {
        self.into_filters(Server::filters)
    }
}
