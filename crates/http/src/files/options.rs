//! `FileOptions`: how the files of a folder are served.

use std::time::Duration;

use tidegate_http1::Fields;

/// How the files of a folder are served; [`Files`](super::Files) sets each of them.
#[derive(Debug, Clone)]
pub(super) struct FileOptions {
    pub(super) index: Option<String>,
    pub(super) listing: bool,
    pub(super) dot_files: bool,
    pub(super) precompressed: bool,
    pub(super) cache_control: Option<String>,
    pub(super) keep_open: Option<Duration>,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            index: Some("index.html".to_owned()),
            listing: false,
            dot_files: false,
            precompressed: false,
            cache_control: None,
            keep_open: None,
        }
    }
}

impl FileOptions {
    /// Adds the fields that a shared cache needs to choose the representation, and those of the application.
    pub(super) fn add_cache_fields(&self, fields: &mut Fields) {
        if self.precompressed {
            fields.push("Vary", "Accept-Encoding").expect("it is a value");
        }
        if let Some(cache_control) = &self.cache_control {
            fields.push("Cache-Control", cache_control).expect("`Files::cache_control` has checked it");
        }
    }
}
