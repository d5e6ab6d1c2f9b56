//! `Transport`: which driver the loops of a server run on, chosen when it starts.

use std::fmt;
use std::io;

use tidegate_buffer::Pool;
use tidegate_sys::Driver;
use tidegate_sys::readiness::Readiness;
use tidegate_sys::uring::Uring;

use crate::server::start_error::StartError;

/// Which driver the loops of a server run on.
///
/// Unless the program says, the environment variable `TIDEGATE_TRANSPORT` does, by the same names: `auto`, `epoll` or
/// `uring`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Transport {
    /// The best that is there.
    #[default]
    Auto,
    /// Readiness, through epoll.
    Epoll,
    /// Completion, through io_uring: Linux 6.0 or later, and a sandbox that permits it.
    Uring,
}

impl Transport {
    /// The one to use. Where io_uring was not asked for by name and is not there, epoll takes its place, and a line says
    /// why.
    ///
    /// # Errors
    /// If what the environment names is no transport, or what was asked for is not there.
    pub(crate) fn choose(self) -> Result<Self, StartError> {
        let wanted = match self {
            Self::Auto => from_environment()?,
            named => named,
        };
        match wanted {
            Self::Auto => Ok(Self::Epoll),
            Self::Epoll => Ok(Self::Epoll),
            Self::Uring => Uring::probe().map(|()| Self::Uring).map_err(StartError::Uring),
        }
    }

    /// A driver for a loop of this thread.
    pub(crate) fn open(self, pool: &Pool) -> io::Result<Box<dyn Driver>> {
        match self {
            Self::Uring => Ok(Box::new(Uring::new(pool)?)),
            Self::Auto | Self::Epoll => Ok(Box::new(Readiness::new(pool)?)),
        }
    }
}

fn from_environment() -> Result<Transport, StartError> {
    match std::env::var(VARIABLE) {
        Ok(name) => name.parse().map_err(|_| StartError::Transport(name.into())),
        Err(_) => Ok(Transport::Auto),
    }
}

impl std::str::FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Self, UnknownTransport> {
        match text {
            "auto" => Ok(Self::Auto),
            "epoll" => Ok(Self::Epoll),
            "uring" => Ok(Self::Uring),
            _ => Err(UnknownTransport),
        }
    }
}

/// A transport that there is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownTransport;

impl fmt::Display for UnknownTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such transport: there are auto, epoll and uring")
    }
}

impl std::error::Error for UnknownTransport {}

const VARIABLE: &str = "TIDEGATE_TRANSPORT";
