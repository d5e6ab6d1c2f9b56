//! Where key sets come from: a secret, a file, or an URL.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use http::{Method, StatusCode, Uri};
use tidegate_engine::{BlockingError, blocking};
use tidegate_http_client::{Client, ClientError, ClientLimits};
#[cfg(feature = "tls")]
use tidegate_tls::ClientConfig;

use super::key_set::{BYTES_MAX, InvalidKeys, KeySet};

/// The origin of keys.
pub(super) enum KeySource {
    /// Its keys never change.
    Secret,
    File(PathBuf),
    Url {
        uri: Uri,
        timeout: Duration,
        #[cfg(feature = "tls")]
        tls: Option<ClientConfig>,
    },
}

/// Tells one content of a file from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    modified: SystemTime,
    length: u64,
}

/// The keys of a source.
pub(super) enum ReadKeys {
    Unchanged,
    Changed(KeySet, Option<FileStamp>),
}

/// Why no keys were read.
#[derive(Debug)]
pub(super) enum ReadFault {
    Keys(InvalidKeys),
    Client(ClientError),
    Status(StatusCode),
    /// No thread was free to read the file.
    Busy,
}

impl KeySource {
    /// Reads the keys, unless they are those of a file with this stamp.
    pub(super) async fn read(&self, known: Option<FileStamp>) -> Result<ReadKeys, ReadFault> {
        match self {
            Self::Secret => Ok(ReadKeys::Unchanged),
            Self::File(path) => {
                let path = path.clone();
                Ok(blocking(move || read_file(&path, known)).await??)
            }
            Self::Url { .. } => self.fetch().await,
        }
    }

    async fn fetch(&self) -> Result<ReadKeys, ReadFault> {
        let Self::Url { uri, timeout, .. } = self else { return Ok(ReadKeys::Unchanged) };
        let mut limits = ClientLimits::default();
        limits.collected_body_bytes_max = BYTES_MAX;
        let builder = Client::builder().limits(limits).redirects(false);
        #[cfg(feature = "tls")]
        let builder = match self {
            Self::Url { tls: Some(tls), .. } => builder.tls(tls.clone()),
            _ => builder,
        };
        // Some minutes pass between two requests, so the connection is not kept.
        let client = builder.build();
        let request = client.request_to(Method::GET, uri.clone()).timeout(*timeout);
        let response = request.header("Accept", "application/json").send().await?;
        if response.status() != StatusCode::OK {
            return Err(ReadFault::Status(response.status()));
        }
        let body = response.bytes().await?;
        Ok(ReadKeys::Changed(KeySet::parse(&body, false)?, None))
    }
}

/// Reads a file, unless it has this stamp.
pub(super) fn read_file(path: &Path, known: Option<FileStamp>) -> Result<ReadKeys, InvalidKeys> {
    let metadata = std::fs::metadata(path).map_err(InvalidKeys::Io)?;
    if !metadata.is_file() {
        return Err(InvalidKeys::Io(io::Error::other("it is no file")));
    }
    let stamp = FileStamp { modified: metadata.modified().map_err(InvalidKeys::Io)?, length: metadata.len() };
    if known == Some(stamp) {
        return Ok(ReadKeys::Unchanged);
    }
    if stamp.length > BYTES_MAX as u64 {
        return Err(InvalidKeys::TooLarge);
    }
    let text = std::fs::read(path).map_err(InvalidKeys::Io)?;
    Ok(ReadKeys::Changed(KeySet::parse(&text, true)?, Some(stamp)))
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret => f.write_str("a secret"),
            Self::File(path) => path.display().fmt(f),
            Self::Url { uri, .. } => uri.fmt(f),
        }
    }
}

impl fmt::Display for ReadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(error) => error.fmt(f),
            Self::Client(error) => error.fmt(f),
            Self::Status(status) => write!(f, "the server answered with {status}"),
            Self::Busy => f.write_str("no thread was free to read the file"),
        }
    }
}

impl From<InvalidKeys> for ReadFault {
    fn from(error: InvalidKeys) -> Self {
        Self::Keys(error)
    }
}

impl From<ClientError> for ReadFault {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<BlockingError> for ReadFault {
    fn from(_: BlockingError) -> Self {
        Self::Busy
    }
}
