//! `ClientCodec`: what this module needs of the pipeline of a connection, whatever the filters below it are.

use tidegate_codec::{DynFault, DynOver, Filter, Filters, Over, OverError, Pipeline};
use tidegate_http1::client::{Incoming, Outgoing};
use tidegate_http1::{self as http1, Client};

/// A pipeline whose uppermost codec is the client of HTTP/1.1.
pub(crate) trait ClientCodec: Pipeline<In = Incoming, Out = Outgoing, Codec = Client> {
    /// The error of HTTP, unless a filter has failed.
    fn http_error(error: &Self::Error) -> Option<&http1::Error>;

    /// What is below HTTP, for another protocol on the same connection.
    fn into_filters(self) -> Filters;

    /// What the application did wrong, if the error is about that.
    fn misuse(error: &Self::Error) -> &'static str {
        match Self::http_error(error) {
            Some(http1::Error::Caller(misuse)) => misuse.text(),
            _ => "the connection failed",
        }
    }
}

impl ClientCodec for Client {
    fn http_error(error: &http1::Error) -> Option<&http1::Error> {
        Some(error)
    }

    fn into_filters(self) -> Filters {
        Filters::default()
    }
}

impl<F: Filter, C: ClientCodec> ClientCodec for Over<F, C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<F::Error, C::Error>, Codec = Client>,
{
    fn http_error(error: &Self::Error) -> Option<&http1::Error> {
        match error {
            OverError::Codec(error) => C::http_error(error),
            OverError::Filter(_) => None,
        }
    }

    fn into_filters(self) -> Filters {
        self.into_filters(C::into_filters)
    }
}

impl<C: ClientCodec> ClientCodec for DynOver<C>
where
    Self: Pipeline<In = Incoming, Out = Outgoing, Error = OverError<DynFault, C::Error>, Codec = Client>,
{
    fn http_error(error: &Self::Error) -> Option<&http1::Error> {
        match error {
            OverError::Codec(error) => C::http_error(error),
            OverError::Filter(_) => None,
        }
    }

    fn into_filters(self) -> Filters {
        self.into_filters(C::into_filters)
    }
}
