//! The live page: one file, without anything from elsewhere.

use std::hash::{BuildHasher, RandomState};

use tidegate_http::{ContentType, IntoResponse, Response, StatusCode};

/// The page, with a policy that lets it load and run nothing but itself.
pub(crate) fn page() -> Response {
    // Keys of the system's random numbers: 64 bits for each page.
    let nonce = format!("{:016x}", RandomState::new().hash_one(0));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    );
    let response = StatusCode::OK.into_response().content_type(ContentType::HTML).body(PAGE.replace("NONCE", &nonce));
    let response = response
        .header("Content-Security-Policy", policy)
        .and_then(|response| response.header("X-Frame-Options", "DENY"));
    response.expect("the fields are valid")
}

const PAGE: &str = include_str!("dashboard.html");
