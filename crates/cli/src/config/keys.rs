//! `Key`: one key of a table, in one place: its name, its values, its text for readers, and the function that takes it.
//!
//! A table of the file is a type that implements [`Keys`]. Reading it ([`Reader::table`]), the JSON schema (`schema.rs`)
//! and the table for readers (`reference.rs`) all go by its list of keys, so a new key is one entry of that list.

use super::mistakes::{Mistakes, Place};
use super::reader::Reader;
use super::value::Value;

/// A table of the file.
pub(crate) trait Keys: Default + 'static {
    /// Its heading for readers, such as `[[route]]`.
    const TITLE: &'static str;
    /// One sentence about it.
    const TEXT: &'static str;
    /// Its keys, in the order for readers.
    const KEYS: &'static [Key<Self>];

    /// Called before the keys are taken.
    fn at(&mut self, _: Place) {}

    /// Called for a key whose value is of a wrong kind, and for one that another name was probably meant to be: it is not taken.
    fn leave_out(&mut self, _key: &str) {}

    /// Called after the keys were taken: rules between keys of one table.
    fn check(&mut self, _: &mut Mistakes) {}
}

/// A key, and how a table takes its value.
pub(crate) struct Key<T> {
    pub(super) info: KeyInfo,
    pub(super) take: fn(&mut T, &Value, &mut Reader<'_>),
}

/// A key without the type of its table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyInfo {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) need: Need,
    /// One sentence for readers.
    pub(crate) text: &'static str,
    /// Names of the same in other programs, for mistakes.
    pub(crate) other_names: &'static [&'static str],
}

/// Whether a key must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Required,
    /// The text of the default, as it would stand in the file.
    Default(&'static str),
    /// Without it there is none.
    Optional,
}

/// The values of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// Of a file or a folder, relative to the file that names it.
    Path,
    /// A text, or `{ file = PATH }`.
    Secret,
    Boolean,
    Integer {
        min: i64,
        max: i64,
    },
    /// Whole seconds.
    Seconds {
        min: i64,
        max: i64,
    },
    /// 0 to 100, with a fraction or without.
    Percent,
    Choice(&'static [&'static str]),
    List(&'static Kind),
    /// One value, or a list.
    OneOrMore(&'static Kind),
    /// A table with names of the user's choice.
    Map(&'static Kind),
    Table(fn() -> TableInfo),
    Either(&'static [Kind]),
}

/// A table without its type.
#[derive(Debug, Clone)]
pub(crate) struct TableInfo {
    pub(crate) title: &'static str,
    pub(crate) text: &'static str,
    pub(crate) keys: Vec<KeyInfo>,
}

/// The description of a table.
pub(crate) fn info<T: Keys>() -> TableInfo {
    TableInfo { title: T::TITLE, text: T::TEXT, keys: T::KEYS.iter().map(|key| key.info).collect() }
}

impl<T> Key<T> {
    /// A key that may be left out.
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        text: &'static str,
        take: fn(&mut T, &Value, &mut Reader<'_>),
    ) -> Self {
        Self { info: KeyInfo { name, kind, need: Need::Optional, text, other_names: &[] }, take }
    }

    /// It must be there.
    pub(crate) const fn required(mut self) -> Self {
        self.info.need = Need::Required;
        self
    }

    /// Its value where the file has none.
    pub(crate) const fn default(mut self, value: &'static str) -> Self {
        self.info.need = Need::Default(value);
        self
    }

    /// Names under which users of other programs look for it.
    pub(crate) const fn known_as(mut self, names: &'static [&'static str]) -> Self {
        self.info.other_names = names;
        self
    }
}

impl Kind {
    /// Its name for readers and messages.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Text => "a text".into(),
            Self::Path => "a path".into(),
            Self::Secret => "a text, or `{ file = PATH }`".into(),
            Self::Boolean => "true or false".into(),
            Self::Integer { min, max } if max == i64::MAX => format!("a number from {min}"),
            Self::Integer { min, max } => format!("a number from {min} to {max}"),
            Self::Seconds { min, max } if max == i64::MAX => format!("seconds, from {min}"),
            Self::Seconds { min, max } => format!("seconds, from {min} to {max}"),
            Self::Percent => "a number from 0 to 100".into(),
            Self::Choice(names) => names.iter().map(|name| format!("`\"{name}\"`")).collect::<Vec<_>>().join(", "),
            Self::List(Self::Table(_)) => "a list of tables".into(),
            Self::List(kind) => format!("a list: {}", kind.name()),
            Self::OneOrMore(kind) => format!("{}, or a list", kind.name()),
            Self::Map(kind) => format!("a table of names: {}", kind.name()),
            Self::Table(info) => format!("a table, {}", info().title),
            Self::Either(kinds) => kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join("; or "),
        }
    }
}

/// The name among `names` that was probably meant: one with few letters added, left out, replaced or swapped.
pub(super) fn nearest<'n>(wrong: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let wrong = wrong.to_ascii_lowercase().replace('_', "-");
    if wrong.len() > 64 {
        return None;
    }
    let found = names.map(|name| (distance(&wrong, name), name)).min_by_key(|(distance, _)| *distance)?;
    (found.0 <= (wrong.len() / 3).max(1)).then_some(found.1)
}

/// The edits between two names: letters added, left out, replaced, or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for (at, row) in rows.iter_mut().enumerate() {
        row[0] = at;
    }
    rows[0] = (0..=other.len()).collect();
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_key_that_was_meant_is_found() {
        let names = ["weight", "hosts", "health-check", "upstream"];
        for (wrong, expected) in [
            ("wieght", Some("weight")),
            ("host", Some("hosts")),
            ("health_check", Some("health-check")),
            ("Upstreams", Some("upstream")),
            ("zebra", None),
            ("x", None),
        ] {
            assert_eq!(nearest(wrong, names.into_iter()), expected, "{wrong}");
        }
    }
}
