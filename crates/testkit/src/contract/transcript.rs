//! `Transcript`: the result of decoding some bytes, and how two of them differ.

use std::borrow::Cow;
use std::fmt;

use tidegate_codec::Blame;

/// The result of decoding some bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The messages, as text.
    pub messages: Vec<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Everything that was sent.
    pub replies: Vec<u8>,
}

/// How decoding ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The connection is open and can continue.
    #[default]
    Open,
    /// There are no further messages.
    Ended,
    /// The peer has ended, and the codec waits for the application before it decodes on.
    Waiting,
    /// Decoding failed.
    Failed {
        /// The error, as its `Debug` text.
        error: String,
        /// The side that is to blame.
        blame: Blame,
    },
}

impl Transcript {
    /// Whether there was an error.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed { .. })
    }

    /// The `Debug` text of the error, if there was one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Failed { error, .. } => Some(error),
            _ => None,
        }
    }

    /// The blame of the error, if there was one.
    #[must_use]
    pub fn blame(&self) -> Option<Blame> {
        match &self.outcome {
            Outcome::Failed { blame, .. } => Some(*blame),
            _ => None,
        }
    }

    /// The first difference, with the data to reproduce it.
    pub(super) fn difference(&self, other: &Self, name: &str, wire: &[u8], seed: u64) -> String {
        format!(
            "the same bytes gave something else when they came {name}: {}\n  bytes:  {}\n  whole:  {self}\n  pieces: \
             {other}\n  replay: TIDEGATE_SEED={seed:#x}",
            self.first_difference(other),
            shortened(wire, PRINTED_MAX),
        )
    }

    fn first_difference(&self, other: &Self) -> String {
        let pairs = self.messages.iter().zip(&other.messages);
        if let Some((at, (one, two))) = pairs.enumerate().find(|(_, (one, two))| one != two) {
            return format!("message {at} is {} instead of {}", part(two), part(one));
        }
        if self.messages.len() != other.messages.len() {
            return format!("{} messages instead of {}", other.messages.len(), self.messages.len());
        }
        if self.outcome != other.outcome {
            return format!("{} instead of {}", other.outcome, self.outcome);
        }
        let at = self.replies.iter().zip(&other.replies).take_while(|(one, two)| one == two).count();
        format!("the replies differ from byte {at} on")
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.messages.len().min(MESSAGES_PRINTED_MAX);
        let messages: Vec<_> = self.messages[..shown].iter().map(|message| part(message)).collect();
        let rest = if shown < self.messages.len() { ", …" } else { "" };
        write!(f, "{} messages [{}{rest}], ", self.messages.len(), messages.join(", "))?;
        write!(f, "{}, replies {}", self.outcome, shortened(&self.replies, PRINTED_MAX))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("open"),
            Self::Ended => f.write_str("ended"),
            Self::Waiting => f.write_str("waiting"),
            Self::Failed { error, blame } => write!(f, "failed with {error}, to blame: {blame:?}"),
        }
    }
}

/// Bytes as text, without the middle where there are more than `bytes_max`.
pub(super) fn shortened(bytes: &[u8], bytes_max: usize) -> String {
    if bytes.len() <= bytes_max {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    let (first, last) = (&bytes[..bytes_max / 2], &bytes[bytes.len() - bytes_max / 2..]);
    format!("\"{} … {}\", {} bytes", first.escape_ascii(), last.escape_ascii(), bytes.len())
}

/// The beginning of a message.
fn part(message: &str) -> Cow<'_, str> {
    match message.char_indices().nth(PRINTED_MAX) {
        Some((end, _)) => format!("{}…", &message[..end]).into(),
        None => message.into(),
    }
}

/// How many bytes of each kind are printed.
const PRINTED_MAX: usize = 240;

/// How many messages are printed.
const MESSAGES_PRINTED_MAX: usize = 16;
