//! `ControlSocket`: the socket at which successors find a server, and the file that leads to it.
//!
//! Processes that start, take over and end change the file at one path, and they may run in several containers that
//! share a directory. A process changes it only while it has the [`PathLock`]; without the lock a process only
//! connects.
//!
//! | change | steps under the lock |
//! |---|---|
//! | publish | a socket is bound beside the path under a random name, listens, and is renamed to the path |
//! | withdraw | the file at the path is compared with this process's own socket, and removed if it is that |
//! | first start | everything from the attempt to connect that found no server until the server is published |
//!
//! A predecessor never removes the socket of a successor: between its comparison and the removal no other process can
//! rename a file to the path. If it does not get the lock in time it leaves the file there, and a socket file at which
//! no process listens counts as none. During a takeover the path always leads to a server, since a rename replaces the
//! file. Two first starts do not overlap: the second waits for the lock, finds the first, and takes over from it.
//!
//! A temporary name exists only under the lock. If a process dies and leaves one, the next process that holds the lock
//! removes it. The names are random, and a socket is bound only where there is no file, so processes whose locks do not
//! exclude each other, as on two kernels that share a directory, do not take each other's socket either.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_sys::handover;
use tidegate_sys::path_lock::{NAME_BYTES, PathLock};

/// A control socket and its file. Dropping it removes the file, unless another process has replaced it.
pub(crate) struct ControlSocket {
    pub(crate) listener: Arc<UnixListener>,
    path: PathBuf,
    identity: (u64, u64),
}

impl ControlSocket {
    /// Checks that a socket can be published at `path`, as far as its name decides that.
    pub(crate) fn check(path: &Path) -> io::Result<()> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if path.as_os_str().as_bytes().first().is_some_and(|first| matches!(first, b'@' | b'\0')) {
            return invalid("a takeover needs a path in the file system, not an abstract name; ./@name is a path");
        }
        if path.file_name().is_none() {
            return invalid("it is not the path of a file");
        }
        // The socket is renamed, which works for any length; but no process could connect to a longer path.
        SocketAddr::from_pathname(path)?;
        SocketAddr::from_pathname(path.with_file_name("x".repeat(NAME_BYTES)))?;
        Ok(())
    }

    /// Listens, and puts the socket at `path`, replacing any other.
    pub(crate) fn publish(path: &Path, mut lock: PathLock) -> io::Result<Self> {
        for attempt in 1.. {
            let temporary = lock.temporary()?;
            let listener = match handover::listen(temporary) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempt < NAMES_MAX => continue,
                listener => Arc::new(listener?),
            };
            let identity = identity(temporary)?;
            std::fs::rename(temporary, path)?;
            return Ok(Self { listener, path: path.into(), identity });
        }
        unreachable!("the last attempt returns")
    }

    /// Whether the path leads to this socket. Once it does not, it never does again.
    pub(crate) fn is_at_path(&self) -> bool {
        // While the socket is open no other file has the same identity.
        identity(&self.path).is_ok_and(|identity| identity == self.identity)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, if the path leads to this socket. `before_removal` runs when that is known.
    fn withdraw(&self, before_removal: impl FnOnce()) {
        if !self.is_at_path() {
            return;
        }
        let Ok(_lock) = PathLock::acquire(&self.path, WITHDRAW_LOCK_TIMEOUT) else { return };
        if self.is_at_path() {
            before_removal();
            // If it fails the file stays, as after a process that was killed.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.withdraw(|| {});
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Names that are tried. With 64 random bits even the second is hardly ever needed.
const NAMES_MAX: u32 = 4;

/// How long a server that ends waits for the lock. Only a first server that starts holds it for more than a moment.
const WITHDRAW_LOCK_TIMEOUT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;

    const PATIENCE: Duration = Duration::from_secs(120);

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-control-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn publish(path: &Path) -> ControlSocket {
        ControlSocket::publish(path, PathLock::acquire(path, PATIENCE).unwrap()).unwrap()
    }

    fn files(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    /// The successor tries to rename exactly between the comparison and the removal.
    #[test]
    fn a_predecessor_that_withdraws_does_not_remove_the_socket_of_a_successor() {
        let directory = directory("gap");
        let path = directory.join("socket");
        let predecessor = publish(&path);
        let (published, successor) = mpsc::channel();
        let mut starting = None;
        predecessor.withdraw(|| {
            let path = path.clone();
            starting = Some(thread::spawn(move || published.send(publish(&path)).unwrap()));
            assert!(successor.recv_timeout(Duration::from_millis(300)).is_err(), "the successor waits for the lock");
        });
        let successor = successor.recv_timeout(PATIENCE).unwrap();
        starting.expect("the path led to the predecessor").join().unwrap();
        assert!(successor.is_at_path());
        UnixStream::connect(&path).unwrap();
        // And in the other order.
        drop(predecessor);
        let last = publish(&path);
        drop(successor);
        assert!(last.is_at_path());
        drop(last);
        assert_eq!(files(&directory), 0);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_predecessor_that_does_not_get_the_lock_leaves_its_file() {
        let directory = directory("locked");
        let path = directory.join("socket");
        let predecessor = publish(&path);
        let lock = PathLock::acquire(&path, PATIENCE).unwrap();
        drop(predecessor);
        assert!(path.exists() && UnixStream::connect(&path).is_err());
        let successor = ControlSocket::publish(&path, lock).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(successor);
        assert_eq!(files(&directory), 0);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn an_abstract_name_is_refused_with_a_reason() {
        for name in ["@takeover", "\0takeover"] {
            let error = ControlSocket::check(Path::new(name)).unwrap_err();
            assert!(error.to_string().contains("abstract"), "{error}");
        }
        ControlSocket::check(Path::new("./@takeover")).unwrap();
    }
}
