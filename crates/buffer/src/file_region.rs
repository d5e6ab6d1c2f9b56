//! `FileRegion`: a piece of a file in an outbound queue.

use std::fs::File;
use std::sync::Arc;

/// Bytes of a file, to be sent without passing through memory where that is possible.
#[derive(Debug, Clone)]
pub struct FileRegion {
    /// The file; it has to be a regular one.
    pub file: Arc<File>,
    /// Where the region begins, in bytes from the start of the file.
    pub offset: u64,
    /// How long it is, in bytes. A file that turns out to be shorter fails the connection.
    pub length: u64,
}
