//! `Files`: a folder of files as a function of a [`Router`].
//!
//! Read next: `service.rs` for the way from a request to its response; `path.rs` and `open.rs` for files that cannot be
//! reached.

mod conditional;
mod entries;
mod listing;
mod multipart;
mod open;
mod options;
mod path;
mod range;
mod service;

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_http1::Fields;

use self::open::Root;
use self::options::FileOptions;
use self::service::FileService;
use crate::endpoint::{Call, Endpoint, RequestFunction};
use crate::extract::BodyUse;
use crate::router::Router;

/// The files of a folder: a function for [`Router::nest_files`], a route that ends with `{*name}`, or a fallback.
///
/// ```no_run
/// use tidegate::http::{Files, Router, Server};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let files = Files::new("public")?.precompressed(true).cache_control("public, max-age=3600");
/// let router = move || Router::new().get("/health", || "up").nest_files("/static", files.clone());
/// Server::bind("127.0.0.1:8080")?.start(router)?.wait();
/// # Ok(())
/// # }
/// ```
///
/// Files are sent by the kernel, without passing through the memory of the process, unless they are shorter than 16 KiB;
/// through TLS in bounded pieces.
/// Requests may be conditional, and may ask for at most 16 ranges after those that overlap or touch are joined; for more
/// the response has the whole file. Methods other than GET, HEAD and OPTIONS are answered with 405.
///
/// **Served files.** Regular files below the folder, which is held open from the beginning: after a rename it is still
/// the same. Names are percent-decoded once. Names with empty segments, `.` or `..`, slashes or backslashes within a
/// segment, control characters, incomplete escapes, or bytes that are not UTF-8 are answered with 404, as are devices,
/// FIFOs, sockets, and unless they are chosen links and names with a dot at the beginning. A file that may not be read
/// is answered with 403.
///
/// **Cost.** The function is not async: opening a file and asking for its length run within the dispatch of the
/// connection, and the loop waits for them. On a file system that may hang, such as one of a network, use an async
/// function with [`blocking`](tidegate_engine::blocking).
///
/// **Files that change.** A response has the file that was there when its head was sent, if a new file is renamed into
/// its place. A file that becomes shorter meanwhile ends the connection, so that the peer sees that the response is not
/// complete. A file that is changed in place is sent as it is when its bytes leave the kernel, which shares the memory of
/// the file with the sockets: replace files by a rename instead.
#[derive(Debug, Clone)]
pub struct Files {
    root: Arc<Root>,
    options: Arc<FileOptions>,
}

impl Files {
    /// The files of a folder, and of the folders in it.
    ///
    /// # Errors
    /// If the folder cannot be opened.
    pub fn new(folder: impl AsRef<Path>) -> io::Result<Self> {
        let options = FileOptions::default();
        Ok(Self { root: Arc::new(Root::new(folder.as_ref())?), options: Arc::new(options) })
    }

    /// Whether symbolic links are followed, as far as they stay below the folder; they are not unless set. Before Linux
    /// 5.6 they are never followed.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn follow_symlinks(mut self, follow: bool) -> io::Result<Self> {
        self.root = Arc::new(self.root.follow_links(follow)?);
        Ok(self)
    }

    /// The name of the file that stands for a folder, `index.html` unless set; `None` for no such file.
    ///
    /// # Panics
    /// If the name has a slash, or is one that is never served.
    #[must_use]
    pub fn index(mut self, name: Option<&str>) -> Self {
        if let Some(name) = name {
            assert!(path::is_served(name, true), "the index `{name}` is not the name of a file");
        }
        self.set().index = name.map(str::to_owned);
        self
    }

    /// Whether a folder without an index is listed, as a page of at most 10,000 entries; it is not unless set. The
    /// listing shows the entries that would be served.
    #[must_use]
    pub fn listing(mut self, listing: bool) -> Self {
        self.set().listing = listing;
        self
    }

    /// Whether names with a dot at the beginning are served, such as `.git`; they are not unless set.
    #[must_use]
    pub fn dot_files(mut self, dot_files: bool) -> Self {
        self.set().dot_files = dot_files;
        self
    }

    /// Whether a file `NAME.br`, `NAME.zst` or `NAME.gz` is sent in place of `NAME` to peers that accept that coding; it is
    /// not unless set. `NAME` itself need not exist for those peers. A variant that is added is used after a second at
    /// the latest. A variant has to be as recent as its file: dates are not compared.
    ///
    /// A peer that refuses the file without a coding, and for which there is no variant, gets 406.
    #[must_use]
    pub fn precompressed(mut self, precompressed: bool) -> Self {
        self.set().precompressed = precompressed;
        self
    }

    /// How long files are kept open, on each loop at most 256 of them; none is unless set. A file that is kept open costs
    /// no system call but those that send it. A file that is replaced, removed or changed in place is served as it was
    /// for as long at most: one that became shorter meanwhile ends the connections of its requests.
    #[must_use]
    pub fn keep_open(mut self, duration: Duration) -> Self {
        self.set().keep_open = Some(duration).filter(|duration| !duration.is_zero());
        self
    }

    /// The value of `Cache-Control`; there is none unless set.
    ///
    /// # Panics
    /// If it cannot be the value of a field.
    #[must_use]
    pub fn cache_control(mut self, value: &str) -> Self {
        if let Err(error) = Fields::new().push("Cache-Control", value) {
            panic!("the value of Cache-Control is `{value}`: {error}");
        }
        self.set().cache_control = Some(value.to_owned());
        self
    }

    fn set(&mut self) -> &mut FileOptions {
        Arc::make_mut(&mut self.options)
    }
}

impl<S> RequestFunction<S, Files> for Files {
    fn into_endpoint(self, _: Rc<S>) -> Endpoint {
        let service = FileService::new(self.root, self.options);
        Endpoint::new(Call::Sync(Box::new(move |request| service.respond(&request))), BodyUse::Unused)
    }
}

impl<S: 'static> Router<S> {
    /// Serves the files of a folder below a prefix: `/` for all paths that have no route.
    ///
    /// # Panics
    /// As [`route`](Self::route), and if the prefix ends with a slash and is longer than that.
    #[must_use]
    pub fn nest_files(self, prefix: &str, files: Files) -> Self {
        if prefix == "/" {
            return self.any("/", files.clone()).any("/{*path}", files);
        }
        assert!(
            prefix.starts_with('/') && !prefix.ends_with('/'),
            "the prefix `{prefix}` has to begin with a slash and must not end with one"
        );
        self.any(prefix, files.clone())
            .any(&format!("{prefix}/"), files.clone())
            .any(&format!("{prefix}/{{*path}}"), files)
    }
}
