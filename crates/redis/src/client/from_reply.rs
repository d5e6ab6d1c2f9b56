//! `FromReply`: replies as types of Rust.
//!
//! RESP2 has no doubles, booleans or maps, so each conversion takes what servers send for them there as well.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use bytes::Bytes;

use crate::client::error::{ErrorReply, WrongType};
use crate::owned::OwnedValue;
use crate::token::AggregateKind;

/// A type that a reply is converted into.
///
/// ```
/// use std::collections::HashMap;
/// use tidegate::redis::{AggregateKind, FromReply, OwnedValue};
///
/// let bulk = |text: &'static str| OwnedValue::Bulk(text.into());
/// let reply = OwnedValue::Aggregate(AggregateKind::Array, vec![bulk("tide"), bulk("412")]);
/// assert_eq!(HashMap::<String, u32>::from_reply(reply.clone())?["tide"], 412);
/// assert_eq!(<(String, i64)>::from_reply(reply)?, ("tide".to_owned(), 412));
/// assert_eq!(Option::<String>::from_reply(OwnedValue::Null)?, None);
/// # Ok::<(), tidegate::redis::WrongType>(())
/// ```
pub trait FromReply: Sized {
    /// Converts a reply.
    ///
    /// # Errors
    /// [`WrongType`] if the reply is no such value.
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType>;
}

impl FromReply for OwnedValue {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        Ok(value)
    }
}

/// Any reply that is no error.
impl FromReply for () {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        match value {
            OwnedValue::Error(_) | OwnedValue::BulkError(_) => Err(WrongType { expected: "success" }),
            _ => Ok(()),
        }
    }
}

impl FromReply for Bytes {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        match value {
            OwnedValue::Bulk(bytes)
            | OwnedValue::Simple(bytes)
            | OwnedValue::Verbatim(_, bytes)
            | OwnedValue::BigNumber(bytes) => Ok(bytes),
            OwnedValue::Integer(number) => Ok(number.to_string().into()),
            _ => Err(WrongType { expected: "string" }),
        }
    }
}

impl FromReply for String {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        let bytes = Bytes::from_reply(value)?;
        Self::from_utf8(bytes.into()).map_err(|_| WrongType { expected: "text" })
    }
}

impl FromReply for bool {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        match value {
            OwnedValue::Boolean(value) => Ok(value),
            OwnedValue::Integer(number @ (0 | 1)) => Ok(number == 1),
            OwnedValue::Simple(text) if text == "OK" => Ok(true),
            OwnedValue::Null => Ok(false),
            _ => Err(WrongType { expected: "boolean" }),
        }
    }
}

impl FromReply for f64 {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        match value {
            OwnedValue::Double(number) => Ok(number),
            value => parsed(value, "double"),
        }
    }
}

/// A number in a string.
fn parsed<T: std::str::FromStr>(value: OwnedValue, expected: &'static str) -> Result<T, WrongType> {
    let bytes = Bytes::from_reply(value).map_err(|_| WrongType { expected })?;
    std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()).ok_or(WrongType { expected })
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl FromReply for $integer {
            fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
                match value {
                    OwnedValue::Integer(number) => {
                        number.try_into().map_err(|_| WrongType { expected: stringify!($integer) })
                    }
                    value => parsed(value, stringify!($integer)),
                }
            }
        }
    )*};
}

integers!(i64, u64, i32, u32, i16, u16, i8, u8, i128, u128, usize, isize);

/// `None` for no value.
impl<T: FromReply> FromReply for Option<T> {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        match value {
            OwnedValue::Null => Ok(None),
            value => T::from_reply(value).map(Some),
        }
    }
}

/// An error within a transaction's reply, for example.
impl<T: FromReply> FromReply for Result<T, ErrorReply> {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        match value {
            OwnedValue::Error(text) | OwnedValue::BulkError(text) => Ok(Err(ErrorReply::new(text))),
            value => T::from_reply(value).map(Ok),
        }
    }
}

fn elements(value: OwnedValue, expected: &'static str) -> Result<Vec<OwnedValue>, WrongType> {
    match value {
        OwnedValue::Aggregate(_, elements) => Ok(elements),
        _ => Err(WrongType { expected }),
    }
}

impl<T: FromReply> FromReply for Vec<T> {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        elements(value, "array")?.into_iter().map(T::from_reply).collect()
    }
}

impl<T: FromReply + Eq + Hash> FromReply for HashSet<T> {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        elements(value, "set")?.into_iter().map(T::from_reply).collect()
    }
}

/// The keys and values of a map, of an array of keys and values in turn, or of an array of pairs.
fn entries<K: FromReply, V: FromReply>(value: OwnedValue) -> Result<Vec<(K, V)>, WrongType> {
    const EXPECTED: WrongType = WrongType { expected: "map" };
    let OwnedValue::Aggregate(kind, elements) = value else { return Err(EXPECTED) };
    let is_flat = kind == AggregateKind::Map || !matches!(elements.first(), Some(OwnedValue::Aggregate(..)));
    if !is_flat {
        return elements.into_iter().map(<(K, V)>::from_reply).collect();
    }
    let mut entries = Vec::with_capacity(elements.len() / 2);
    let mut elements = elements.into_iter();
    while let Some(key) = elements.next() {
        let value = elements.next().ok_or(EXPECTED)?;
        entries.push((K::from_reply(key)?, V::from_reply(value)?));
    }
    Ok(entries)
}

impl<K: FromReply + Eq + Hash, V: FromReply> FromReply for HashMap<K, V> {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        Ok(entries(value)?.into_iter().collect())
    }
}

impl<K: FromReply + Ord, V: FromReply> FromReply for BTreeMap<K, V> {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        Ok(entries(value)?.into_iter().collect())
    }
}

impl<A: FromReply, B: FromReply> FromReply for (A, B) {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        let [a, b] = fixed(value)?;
        Ok((A::from_reply(a)?, B::from_reply(b)?))
    }
}

impl<A: FromReply, B: FromReply, C: FromReply> FromReply for (A, B, C) {
    fn from_reply(value: OwnedValue) -> Result<Self, WrongType> {
        let [a, b, c] = fixed(value)?;
        Ok((A::from_reply(a)?, B::from_reply(b)?, C::from_reply(c)?))
    }
}

fn fixed<const N: usize>(value: OwnedValue) -> Result<[OwnedValue; N], WrongType> {
    elements(value, "array")?.try_into().map_err(|_| WrongType { expected: "array of that length" })
}
