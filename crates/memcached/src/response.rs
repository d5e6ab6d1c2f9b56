//! `Response`: a line of a response.

use tidegate_codec::framing::Payload;

use crate::meta::MetaResponse;

/// A line of a response, with the value behind it. `get` and `stats` have any number of lines up to [`End`](Self::End);
/// every other command has one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Response {
    /// `VALUE`: one value of a `get`. Keys without a value have no line.
    Value {
        /// The key.
        key: Payload,
        /// The number that was stored with the value.
        flags: u32,
        /// The version of the item, if the command asks for it.
        cas: Option<u64>,
        /// The value.
        value: Payload,
    },
    /// `STAT`: one line of `stats`.
    Stat {
        /// Its name: one word.
        name: Payload,
        /// Its value.
        value: Payload,
    },
    /// `END`: there are no more lines.
    End,
    /// `STORED`.
    Stored,
    /// `NOT_STORED`: the condition of `add`, `replace`, `append` or `prepend` does not hold.
    NotStored,
    /// `EXISTS`: the item of a `cas` has changed meanwhile.
    Exists,
    /// `NOT_FOUND`: there is no item.
    NotFound,
    /// `DELETED`.
    Deleted,
    /// `TOUCHED`.
    Touched,
    /// `OK`, to `flush_all` and `verbosity`.
    Ok,
    /// The result of `incr` and `decr`.
    Number(u64),
    /// `VERSION`.
    Version(Payload),
    /// The response to a meta command.
    Meta(MetaResponse),
    /// `ERROR`: the server does not know the command.
    Error,
    /// `CLIENT_ERROR`: the command is wrong.
    ClientError(Payload),
    /// `SERVER_ERROR`: the server cannot execute it now.
    ServerError(Payload),
}

impl Response {
    /// Whether further lines of the same response follow.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        matches!(self, Self::Value { .. } | Self::Stat { .. })
    }

    /// The whole line of a response without arguments.
    pub(crate) const fn plain_line(&self) -> Option<&'static [u8]> {
        Some(match self {
            Self::End => b"END\r\n",
            Self::Stored => b"STORED\r\n",
            Self::NotStored => b"NOT_STORED\r\n",
            Self::Exists => b"EXISTS\r\n",
            Self::NotFound => b"NOT_FOUND\r\n",
            Self::Deleted => b"DELETED\r\n",
            Self::Touched => b"TOUCHED\r\n",
            Self::Ok => b"OK\r\n",
            Self::Error => b"ERROR\r\n",
            _ => return None,
        })
    }
}
