//! `Watch`: reads certificates again when their files change.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crate::certificates::Certificates;

/// A thread that looks at the files of [`Certificates`] from time to time and reads them again after a change. It ends
/// when this is dropped.
///
/// Programs replace a chain and its key one after the other, so what the thread finds may be half of a change. Then the
/// certificates stay as they are, one line is logged, and the thread reads the files again when they change again.
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
    pub fn start(certificates: &Certificates, interval: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let certificates = certificates.clone();
        let mut seen = versions(&certificates);
        let thread = std::thread::Builder::new().name("tidegate-certificates".into()).spawn(move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let now = versions(&certificates);
                if now != seen {
                    seen = now;
                    reload(&certificates);
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

/// Reads the files again, and logs the outcome in one line.
fn reload(certificates: &Certificates) {
    match certificates.reload() {
        Ok(()) => tracing::info!(subsystem = "tls", "certificates reloaded"),
        Err(error) => tracing::error!(subsystem = "tls", %error, "certificates not reloaded; the old ones stay in use"),
    }
}

/// What tells one version of each file from the next; `None` for a file that is not there.
fn versions(certificates: &Certificates) -> Vec<Option<(SystemTime, u64)>> {
    let paths = certificates.files().iter().flat_map(|pair| [&pair.chain, &pair.key]);
    paths.map(|path| version(path)).collect()
}

fn version(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
