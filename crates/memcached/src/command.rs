//! `Command`: a request of each kind.

use tidegate_codec::Pool;
use tidegate_codec::framing::Payload;

use crate::key::{Key, Keys};
use crate::meta::MetaCommand;

/// A command of a client. Times to live are seconds: zero never expires, a negative one has expired, and one above 30
/// days is a Unix time.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Command {
    /// `get`, `gets`, `gat`, `gats`: the values of keys.
    Get(Retrieval),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Store),
    /// `delete`.
    Delete {
        /// The key of the item.
        key: Key,
        /// Whether the server sends no response.
        no_reply: bool,
    },
    /// `incr`, `decr`.
    Count(Arithmetic),
    /// `touch`: another time to live.
    Touch {
        /// The key of the item.
        key: Key,
        /// The time to live.
        expiry: i64,
        /// Whether the server sends no response.
        no_reply: bool,
    },
    /// `flush_all`: all items expire.
    FlushAll {
        /// After so many seconds.
        delay: i64,
        /// Whether the server sends no response.
        no_reply: bool,
    },
    /// `stats`, with the name of a group of them, or an empty one.
    Stats(Payload),
    /// `version`.
    Version,
    /// `verbosity`.
    Verbosity {
        /// How much the server logs.
        level: u64,
        /// Whether the server sends no response.
        no_reply: bool,
    },
    /// A meta command.
    Meta(MetaCommand),
}

/// `get`, `gets`, `gat`, `gats`.
#[derive(Debug, Clone)]
pub struct Retrieval {
    /// The keys.
    pub keys: Keys,
    /// Whether each value comes with the number of its version: `gets`, `gats`.
    pub with_cas: bool,
    /// The new time to live of each item: `gat`, `gats`.
    pub expiry: Option<i64>,
}

/// A command that stores a value.
#[derive(Debug, Clone)]
pub struct Store {
    /// When the value is stored.
    pub mode: StoreMode,
    /// The key of the item.
    pub key: Key,
    /// A number that the client gets back with the value.
    pub flags: u32,
    /// The time to live.
    pub expiry: i64,
    /// The value.
    pub value: Payload,
    /// Whether the server sends no response.
    pub no_reply: bool,
}

/// When and how a command stores its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreMode {
    /// Always.
    Set,
    /// If there is no item.
    Add,
    /// If there is an item.
    Replace,
    /// Behind the value that is there.
    Append,
    /// In front of the value that is there.
    Prepend,
    /// If the item still has this version.
    Cas(u64),
}

impl StoreMode {
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Cas(_) => "cas",
        }
    }
}

/// `incr`, `decr`.
#[derive(Debug, Clone)]
pub struct Arithmetic {
    /// The key of the item, which holds a number in decimal digits.
    pub key: Key,
    /// The number to add or to subtract.
    pub by: u64,
    /// Whether it is subtracted; the result is zero at least.
    pub is_decrement: bool,
    /// Whether the server sends no response.
    pub no_reply: bool,
}

impl Command {
    /// Reads one value.
    #[must_use]
    pub fn get(key: Key) -> Self {
        Self::Get(Retrieval { keys: key.into(), with_cas: false, expiry: None })
    }

    /// Stores a value, which expires after so many seconds, or never.
    #[must_use]
    pub fn set(key: Key, value: impl Into<Payload>, expiry: i64) -> Self {
        Self::Store(Store { mode: StoreMode::Set, key, flags: 0, expiry, value: value.into(), no_reply: false })
    }

    /// The same command in memory of its own, while its value is not there.
    pub(crate) fn kept(self, pool: &Pool) -> Self {
        match self {
            Self::Store(store) => Self::Store(Store { key: store.key.kept(pool), ..store }),
            Self::Meta(meta) => {
                let key = meta.key.map(|key| key.kept(pool));
                Self::Meta(MetaCommand { key, flags: meta.flags.kept(pool), ..meta })
            }
            other => other,
        }
    }

    /// Whether the server sends no response, unless it is an error of a meta command.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Store(Store { no_reply, .. })
            | Self::Count(Arithmetic { no_reply, .. })
            | Self::Delete { no_reply, .. }
            | Self::Touch { no_reply, .. }
            | Self::FlushAll { no_reply, .. }
            | Self::Verbosity { no_reply, .. } => *no_reply,
            Self::Meta(command) => command.flags.is_quiet(),
            Self::Get(_) | Self::Stats(_) | Self::Version => false,
        }
    }
}
