//! `Store`: where accounts, keys and orders outlive the process. `FolderStore`: in the files of a folder.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Keeps accounts, private keys and orders. Its methods may block: they are called on the pool for blocking work, one at a
/// time.
///
/// A name has letters, digits, `.`, `-` and `_`, and does not begin with `.`. A value has private keys: keep it from
/// other users.
///
/// One process at a time uses the records of a set of names.
pub trait Store: Send + Sync + 'static {
    /// The value of a record; `None` if there is none.
    ///
    /// # Errors
    /// The store cannot be read. The attempt fails, and another one follows.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Sets a record: as a whole or, if that fails, not at all.
    ///
    /// # Errors
    /// The store cannot be written.
    fn write(&self, name: &str, value: &[u8]) -> io::Result<()>;

    /// Removes a record, if it is there.
    ///
    /// # Errors
    /// The store cannot be written.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// The records as files of a folder, which only their owner may read (0600).
///
/// A file is written beside the old one, and takes its place when it is complete on the disk.
///
/// ```
/// use tidegate::acme::{FolderStore, Store};
///
/// let folder = std::env::temp_dir().join(format!("tidegate-acme-doc-{}", std::process::id()));
/// let store = FolderStore::open(&folder)?;
/// store.write("account.json", b"{}")?;
/// assert_eq!(store.read("account.json")?.as_deref(), Some(&b"{}"[..]));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FolderStore {
    folder: PathBuf,
}

impl FolderStore {
    /// Opens a folder, and makes it if it is not there (0700).
    ///
    /// # Errors
    /// The folder cannot be made, or is none.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> io::Result<PathBuf> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_plain) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no name of a record"));
        }
        Ok(self.folder.join(name))
    }
}

impl Store for FolderStore {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path(name)?) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut value = Vec::new();
        file.take(RECORD_BYTES_MAX + 1).read_to_end(&mut value)?;
        if value.len() as u64 > RECORD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the record is longer than 1 MiB"));
        }
        Ok(Some(value))
    }

    fn write(&self, name: &str, value: &[u8]) -> io::Result<()> {
        let path = self.path(name)?;
        // Another process may write the same record: each has a file of its own.
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let part = self.folder.join(format!(".{name}.{}.{number}", std::process::id()));
        let written = write_new(&part, value).and_then(|()| fs::rename(&part, &path));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written?;
        // The rename outlives a loss of power once the folder is on the disk.
        File::open(&self.folder)?.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn write_new(path: &Path, value: &[u8]) -> io::Result<()> {
    // A file of a process that ended meanwhile, with the same number.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(value)?;
    file.sync_all()
}

/// No record is longer.
const RECORD_BYTES_MAX: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_for_their_owner_alone_and_names_do_not_leave_the_folder() {
        let folder = std::env::temp_dir().join(format!("tidegate-acme-store-{}", std::process::id()));
        let store = FolderStore::open(&folder).unwrap();
        assert_eq!(store.read("account.json").unwrap(), None);
        for value in ["first", "second"] {
            store.write("account.json", value.as_bytes()).unwrap();
            assert_eq!(store.read("account.json").unwrap().unwrap(), value.as_bytes());
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("account.json"))), (0o700, 0o600));
        for name in ["", "../account.json", ".hidden", "a/b", "a\0b"] {
            assert!(store.write(name, b"").is_err(), "{name:?}");
        }
        store.remove("account.json").unwrap();
        store.remove("account.json").unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
