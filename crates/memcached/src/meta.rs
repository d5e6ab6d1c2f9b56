//! `MetaCommand`, `MetaResponse`, `MetaFlags`: commands of two letters.

use tidegate_codec::Pool;
use tidegate_codec::framing::Payload;

use crate::error::MemcachedError;
use crate::key::Key;
use crate::line::{kept, words};

/// A meta command.
#[derive(Debug, Clone)]
pub struct MetaCommand {
    /// Its two letters.
    pub verb: MetaVerb,
    /// Its key; none for `mn` only.
    pub key: Option<Key>,
    /// Its flags.
    pub flags: MetaFlags,
    /// The value of `ms`.
    pub value: Option<Payload>,
}

/// The two letters of a meta command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaVerb {
    /// `mg`: reads a value.
    Get,
    /// `ms`: stores a value.
    Set,
    /// `md`: deletes a value, or marks it stale.
    Delete,
    /// `ma`: increments or decrements a number.
    Arithmetic,
    /// `me`: describes an item.
    Debug,
    /// `mn`: ends a batch of quiet commands.
    Noop,
}

impl MetaVerb {
    pub(crate) const fn letters(self) -> &'static [u8; 2] {
        match self {
            Self::Get => b"mg",
            Self::Set => b"ms",
            Self::Delete => b"md",
            Self::Arithmetic => b"ma",
            Self::Debug => b"me",
            Self::Noop => b"mn",
        }
    }

    /// Whether a quiet command of this verb hides a response of this status.
    pub(crate) const fn hides(self, status: MetaStatus) -> bool {
        matches!(
            (self, status),
            (Self::Get, MetaStatus::Miss)
                | (Self::Set | Self::Delete | Self::Arithmetic, MetaStatus::Done)
                | (Self::Delete | Self::Arithmetic, MetaStatus::NotFound)
        )
    }
}

/// The response to a meta command.
#[derive(Debug, Clone)]
pub struct MetaResponse {
    /// Its two letters.
    pub status: MetaStatus,
    /// The flags that the command asks for; of [`MetaStatus::Debug`] the key and the description.
    pub flags: MetaFlags,
    /// The value of [`MetaStatus::Value`].
    pub value: Option<Payload>,
}

impl MetaResponse {
    /// A response without a value.
    #[must_use]
    pub fn new(status: MetaStatus, flags: MetaFlags) -> Self {
        Self { status, flags, value: None }
    }

    /// A response with a value.
    #[must_use]
    pub fn with_value(flags: MetaFlags, value: impl Into<Payload>) -> Self {
        Self { status: MetaStatus::Value, flags, value: Some(value.into()) }
    }
}

/// The two letters of a response to a meta command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaStatus {
    /// `VA`: a value follows.
    Value,
    /// `HD`: done, without a value.
    Done,
    /// `EN`: there is no value.
    Miss,
    /// `NF`: there is no item.
    NotFound,
    /// `NS`: the item was not stored.
    NotStored,
    /// `EX`: the item has changed meanwhile.
    Exists,
    /// `MN`: a batch ends.
    Noop,
    /// `ME`: the description of an item.
    Debug,
}

impl MetaStatus {
    pub(crate) const ALL: [Self; 8] =
        [Self::Value, Self::Done, Self::Miss, Self::NotFound, Self::NotStored, Self::Exists, Self::Noop, Self::Debug];

    pub(crate) const fn letters(self) -> &'static [u8; 2] {
        match self {
            Self::Value => b"VA",
            Self::Done => b"HD",
            Self::Miss => b"EN",
            Self::NotFound => b"NF",
            Self::NotStored => b"NS",
            Self::Exists => b"EX",
            Self::Noop => b"MN",
            Self::Debug => b"ME",
        }
    }
}

/// The flags of a meta command or of its response: each a letter, some with a token behind it.
///
/// ```
/// use tidegate::memcached::MetaFlags;
///
/// let flags = MetaFlags::new("v T90 Oab12")?;
/// assert!(flags.has(b'v') && !flags.has(b'q'));
/// assert_eq!(flags.token(b'T'), Some(&b"90"[..]));
/// # Ok::<(), tidegate::memcached::MemcachedError>(())
/// ```
#[derive(Debug, Clone)]
pub struct MetaFlags(Payload);

impl MetaFlags {
    /// No flags.
    pub const NONE: Self = Self(Payload::Bytes(bytes::Bytes::new()));

    /// The flags in a text, with spaces between them.
    ///
    /// # Errors
    /// [`MemcachedError::Text`] if the text has control characters.
    pub fn new(text: impl Into<Payload>) -> Result<Self, MemcachedError> {
        let text = text.into();
        let is_text = text.as_ref().iter().all(|byte| *byte >= b' ' && *byte != 0x7F);
        if is_text { Ok(Self(text)) } else { Err(MemcachedError::Text) }
    }

    /// Each flag, as its letter and its token, which may be empty.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let text = self.0.as_ref();
        words(text).map(move |place| (text[place.start], &text[place.start + 1..place.end]))
    }

    /// Whether there is this flag.
    #[must_use]
    pub fn has(&self, letter: u8) -> bool {
        self.token(letter).is_some()
    }

    /// The token of the first flag with this letter.
    #[must_use]
    pub fn token(&self, letter: u8) -> Option<&[u8]> {
        self.iter().find(|(found, _)| *found == letter).map(|(_, token)| token)
    }

    /// Whether the command is quiet: the usual response to it is not sent.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.has(b'q')
    }

    /// The same flags in memory of their own.
    pub(crate) fn kept(self, pool: &Pool) -> Self {
        Self(kept(self.0, pool))
    }

    /// The text of the flags.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.0.as_ref()
    }
}
