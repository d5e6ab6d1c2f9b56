//! `ReloadError`: another configuration on request.

use std::sync::Arc;

/// Reads a configuration again. The text is that of the response.
pub(crate) type ReloadFunction = Arc<dyn Fn() -> Result<String, ReloadError> + Send + Sync>;

/// Why a configuration was not read again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReloadError {
    /// Another reload is under way: answered with 409.
    Busy,
    /// The configuration has mistakes, one line each, and the old one stays in use: answered with 422.
    Mistakes(String),
}
