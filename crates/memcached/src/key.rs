//! `Key` and `Keys`.

use tidegate_codec::Pool;
use tidegate_codec::framing::Payload;

use crate::error::MemcachedError;
use crate::line::{kept, words};

/// A key: 1 to 250 bytes, without spaces and control characters.
///
/// ```
/// use tidegate::memcached::Key;
///
/// assert!(Key::new("tide:brest").is_ok());
/// assert!(Key::new("two words").is_err());
/// assert!(Key::new("x".repeat(251)).is_err());
/// ```
#[derive(Debug, Clone)]
pub struct Key(Payload);

impl Key {
    /// The longest key, in bytes.
    pub const BYTES_MAX: usize = 250;

    /// A key of these bytes.
    ///
    /// # Errors
    /// [`MemcachedError::Key`] if they are no key.
    pub fn new(bytes: impl Into<Payload>) -> Result<Self, MemcachedError> {
        let bytes = bytes.into();
        let is_key = (1..=Self::BYTES_MAX).contains(&bytes.as_ref().len())
            && bytes.as_ref().iter().all(|byte| *byte > b' ' && *byte != 0x7F);
        if is_key { Ok(Self(bytes)) } else { Err(MemcachedError::Key) }
    }
}

impl Key {
    /// The same key in memory of its own.
    pub(crate) fn kept(self, pool: &Pool) -> Self {
        Self(kept(self.0, pool))
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

/// The keys of one command, at least one.
///
/// ```
/// use tidegate::memcached::{Key, Keys};
///
/// let keys = Keys::from(Key::new("ebb")?).and(&Key::new("flow")?);
/// assert_eq!(keys.iter().collect::<Vec<_>>(), [&b"ebb"[..], b"flow"]);
/// # Ok::<(), tidegate::memcached::MemcachedError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Keys(Payload);

impl Keys {
    /// These keys and another one, which is copied behind them.
    #[must_use]
    pub fn and(self, key: &Key) -> Self {
        Self([self.0.as_ref(), b" ", key.as_ref()].concat().into())
    }

    /// The keys in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let text = self.0.as_ref();
        words(text).map(move |place| &text[place])
    }

    /// The keys in a part of a line, if all are keys and there is one.
    pub(crate) fn of_text(text: Payload) -> Option<Self> {
        let keys = Self(text);
        let is_key = |key: &[u8]| key.len() <= Key::BYTES_MAX && key.iter().all(|byte| *byte > b' ' && *byte != 0x7F);
        (keys.iter().next().is_some() && keys.iter().all(is_key)).then_some(keys)
    }

    /// The keys as one text, with spaces between them.
    pub(crate) fn text(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl From<Key> for Keys {
    fn from(key: Key) -> Self {
        Self(key.0)
    }
}
