//! The log lines of limits that refuse a request: one for each limit in the life of a process, with the name of what sets it.
//!
//! An application that moves here from a server without such a limit fails where it did not before, and its client gets a
//! status that the application never sent. One line is enough to find the limit; the metrics count the others.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

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
