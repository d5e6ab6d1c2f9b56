//! The id of a request, which a request carries and `RequestIds` gives.

use std::fmt;
use std::sync::Arc;

/// The id of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId {
    id: Arc<str>,
    /// `None` for `X-Request-Id`.
    field: Option<Arc<str>>,
}

impl RequestId {
    /// The field that carries an id, unless another one is set.
    pub(crate) const FIELD: &str = "X-Request-Id";

    pub(crate) fn new(id: &str, field: Option<Arc<str>>) -> Self {
        Self { id: id.into(), field }
    }

    /// The id, as its field has it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.id
    }

    /// The name of the field that carries it: `X-Request-Id`, or the one of [`RequestIds::field`](crate::RequestIds::field).
    #[must_use]
    pub fn field(&self) -> &str {
        self.field.as_deref().unwrap_or(Self::FIELD)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}
