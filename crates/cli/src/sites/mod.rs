//! The sites of `tidegate serve --root` and `--config`: directories of files.

mod config;
