//! Checks of the sources and documents of the whole tree: how often a type name stands, how long a function is, and whether
//! documents are short and name only what exists, and maps of files are complete. Read next: `sources.rs`, which reads the tree.

mod document_names;
mod documents;
mod file_maps;
mod function_lengths;
mod sources;
mod type_names;
