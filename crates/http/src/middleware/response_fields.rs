//! `ResponseFields`: edits of the fields of responses.

use super::{Middleware, RequestInfo};
use crate::client_address::TrustedProxies;
use crate::edit::Edit;
use crate::response::Response;
use crate::template::TemplateValues;

/// Changes the fields of responses, one [`Edit`] after the other.
///
/// ```
/// use tidegate::http::{Edit, ResponseFields, Router, Template};
///
/// let fields = ResponseFields::new()
///     .edit(Edit::set("Cache-Control", "no-store")?)
///     .edit(Edit::add("X-Served", Template::parse("{request.host} {response.status}")?)?);
/// let router = Router::new().get("/", || "rising").with(fields);
/// # drop(router);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ResponseFields {
    edits: Vec<Edit>,
    trusted: TrustedProxies,
}

impl ResponseFields {
    /// No edits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an edit.
    #[must_use]
    pub fn edit(mut self, edit: Edit) -> Self {
        self.edits.push(edit);
        self
    }

    /// `{client.ip}` is the client that these proxies name.
    #[must_use]
    pub fn trusted(mut self, trusted: TrustedProxies) -> Self {
        self.trusted = trusted;
        self
    }
}

impl Middleware for ResponseFields {
    fn after(&self, info: &RequestInfo, response: &mut Response) {
        let status = response.status_code();
        for edit in &self.edits {
            let is_replaced = |(name, _): &(&[u8], &[u8])| edit.replaces(name);
            while let Some((name, _)) = response.fields.iter().find(is_replaced) {
                let name = String::from_utf8_lossy(name).into_owned();
                response.fields.remove(&name);
            }
            if edit.replaces(b"content-type") {
                response.content_type = None;
            }
            edit.add_to(&mut response.fields, || {
                TemplateValues::new(info.request()).trusting(&self.trusted).with_status(status)
            });
        }
    }

    fn reads_tls(&self) -> bool {
        self.edits.iter().any(Edit::reads_tls)
    }
}
