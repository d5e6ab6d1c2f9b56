//! The JSON of the JetStream API, and its errors.
//!
//! Members that this crate does not know are skipped when they are read.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::client::ClientError;

/// The configuration of a stream, as far as this crate has it; the server's defaults apply to the rest.
///
/// ```
/// use std::time::Duration;
/// use tidegate::nats::StreamConfig;
///
/// let config = StreamConfig::new("TIDES", ["tides.>"]).with_max_age(Duration::from_secs(3600)).in_memory();
/// assert_eq!((config.name.as_str(), config.storage.as_str()), ("TIDES", "memory"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamConfig {
    /// Its name, without dots, spaces and wildcards.
    pub name: String,
    /// The filters of the subjects that it stores.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// The most messages; -1 for any number.
    #[serde(default = "any")]
    pub max_msgs: i64,
    /// The most messages of one subject; -1 for any number. Older ones are removed.
    #[serde(default = "any")]
    pub max_msgs_per_subject: i64,
    /// The most bytes; -1 for any number.
    #[serde(default = "any")]
    pub max_bytes: i64,
    /// The most nanoseconds that a message stays; 0 for ever.
    #[serde(default)]
    pub max_age: u64,
    /// The nanoseconds within which a message with the same `Nats-Msg-Id` is a duplicate; 0 for the server's default, two
    /// minutes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicate_window: u64,
    /// `file` or `memory`.
    #[serde(default = "file")]
    pub storage: String,
    /// `limits`, `interest` or `workqueue`.
    #[serde(default = "limits")]
    pub retention: String,
    /// `old`: the oldest message makes room; `new`: a new one is refused.
    #[serde(default = "old")]
    pub discard: String,
    /// On how many servers of a cluster it lies.
    #[serde(default = "one")]
    pub num_replicas: u32,
    /// Whether any server that has it answers reads of one message.
    #[serde(default)]
    pub allow_direct: bool,
    /// Where it publishes the messages that it has stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub republish: Option<Republish>,
}

/// Stored messages that a stream publishes once more, with their sequence (`Nats-Sequence`), and that of the subject's message
/// before (`Nats-Last-Sequence`, 0 if there is none). Both subjects must not overlap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Republish {
    /// Which of its subjects.
    pub src: String,
    /// To which subject: `{{wildcard(1)}}` is the first token that a wildcard of `src` has matched.
    pub dest: String,
    /// Only the headers.
    #[serde(default)]
    pub headers_only: bool,
}

impl StreamConfig {
    /// A stream on disk without limits, whose messages may be read directly.
    #[must_use]
    pub fn new(name: impl Into<String>, subjects: impl IntoIterator<Item: Into<String>>) -> Self {
        Self {
            name: name.into(),
            subjects: subjects.into_iter().map(Into::into).collect(),
            max_msgs: -1,
            max_msgs_per_subject: -1,
            max_bytes: -1,
            max_age: 0,
            duplicate_window: 0,
            storage: file(),
            retention: limits(),
            discard: old(),
            num_replicas: 1,
            allow_direct: true,
            republish: None,
        }
    }

    /// Keeps it in memory.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.storage = "memory".to_owned();
        self
    }

    /// The longest time that a message stays.
    #[must_use]
    pub fn with_max_age(mut self, age: Duration) -> Self {
        // The server counts in 64 bits with a sign.
        self.max_age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX).min(i64::MAX as u64);
        self
    }
}

/// A stream and its state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StreamInfo {
    /// Its configuration.
    pub config: StreamConfig,
    /// Its messages.
    pub state: StreamState,
    /// When it was created, in the text of RFC 3339. A stream that was deleted and created again has another time.
    #[serde(default)]
    pub created: String,
}

/// The messages of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct StreamState {
    /// How many there are.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The sequence of the first one; that of the next one, if there is none.
    pub first_seq: u64,
    /// The sequence of the last one; 0 if there never was one.
    pub last_seq: u64,
}

/// An error of the JetStream API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ApiError {
    /// The status, as in HTTP: 400, 404, 503.
    pub code: u16,
    /// The number of the error, such as 10059 for a stream that does not exist.
    pub err_code: u32,
    /// The text.
    pub description: String,
}

impl ApiError {
    /// No stream has this name.
    pub const STREAM_NOT_FOUND: u32 = 10_059;
    /// A stream with this name exists, and has another configuration.
    pub const STREAM_NAME_EXISTS: u32 = 10_058;
    /// No message has this sequence, or this subject.
    pub const NO_MESSAGE_FOUND: u32 = 10_037;
    /// The last sequence is another one than the publisher expects.
    pub const WRONG_LAST_SEQUENCE: u32 = 10_071;
    /// The account has used up its messages or bytes.
    pub const ACCOUNT_RESOURCES_EXCEEDED: u32 = 10_002;
    /// The server has no memory or disk left for streams.
    pub const INSUFFICIENT_RESOURCES: u32 = 10_023;
    /// The stream has not stored a message; the text says why: it has as many messages or bytes as it may, for example.
    pub const STREAM_STORE_FAILED: u32 = 10_077;
    /// The stream is sealed: it takes no message any more.
    pub const STREAM_SEALED: u32 = 10_109;
    /// JetStream is off for the account.
    pub const NOT_ENABLED_FOR_ACCOUNT: u32 = 10_039;
    /// JetStream is off.
    pub const NOT_ENABLED: u32 = 10_076;
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, error {})", self.description, self.code, self.err_code)
    }
}

/// Why a call of JetStream has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JetStreamError {
    /// The request has no reply. [`ClientError::NoResponders`]: no stream stores the subject, or the server has no JetStream.
    Client(ClientError),
    /// JetStream answers with an error.
    Api(ApiError),
    /// The reply is malformed.
    Reply,
    /// The name of a stream is empty, or has a dot, a space or a wildcard.
    Name,
}

impl JetStreamError {
    /// The number of the error, if JetStream has answered with one.
    #[must_use]
    pub const fn err_code(&self) -> Option<u32> {
        match self {
            Self::Api(error) => Some(error.err_code),
            _ => None,
        }
    }
}

impl fmt::Display for JetStreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(ClientError::NoResponders) => f.write_str(
                "no stream stores the subject, or the server has no JetStream: create one, or start it with -js",
            ),
            Self::Client(error) => error.fmt(f),
            Self::Api(error) => write!(f, "JetStream answers: {error}"),
            Self::Reply => f.write_str("the reply of JetStream is malformed"),
            Self::Name => f.write_str("the name of a stream is empty, or has a dot, a space or a wildcard"),
        }
    }
}

impl Error for JetStreamError {}

impl From<ClientError> for JetStreamError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Reads a reply: an error, or the members of `T`.
pub(super) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, JetStreamError> {
    #[derive(Deserialize)]
    struct Envelope {
        error: Option<ApiError>,
    }
    let envelope: Envelope = serde_json::from_slice(json).map_err(|_| JetStreamError::Reply)?;
    match envelope.error {
        Some(error) => Err(JetStreamError::Api(error)),
        None => serde_json::from_slice(json).map_err(|_| JetStreamError::Reply),
    }
}

const fn any() -> i64 {
    -1
}

const fn one() -> u32 {
    1
}

fn file() -> String {
    "file".to_owned()
}

fn limits() -> String {
    "limits".to_owned()
}

fn old() -> String {
    "old".to_owned()
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}
