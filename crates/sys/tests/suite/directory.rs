//! A directory for the files of a test.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_sys::Address;

/// A directory that is removed when the test ends.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("tidegate-driver-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // A process that had the same number was killed before it could remove it.
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{}", path.display()),
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn socket(&self, name: &str) -> Address {
        Address::Unix(self.path(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
