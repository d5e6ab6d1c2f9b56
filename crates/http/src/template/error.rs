//! `InvalidTemplate`: why a text is no template, and where.

use std::fmt;

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidTemplate {
    position: usize,
    fault: TemplateFault,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TemplateFault {
    /// No placeholder has this name; the one that is nearest.
    Unknown {
        name: Box<str>,
        nearest: Option<Box<str>>,
    },
    /// A name has to follow.
    Unnamed(Box<str>),
    /// The name of a field or a cookie is no token.
    NoToken(Box<str>),
    Unclosed,
    Unopened,
    TooMany,
}

impl InvalidTemplate {
    pub(super) fn new(position: usize, fault: TemplateFault) -> Self {
        Self { position, fault }
    }

    /// The byte of the text at which the mistake begins, counted from 0.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// The placeholder that was probably meant, without its braces.
    #[must_use]
    pub fn nearest(&self) -> Option<&str> {
        match &self.fault {
            TemplateFault::Unknown { nearest, .. } => nearest.as_deref(),
            _ => None,
        }
    }
}

impl fmt::Display for InvalidTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.position;
        match &self.fault {
            TemplateFault::Unknown { name, nearest } => {
                write!(f, "`{{{name}}}` at byte {at} is no placeholder; ")?;
                match nearest {
                    Some(nearest) => write!(f, "did you mean `{{{nearest}}}`?"),
                    None => f.write_str("write `{{` for a brace"),
                }
            }
            TemplateFault::Unnamed(name) => write!(f, "`{{{name}}}` at byte {at} lacks a name behind the last dot"),
            TemplateFault::NoToken(name) => write!(f, "`{{{name}}}` at byte {at} has a name that no field has"),
            TemplateFault::Unclosed => write!(f, "the `{{` at byte {at} has no `}}`; write `{{{{` for a brace"),
            TemplateFault::Unopened => write!(f, "the `}}` at byte {at} has no `{{`; write `}}}}` for a brace"),
            TemplateFault::TooMany => {
                write!(f, "the placeholder at byte {at} is one more than {}", super::Template::PLACEHOLDERS_MAX)
            }
        }
    }
}

impl std::error::Error for InvalidTemplate {}
