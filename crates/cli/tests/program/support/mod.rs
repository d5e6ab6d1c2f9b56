//! Shared by the tests: the program as a process, and its peers.

pub(crate) mod origin;
pub(crate) mod peer;
pub(crate) mod program;
