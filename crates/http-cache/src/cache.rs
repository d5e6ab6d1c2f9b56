//! `Cache`, `CacheBuilder`: the stored responses that loops share, and their settings.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tidegate_http1::Fields;

use crate::counts::{CacheCounts, Counters};
use crate::function::Cached;
use crate::key;
use crate::limits::CacheLimits;
use crate::rules::freshness::FreshnessPolicy;
use crate::shared::{CacheShared, Clock};
use crate::store::Store;
use crate::store::disk::Disk;

/// Stored responses, shared by all loops and all clones.
///
/// ```
/// use tidegate::http::Router;
/// use tidegate::http::cache::Cache;
/// use tidegate::http::proxy::{Proxy, Upstreams};
///
/// let upstreams = Upstreams::new(["http://10.0.0.1:8080"])?;
/// let cache = Cache::new();
/// let router = Router::new().fallback(cache.wrap(Proxy::new(&upstreams)));
/// # drop(router);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Cache(pub(crate) Arc<CacheShared>);

impl Cache {
    /// A cache in memory, with the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(CacheBuilder::new().into_shared(None)))
    }

    /// A cache with settings.
    pub fn builder() -> CacheBuilder {
        CacheBuilder::new()
    }

    /// A function whose responses are stored: a [`Proxy`](https://docs.rs/tidegate/latest/tidegate/http/proxy), or any
    /// other function of a [`Router`](tidegate_http::Router).
    ///
    /// The URL decides which response a request gets. So functions that serve the same URLs, such as those of routes that differ
    /// in the fields of their requests, need a cache each.
    ///
    /// A stored response is sent within the dispatch in which its request comes, unless the function belongs to a nested
    /// router with middleware of its own: then a task sends it.
    pub fn wrap<F>(&self, function: F) -> Cached<F> {
        Cached::new(&self.0, function)
    }

    /// Removes the responses that are stored for a URL, such as `https://example.org/a?b`. Responses on their way are not
    /// stored. Returns how many were removed from memory; `None` for a text that is no URL.
    pub fn purge(&self, url: &str) -> Option<usize> {
        let key = key::of_url(url)?;
        // Behind a trusted proxy a URL has several keys.
        Some(self.0.invalidate(&key) + self.0.invalidate_where(|other| key::is_of_url(other, &key)))
    }

    /// The same for all URLs that begin with a prefix, such as `https://example.org/pictures/`.
    pub fn purge_prefix(&self, prefix: &str) -> Option<usize> {
        let prefix = key::of_url(prefix)?;
        Some(self.0.invalidate_where(|key| key::url_of(key).starts_with(&prefix)))
    }

    /// The same for all URLs of a host, with its port unless that is the default one.
    pub fn purge_host(&self, host: &str) -> usize {
        self.0.invalidate_where(|key| key::host(key).eq_ignore_ascii_case(host.as_bytes()))
    }

    /// The same for all URLs.
    pub fn purge_all(&self) -> usize {
        self.0.invalidate_where(|_| true)
    }

    /// Waits until the folder holds the responses that were stored before, and no removed one.
    ///
    /// A thread for blocking work writes them, so the responses of the last moments are lost if the program ends without this
    /// call. Without a folder, it returns at once. It blocks the thread, so it does not belong on a loop.
    pub fn flush(&self) {
        if let Some(disk) = &self.0.disk {
            disk.flush();
        }
    }

    /// The figures at this moment.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        let Counters { hits, stale, misses, bypassed, revalidated, joined, stored, disk_hits } = &self.0.counters;
        let (memory_bytes, entries) = self.0.store.usage();
        CacheCounts {
            hits: hits.load(Relaxed),
            stale: stale.load(Relaxed),
            misses: misses.load(Relaxed),
            bypassed: bypassed.load(Relaxed),
            revalidated: revalidated.load(Relaxed),
            joined: joined.load(Relaxed),
            stored: stored.load(Relaxed),
            disk_hits: disk_hits.load(Relaxed),
            evictions: self.0.store.evictions.load(Relaxed),
            memory_bytes,
            entries,
            disk_bytes: self.0.disk.as_ref().map_or(0, |disk| disk.bytes()),
            disk_left_out: self.0.disk.as_ref().map_or(0, |disk| disk.left_out.load(Relaxed)),
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

/// The settings of a [`Cache`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct CacheBuilder {
    limits: CacheLimits,
    name: Option<Box<str>>,
    targets: Vec<Box<str>>,
    ignores_client_control: bool,
    stale_if_error: Duration,
    folder: Option<PathBuf>,
}

impl CacheBuilder {
    fn new() -> Self {
        Self {
            limits: CacheLimits::default(),
            name: Some("Tidegate".into()),
            targets: Vec::new(),
            ignores_client_control: false,
            stale_if_error: Duration::ZERO,
            folder: None,
        }
    }

    /// The limits of the cache.
    pub fn limits(mut self, limits: CacheLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The name of this cache in `Cache-Status` (RFC 9211), `Tidegate` unless set; an empty one sends no such field, and
    /// no log can name the outcome then.
    ///
    /// # Panics
    /// If the name is no token.
    pub fn status_name(mut self, name: &str) -> Self {
        let is_token = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte));
        let begins = name.bytes().next().is_none_or(|first| first.is_ascii_alphabetic() || first == b'*');
        assert!(is_token && begins, "a name in `Cache-Status` is a token that begins with a letter");
        self.name = (!name.is_empty()).then(|| name.into());
        self
    }

    /// A field that replaces `Cache-Control` for this cache, such as `CDN-Cache-Control` (RFC 9213); the first one counts
    /// that a response has. None unless set.
    ///
    /// # Panics
    /// If it cannot be the name of a field.
    pub fn targeted_field(mut self, name: &str) -> Self {
        Fields::new().push(name, "").expect("the name of a field");
        self.targets.push(name.into());
        self
    }

    /// Ignores the `Cache-Control` of clients, but for `no-store`: a client cannot have a stored response fetched again.
    pub fn ignore_client_control(mut self) -> Self {
        self.ignores_client_control = true;
        self
    }

    /// Sends a stale response in the place of a 500, 502, 503 or 504 for so long, also where the upstream has not said
    /// `stale-if-error`. Responses that forbid it, as by `must-revalidate`, are not sent.
    pub fn stale_if_error(mut self, duration: Duration) -> Self {
        self.stale_if_error = duration;
        self
    }

    /// Keeps responses in a folder as well, which is made if it is not there. No other program may write to it. Responses
    /// in it survive a restart.
    ///
    /// A second cache may open the folder, as the successor of a process does: it reads the responses of the first one. Once it
    /// stores or removes a response, the first cache adds no file any more. So two caches do not share a folder for long.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// The cache. It reads the folder, if there is one, and changes no file in it.
    ///
    /// # Errors
    /// If the folder can be neither made nor read.
    pub fn build(self) -> io::Result<Cache> {
        let disk = match &self.folder {
            Some(folder) => Some(Arc::new(Disk::open(folder, &self.limits)?)),
            None => None,
        };
        Ok(Cache(Arc::new(self.into_shared(disk))))
    }

    fn into_shared(self, disk: Option<Arc<Disk>>) -> CacheShared {
        let millis = |duration: Duration| duration.as_millis() as u64;
        CacheShared {
            policy: FreshnessPolicy {
                heuristic_max: millis(self.limits.heuristic_lifetime_max),
                if_error: millis(self.stale_if_error),
            },
            targets: self.targets.into(),
            name: self.name,
            ignores_client_control: self.ignores_client_control,
            store: Arc::new(Store::new(&self.limits, disk.as_ref().map_or(0, |disk| disk.index_bytes_max()))),
            disk,
            flights: Arc::default(),
            counters: Counters::default(),
            revalidations: AtomicUsize::new(0),
            clock: Clock::new(),
            limits: self.limits,
        }
    }
}
