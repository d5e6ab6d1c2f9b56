//! `App`: what the connections of one loop have in common.

use crate::limits::Limits;
use crate::router::Table;

/// What the connections of one loop have in common.
pub(crate) struct App {
    pub(crate) table: Table,
    pub(crate) limits: Limits,
}
