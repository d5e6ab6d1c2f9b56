//! Redirects: which request follows a response (RFC 9110 §15.4, and the Fetch standard, "HTTP-redirect fetch").

use http::{Method, Uri};
use tidegate_http_message::body::{Body, BodyKind};
use tidegate_http_upstream::Origin;
use tidegate_http1::ResponseHead;

use super::core::Redirects;
use super::error::{ClientError, RefusedRedirect};
use super::reference;
use super::request::Request;
use super::uri::origin_of;

/// Where a response leads to.
pub(super) enum RedirectStep {
    /// It is the last one.
    Done,
    /// The request was changed: it is sent to this origin.
    Follow(Origin),
}

/// Changes a request to the one that follows a response, if one does. A request whose body has been sent from a stream
/// cannot be sent again: its response is the last one.
pub(super) fn follow(
    redirects: Redirects,
    request: &mut Request,
    origin: &Origin,
    head: &ResponseHead,
) -> Result<RedirectStep, ClientError> {
    let status = head.status().code();
    if !redirects.follows || !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Ok(RedirectStep::Done);
    }
    let Some(location) = head.header("location") else { return Ok(RedirectStep::Done) };
    let uri: Uri = reference::resolve(&request.uri, location).map_err(ClientError::Redirect)?;
    let target = origin_of(&uri, origin.at.clone()).map_err(|_| ClientError::Redirect(RefusedRedirect::Location))?;
    if origin.is_secure && !target.is_secure && !redirects.allows_downgrade {
        return Err(ClientError::Redirect(RefusedRedirect::Downgrade));
    }
    let is_same_site = target.is_same_site(origin);
    if !is_same_site && origin.at.is_some() {
        return Ok(RedirectStep::Done);
    }
    if becomes_get(status, &request.method) {
        request.method = Method::GET;
        request.body = Body::empty();
        request.expects_continue = false;
        BODY_FIELDS.iter().for_each(|name| request.fields.remove(name));
    } else if !request.was_whole || !matches!(request.body.kind(), BodyKind::Whole(_)) {
        return Ok(RedirectStep::Done);
    }
    if !is_same_site {
        request.host = None;
        CREDENTIALS.iter().for_each(|name| request.fields.remove(name));
    }
    request.uri = uri;
    Ok(RedirectStep::Follow(target))
}

fn becomes_get(status: u16, method: &Method) -> bool {
    match status {
        301 | 302 => *method == Method::POST,
        303 => !matches!(*method, Method::GET | Method::HEAD),
        _ => false,
    }
}

/// Fields about a body that is not sent.
const BODY_FIELDS: [&str; 4] = ["content-encoding", "content-language", "content-location", "content-type"];

/// Fields that are for one origin only.
const CREDENTIALS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "www-authenticate"];
