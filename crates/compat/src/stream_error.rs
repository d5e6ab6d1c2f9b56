//! `StreamError`: why a byte stream ended early, as an error that may leave the loop.

use std::error::Error;
use std::fmt;
use std::io;

use tidegate_codec::Blame;
use tidegate_engine::{ChannelError, CloseReason};

/// Why an operation on a [`ByteStream`](crate::ByteStream) failed: the inner error of the [`io::Error`] that it
/// returns, with the text and the blame of the [`CloseReason`] or the [`ChannelError`].
///
/// Unlike these two it is `Send`: they keep the application's own error as it is, so they stay on their loop. There,
/// [`ByteStream::close_reason`](crate::ByteStream::close_reason) has the reason itself.
///
/// ```
/// use std::io;
/// use tidegate::codec::Blame;
/// use tidegate::compat::StreamError;
///
/// /// Whether the connection broke beneath the application.
/// fn is_of_the_peer(error: &io::Error) -> bool {
///     let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<StreamError>());
///     inner.is_some_and(|error| error.blame() == Some(Blame::Peer))
/// }
///
/// assert!(!is_of_the_peer(&io::Error::other("a disk error")));
/// ```
#[derive(Debug)]
pub struct StreamError {
    text: Box<str>,
    blame: Option<Blame>,
    /// The system's error, if the connection broke.
    source: Option<io::Error>,
}

impl StreamError {
    /// The party to blame, as in [`CloseReason::blame`]; `None` if the connection was closed as the application wanted.
    #[must_use]
    pub fn blame(&self) -> Option<Blame> {
        self.blame
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for StreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|error| error as &(dyn Error + 'static))
    }
}

/// The error of a stream's operation.
#[cold]
pub(crate) fn io_error(error: &ChannelError) -> io::Error {
    let (kind, blame) = match error {
        ChannelError::Closed(reason) => (close_kind(reason), reason.blame()),
        ChannelError::Deadline => (io::ErrorKind::TimedOut, Some(Blame::Limit)),
        ChannelError::Busy => (io::ErrorKind::ResourceBusy, Some(Blame::Caller)),
        ChannelError::Codec(_) => (io::ErrorKind::InvalidInput, Some(Blame::Caller)),
        _ => (io::ErrorKind::Other, Some(Blame::Limit)),
    };
    let source = match error.closed() {
        Some(CloseReason::Broken(error)) => Some(copy(error)),
        _ => None,
    };
    io::Error::new(kind, StreamError { text: error.to_string().into(), blame, source })
}

/// The kind under which callers of a stream look for a reason.
fn close_kind(reason: &CloseReason) -> io::ErrorKind {
    match reason {
        // Only a writer gets it: a reader sees the end of the stream.
        CloseReason::Done => io::ErrorKind::BrokenPipe,
        CloseReason::Broken(error) => error.kind(),
        CloseReason::StreamReset { by_peer: true, .. } => io::ErrorKind::ConnectionReset,
        CloseReason::Protocol(fault) if fault.blame() == Blame::Peer => io::ErrorKind::InvalidData,
        CloseReason::Deadline | CloseReason::WriteTimeout => io::ErrorKind::TimedOut,
        CloseReason::Failed(_) | CloseReason::Panicked => io::ErrorKind::Other,
        _ => io::ErrorKind::ConnectionAborted,
    }
}

/// The same error of the system: `io::Error` has no `clone`.
fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn of(reason: CloseReason) -> io::Error {
        io_error(&ChannelError::Closed(Rc::new(reason)))
    }

    #[test]
    fn an_error_has_the_kind_the_text_the_blame_and_the_source_of_its_reason() {
        let error = of(CloseReason::Broken(io::Error::from_raw_os_error(104)));
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<StreamError>()).expect("an inner error");
        assert_eq!(inner.blame(), Some(Blame::Peer));
        assert!(inner.to_string().starts_with("the connection broke: "), "{inner}");
        let source = inner.source().and_then(|source| source.downcast_ref::<io::Error>()).expect("a source");
        assert_eq!(source.raw_os_error(), Some(104));
    }

    #[test]
    fn each_reason_has_a_kind() {
        for (reason, kind) in [
            (CloseReason::Done, io::ErrorKind::BrokenPipe),
            (CloseReason::Aborted, io::ErrorKind::ConnectionAborted),
            (CloseReason::StreamReset { code: 7, by_peer: true }, io::ErrorKind::ConnectionReset),
            (CloseReason::StreamReset { code: 7, by_peer: false }, io::ErrorKind::ConnectionAborted),
            (CloseReason::Deadline, io::ErrorKind::TimedOut),
            (CloseReason::WriteTimeout, io::ErrorKind::TimedOut),
            (CloseReason::Shed, io::ErrorKind::ConnectionAborted),
            (CloseReason::Failed("no".into()), io::ErrorKind::Other),
        ] {
            let text = reason.to_string();
            let error = of(reason);
            assert_eq!((error.kind(), error.to_string()), (kind, text));
        }
        assert_eq!(io_error(&ChannelError::Deadline).kind(), io::ErrorKind::TimedOut);
        assert_eq!(io_error(&ChannelError::Busy).kind(), io::ErrorKind::ResourceBusy);
    }
}
