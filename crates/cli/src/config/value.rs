//! `Value`: a TOML value with its place, whose variables are replaced.

use toml::de::DeValue;

use super::environment::substitute;
use super::mistakes::{Mistakes, Place};

/// A value of the file.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub(crate) place: Place,
    pub(crate) data: Data,
}

/// The content of a value.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Text {
        text: String,
        has_variables: bool,
    },
    Integer(i64),
    /// A number with a fraction.
    Fraction(f64),
    Boolean(bool),
    List(Vec<Value>),
    Table(Vec<(Name, Value)>),
    /// A text with a variable that is not set, which was reported.
    Unset,
    /// A date, or a number that is too large: no key has one.
    Other(&'static str),
}

/// A key of the file.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) place: Place,
}

impl Value {
    /// Takes a parsed value of a file, and replaces the variables in its texts.
    pub(super) fn new(value: &toml::Spanned<DeValue<'_>>, file: u32, mistakes: &mut Mistakes) -> Self {
        let place = Place { file, at: value.span().start };
        let data = match value.get_ref() {
            DeValue::String(text) => match substitute(text, |name| std::env::var(name).ok()) {
                Ok((text, has_variables)) => Data::Text { text, has_variables },
                Err(text) => {
                    mistakes.add(place, text);
                    Data::Unset
                }
            },
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Data::Integer(number),
                Err(_) => Data::Other("a number that is too large"),
            },
            DeValue::Boolean(is_set) => Data::Boolean(*is_set),
            DeValue::Float(number) => {
                number.as_str().parse().map_or(Data::Other("a number with a fraction"), Data::Fraction)
            }
            DeValue::Datetime(_) => Data::Other("a date"),
            DeValue::Array(items) => Data::List(items.iter().map(|item| Self::new(item, file, mistakes)).collect()),
            DeValue::Table(table) => {
                let entry = |(name, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
                    let text: &std::borrow::Cow<'_, str> = name.get_ref();
                    let place = Place { file, at: name.span().start };
                    (Name { text: text.to_string(), place }, Self::new(value, file, mistakes))
                };
                let mut entries: Vec<_> = table.iter().map(entry).collect();
                entries.sort_by_key(|(name, _)| name.place);
                Data::Table(entries)
            }
        };
        Self { place, data }
    }

    /// The kind of the value, for messages.
    pub(super) fn kind_name(&self) -> &'static str {
        match &self.data {
            Data::Text { .. } | Data::Unset => "a text",
            Data::Integer(_) => "a number",
            Data::Fraction(_) => "a number with a fraction",
            Data::Boolean(_) => "true or false",
            Data::List(_) => "a list",
            Data::Table(_) => "a table",
            Data::Other(name) => name,
        }
    }
}
