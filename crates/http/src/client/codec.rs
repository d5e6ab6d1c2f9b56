//! What this module needs of the pipelines of connections and streams, whatever the filters below them are.

use tidegate_codec::{DynFault, DynOver, Filter, Filters, Over, OverError, Pipeline};
use tidegate_engine::{Channel, CloseReason};
use tidegate_http1::client::{Incoming, Outgoing};
use tidegate_http1::{self as http1, Client, Violation};
use tidegate_http2::{ClientStream, ErrorCode};

use super::connection::Http1;
use super::ends::Ends;
use super::pool::Lease;
use super::shared::StreamLease;

/// A pipeline that carries one exchange at a time: of a connection of HTTP/1.1, or of a stream of HTTP/2.
pub(crate) trait ExchangeCodec: Pipeline<In = Incoming, Out = Outgoing> + Sized {
    /// What an exchange owns in the pool.
    type Lease: 'static;

    /// The error of HTTP, unless a filter has failed.
    fn http_error(error: &Self::Error) -> Option<&http1::Error>;

    /// What is below HTTP, for another protocol on the same connection.
    fn into_filters(self) -> Filters;

    /// Whether the connection carries another protocol after a response.
    fn has_left_http(&self) -> bool;

    /// Whether a request may be sent again of which no response has come before its connection or stream has closed.
    fn retry(reason: &CloseReason) -> Retry;

    /// An exchange is over, and its request was sent unless it `is_cut_off`.
    fn end(channel: Channel<Self>, lease: Self::Lease, is_cut_off: bool);

    /// An exchange is given up.
    fn give_up(mut ends: Ends<Self>, lease: Self::Lease) {
        ends.abort();
        drop(lease);
    }

    /// What the application did wrong, if the error is about that.
    fn misuse(error: &Self::Error) -> &'static str {
        match Self::http_error(error) {
            Some(http1::Error::Caller(misuse)) => misuse.text(),
            _ => "the connection failed",
        }
    }
}

/// Whether a request without a response may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The server may have processed it, and more.
    Never,
    /// The server may have processed it.
    IfIdempotent,
    /// The server has not processed it.
    Always,
    /// The server has not processed it, and wants it by HTTP/1.1.
    ByHttp1,
}

/// A pipeline whose uppermost codec is the client of HTTP/1.1.
pub(crate) trait ClientCodec: ExchangeCodec<Lease = Lease> + Pipeline<Codec = Client> {
    /// The protocol that the server has chosen by ALPN (RFC 7301).
    fn alpn(&self) -> Option<&[u8]>;
}

/// A filter below the client of HTTP/1.1.
pub(crate) trait ClientFilter: Filter {
    /// The protocol that the server has chosen.
    fn alpn(&self) -> Option<&[u8]>;
}

#[cfg(feature = "tls")]
impl ClientFilter for tidegate_tls::Tls {
    fn alpn(&self) -> Option<&[u8]> {
        self.alpn()
    }
}

/// Whether the server closed the connection, or the network broke it, before any byte of a response.
fn retry_on_connection<C: ExchangeCodec>(reason: &CloseReason) -> Retry {
    let is_unanswered = match reason {
        CloseReason::Done | CloseReason::Broken(_) => true,
        CloseReason::Protocol(fault) => {
            let error: &(dyn std::error::Error + 'static) = &**fault;
            let error = error.downcast_ref::<C::Error>().and_then(C::http_error);
            matches!(error, Some(http1::Error::Peer(Violation::Unanswered | Violation::UnsolicitedResponse)))
        }
        _ => false,
    };
    if is_unanswered { Retry::IfIdempotent } else { Retry::Never }
}

/// Returns a connection that takes another request to its pool.
fn return_connection<C: ClientCodec>(mut channel: Channel<C>, lease: Lease, is_cut_off: bool) {
    if !is_cut_off && channel.with_codec(|codec| codec.codec().is_ready()).unwrap_or(false) {
        lease.put_back(Box::new(Http1(channel)));
    }
}

impl ExchangeCodec for Client {
    type Lease = Lease;

    fn http_error(error: &http1::Error) -> Option<&http1::Error> {
        Some(error)
    }

    fn into_filters(self) -> Filters {
        Filters::default()
    }

    fn has_left_http(&self) -> bool {
        self.is_switched()
    }

    fn retry(reason: &CloseReason) -> Retry {
        retry_on_connection::<Self>(reason)
    }

    fn end(channel: Channel<Self>, lease: Lease, is_cut_off: bool) {
        return_connection(channel, lease, is_cut_off);
    }
}

impl ClientCodec for Client {
    fn alpn(&self) -> Option<&[u8]> {
        None
    }
}

impl<F: ClientFilter, C: ClientCodec> ExchangeCodec for Over<F, C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<F::Error, C::Error>, Codec = Client>,
{
    type Lease = Lease;

    fn http_error(error: &Self::Error) -> Option<&http1::Error> {
        match error {
            OverError::Codec(error) => C::http_error(error),
            OverError::Filter(_) => None,
        }
    }

    fn into_filters(self) -> Filters {
        self.into_filters(C::into_filters)
    }

    fn has_left_http(&self) -> bool {
        self.codec().has_left_http()
    }

    fn retry(reason: &CloseReason) -> Retry {
        retry_on_connection::<Self>(reason)
    }

    fn end(channel: Channel<Self>, lease: Lease, is_cut_off: bool) {
        return_connection(channel, lease, is_cut_off);
    }
}

impl<F: ClientFilter, C: ClientCodec> ClientCodec for Over<F, C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<F::Error, C::Error>, Codec = Client>,
{
    fn alpn(&self) -> Option<&[u8]> {
        self.codec().alpn().or_else(|| self.filter().alpn())
    }
}

impl<C: ClientCodec> ExchangeCodec for DynOver<C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<DynFault, C::Error>, Codec = Client>,
{
    type Lease = Lease;

    fn http_error(error: &Self::Error) -> Option<&http1::Error> {
        match error {
            OverError::Codec(error) => C::http_error(error),
            OverError::Filter(_) => None,
        }
    }

    fn into_filters(self) -> Filters {
        self.into_filters(C::into_filters)
    }

    fn has_left_http(&self) -> bool {
        self.above().has_left_http()
    }

    fn retry(reason: &CloseReason) -> Retry {
        retry_on_connection::<Self>(reason)
    }

    fn end(channel: Channel<Self>, lease: Lease, is_cut_off: bool) {
        return_connection(channel, lease, is_cut_off);
    }
}

impl<C: ClientCodec> ClientCodec for DynOver<C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<DynFault, C::Error>, Codec = Client>,
{
    fn alpn(&self) -> Option<&[u8]> {
        self.above().alpn()
    }
}

impl ExchangeCodec for ClientStream {
    type Lease = StreamLease;

    fn http_error(error: &http1::Error) -> Option<&http1::Error> {
        Some(error)
    }

    fn into_filters(self) -> Filters {
        Filters::default()
    }

    /// Another protocol on a stream needs extended CONNECT (RFC 8441).
    fn has_left_http(&self) -> bool {
        false
    }

    /// A stream that was refused, or is above the last one of GOAWAY, was not processed (RFC 9113 §8.7).
    fn retry(reason: &CloseReason) -> Retry {
        match reason {
            CloseReason::StreamReset { code, by_peer: true } => match u32::try_from(*code).map(ErrorCode) {
                Ok(ErrorCode::REFUSED_STREAM) => Retry::Always,
                Ok(ErrorCode::HTTP_1_1_REQUIRED) => Retry::ByHttp1,
                _ => Retry::Never,
            },
            CloseReason::Done | CloseReason::Broken(_) => Retry::IfIdempotent,
            _ => Retry::Never,
        }
    }

    fn give_up(ends: Ends<Self>, lease: StreamLease) {
        lease.reset(ends);
    }

    /// The connection stays; a stream whose request was not sent to its end is reset.
    fn end(channel: Channel<Self>, lease: StreamLease, is_cut_off: bool) {
        if is_cut_off {
            channel.abort();
        } else {
            drop(channel);
        }
        drop(lease);
    }
}
