//! `Watch`: reads certificates, authorities or ticket keys again when their files change.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crate::authorities::ClientAuthorities;
use crate::certificates::Certificates;
use crate::error::ConfigError;
use crate::ticket_keys::TicketKeys;

/// A thread that looks at the files of [`Certificates`], [`ClientAuthorities`] or [`TicketKeys`] from time to time and reads
/// them again after a change. It ends when this is dropped.
///
/// Programs replace a chain and its key one after the other, so the thread may find half of a change. Then all stays as
/// it is, one line is logged, and the thread reads the files again when they change again.
#[derive(Debug)]
#[must_use = "the files are watched until this is dropped"]
pub struct Watch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Looks every `interval`; 10 seconds suit most servers.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start<R: Reload>(watched: &R, interval: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let watched = watched.clone();
        let mut seen = versions(&watched);
        let thread = std::thread::Builder::new().name("tidegate-certificates".into()).spawn(move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let now = versions(&watched);
                if now != seen {
                    seen = now;
                    reload(&watched);
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A value that a [`Watch`] reads again. Types of this crate implement it, and no others can.
pub trait Reload: Files + Clone + Send + 'static {}

impl Reload for Certificates {}
impl Reload for ClientAuthorities {}
impl Reload for TicketKeys {}

/// The files of something, and how they are read again.
pub trait Files {
    /// Its name in lines of the log.
    const NAME: &str;

    fn paths(&self) -> Vec<PathBuf>;

    fn read_again(&self) -> Result<(), ConfigError>;
}

impl Files for Certificates {
    const NAME: &str = "certificates";

    fn paths(&self) -> Vec<PathBuf> {
        self.files().iter().flat_map(|pair| [pair.chain.clone(), pair.key.clone()]).collect()
    }

    fn read_again(&self) -> Result<(), ConfigError> {
        self.reload()
    }
}

impl Files for ClientAuthorities {
    const NAME: &str = "client authorities";

    fn paths(&self) -> Vec<PathBuf> {
        self.files().to_vec()
    }

    fn read_again(&self) -> Result<(), ConfigError> {
        self.reload()
    }
}

impl Files for TicketKeys {
    const NAME: &str = "ticket keys";

    fn paths(&self) -> Vec<PathBuf> {
        self.files().to_vec()
    }

    fn read_again(&self) -> Result<(), ConfigError> {
        self.reload()
    }
}

/// Reads the files again, and logs the outcome in one line.
fn reload<R: Reload>(watched: &R) {
    match watched.read_again() {
        Ok(()) => tracing::info!(subsystem = "tls", "{} reloaded", R::NAME),
        Err(error) => {
            tracing::error!(subsystem = "tls", %error, "{} not reloaded; the old ones stay in use", R::NAME);
        }
    }
}

/// The version of each file: its time and length; `None` for a file that is not there.
fn versions(watched: &impl Reload) -> Vec<Option<(SystemTime, u64)>> {
    watched.paths().iter().map(|path| version(path)).collect()
}

fn version(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
