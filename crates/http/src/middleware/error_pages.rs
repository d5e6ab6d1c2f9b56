//! `ErrorPages`: bodies of one's own for errors.

use std::collections::HashMap;

use bytes::Bytes;
use http::StatusCode;
use tidegate_http1::ContentType;

use super::{Middleware, RequestInfo};
use crate::response::Response;

/// Replaces the bodies of responses with these statuses, those of functions too.
///
/// ```
/// use tidegate::http::{ErrorPages, Router, StatusCode};
///
/// let pages = ErrorPages::new().page(StatusCode::NOT_FOUND, "<h1>There is nothing here.</h1>");
/// let router = Router::new().get("/", || "hello").with(pages);
/// # drop(router);
/// ```
#[derive(Debug, Default)]
pub struct ErrorPages {
    pages: HashMap<StatusCode, Bytes>,
}

impl ErrorPages {
    /// No pages.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A page of HTML in UTF-8 for a status.
    #[must_use]
    pub fn page(mut self, status: StatusCode, page: impl Into<Bytes>) -> Self {
        self.pages.insert(status, page.into());
        self
    }
}

impl Middleware for ErrorPages {
    fn after(&self, _: &RequestInfo, response: &mut Response) {
        if let Some(page) = self.pages.get(&response.status_code()) {
            *response = std::mem::take(response).content_type(ContentType::HTML).body(page.clone());
        }
    }
}
