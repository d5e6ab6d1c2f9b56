//! The removal of responses that caches have stored.

use serde::{Deserialize, Serialize};
use tidegate_http::{IntoResponse, Json, Query, Response, Router, StatusCode};
use tidegate_http_cache::Cache;

use crate::figures::ReadCaches;

/// The query of a purge: one of these.
#[derive(Debug, Deserialize)]
struct Purge {
    url: Option<String>,
    prefix: Option<String>,
    host: Option<String>,
    all: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Purged {
    /// Responses in memory.
    removed: usize,
}

/// Adds the path, if there may be a cache.
pub(crate) fn with_purge<S: 'static>(router: Router<S>, caches: Option<&ReadCaches>) -> Router<S> {
    let Some(caches) = caches.cloned() else { return router };
    router.post("/cache/purge", move |Query(purge): Query<Purge>| match &caches()[..] {
        [] => StatusCode::NOT_FOUND.into_response(),
        caches => purge_all(caches, &purge),
    })
}

fn purge_all(caches: &[Cache], purge: &Purge) -> Response {
    let removed = caches.iter().map(|cache| match purge {
        Purge { url: Some(url), prefix: None, host: None, all: None } => cache.purge(url),
        Purge { url: None, prefix: Some(prefix), host: None, all: None } => cache.purge_prefix(prefix),
        Purge { url: None, prefix: None, host: Some(host), all: None } => Some(cache.purge_host(host)),
        Purge { url: None, prefix: None, host: None, all: Some(true) } => Some(cache.purge_all()),
        _ => None,
    });
    match removed.sum::<Option<usize>>() {
        Some(removed) => Json(Purged { removed }).into_response(),
        None => (StatusCode::BAD_REQUEST, MALFORMED).into_response(),
    }
}

const MALFORMED: &str =
    "Name one of: url, a URL such as https://example.org/a; prefix, the beginning of such ones; host; all=true.\n";
