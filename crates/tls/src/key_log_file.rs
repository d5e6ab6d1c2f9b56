//! `KeyLogFile`: the secrets of connections in a file, for tools that decrypt captures.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustls::KeyLog;

/// A file in the format of `SSLKEYLOGFILE`, which Wireshark reads. **With it all connections can be decrypted**, recorded
/// ones as well: it is for a test, never for production. Only its owner may read it.
///
/// For [`ServerBuilder::key_log`](crate::ServerBuilder::key_log) and [`ClientBuilder::key_log`](crate::ClientBuilder::key_log).
/// The environment chooses no file.
///
/// Each handshake appends a few lines, about 1 KiB with those of QUIC, and nothing bounds the file: remove it after the test.
pub struct KeyLogFile(File);

impl KeyLogFile {
    /// Opens the file, or makes it; lines are appended. A file that was there gets the mode 0600.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if it is no regular file, or is another user's; otherwise those of the system. A
    /// symbolic link is one: another user may have made it.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        // Opening a FIFO would wait for its reader.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the key log is not a regular file of this user",
            ));
        }
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(Self(file))
    }
}

impl KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        // One write is one whole line, whichever threads write. A full disk loses lines and no connection.
        let _ = (&self.0).write_all(line.as_bytes());
    }
}

impl fmt::Debug for KeyLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyLogFile")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-key-log-{name}-{}", std::process::id()));
        // A killed run may have left it.
        let _absent = fs::remove_file(&path);
        path
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn lines_are_appended_for_the_owner_alone() {
        let path = path("lines");
        for label in ["CLIENT_RANDOM", "EXPORTER_SECRET"] {
            KeyLogFile::open(&path).unwrap().log(label, &[0, 0xab], &[1, 0xff]);
        }
        let (text, mode) = (fs::read_to_string(&path).unwrap(), mode(&path));
        fs::remove_file(&path).unwrap();
        assert_eq!((text.as_str(), mode), ("CLIENT_RANDOM 00ab 01ff\nEXPORTER_SECRET 00ab 01ff\n", 0o600));
    }

    #[test]
    fn a_file_that_others_may_read_is_closed_to_them() {
        let path = path("mode");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        KeyLogFile::open(&path).unwrap();
        let mode = mode(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(mode, 0o600);
    }

    #[test]
    fn links_and_files_that_are_not_regular_are_refused() {
        let (file, link) = (path("target"), path("link"));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let of_link = KeyLogFile::open(&link);
        fs::remove_file(&link).unwrap();
        fs::remove_file(&file).unwrap();
        assert!(of_link.is_err());
        assert_eq!(KeyLogFile::open("/dev/null").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
