//! `BodyUse`: a function's need of the request body.

/// How a function uses the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BodyUse {
    /// It does not.
    Unused,
    /// It reads the body piece by piece.
    Streamed,
    /// It receives the body in one piece, which is collected before the call.
    Collected,
}

impl BodyUse {
    /// The one that needs more of the body.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self as u8 > other as u8 { self } else { other }
    }
}
