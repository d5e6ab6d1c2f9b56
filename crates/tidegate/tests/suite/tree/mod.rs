//! Checks of the sources and documents of the whole tree: how often a type name stands, how long a function and a file are,
//! whether the items exist that documents name, whether documents are short and maps of files complete, the prose of comments,
//! and whether the package of the queue experiment follows `crates/buffer`. Read next: `sources.rs`, which reads the tree.

mod document_names;
mod documents;
mod file_lengths;
mod file_maps;
mod function_lengths;
mod prose;
mod queue_experiment;
mod sources;
mod type_names;
