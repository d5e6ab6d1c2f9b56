//! `Route`: the pattern that a path matches, and where the values of its parameters are in it.

use std::rc::Rc;

/// The route of a request, and where the values of its parameters are in the path.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) pattern: Rc<Pattern>,
    pub(crate) values: Values,
}

/// Beginning and end of each value in the path, in the order of the parameters; those that are left are empty.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    Few([Span; VALUES_INLINE]),
    Many(Box<[Span; PARAMETERS_MAX]>),
}

pub(crate) type Span = (u16, u16);

impl Values {
    /// No values.
    pub(crate) const NONE: Self = Self::Few([(0, 0); VALUES_INLINE]);

    pub(crate) fn new(spans: impl ExactSizeIterator<Item = Span>) -> Self {
        if spans.len() <= VALUES_INLINE {
            let mut few = [(0, 0); VALUES_INLINE];
            few.iter_mut().zip(spans).for_each(|(place, span)| *place = span);
            return Self::Few(few);
        }
        let mut many = [(0, 0); PARAMETERS_MAX];
        many.iter_mut().zip(spans).for_each(|(place, span)| *place = span);
        Self::Many(Box::new(many))
    }

    /// The values in a text that a route matches; `place` finds a part of the text in the path as it was sent.
    pub(crate) fn of(params: &matchit::Params<'_, '_>, text: &str, place: impl Fn(usize) -> u16) -> Self {
        Self::new(params.iter().map(|(_, value)| {
            let start = value.as_ptr() as usize - text.as_ptr() as usize;
            (place(start), place(start + value.len()))
        }))
    }

    pub(crate) fn spans(&self) -> &[Span] {
        match self {
            Self::Few(spans) => spans,
            Self::Many(spans) => &**spans,
        }
    }
}

/// The pattern of a path, and the names of its parameters.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) text: Box<str>,
    pub(crate) names: Box<[Box<str>]>,
}

impl Pattern {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }
}

/// How many values lie in the request itself.
const VALUES_INLINE: usize = 3;

/// How many parameters a route may have.
pub(crate) const PARAMETERS_MAX: usize = 8;
