//! `SiteCodec`: what the site needs of its codec, which is HTTP behind a PROXY header or without one, alone or over
//! filters.

use std::net::SocketAddr;

use tidegate::bytelog::{ByteLog, ConnectionCapture};
use tidegate::codec::{Filter, Filters, Over, Pipeline};
use tidegate::http1::{Incoming, Outgoing, Server};
use tidegate::proxy::{Proxied, Strip};
use tidegate::tls::Tls;

use crate::byte_log::Sink;

/// HTTP/1.1, with or without a PROXY header in front, alone or over filters.
pub(crate) trait SiteCodec: Pipeline<In = Incoming, Out = Outgoing> {
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
    fn filters(self) -> Filters {
        Filters::default()
    }

    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
}

impl SiteCodec for Proxied<Server> {
    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let header = self.header()?;
        header.source().zip(header.destination())
    }

    fn filters(self) -> Filters {
        Filters::default()
    }
}

impl<F: SiteFilter, C: SiteCodec> SiteCodec for Over<F, C> {
    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.filter().reported_addresses().or_else(|| self.codec().reported_addresses())
    }

    fn capture(&mut self) -> Option<&mut ConnectionCapture> {
        if F::CAPTURES { self.filter_mut().capture() } else { self.codec_mut().capture() }
    }

    fn filters(self) -> Filters {
        self.into_filters(C::filters)
    }
}

/// A filter below the site's codec.
pub(crate) trait SiteFilter: Filter {
    /// It may write to a capture file.
    const CAPTURES: bool = false;

    /// As for [`SiteCodec`].
    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    /// As for [`SiteCodec`].
    fn capture(&mut self) -> Option<&mut ConnectionCapture> {
        None
    }
}

impl SiteFilter for ByteLog<Sink> {
    const CAPTURES: bool = true;

    fn capture(&mut self) -> Option<&mut ConnectionCapture> {
        self.sink_mut().1.as_mut()
    }
}

impl SiteFilter for Tls {}

impl SiteFilter for Strip {
    fn reported_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let header = self.header()?;
        header.source().zip(header.destination())
    }
}
