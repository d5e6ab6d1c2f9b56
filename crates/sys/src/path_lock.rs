//! `PathLock`: one process at a time changes the file at a path.
//!
//! The lock is an advisory `flock` on a file beside the path, so the kernel releases it when its process ends, and it
//! excludes the processes of all containers that share the directory. The file exists while a process has the lock, and
//! that process removes it before the kernel releases the lock. A process that opened the file before that, and locks
//! it later, finds that the name leads to another file or to none, and starts again.
//!
//! The holder may create one temporary socket beside the path. Its name is random, and is written to the lock file
//! before the socket exists. So a process that acquires the lock and finds a name knows that the earlier holder died,
//! and removes that socket. At most one socket is ever left behind, and no socket of a live process is removed.
//!
//! A file with the lock's name and any other content is an error, and stays unchanged.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The lock on a path. Dropping it removes its temporary socket, if that was not renamed, and releases the lock.
#[derive(Debug)]
pub struct PathLock {
    file: File,
    path: PathBuf,
    temporary: Option<PathBuf>,
}

impl PathLock {
    /// Locks `path`, which need not exist; its directory has to.
    ///
    /// # Errors
    /// `TimedOut` if other processes hold the lock for `patience`; `InvalidInput` if `path` names no file;
    /// `InvalidData` if another program uses the lock's name; otherwise those of the system.
    pub fn acquire(path: &Path, patience: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + patience;
        let lock = lock_path(path)?;
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
            let file = options.open(&lock)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(&file, &lock)? => {
                    let mut held = Self { file, path: lock, temporary: None };
                    if let Err(error) = held.remove_leftover() {
                        held.release_only();
                        return Err(error);
                    }
                    return Ok(held);
                }
                // The earlier holder has removed the file.
                Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= deadline {
                let what = "another process holds the lock beside the path; is it still starting?";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A random name beside the path, for a socket that is renamed while the lock is held. The caller creates it so
    /// that an existing file is an error, and requests another name then.
    ///
    /// # Errors
    /// Those of the system.
    pub fn temporary(&mut self) -> io::Result<&Path> {
        self.remove_temporary();
        // The keys are from the kernel's random numbers, so processes with equal numbers draw different names.
        let name = format!("{PREFIX}{:016x}", RandomState::new().build_hasher().finish());
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(name.as_bytes())?;
        Ok(self.temporary.insert(self.path.with_file_name(name)))
    }

    fn remove_temporary(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            // After the rename the name no longer exists.
            let _ = remove_socket(&temporary);
        }
    }

    fn remove_leftover(&mut self) -> io::Result<()> {
        let mut text = String::new();
        let is_file = self.file.metadata()?.is_file();
        let read = if is_file { (&self.file).take(NAME_BYTES as u64 + 1).read_to_string(&mut text) } else { Ok(0) };
        if !is_file || read.is_err() || !is_part_of_name(&text) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "another program uses the file of its lock"));
        }
        // A shorter name is of a process that died while it wrote it, so before the socket existed.
        if text.len() == NAME_BYTES {
            remove_socket(&self.path.with_file_name(text))?;
        }
        Ok(())
    }

    /// Leaves the file to the program that it belongs to.
    fn release_only(&mut self) {
        self.path = PathBuf::new();
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        self.remove_temporary();
        if !self.path.as_os_str().is_empty() {
            // The lock is still held, so no other process uses this file yet. If the removal fails, the next holder
            // finds a file that it can use.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether the path still leads to the open file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(path),
        _ => Ok(()),
    }
}

fn lock_path(path: &Path) -> io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not the path of a file"));
    };
    let mut lock = std::ffi::OsString::from(".");
    lock.push(name);
    lock.push(".tg-lock");
    Ok(path.with_file_name(lock))
}

fn is_part_of_name(text: &str) -> bool {
    let (prefix, digits) = text.split_at_checked(PREFIX.len()).unwrap_or((text, ""));
    text.len() <= NAME_BYTES && PREFIX.starts_with(prefix) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

const PREFIX: &str = ".tg-";

/// The length of a temporary socket's name.
pub const NAME_BYTES: usize = PREFIX.len() + 16;

/// How long a process waits before it tries again. A lock is held for microseconds, except while a first server starts.
const PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tidegate-lock-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn files(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_lock_excludes_the_next_until_it_is_dropped_and_leaves_no_file() {
        let directory = Directory::new("excludes");
        let path = directory.0.join("socket");
        let held = PathLock::acquire(&path, Duration::ZERO).unwrap();
        assert_eq!(PathLock::acquire(&path, Duration::ZERO).unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Another path of the same directory has a lock of its own.
        drop(PathLock::acquire(&directory.0.join("other"), Duration::ZERO).unwrap());
        drop(held);
        drop(PathLock::acquire(&path, Duration::ZERO).unwrap());
        assert_eq!(directory.files(), 0);
    }

    /// Each thread removes the file on which others wait.
    #[test]
    fn one_of_many_threads_has_the_lock_at_a_time() {
        let directory = Directory::new("many");
        let path = directory.0.join("socket");
        let inside = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _held = PathLock::acquire(&path, Duration::from_secs(30)).unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        assert_eq!(inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst), 1);
                    }
                });
            }
        });
        assert_eq!(directory.files(), 0);
    }

    #[test]
    fn names_differ_and_the_socket_of_a_process_that_died_is_removed() {
        let directory = Directory::new("leftover");
        let path = directory.0.join("socket");
        let mut held = PathLock::acquire(&path, Duration::ZERO).unwrap();
        let first = held.temporary().unwrap().to_owned();
        let second = held.temporary().unwrap().to_owned();
        assert_ne!(first, second);
        assert_eq!(second.file_name().unwrap().len(), NAME_BYTES);
        drop(UnixListener::bind(&second).unwrap());
        // No destructor runs in a process that dies; the kernel closes its file.
        held.temporary = None;
        held.release_only();
        drop(held);
        assert_eq!(directory.files(), 2);
        drop(PathLock::acquire(&path, Duration::ZERO).unwrap());
        assert_eq!(directory.files(), 0);
    }

    #[test]
    fn a_file_of_another_program_is_an_error_and_stays() {
        let directory = Directory::new("precious");
        let path = directory.0.join("socket");
        for content in ["precious", ".tg-0123456789abcdeg", ".tg-0123456789abcdef0", "\u{fc}"] {
            fs::write(lock_path(&path).unwrap(), content).unwrap();
            assert_eq!(PathLock::acquire(&path, Duration::ZERO).unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(fs::read_to_string(lock_path(&path).unwrap()).unwrap(), content);
        }
        // The file of a process that died while it wrote a name.
        fs::write(lock_path(&path).unwrap(), ".tg-01").unwrap();
        drop(PathLock::acquire(&path, Duration::ZERO).unwrap());
        assert_eq!(directory.files(), 0);
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = Directory::new("link");
        let path = directory.0.join("socket");
        fs::write(directory.0.join("target"), "").unwrap();
        std::os::unix::fs::symlink(directory.0.join("target"), lock_path(&path).unwrap()).unwrap();
        assert!(PathLock::acquire(&path, Duration::ZERO).is_err());
        assert_eq!(directory.files(), 2);
    }
}
