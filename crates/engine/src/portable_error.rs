//! `PortableError`: the texts of an error that stays on its loop, as an error that leaves it.

use std::error::Error;
use std::fmt;

use tidegate_codec::Blame;

/// An error of a connection without the application's own values in it, so that it is `Send` and `Sync`: made by
/// [`ChannelError::into_send`](crate::ChannelError::into_send) and [`SendError::into_send`](crate::SendError::into_send).
#[derive(Debug, Clone)]
pub struct PortableError {
    text: Box<str>,
    blame: Option<Blame>,
    source: Option<Box<Self>>,
}

impl PortableError {
    pub(crate) fn new(error: &dyn Error, blame: Option<Blame>) -> Self {
        Self { text: error.to_string().into(), blame, source: source(error, SOURCES_MAX) }
    }

    /// The party to blame for the end of the connection, as [`CloseReason::blame`](crate::CloseReason::blame) has it.
    #[must_use]
    pub fn blame(&self) -> Option<Blame> {
        self.blame
    }
}

/// The source of an error, with so many of its own sources.
fn source(error: &dyn Error, left: usize) -> Option<Box<PortableError>> {
    let error = error.source().filter(|_| left > 0)?;
    let source = source(error, left - 1);
    Some(Box::new(PortableError { text: error.to_string().into(), blame: None, source }))
}

impl fmt::Display for PortableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for PortableError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// An error of the application may be its own source.
const SOURCES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::channel::ChannelError;
    use crate::close_reason::CloseReason;
    use crate::context::SendError;

    /// `anyhow::Error` takes such an error.
    fn check(error: impl Error + Send + Sync + 'static) -> Box<dyn Error + Send + Sync> {
        error.into()
    }

    #[test]
    fn errors_of_channels_become_portable_with_their_texts() {
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error = ChannelError::Closed(Rc::new(CloseReason::Broken(broken)));
        let (text, portable) = (error.to_string(), error.into_send());
        assert_eq!((portable.to_string(), portable.blame()), (text, Some(Blame::Peer)));
        drop(check(portable));
        let full: SendError<Rc<()>, std::num::ParseIntError> = SendError::Full(Rc::new(()));
        assert_eq!(check(full.into_send()).to_string(), SendError::<(), fmt::Error>::Full(()).to_string());
    }

    #[test]
    fn an_endless_chain_of_sources_is_cut() {
        #[derive(Debug)]
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("endless")
            }
        }
        impl Error for Endless {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&Endless)
            }
        }
        let error = PortableError::new(&Endless, None);
        let mut next: Option<&dyn Error> = Some(&error);
        let length = std::iter::from_fn(|| {
            let this = next?;
            next = this.source();
            Some(())
        });
        assert_eq!(length.count(), SOURCES_MAX + 1);
    }
}
