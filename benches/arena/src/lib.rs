//! A server for the workloads by which frameworks are compared in public: README.md lists them. It uses nothing but the
//! facade, as an application does.

#![forbid(unsafe_code)]

pub mod files;
pub mod items;

use std::error::Error;
use std::path::Path;

use tidegate::http::{
    BodyError, Config, Files, IntoResponse, Json, Limits, Request, Response, ResponseCompression, Router, State,
    StatusCode,
};
use tidegate::tls::{Certificates, Provider, ServerConfig};
use tidegate::{Listener, Server, ServerHandle};

use crate::items::Item;

/// Starts the server with the files of a folder, and if an address is given for it, the same over TLS.
///
/// # Errors
/// A server that does not start, or a folder that cannot be opened.
pub fn start(
    address: &str,
    tls_address: Option<&str>,
    loops: Option<usize>,
    folder: &Path,
) -> Result<ServerHandle, Box<dyn Error>> {
    let files = Files::new(folder)?.precompressed(true);
    let mut limits = Limits::default();
    limits.body_bytes_max = 32 * 1024 * 1024;
    let plain = Config::new().limits(limits);
    let mut server = loops.map_or_else(Server::new, |loops| Server::new().loops(loops));
    let encrypted =
        tls_address.map(|address| Ok::<_, Box<dyn Error>>((Listener::bind(address)?, tls()?))).transpose()?;
    let files_again = files.clone();
    server = server.listener(plain.clone().serve(Listener::bind(address)?, move || router(files.clone())));
    if let Some((listener, tls)) = encrypted {
        server = server.listener(plain.tls(tls).serve(listener, move || router(files_again.clone())));
    }
    Ok(server.run()?)
}

/// A certificate that this process has made.
fn tls() -> Result<ServerConfig, Box<dyn Error>> {
    let (provider, made) = (Provider::ring(), rcgen::generate_simple_self_signed(["localhost".to_owned()])?);
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes())?;
    Ok(ServerConfig::builder(&provider, certificates).build()?)
}

/// All workloads.
#[must_use]
pub fn router(files: Files) -> Router {
    let json = Router::with_state(items::items()).get("/{count}", page).with(ResponseCompression::new());
    Router::new()
        .get("/baseline11", sum)
        .post("/baseline11", sum)
        .get("/pipeline", || "ok")
        .nest("/json", json)
        .post("/upload", upload)
        .nest_files("/static", files)
}

/// The sum of the integers in the query and in the body.
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn sum(request: Request) -> Result<String, StatusCode> {
    let mut sum = 0_i64;
    let values = request.query().into_iter().flat_map(|query| query.split('&'));
    let values = values.filter_map(|pair| pair.split_once('=').map(|(_, value)| value));
    let body = std::str::from_utf8(request.bytes()).map_err(|_| StatusCode::BAD_REQUEST)?.trim();
    for value in values.chain(Some(body).filter(|body| !body.is_empty())) {
        let value = value.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
        sum = i64::checked_add(sum, value).ok_or(StatusCode::BAD_REQUEST)?;
    }
    Ok(sum.to_string())
}

/// The first items, each with its total.
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn page(State(items): State<Vec<Item>>, request: Request) -> Result<Response, StatusCode> {
    let count = request.parameter("count").and_then(|count| count.parse().ok());
    let count = count.filter(|count| (1..=items.len()).contains(count)).ok_or(StatusCode::BAD_REQUEST)?;
    let multiplier = request.query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("m=")));
    let multiplier = multiplier.map_or(Ok(1), str::parse).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(Json(items::page(&items, count, multiplier)).into_response())
}

/// The length of the body, counted as it arrives.
async fn upload(mut request: Request) -> Result<String, BodyError> {
    let mut bytes = 0;
    while let Some(piece) = request.body_mut().next().await {
        bytes += piece?.len();
    }
    Ok(bytes.to_string())
}
