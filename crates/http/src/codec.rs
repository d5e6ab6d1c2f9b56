//! `HttpCodec`: the requirements of this crate on the pipeline below it, whatever the HTTP version and the filters.

use std::any::Any;
use std::cell::OnceCell;
use std::rc::Rc;

use tidegate_codec::mux::{Mux, StreamEvent};
use tidegate_codec::{DynOver, Filter, Filters, Over, OverError, Pipeline};
use tidegate_http1::{self as http1, Incoming, Outgoing};
use tidegate_http2::Connection;
use tidegate_proxy_protocol::{ProxyHeaderFilter, ReceivesHeader};
use tidegate_sys::Address;

use crate::tls_info::TlsInfo;

/// A multiplexing pipeline: the one below the streams of an HTTP/2 connection.
pub trait SessionCodec: Pipeline<In = StreamEvent, Codec: Mux> {}

impl<P: Pipeline<In = StreamEvent, Codec: Mux>> SessionCodec for P {}

/// A pipeline with HTTP messages: the codec of one version, alone or over filters.
pub trait HttpCodec: Pipeline<In = Incoming, Out = Outgoing> {
    /// The pipeline of a connection whose peer turns out to speak HTTP/2.
    type Http2: SessionCodec;

    /// Whether a request waits for its body until the dispatch is over in which its head came. A message of a stream is
    /// one of many in a dispatch, and a task for each would cost more than the wait.
    #[doc(hidden)]
    const HOLDS_REQUESTS: bool = false;

    /// Continues as an HTTP/2 connection, over the same filters.
    fn into_http2(self, connection: Connection) -> Self::Http2;

    /// The address of the client that a trusted proxy has reported.
    fn reported_peer(&self) -> Option<Address> {
        None
    }

    /// The address that the client has connected to, as a trusted proxy has reported it.
    fn reported_destination(&self) -> Option<Address> {
        None
    }

    /// Whether the connection is encrypted.
    fn is_secure(&self) -> bool {
        false
    }

    /// The parameters of the TLS connection, if it is one.
    fn tls_info(&self) -> Option<TlsInfo> {
        None
    }

    /// Yields the next request before the response to the last one, if the protocol allows it and would not do so anyway;
    /// see [`http1::Server::read_ahead`].
    #[doc(hidden)]
    fn read_ahead(&mut self) -> bool {
        false
    }

    /// Keeps the request in progress when the peer ends its side of the connection, if the protocol would not do so
    /// anyway; see [`http1::Server::keep_half_closed`]. An HTTP/2 stream ends by itself, and with its connection.
    #[doc(hidden)]
    fn keep_half_closed(&mut self) {}

    /// Whether the request in progress goes on then.
    #[doc(hidden)]
    fn keeps_half_closed(&self) -> bool {
        true
    }

    /// Where the state of the connection is, if the requests of the connection have a handler each.
    #[doc(hidden)]
    fn shared_state(&self) -> Option<&Rc<OnceCell<Rc<dyn Any>>>> {
        None
    }

    /// The filters below, for the codec of another protocol on them: the connection leaves HTTP after a response that
    /// [upgrades](crate::Upgrade) it. The response is written and flushed before. For a stream of a session the filters
    /// carry the bytes in the stream's frames.
    fn into_filters(self) -> Filters;

    /// Whether the last response was one after which the connection carries another protocol.
    fn has_left_http(&self) -> bool;

    /// The application's fault, if the error is about that.
    fn misuse(error: &Self::Error) -> &'static str;
}

impl HttpCodec for http1::Server {
    type Http2 = Connection;

    fn into_http2(self, connection: Connection) -> Connection {
        connection
    }

    fn read_ahead(&mut self) -> bool {
        self.read_ahead()
    }

    fn keep_half_closed(&mut self) {
        self.keep_half_closed();
    }

    fn keeps_half_closed(&self) -> bool {
        self.keeps_half_closed()
    }

    fn into_filters(self) -> Filters {
        Filters::default()
    }

    fn has_left_http(&self) -> bool {
        self.is_switched()
    }

    fn misuse(error: &http1::Error) -> &'static str {
        match error {
            http1::Error::Caller(misuse) => misuse.text(),
            _ => "the connection failed",
        }
    }
}

impl HttpCodec for ReceivesHeader<http1::Server> {
    type Http2 = Connection;

    /// The header was removed before the first message.
    fn into_http2(self, connection: Connection) -> Connection {
        connection
    }

    fn reported_peer(&self) -> Option<Address> {
        self.header().and_then(|header| header.source()).map(Address::from)
    }

    fn reported_destination(&self) -> Option<Address> {
        self.header().and_then(|header| header.destination()).map(Address::from)
    }

    fn read_ahead(&mut self) -> bool {
        self.inner_mut().read_ahead()
    }

    fn keep_half_closed(&mut self) {
        self.inner_mut().keep_half_closed();
    }

    fn keeps_half_closed(&self) -> bool {
        self.inner().keeps_half_closed()
    }

    fn into_filters(self) -> Filters {
        self.into_inner().into_filters()
    }

    fn has_left_http(&self) -> bool {
        self.inner().is_switched()
    }

    fn misuse(error: &Self::Error) -> &'static str {
        misuse_over::<http1::Server, _>(error)
    }
}

impl<F: HttpFilter, C: HttpCodec> HttpCodec for Over<F, C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<F::Error, C::Error>>,
    Over<F, C::Http2>: SessionCodec,
{
    type Http2 = Over<F, C::Http2>;

    const HOLDS_REQUESTS: bool = C::HOLDS_REQUESTS;

    fn into_http2(self, connection: Connection) -> Self::Http2 {
        self.map(|codec| codec.into_http2(connection))
    }

    fn reported_peer(&self) -> Option<Address> {
        self.filter().reported_peer().or_else(|| self.codec().reported_peer())
    }

    fn reported_destination(&self) -> Option<Address> {
        self.filter().reported_destination().or_else(|| self.codec().reported_destination())
    }

    fn is_secure(&self) -> bool {
        F::IS_SECURE || self.codec().is_secure()
    }

    fn tls_info(&self) -> Option<TlsInfo> {
        self.filter().tls_info().or_else(|| self.codec().tls_info())
    }

    fn read_ahead(&mut self) -> bool {
        self.codec_mut().read_ahead()
    }

    fn keep_half_closed(&mut self) {
        self.codec_mut().keep_half_closed();
    }

    fn keeps_half_closed(&self) -> bool {
        self.codec().keeps_half_closed()
    }

    fn shared_state(&self) -> Option<&Rc<OnceCell<Rc<dyn Any>>>> {
        self.codec().shared_state()
    }

    fn into_filters(self) -> Filters {
        self.into_filters(C::into_filters)
    }

    fn has_left_http(&self) -> bool {
        self.codec().has_left_http()
    }

    fn misuse(error: &Self::Error) -> &'static str {
        misuse_over::<C, _>(error)
    }
}

/// Filters that are found at run time: code of its own for each combination would be large.
impl HttpCodec for DynOver<http1::Server> {
    type Http2 = DynOver<Connection>;

    fn into_http2(self, connection: Connection) -> Self::Http2 {
        HttpCodec::into_filters(self).stack(connection)
    }

    fn reported_peer(&self) -> Option<Address> {
        self.filter::<ProxyHeaderFilter>().and_then(HttpFilter::reported_peer)
    }

    fn reported_destination(&self) -> Option<Address> {
        self.filter::<ProxyHeaderFilter>().and_then(HttpFilter::reported_destination)
    }

    #[cfg(feature = "tls")]
    fn is_secure(&self) -> bool {
        self.filter::<tidegate_tls::Tls>().is_some()
    }

    #[cfg(feature = "tls")]
    fn tls_info(&self) -> Option<TlsInfo> {
        self.filter::<tidegate_tls::Tls>().map(TlsInfo::of)
    }

    fn keep_half_closed(&mut self) {
        self.above_mut().keep_half_closed();
    }

    fn keeps_half_closed(&self) -> bool {
        self.above().keeps_half_closed()
    }

    fn into_filters(self) -> Filters {
        self.into_filters(http1::Server::into_filters)
    }

    fn has_left_http(&self) -> bool {
        self.above().is_switched()
    }

    fn misuse(error: &Self::Error) -> &'static str {
        misuse_over::<http1::Server, _>(error)
    }
}

/// A filter below an HTTP codec.
pub trait HttpFilter: Filter {
    /// Whether it encrypts.
    const IS_SECURE: bool = false;

    /// The parameters of the TLS connection, if it is one.
    fn tls_info(&self) -> Option<TlsInfo> {
        None
    }

    /// The address of the client that a trusted proxy has reported.
    fn reported_peer(&self) -> Option<Address> {
        None
    }

    /// The address that the client has connected to, as a trusted proxy has reported it.
    fn reported_destination(&self) -> Option<Address> {
        None
    }
}

impl HttpFilter for ProxyHeaderFilter {
    fn reported_peer(&self) -> Option<Address> {
        self.header().and_then(|header| header.source()).map(Address::from)
    }

    fn reported_destination(&self) -> Option<Address> {
        self.header().and_then(|header| header.destination()).map(Address::from)
    }
}

#[cfg(feature = "tls")]
impl HttpFilter for tidegate_tls::Tls {
    const IS_SECURE: bool = true;

    fn tls_info(&self) -> Option<TlsInfo> {
        Some(TlsInfo::of(self))
    }
}

/// The frames of an HTTP/3 stream; QUIC encrypts below it.
#[cfg(feature = "http3")]
impl HttpFilter for tidegate_http3::RequestStream {
    const IS_SECURE: bool = true;
}

fn misuse_over<C: HttpCodec, E>(error: &OverError<E, C::Error>) -> &'static str {
    match error {
        OverError::Codec(error) => C::misuse(error),
        _ => "the connection failed",
    }
}
