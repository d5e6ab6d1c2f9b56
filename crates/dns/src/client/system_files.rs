//! `SystemFiles`: `resolv.conf` and a hosts file, read again when they change.
//!
//! A lookup compares the metadata of both files with that of the last read, at most once a second: two calls of `stat`, which take
//! a few microseconds and no thread. Changed files are read on a thread for blocking work, and that lookup waits for them.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_engine::{blocking, task};

use crate::cache::CacheConfig;
use crate::hosts::Hosts;
use crate::resolv_conf::ResolvConf;
use crate::resolver::SharedCache;

/// The paths of both files, and their content once it was read.
#[derive(Debug)]
pub(super) struct SystemFiles {
    resolv_conf: PathBuf,
    hosts: PathBuf,
    state: Mutex<FilesState>,
}

#[derive(Debug, Default)]
struct FilesState {
    checked: Option<Instant>,
    stamps: Stamps,
    /// The content of `resolv.conf`, and of the hosts file, as they were read last.
    conf: ResolvConf,
    hosts: Hosts,
    contents: Option<Arc<FileContents>>,
}

/// The content of the files, and a cache for its servers.
#[derive(Debug)]
pub(super) struct FileContents {
    pub(super) conf: ResolvConf,
    pub(super) hosts: Hosts,
    /// Other servers may have other answers, so they have another cache.
    pub(super) cache: SharedCache,
}

/// The stamps of both files; `None` for a file that does not exist.
type Stamps = [Option<Stamp>; 2];

/// A file changes one of these when it is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<Metadata> for Stamp {
    fn from(file: Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl SystemFiles {
    pub(super) fn new(resolv_conf: PathBuf, hosts: PathBuf) -> Self {
        Self { resolv_conf, hosts, state: Mutex::default() }
    }

    /// The content of the files, compared with them at most [`CHECK_INTERVAL`] ago.
    pub(super) async fn contents(self: &Arc<Self>, cache: CacheConfig) -> Arc<FileContents> {
        let known = {
            let (mut state, now) = (self.state(), task::now());
            let is_fresh = state.checked.is_some_and(|checked| now < checked + CHECK_INTERVAL);
            if let Some(contents) = state.contents.as_ref().filter(|_| is_fresh) {
                return contents.clone();
            }
            state.checked = Some(now);
            let contents = state.contents.as_ref();
            if let Some(contents) = contents.filter(|_| state.stamps == self.stamps()) {
                return contents.clone();
            }
            contents.cloned()
        };
        let files = self.clone();
        match (blocking(move || files.read(cache)).await, known) {
            (Ok(contents), _) | (Err(_), Some(contents)) => contents,
            // No thread is left, and nothing was read before: this lookup reads on the loop.
            (Err(_), None) => self.read(cache),
        }
    }

    fn read(&self, cache: CacheConfig) -> Arc<FileContents> {
        // Taken before the content: a change between both is found by the next comparison.
        let stamps = self.stamps();
        let read = (read_or_empty(&self.resolv_conf), read_or_empty(&self.hosts));
        let mut state = self.state();
        // A file that cannot be read keeps its content, and its stamp: it is read again when it changes.
        if let Ok(conf) = &read.0 {
            state.conf = ResolvConf::parse(conf);
        }
        if let Ok(hosts) = &read.1 {
            state.hosts = Hosts::parse(hosts);
        }
        let (conf, hosts) = (state.conf.clone(), state.hosts.clone());
        let known = state.contents.as_ref().filter(|known| known.conf.servers == conf.servers);
        let cache = known.map_or_else(|| SharedCache::new(cache), |known| known.cache.clone());
        let contents = Arc::new(FileContents { conf, hosts, cache });
        (state.stamps, state.contents) = (stamps, Some(contents.clone()));
        contents
    }

    fn stamps(&self) -> Stamps {
        [&self.resolv_conf, &self.hosts].map(|path| fs::metadata(path).ok().map(Stamp::from))
    }

    fn state(&self) -> MutexGuard<'_, FilesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that is not there is an empty one, as for the C library. One that cannot be read keeps the content that is known.
fn read_or_empty(path: &PathBuf) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => {
            tracing::warn!(subsystem = "dns", path = %path.display(), %error, "file not read");
            Err(error)
        }
        read => read,
    }
}

/// The files are compared at most once in this time.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
