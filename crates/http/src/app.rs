//! `App`: what the connections of one loop have in common.

use std::cell::Cell;

use crate::limits::Limits;
use crate::router::Table;

/// What the connections of one loop have in common.
pub(crate) struct App {
    pub(crate) table: Table,
    pub(crate) limits: Limits,
    /// How many connections tasks of this crate serve: so many handles of the loop are out of reach of the application.
    pub(crate) served: Cell<usize>,
}

impl App {
    pub(crate) fn new(table: Table, limits: Limits) -> Self {
        Self { table, limits, served: Cell::new(0) }
    }
}
