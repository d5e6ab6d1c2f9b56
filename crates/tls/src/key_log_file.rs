//! `KeyLogFile`: the secrets of connections in a file, for tools that decrypt captures.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustls::KeyLog;

/// A file in the format of `SSLKEYLOGFILE`, which Wireshark reads. **With it all connections can be decrypted**, recorded
/// ones as well: it is for a test, never for production. Only its owner may read it.
///
/// For [`ServerBuilder::key_log`](crate::ServerBuilder::key_log) and [`ClientBuilder::key_log`](crate::ClientBuilder::key_log).
/// The environment chooses no file.
pub struct KeyLogFile(File);

impl KeyLogFile {
    /// Opens the file, or makes it; lines are appended.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().append(true).create(true).mode(0o600).open(path)?))
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn lines_are_appended_for_the_owner_alone() {
        let path = std::env::temp_dir().join(format!("tidegate-key-log-{}", std::process::id()));
        for label in ["CLIENT_RANDOM", "EXPORTER_SECRET"] {
            KeyLogFile::open(&path).unwrap().log(label, &[0, 0xab], &[1, 0xff]);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((text.as_str(), mode & 0o777), ("CLIENT_RANDOM 00ab 01ff\nEXPORTER_SECRET 00ab 01ff\n", 0o600));
    }
}
