//! `BackplaneFault`: why a node cannot do its work at present.

use std::fmt;
use std::sync::Arc;

/// Why a node cannot do its work at present. Its text is a line for a readiness probe.
///
/// ```
/// use tidegate::backplane::BackplaneFault;
///
/// let fault = BackplaneFault::RefusesMessages("READONLY You can't write against a read only replica.".into());
/// assert!(fault.to_string().starts_with("the broker refuses messages: READONLY"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackplaneFault {
    /// The broker is not connected; the reason of the last failure, if there is one.
    NotConnected(Option<Arc<str>>),
    /// The broker is connected, and refuses messages for this reason.
    RefusesMessages(Arc<str>),
}

impl fmt::Display for BackplaneFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected(None) => f.write_str("the broker is not connected"),
            Self::NotConnected(Some(reason)) => write!(f, "the broker is not connected: {reason}"),
            Self::RefusesMessages(reason) => write!(f, "the broker refuses messages: {reason}"),
        }
    }
}
