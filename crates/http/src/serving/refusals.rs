//! The log lines of limits that refuse a request: one for each limit in the life of a process, with the name of its
//! setting.
//!
//! An application that moves here from a server without such a limit fails where it did not before, and its client gets a
//! status that the application never sent. One line is enough to find the limit; the metrics count the others.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_http1::Status;

use crate::response::Response;
use crate::serving::exchanges::TimeoutKind;

/// A limit of [`Limits`](crate::Limits) that the HTTP layer applies by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// 413: a body that is collected.
    CollectedBody,
    /// 503: the function.
    Request,
    /// 408: the body.
    Receive,
}

impl Limit {
    /// Logs that the limit has refused a request, the first time.
    #[cold]
    pub(crate) fn log(self) {
        static LOGGED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
        if LOGGED[self as usize].swap(true, Relaxed) {
            return;
        }
        let (status, limit, reason) = match self {
            Self::CollectedBody => {
                (413, "collected_body_bytes_max", "the body of a request is longer than may be collected")
            }
            Self::Request => (503, "request_timeout", "a function has not responded in time"),
            Self::Receive => (408, "receive_timeout, request_timeout", "the body of a request has not come in time"),
        };
        tracing::warn!(
            subsystem = "http",
            status,
            limit,
            reason,
            "a limit of http::Limits has refused a request; further ones are not logged"
        );
    }
}

pub(crate) fn too_long() -> Response {
    Limit::CollectedBody.log();
    Response::of_error(Status::CONTENT_TOO_LARGE).close()
}

/// The response of a function that has panicked. The panic hook has printed the panic itself.
#[cold]
pub(crate) fn panicked() -> Response {
    tracing::error!("a function panicked while it handled a request; the response is a 500");
    let cause = "the function panicked; standard error has the message and the place";
    Response::of_error(Status::INTERNAL_SERVER_ERROR).close().caused_by(cause)
}

/// The response leaves HTTP, and the protocol does not: it was no 101, and no 2xx to a CONNECT.
pub(crate) const NOT_A_TUNNEL: &str = "a response that makes the connection a tunnel answers a CONNECT";

/// The response when a function, or the body that it waits for, took too long.
#[cold]
pub(crate) fn late_response(timeout: TimeoutKind) -> Response {
    let (status, limit) = match timeout {
        TimeoutKind::Peer => (Status::REQUEST_TIMEOUT, Limit::Receive),
        TimeoutKind::Function => (Status::SERVICE_UNAVAILABLE, Limit::Request),
    };
    limit.log();
    Response::of_error(status).close()
}
