//! `ConcurrencyLimit`: how many requests of a route are in progress at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_http_message::body::{Body, BodyKind};
use tidegate_http1::Status;

use super::{Middleware, RequestInfo};
use crate::request::Request;
use crate::response::Response;

/// Bounds the requests that are in progress at once: middleware that answers 503 with `Retry-After` to those beyond. Clones
/// share the count, on all loops.
///
/// A request is in progress until its response is complete, or its client is gone. A response whose body is there at once is
/// complete when its function returns, and a connection that leaves HTTP, as for a WebSocket, counts no more.
///
/// ```
/// use tidegate::http::{ConcurrencyLimit, Router, with_middleware};
///
/// let limit = ConcurrencyLimit::new(16);
/// let report = with_middleware(async || "report").with(limit.clone());
/// let router = Router::new().get("/report", report);
/// # drop(router);
/// ```
#[derive(Debug, Clone)]
pub struct ConcurrencyLimit {
    requests_max: u32,
    in_progress: Arc<AtomicU32>,
}

impl ConcurrencyLimit {
    /// A limit of so many requests.
    #[must_use]
    pub fn new(requests_max: u32) -> Self {
        Self { requests_max, in_progress: Arc::default() }
    }

    /// The same count with another limit, for a reload: requests that are in progress count towards it.
    ///
    /// ```
    /// use tidegate::http::ConcurrencyLimit;
    ///
    /// let limit = ConcurrencyLimit::new(16);
    /// assert_eq!(limit.with_requests_max(8).in_progress(), limit.in_progress());
    /// ```
    #[must_use]
    pub fn with_requests_max(&self, requests_max: u32) -> Self {
        Self { requests_max, in_progress: self.in_progress.clone() }
    }

    /// How many requests are in progress.
    #[must_use]
    pub fn in_progress(&self) -> u32 {
        self.in_progress.load(Ordering::Relaxed)
    }

    fn begin(&self) -> Option<Permit> {
        let take = |count: u32| (count < self.requests_max).then_some(count + 1);
        self.in_progress.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Permit(self.in_progress.clone()))
    }
}

/// Counts a request until it is dropped.
#[derive(Debug)]
struct Permit(Arc<AtomicU32>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The permits of a request, of each limit that it has passed: they live as long as its extensions.
#[derive(Debug, Clone, Default)]
struct Permits(Vec<Arc<Permit>>);

impl Middleware for ConcurrencyLimit {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        let Some(permit) = self.begin() else {
            let mut response = Response::of_error(Status::SERVICE_UNAVAILABLE);
            let _ = response.add_header("Retry-After", "1");
            return Err(response);
        };
        let mut permits = request.extensions_mut().remove::<Permits>().unwrap_or_default();
        permits.0.push(Arc::new(permit));
        request.extensions_mut().insert(permits);
        Ok(())
    }

    fn after(&self, info: &RequestInfo, response: &mut Response) {
        if !matches!(response.body.kind(), BodyKind::Produced(_)) {
            return;
        }
        let Some(permits) = info.request().extensions().get::<Permits>().cloned() else { return };
        if let BodyKind::Produced(mut produced) = std::mem::take(&mut response.body).into_kind() {
            let produce = produced.produce;
            produced.produce = Box::new(move |writer| {
                let producing = produce(writer);
                Box::pin(async move {
                    let result = producing.await;
                    drop(permits);
                    result
                })
            });
            response.body = Body::from(BodyKind::Produced(produced));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::request;

    #[test]
    fn a_request_counts_until_it_is_gone() {
        let (limit, other) = (ConcurrencyLimit::new(2), ConcurrencyLimit::new(3));
        let mut requests: Vec<_> = (0..3).map(|_| request("GET", "/", "")).collect();
        assert!(limit.before(&mut requests[0]).is_ok() && other.before(&mut requests[0]).is_ok());
        assert!(limit.before(&mut requests[1]).is_ok());
        let refused = limit.before(&mut requests[2]).unwrap_err();
        assert_eq!(refused.status_code(), 503);
        assert_eq!((limit.in_progress(), other.in_progress()), (2, 1));
        requests.remove(0);
        assert_eq!((limit.in_progress(), other.in_progress()), (1, 0));
        assert!(limit.before(&mut requests[1]).is_ok());
    }

    #[test]
    fn requests_in_progress_count_towards_another_limit() {
        let limit = ConcurrencyLimit::new(2);
        let [mut first, mut second] = [(); 2].map(|()| request("GET", "/", ""));
        assert!(limit.before(&mut first).is_ok());
        assert!(limit.with_requests_max(1).before(&mut second).is_err());
        drop(first);
        assert!(limit.with_requests_max(1).before(&mut second).is_ok());
        assert_eq!(limit.in_progress(), 1);
    }
}
