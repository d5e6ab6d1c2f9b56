//! The redirect of a request to https.

use tidegate::http::{IntoResponse, Request, Response, StatusCode};

/// The same target over https.
pub(crate) fn to_https(request: &Request, port: Option<u16>) -> Response {
    let host = request.host();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    if name.is_empty() {
        return StatusCode::BAD_REQUEST.into_response();
    }
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = format!("https://{name}{port}{}{query}", request.path());
    Response::status(StatusCode::PERMANENT_REDIRECT).header("Location", target).into_response()
}
