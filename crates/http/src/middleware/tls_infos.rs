//! `TlsInfos`: has requests carry the parameters of their TLS connections.

use super::Middleware;

/// Gives each request on a TLS connection its [`TlsInfo`](crate::TlsInfo), among its [`extensions`](crate::Request::extensions): for functions,
/// and for the placeholders `{tls.…}` of a [`Template`](crate::Template). It belongs to the outermost router, or to the router of
/// a host.
///
/// ```
/// use tidegate::http::{Request, Router, TlsInfo, TlsInfos};
///
/// let greet = |request: Request| {
///     let subject = request.extensions().get::<TlsInfo>().and_then(TlsInfo::client_subject);
///     format!("Hello, {}!", subject.unwrap_or_default())
/// };
/// let router = Router::new().get("/", greet).with(TlsInfos::new());
/// # drop(router);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TlsInfos(());

impl TlsInfos {
    /// The middleware.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

impl Middleware for TlsInfos {
    fn reads_tls(&self) -> bool {
        true
    }
}
