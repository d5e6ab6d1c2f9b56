//! Checks of the sources and documents of the whole tree: how often a type name stands, how long a function is, and whether
//! the items exist that documents name. Read next: `sources.rs`, which reads the tree.

mod document_names;
mod function_lengths;
mod sources;
mod type_names;
