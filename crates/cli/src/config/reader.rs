//! `Reader`: takes values of the file for the keys of a table, and notes each mistake.

use std::path::PathBuf;
use std::time::Duration;

use tidegate::{ConnectionRate, IpNet};

use super::keys::{KeyInfo, Keys, Kind, Need, nearest};
use super::mistakes::{Located, Mistakes, Place};
use super::source::read_secret;
use super::value::{Data, Name, Value};
use crate::admission::{parse_network, parse_rate};

/// Reads values, whose kinds were checked.
pub(crate) struct Reader<'m> {
    pub(crate) mistakes: &'m mut Mistakes,
}

impl Reader<'_> {
    /// Notes a mistake.
    pub(crate) fn mistake(&mut self, place: Place, text: impl Into<String>) {
        self.mistakes.add(place, text);
    }

    /// A table.
    pub(crate) fn table<T: Keys>(&mut self, value: &Value) -> T {
        let mut table = T::default();
        table.at(value.place);
        let Data::Table(entries) = &value.data else {
            self.mistake(value.place, format!("{} is a table, not {}", T::TITLE, value.kind_name()));
            return table;
        };
        self.take_all(&mut table, entries);
        for key in T::KEYS.iter().filter(|key| key.info.need == Need::Required) {
            if !entries.iter().any(|(name, _)| name.text == key.info.name) {
                self.mistake(value.place, format!("{} has no `{}`", T::TITLE, key.info.name));
            }
        }
        table.check(self.mistakes);
        table
    }

    /// Gives each entry to the key of its name.
    pub(super) fn take_all<T: Keys>(&mut self, table: &mut T, entries: &[(Name, Value)]) {
        for (name, value) in entries {
            match T::KEYS.iter().find(|key| key.info.name == name.text) {
                Some(key) => {
                    if self.is_of_kind(key.info.name, key.info.kind, value) {
                        (key.take)(table, value, self);
                    } else {
                        table.leave_out(key.info.name);
                    }
                }
                None => {
                    if let Some(meant) = self.unknown_key::<T>(name) {
                        table.leave_out(meant);
                    }
                }
            }
        }
    }

    /// Notes the mistake. Returns the key that was probably meant.
    fn unknown_key<T: Keys>(&mut self, name: &Name) -> Option<&'static str> {
        let is_known_as = |key: &&super::keys::Key<T>| key.info.other_names.contains(&&*name.text);
        let meant = T::KEYS.iter().find(is_known_as).map(|key| key.info.name);
        let meant = meant.or_else(|| nearest(&name.text, T::KEYS.iter().map(|key| key.info.name)));
        let title = T::TITLE;
        // A key of a table within this one.
        let within = T::KEYS.iter().map(|key| key.info).find(
            |key| matches!(key.kind, Kind::Table(info) if info().keys.iter().any(|inner| inner.name == name.text)),
        );
        let text = match meant {
            _ if within.is_some() => {
                let (table, key) = (within.map_or("", |key| key.name), &name.text);
                format!("{title} has no key `{key}`, and its `{table}` has: write `{table} = {{ {key} = ... }}`")
            }
            Some(meant) => format!("{title} has no key `{}`; did you mean `{meant}`?", name.text.escape_debug()),
            None => {
                let names = T::KEYS.iter().map(|key| key.info.name).collect::<Vec<_>>().join(", ");
                format!("{title} has no key `{}`; it has {names}", name.text.escape_debug())
            }
        };
        self.mistake(name.place, text);
        meant.filter(|_| within.is_none())
    }

    /// A list of tables, or one.
    pub(crate) fn tables<T: Keys>(&mut self, value: &Value) -> Vec<T> {
        match &value.data {
            Data::List(items) => items.iter().map(|item| self.table(item)).collect(),
            _ => vec![self.table(value)],
        }
    }

    /// Whether a value is one of a kind; notes the mistake otherwise. Tables check themselves.
    fn is_of_kind(&mut self, name: &str, kind: Kind, value: &Value) -> bool {
        let is = match (kind, &value.data) {
            (_, Data::Unset) => return false,
            (Kind::Text | Kind::Path | Kind::Secret, Data::Text { .. }) => true,
            (Kind::Boolean, _) => boolean(value).is_some(),
            (Kind::Integer { min, max } | Kind::Seconds { min, max }, _) => {
                integer(value).is_some_and(|number| (min..=max).contains(&number))
            }
            (Kind::Percent, _) => percent(value).is_some_and(|number| (0.0..=100.0).contains(&number)),
            (Kind::Choice(names), Data::Text { text, .. }) => {
                if names.contains(&&**text) {
                    return true;
                }
                let meant = nearest(text, names.iter().copied()).map(|name| format!("; did you mean \"{name}\"?"));
                let expected = kind.name();
                let text =
                    format!("`{name}` is {expected}, not \"{}\"{}", text.escape_debug(), meant.unwrap_or_default());
                self.mistake(value.place, text);
                return false;
            }
            (Kind::OneOrMore(_), Data::List(items)) if items.is_empty() => {
                self.mistake(value.place, format!("`{name}` is an empty list: leave it out, or name one"));
                return false;
            }
            (Kind::List(inner) | Kind::OneOrMore(inner), Data::List(items)) => {
                // Each item is looked at, since each may have a mistake.
                let wrong = items.iter().filter(|item| !self.is_of_kind(name, *inner, item)).count();
                return wrong == 0;
            }
            (Kind::OneOrMore(inner), _) => return self.is_of_kind(name, *inner, value),
            (Kind::Map(inner), Data::Table(entries)) => {
                return entries.iter().fold(true, |all, (key, item)| self.is_of_kind(&key.text, *inner, item) && all);
            }
            (Kind::Table(_) | Kind::Secret, Data::Table(_)) => true,
            (Kind::Either(kinds), _) => kinds.iter().any(|kind| is_alike(*kind, value)),
            _ => false,
        };
        if !is {
            let given = match &value.data {
                // Never a secret.
                _ if matches!(kind, Kind::Secret) => value.kind_name().to_owned(),
                Data::Text { text, .. } => format!("\"{}\"", text.escape_debug()),
                Data::Integer(number) => number.to_string(),
                _ => value.kind_name().to_owned(),
            };
            let advice = match (kind, &value.data) {
                (Kind::List(Kind::Table(_)), Data::Table(_)) => format!(": write `[[{name}]]`"),
                (Kind::Table(info), _) => match key_for(&info().keys, value) {
                    Some(key) => format!(": write `{name} = {{ {key} = ... }}`"),
                    None => String::new(),
                },
                _ => String::new(),
            };
            self.mistake(value.place, format!("`{name}` is {}, not {given}{advice}", kind.name()));
        }
        is
    }

    pub(crate) fn text(&mut self, value: &Value) -> String {
        match &value.data {
            Data::Text { text, .. } => text.clone(),
            _ => String::new(),
        }
    }

    /// A text with its place.
    pub(crate) fn located(&mut self, value: &Value) -> Located<String> {
        Located::new(self.text(value), value.place)
    }

    /// One text, or several.
    pub(crate) fn texts(&mut self, value: &Value) -> Vec<Located<String>> {
        match &value.data {
            Data::List(items) => items.iter().map(|item| self.located(item)).collect(),
            _ => vec![self.located(value)],
        }
    }

    /// A path, relative to the file that names it.
    pub(crate) fn path(&mut self, value: &Value) -> Located<PathBuf> {
        let text = self.text(value);
        let path = self.mistakes.folder(value.place).join(text);
        Located::new(path, value.place)
    }

    /// One path, or several.
    pub(crate) fn paths(&mut self, value: &Value) -> Vec<Located<PathBuf>> {
        match &value.data {
            Data::List(items) => items.iter().map(|item| self.path(item)).collect(),
            _ => vec![self.path(value)],
        }
    }

    /// A text, or the content of a file.
    pub(crate) fn secret(&mut self, value: &Value) -> String {
        let Data::Table(entries) = &value.data else { return self.text(value) };
        match &entries[..] {
            [(name, path)] if name.text == "file" && matches!(path.data, Data::Text { .. }) => {
                let path = self.path(path);
                read_secret(&path.value).unwrap_or_else(|error| {
                    self.mistake(path.place, format!("`{}`: {error}", path.value.display()));
                    String::new()
                })
            }
            _ => {
                self.mistake(value.place, "a secret is a text, or `{ file = PATH }`");
                String::new()
            }
        }
    }

    pub(crate) fn boolean(&mut self, value: &Value) -> bool {
        boolean(value).unwrap_or_default()
    }

    pub(crate) fn integer(&mut self, value: &Value) -> i64 {
        integer(value).unwrap_or_default()
    }

    /// A share in percent.
    pub(crate) fn percent(&mut self, value: &Value) -> f64 {
        percent(value).unwrap_or_default()
    }

    /// A number that its kind bounds.
    pub(crate) fn count(&mut self, value: &Value) -> u32 {
        u32::try_from(self.integer(value)).unwrap_or(u32::MAX)
    }

    /// A number that its kind bounds, of any width.
    pub(crate) fn number<N: TryFrom<i64>>(&mut self, value: &Value) -> Option<N> {
        N::try_from(self.integer(value)).ok()
    }

    pub(crate) fn seconds(&mut self, value: &Value) -> Duration {
        Duration::from_secs(self.integer(value).unsigned_abs())
    }

    /// The entries of a table with names of the user's choice.
    pub(crate) fn entries<'v>(&mut self, value: &'v Value) -> &'v [(Name, Value)] {
        match &value.data {
            Data::Table(entries) => entries,
            _ => &[],
        }
    }

    /// Networks: addresses, alone or with a prefix.
    pub(crate) fn networks(&mut self, value: &Value) -> Vec<IpNet> {
        let networks = self.parsed(value, "a network, such as 10.0.0.0/8", |text| parse_network(text).ok());
        networks.into_iter().map(|network| network.value).collect()
    }

    /// A text, or several, each as a value of a type. A text that `parse` does not take is a mistake; `expected` names
    /// the values.
    pub(crate) fn parsed<T>(
        &mut self,
        value: &Value,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Vec<Located<T>> {
        let mut values = Vec::new();
        for text in self.texts(value) {
            match parse(&text.value) {
                Some(parsed) => values.push(Located::new(parsed, text.place)),
                None => self.mistake(text.place, format!("`{}` is not {expected}", text.value.escape_debug())),
            }
        }
        values
    }

    /// A rate, such as `10/s:50`.
    pub(crate) fn rate(&mut self, value: &Value) -> Option<ConnectionRate> {
        let text = self.text(value);
        parse_rate(&text)
            .map_err(|error| self.mistake(value.place, format!("`{}` is {error}", text.escape_debug())))
            .ok()
    }

    /// The value of a choice, as a type with a value for each of its names.
    pub(crate) fn choice<T: Copy>(&mut self, value: &Value, values: &[(&str, T)], default: T) -> T {
        let text = self.text(value);
        values.iter().find(|(name, _)| *name == text).map_or(default, |(_, value)| *value)
    }
}

/// The key of a table that a value was probably meant for: one that must be there, or the only one that takes a number.
fn key_for(keys: &[KeyInfo], value: &Value) -> Option<&'static str> {
    let mut alike = keys.iter().filter(|key| is_alike(key.kind, value));
    let needed = alike.clone().find(|key| key.need == Need::Required);
    let first = alike.next().filter(|_| alike.next().is_none() && matches!(value.data, Data::Integer(_)));
    needed.or(first).map(|key| key.name)
}

/// Whether a value has the outer shape of a kind.
fn is_alike(kind: Kind, value: &Value) -> bool {
    match (kind, &value.data) {
        (Kind::Text | Kind::Path | Kind::Secret, Data::Text { .. }) => true,
        (Kind::Boolean, _) => boolean(value).is_some(),
        (Kind::Integer { min, max } | Kind::Seconds { min, max }, _) => {
            integer(value).is_some_and(|number| (min..=max).contains(&number))
        }
        (Kind::Percent, _) => percent(value).is_some_and(|number| (0.0..=100.0).contains(&number)),
        (Kind::List(kind), Data::List(items)) => items.iter().all(|item| is_alike(*kind, item)),
        (Kind::Table(_) | Kind::Map(_), Data::Table(_)) => true,
        _ => false,
    }
}

/// A number, or a text that a variable made a number.
fn integer(value: &Value) -> Option<i64> {
    match &value.data {
        Data::Integer(number) => Some(*number),
        Data::Text { text, has_variables: true } => text.parse().ok(),
        _ => None,
    }
}

/// A number with a fraction or without, or a text that a variable made one.
fn percent(value: &Value) -> Option<f64> {
    match &value.data {
        Data::Fraction(number) => Some(*number),
        Data::Text { text, has_variables: true } => text.parse().ok(),
        _ => integer(value).map(|number| number as f64),
    }
}

pub(super) fn boolean(value: &Value) -> Option<bool> {
    match &value.data {
        Data::Boolean(is_set) => Some(*is_set),
        Data::Text { text, has_variables: true } => text.parse().ok(),
        _ => None,
    }
}
