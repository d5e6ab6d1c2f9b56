//! `Selector`: the fields of a request that choose a stored response, as `Vary` lists them (RFC 9111 §4.1).

use tidegate_http1::Headers;

/// The selecting fields of the request for which a response was stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector(Box<[SelectingField]>);

/// A name in lower case, and the members of its values, if it had any.
type SelectingField = (Box<[u8]>, Option<Box<[u8]>>);

impl Selector {
    /// Of a response with these `Vary` lines to a request with these fields; `None` if it lists too many names.
    pub(crate) fn of(vary: &[&[u8]], request: &Headers<'_>) -> Option<Self> {
        let mut names: Vec<Box<[u8]>> =
            members(vary.iter().copied()).map(|name| name.to_ascii_lowercase().into()).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > NAMES_MAX {
            return None;
        }
        let with_value = |name: Box<[u8]>| {
            let value = has(request, &name).then(|| {
                let values: Vec<_> = members(values(request, &name)).collect();
                values.join(&b","[..]).into_boxed_slice()
            });
            (name, value)
        };
        Some(Self(names.into_iter().map(with_value).collect()))
    }

    /// Whether a request has the same values. White space, and the lines in which members stand, do not matter.
    pub(crate) fn matches(&self, request: &Headers<'_>) -> bool {
        self.0.iter().all(|(name, stored)| match stored {
            None => !has(request, name),
            Some(stored) => {
                has(request, name) && members(values(request, name)).eq(members(std::iter::once(&**stored)))
            }
        })
    }

    /// Its bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let field = |(name, value): &SelectingField| {
            size_of::<SelectingField>() + name.len() + value.as_ref().map_or(0, |value| value.len())
        };
        self.0.iter().map(field).sum()
    }

    pub(crate) fn fields(&self) -> &[SelectingField] {
        &self.0
    }

    pub(crate) fn from_fields(fields: Vec<SelectingField>) -> Self {
        Self(fields.into())
    }
}

/// The names that the lines list.
pub(crate) fn names<'a>(vary: &[&'a [u8]]) -> impl Iterator<Item = &'a [u8]> {
    members(vary.iter().copied())
}

/// Whether the lines list `*`: no other request gets the response.
pub(crate) fn is_any(vary: &[&[u8]]) -> bool {
    members(vary.iter().copied()).any(|name| name == b"*")
}

fn has(request: &Headers<'_>, name: &[u8]) -> bool {
    values(request, name).next().is_some()
}

fn values<'a>(request: &Headers<'a>, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    request.clone().filter(move |(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn members<'a>(lines: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    lines.flat_map(|line| line.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// How many fields `Vary` may list.
const NAMES_MAX: usize = 16;
