//! `RequestSource`: a request with its own method, fields and body; and the bound on the files that have it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::url::Url;

/// A request with its own method, fields and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestSource {
    pub(crate) method: String,
    pub(crate) url: Url,
    /// Each `Name: value`.
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

/// The bytes of a file.
pub(super) fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error| format!("cannot read '{}': {error}", path.display());
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "'{}' has more than {FILE_BYTES_MAX} bytes: give a file with fewer requests, and a HAR file without the \
             content of responses",
            path.display()
        ));
    }
    Ok(bytes)
}

/// Whether the load writes a field itself, or it belongs to the connection of a browser (RFC 9110 §7.6.1).
pub(super) fn is_of_connection(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    name.starts_with(':') || NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// The maximum length of a file of requests.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beyond_its_bound_is_refused_and_not_read() {
        let path = std::env::temp_dir().join(format!("tidegate-load-sources-{}", std::process::id()));
        let file = File::create(&path).expect("it is created");
        file.set_len(100_000_000).expect("a sparse file");
        let error = bytes_of(&path).expect_err("it is long");
        std::fs::remove_file(&path).expect("it is there");
        assert!(error.contains("more than 67108864 bytes"), "{error}");
        assert!(bytes_of(Path::new("/nowhere")).expect_err("it is absent").contains("/nowhere"));
    }
}
