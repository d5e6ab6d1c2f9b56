//! `ExchangeCodec`: the pipeline of a connection or of a stream that carries exchanges, with any filters below it.
//!
//! The codec knows nothing of pools: [`Release`](super::Release) decides where a channel goes after its exchange.

use tidegate_codec::{Codec as _, DynFault, DynOver, Filter, Filters, Over, OverError, Pipeline};
use tidegate_engine::CloseReason;
use tidegate_http1::client::{Incoming, Outgoing};
use tidegate_http1::{self as http1, Client, Misuse, Violation};
use tidegate_http2::{ClientStream, ErrorCode};
#[cfg(feature = "proxy-header")]
use tidegate_proxy_protocol::SendsHeader;

use super::retry::Retry;

/// A pipeline that carries exchanges: of an HTTP/1.1 connection, or of an HTTP/2 or HTTP/3 stream.
pub trait ExchangeCodec: Pipeline<In = Incoming, Out = Outgoing> + Sized {
    /// The HTTP error, unless a filter has failed.
    fn http_error(error: &Self::Error) -> Option<&http1::Error>;

    /// Whether the error is that of a filter whose peer has ended the connection without the end of the filter's protocol.
    fn is_cut_off(_error: &Self::Error) -> bool {
        false
    }

    /// The filters below HTTP, for another protocol on the same connection.
    fn into_filters(self) -> Filters;

    /// Whether the connection carries another protocol after a response.
    fn has_left_http(&self) -> bool;

    /// Whether a request may be sent again of which no response has come before its connection or stream has closed.
    fn retry(reason: &CloseReason) -> Retry;

    /// The HTTP/1.1 codec; `None` for a stream, which carries one exchange.
    fn http1(&self) -> Option<&Client>;

    /// Whether the sending side of the channel ends behind a request: the end of the message is that of its stream.
    const ENDS_WITH_REQUEST: bool = false;

    /// Whether request and response are complete.
    fn is_complete(&self) -> bool {
        self.is_reusable()
    }

    /// Whether another request may follow, now that none is in progress.
    fn is_reusable(&self) -> bool {
        self.http1().is_some_and(|http1| http1.is_idle() && http1.is_ready())
    }

    /// Whether another request may follow those in progress.
    fn takes_another(&self) -> bool {
        self.http1().is_some_and(Client::is_ready)
    }

    /// The caller's mistake, if the error is one.
    fn misuse(error: &Self::Error) -> Option<Misuse> {
        match Self::http_error(error) {
            Some(http1::Error::Caller(misuse)) => Some(*misuse),
            _ => None,
        }
    }
}

/// A pipeline whose uppermost codec is the HTTP/1.1 client.
pub trait ClientCodec: ExchangeCodec {
    /// The protocol that the server has chosen by ALPN (RFC 7301).
    fn alpn(&self) -> Option<&[u8]>;
}

/// A filter below the HTTP/1.1 client.
pub trait ClientFilter: Filter {
    /// The protocol that the server has chosen.
    fn alpn(&self) -> Option<&[u8]>;

    /// Whether the server has ended the connection without the end of this protocol.
    fn is_cut_off(error: &Self::Error) -> bool;
}

#[cfg(feature = "tls")]
impl ClientFilter for tidegate_tls::Tls {
    fn alpn(&self) -> Option<&[u8]> {
        self.alpn()
    }

    fn is_cut_off(error: &tidegate_tls::Error) -> bool {
        matches!(error, tidegate_tls::Error::Truncated)
    }
}

/// The HTTP error for which a connection or a stream was closed, unless a filter has failed.
#[must_use]
pub fn http_error<'a>(fault: &'a (dyn std::error::Error + 'static)) -> Option<&'a http1::Error> {
    let of_http = fault.downcast_ref::<http1::Error>();
    #[cfg(feature = "tls")]
    let of_http = of_http.or_else(|| error_over::<tidegate_tls::Error>(fault));
    #[cfg(feature = "http3")]
    let of_http = of_http.or_else(|| error_over::<tidegate_http3::StreamError>(fault));
    of_http
}

/// Whether the server has ended a connection without the end of its TLS, as many do with idle ones.
#[must_use]
pub fn is_cut_off(fault: &(dyn std::error::Error + 'static)) -> bool {
    #[cfg(feature = "tls")]
    if let Some(OverError::Filter(error)) = fault.downcast_ref::<OverError<tidegate_tls::Error, http1::Error>>() {
        return tidegate_tls::Tls::is_cut_off(error);
    }
    let _ = fault;
    false
}

#[cfg(feature = "tls")]
fn error_over<'a, F: std::error::Error + 'static>(
    fault: &'a (dyn std::error::Error + 'static),
) -> Option<&'a http1::Error> {
    match fault.downcast_ref::<OverError<F, http1::Error>>() {
        Some(OverError::Codec(error)) => Some(error),
        _ => None,
    }
}

/// Whether the server closed the connection, or the network broke it, before the head of a response. Many servers end an
/// idle TLS connection without `close_notify`.
fn retry_on_connection<C: ExchangeCodec>(reason: &CloseReason) -> Retry {
    let is_unanswered = match reason {
        CloseReason::Done | CloseReason::Broken(_) => true,
        CloseReason::Protocol(fault) => {
            let error: &(dyn std::error::Error + 'static) = &**fault;
            let error = error.downcast_ref::<C::Error>();
            let unanswered = [Violation::Unanswered, Violation::UnsolicitedResponse].map(http1::Error::Peer);
            error.is_some_and(|error| {
                C::is_cut_off(error) || C::http_error(error).is_some_and(|error| unanswered.contains(error))
            })
        }
        _ => false,
    };
    if is_unanswered { Retry::IfIdempotent } else { Retry::Never }
}

impl ExchangeCodec for Client {
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

    fn http1(&self) -> Option<&Client> {
        Some(self)
    }
}

impl ClientCodec for Client {
    fn alpn(&self) -> Option<&[u8]> {
        None
    }
}

impl<F: ClientFilter, C: ClientCodec> ExchangeCodec for Over<F, C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<F::Error, C::Error>>,
{
    fn http_error(error: &Self::Error) -> Option<&http1::Error> {
        match error {
            OverError::Codec(error) => C::http_error(error),
            OverError::Filter(_) => None,
        }
    }

    fn is_cut_off(error: &Self::Error) -> bool {
        match error {
            OverError::Codec(error) => C::is_cut_off(error),
            OverError::Filter(error) => F::is_cut_off(error),
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

    fn http1(&self) -> Option<&Client> {
        self.codec().http1()
    }
}

impl<F: ClientFilter, C: ClientCodec> ClientCodec for Over<F, C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<F::Error, C::Error>>,
{
    fn alpn(&self) -> Option<&[u8]> {
        self.codec().alpn().or_else(|| self.filter().alpn())
    }
}

impl<C: ClientCodec> ExchangeCodec for DynOver<C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<DynFault, C::Error>>,
{
    fn http_error(error: &Self::Error) -> Option<&http1::Error> {
        match error {
            OverError::Codec(error) => C::http_error(error),
            OverError::Filter(_) => None,
        }
    }

    fn is_cut_off(error: &Self::Error) -> bool {
        match error {
            OverError::Codec(error) => C::is_cut_off(error),
            // The filters are those to a proxy.
            OverError::Filter(_) => false,
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

    fn http1(&self) -> Option<&Client> {
        self.above().http1()
    }
}

impl<C: ClientCodec> ClientCodec for DynOver<C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<DynFault, C::Error>>,
{
    fn alpn(&self) -> Option<&[u8]> {
        self.above().alpn()
    }
}

impl ExchangeCodec for ClientStream {
    fn http_error(error: &http1::Error) -> Option<&http1::Error> {
        Some(error)
    }

    fn into_filters(self) -> Filters {
        Filters::default().with(self.into_tunnel())
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

    fn http1(&self) -> Option<&Client> {
        None
    }

    fn is_complete(&self) -> bool {
        self.status().is_finished
    }
}

#[cfg(feature = "http3")]
impl ExchangeCodec for tidegate_http3::ClientStream {
    fn http_error(error: &Self::Error) -> Option<&http1::Error> {
        match error {
            OverError::Codec(error) => Some(error),
            OverError::Filter(_) => None,
        }
    }

    fn into_filters(self) -> Filters {
        self.into_filters(|stream| Filters::default().with(stream.into_tunnel()))
    }

    /// Another protocol on a stream needs extended CONNECT (RFC 9220).
    fn has_left_http(&self) -> bool {
        false
    }

    /// A stream that was rejected, or that GOAWAY does not permit, was not processed (RFC 9114 §4.1.1, §5.2).
    fn retry(reason: &CloseReason) -> Retry {
        use tidegate_http3::ErrorCode as Http3Code;
        match reason {
            CloseReason::StreamReset { code, by_peer: true } => match Http3Code(*code) {
                Http3Code::REQUEST_REJECTED => Retry::Always,
                Http3Code::VERSION_FALLBACK => Retry::ByHttp1,
                _ => Retry::Never,
            },
            CloseReason::Done | CloseReason::Broken(_) => Retry::IfIdempotent,
            _ => Retry::Never,
        }
    }

    fn http1(&self) -> Option<&Client> {
        None
    }

    const ENDS_WITH_REQUEST: bool = true;

    fn is_complete(&self) -> bool {
        self.codec().status().is_finished
    }
}

/// An HTTP/1.1 connection that begins with a PROXY header. The header is sent once, so other protocols find no filter.
#[cfg(feature = "proxy-header")]
impl ExchangeCodec for SendsHeader<Client> {
    fn http_error(error: &http1::Error) -> Option<&http1::Error> {
        Some(error)
    }

    fn into_filters(self) -> Filters {
        Filters::default()
    }

    fn has_left_http(&self) -> bool {
        self.inner().is_switched()
    }

    fn retry(reason: &CloseReason) -> Retry {
        retry_on_connection::<Self>(reason)
    }

    fn http1(&self) -> Option<&Client> {
        Some(self.inner())
    }
}

#[cfg(feature = "proxy-header")]
impl ClientCodec for SendsHeader<Client> {
    fn alpn(&self) -> Option<&[u8]> {
        None
    }
}
