//! `QlogFolder`: the events of each connection, as a file for tools that draw them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A folder that gets a file in the qlog format (draft-ietf-quic-qlog-main-schema) for each connection: packets, losses and
/// the figures of recovery, for tools such as qvis. Loops wait for the disk, so it is for a test and not for production.
///
/// | limit | default | reaching it |
/// |---|--:|---|
/// | `files_max` | 1,000 | further connections have no file |
/// | `file_bytes_max` | 16 MiB | the file ends |
///
/// A clone is another handle of the same count.
#[derive(Debug, Clone)]
pub struct QlogFolder {
    folder: PathBuf,
    /// The time of its making, in milliseconds since 1970: in a container each process may have the same number.
    made: u128,
    count: Arc<AtomicU64>,
    files_max: u64,
    file_bytes_max: u64,
}

impl QlogFolder {
    /// A folder, which has to be there. Files are named after the time of this call in milliseconds since 1970, the process
    /// and a number.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let count = Arc::new(AtomicU64::new(files_in(&folder)));
        Self { folder, made, count, files_max: 1000, file_bytes_max: 16 * 1024 * 1024 }
    }

    /// Files of the folder, with those that earlier processes have left there; 1,000 by default. It bounds the disk that peers can fill.
    #[must_use]
    pub fn files_max(self, files_max: u64) -> Self {
        Self { files_max, ..self }
    }

    /// Bytes of a file; 16 MiB by default. It bounds the disk that one peer can fill.
    #[must_use]
    pub fn file_bytes_max(self, file_bytes_max: u64) -> Self {
        Self { file_bytes_max, ..self }
    }

    /// The file of the next connection, unless there are as many as there may be, or the system has refused it.
    pub(crate) fn next(&self) -> Option<BoundedFile> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.files_max {
            return None;
        }
        // Several values may have the same folder.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{}-{}-{number}.{EXTENSION}", self.made, std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).ok()?;
        Some(BoundedFile { file: BufWriter::new(file), left: self.file_bytes_max })
    }
}

/// The files of connections that a folder has.
fn files_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == EXTENSION)).count() as u64
}

const EXTENSION: &str = "sqlog";

/// A file that takes so many bytes, and then none.
#[derive(Debug)]
pub(crate) struct BoundedFile {
    file: BufWriter<File>,
    left: u64,
}

impl Write for BoundedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left < bytes.len() as u64 {
            // The end of a file is the end of a whole piece.
            self.left = 0;
            return Ok(bytes.len());
        }
        self.left -= bytes.len() as u64;
        self.file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_number_and_a_size() {
        let folder = std::env::temp_dir().join(format!("tidegate-qlog-{}", std::process::id()));
        // A killed run may have left it.
        let _absent = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let qlog = QlogFolder::new(&folder).files_max(2).file_bytes_max(10);
        for _ in 0..2 {
            let mut file = qlog.clone().next().unwrap();
            assert_eq!(file.write(b"12345").unwrap() + file.write(b"67890").unwrap() + file.write(b"x").unwrap(), 11);
        }
        assert!(qlog.next().is_none());
        // As after a restart: the files that are there count.
        assert!(QlogFolder::new(&folder).files_max(2).next().is_none());
        let of_next = QlogFolder::new(&folder).files_max(3);
        assert!(of_next.next().is_some() && of_next.next().is_none());
        let mut lengths: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).collect();
        lengths.sort_unstable();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(lengths, [0, 10, 10]);
        // A folder that is not there costs no connection.
        assert!(QlogFolder::new(folder).next().is_none());
    }
}
