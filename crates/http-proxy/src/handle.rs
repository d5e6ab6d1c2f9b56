//! `UpstreamsHandle`: changes the servers of a set while requests go on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::server_list::UrlEntry;
use super::upstreams::{Upstreams, WEIGHT_MAX};
use super::upstreams_error::UpstreamsError;
use super::url::UpstreamUrl;

/// Changes the servers of [`Upstreams`] while requests go on: for an application that learns them from Kubernetes, Consul
/// or a file of its own. It is used on any thread; clones change the same set.
///
/// A server that stays keeps its connections and its health. One that is removed gets no further request, and its idle
/// connections close; the requests that it has go on. Names have no address until the
/// [upkeep](Upstreams::maintain) has resolved them, within a second.
///
/// ```
/// use tidegate::http::proxy::Upstreams;
///
/// let upstreams = Upstreams::new(["http://10.0.0.1:8080"])?;
/// let handle = upstreams.handle();
/// handle.add("http://10.0.0.2:8080".parse()?, 1)?;
/// assert!(handle.remove(&"http://10.0.0.1:8080".parse()?));
/// assert_eq!(upstreams.len(), 1);
/// handle.set([("http://10.0.0.3:8080".parse()?, 1), ("http://10.0.0.4:8080".parse()?, 2)])?;
/// assert_eq!(upstreams.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct UpstreamsHandle(Upstreams);

impl Upstreams {
    /// A handle that changes the servers. Call it before [`maintain`](Self::maintain) or
    /// [`maintain_on_thread`](Self::maintain_on_thread), which otherwise have nothing to do for a set without names and
    /// checks, and end.
    #[must_use]
    pub fn handle(&self) -> UpstreamsHandle {
        self.0.has_handle.store(true, Ordering::Relaxed);
        UpstreamsHandle(self.clone())
    }
}

impl UpstreamsHandle {
    /// Replaces all servers, each with its weight, from 1 to 1,000. Without any, requests get 503.
    ///
    /// # Errors
    /// [`UpstreamsError`]; the servers stay as they are then.
    pub fn set(&self, servers: impl IntoIterator<Item = (UpstreamUrl, u32)>) -> Result<(), UpstreamsError> {
        let servers: Vec<_> = servers.into_iter().take(SERVERS_MAX + 1).collect();
        self.check(servers.len(), servers.iter())?;
        let shared = &self.0.0;
        shared.servers.change(shared, |urls| {
            let known = std::mem::take(urls);
            for (url, weight) in servers {
                if !urls.iter().any(|entry| entry.url.is_same(&url)) {
                    urls.push(kept_or_new(&known, url, weight));
                }
            }
        });
        Ok(())
    }

    /// Adds a server with a weight, from 1 to 1,000; one that is there gets the weight.
    ///
    /// # Errors
    /// [`UpstreamsError`].
    pub fn add(&self, url: UpstreamUrl, weight: u32) -> Result<(), UpstreamsError> {
        let server = (url, weight);
        self.check(self.0.0.servers.urls().len() + 1, [&server])?;
        let (url, shared) = (server.0, &self.0.0);
        shared.servers.change(shared, |urls| {
            let new = kept_or_new(urls, url, weight);
            match urls.iter_mut().find(|entry| entry.url.is_same(&new.url)) {
                Some(entry) => *entry = new,
                None => urls.push(new),
            }
        });
        Ok(())
    }

    /// Removes a server, in whatever spelling. Returns whether it was there.
    #[must_use = "a URL in another form than it was added in removes nothing"]
    pub fn remove(&self, url: &UpstreamUrl) -> bool {
        let shared = &self.0.0;
        shared.servers.change(shared, |urls| {
            let before = urls.len();
            urls.retain(|entry| !entry.url.is_same(url));
            urls.len() < before
        })
    }

    /// The servers with their weights.
    #[must_use]
    pub fn servers(&self) -> Vec<(UpstreamUrl, u32)> {
        self.0.0.servers.urls().iter().map(|entry| (entry.url.clone(), entry.weight)).collect()
    }

    fn check<'a>(
        &self,
        count: usize,
        servers: impl IntoIterator<Item = &'a (UpstreamUrl, u32)>,
    ) -> Result<(), UpstreamsError> {
        if count > SERVERS_MAX {
            return Err(UpstreamsError::TooMany);
        }
        servers.into_iter().try_for_each(|(url, weight)| {
            if !(1..=WEIGHT_MAX).contains(weight) {
                return Err(UpstreamsError::Weight);
            }
            self.0.0.rules.check(url)
        })
    }
}

/// The entry of a URL, with the same state if its weight stays.
fn kept_or_new(known: &[Arc<UrlEntry>], url: UpstreamUrl, weight: u32) -> Arc<UrlEntry> {
    let kept = known.iter().find(|entry| entry.url.is_same(&url) && entry.weight == weight);
    kept.cloned().unwrap_or_else(|| UrlEntry::new(url, weight))
}

/// URLs of a set with a handle: each request looks at all of them.
const SERVERS_MAX: usize = 4_096;
