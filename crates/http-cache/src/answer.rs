//! The response to a client from a stored one: whole, a range, or 304.

use tidegate_http::{Response, gateway};
use tidegate_http_message::Body;
use tidegate_http1::{Fields, Method, Status};

use crate::entry::Entry;
use crate::outcome::CacheStatus;
use crate::rules::facts::RequestFacts;
use crate::rules::range::{self, Requested};
use crate::rules::{Millis, conditions, date};

/// The response to a plain request from a fresh stored one, of the cache `name`.
#[inline]
pub(crate) fn plain_hit(entry: &Entry, now: Millis, name: Option<&str>) -> Response {
    let make = || {
        let ttl = Some(entry.freshness.ttl(now));
        let status = CacheStatus { is_hit: true, ttl, ..CacheStatus::default() };
        with_age(entry.fields.clone(), entry, now, &status, name)
    };
    let fields = entry.hit_fields(now, make);
    marked(entry, Response::with(entry.status).fields(fields).body(entry.body.clone()))
}

/// The response to a request with this method from a stored response. `status` is its `Cache-Status`, of the cache `name`.
pub(crate) fn respond(
    entry: &Entry,
    request: (Method, &RequestFacts<'_>),
    now: Millis,
    status: &CacheStatus,
    name: Option<&str>,
) -> Response {
    marked(entry, response(entry, request, now, status, name))
}

/// The response as one of an upstream, if it is one.
fn marked(entry: &Entry, response: Response) -> Response {
    if entry.is_forwarded { gateway::forwarded(response) } else { response }
}

fn response(
    entry: &Entry,
    (method, request): (Method, &RequestFacts<'_>),
    now: Millis,
    status: &CacheStatus,
    name: Option<&str>,
) -> Response {
    let is_plain = request.range.is_none() && !request.is_conditional();
    if is_plain || entry.status != Status::OK {
        let fields = with_age(entry.fields.clone(), entry, now, status, name);
        return Response::with(entry.status).fields(fields).body(entry.body.clone());
    }
    let (etag, modified) = (entry.etag(), entry.last_modified());
    if request.is_conditional() && conditions::is_not_modified(request, etag, modified, entry.freshness.received) {
        let fields = with_age(without_content(&entry.fields), entry, now, status, name);
        return Response::with(Status::NOT_MODIFIED).fields(fields);
    }
    let mut fields = with_age(entry.fields.clone(), entry, now, status, name);
    let length = entry.body.len();
    let requested = match request.range {
        Some(value) if method == Method::Get && range_applies(entry, request) => range::requested(value, length),
        _ => Requested::Whole,
    };
    match requested {
        Requested::Whole => Response::with(Status::OK).fields(fields).body(entry.body.clone()),
        Requested::Part(part) => {
            let value = format!("bytes {}-{}/{length}", part.start, part.end - 1);
            fields.push_valid("Content-Range", value.as_bytes());
            Response::with(Status::PARTIAL_CONTENT).fields(fields).body(Body::from(entry.body.slice(part)))
        }
        Requested::Unsatisfiable => {
            let mut fields = without_content(&fields);
            fields.push_valid("Content-Range", format!("bytes */{length}").as_bytes());
            Response::with(Status::RANGE_NOT_SATISFIABLE).fields(fields)
        }
    }
}

fn range_applies(entry: &Entry, request: &RequestFacts<'_>) -> bool {
    let date = entry.field("date").and_then(date);
    conditions::range_applies(request.if_range, entry.etag(), entry.last_modified(), date)
}

/// The fields with `Age` (RFC 9111 §5.1) and `Cache-Status`.
fn with_age(mut fields: Fields, entry: &Entry, now: Millis, status: &CacheStatus, name: Option<&str>) -> Fields {
    fields.reserve(ROOM_BYTES);
    fields.push_valid("Age", itoa::Buffer::new().format(entry.freshness.age(now) / 1000).as_bytes());
    if let Some(name) = name {
        status.add_to(&mut fields, name);
    }
    fields
}

/// The fields without those of the body, for a response without it.
fn without_content(fields: &Fields) -> Fields {
    let mut kept = Fields::new();
    let is_content = |name: &[u8]| {
        name.len() > 8 && name[..8].eq_ignore_ascii_case(b"content-") && !name.eq_ignore_ascii_case(b"content-location")
    };
    kept.extend_from_response(fields.iter(), |name| !is_content(name));
    kept
}

/// For `Age` and `Cache-Status`.
const ROOM_BYTES: usize = 96;
