//! A service that describes itself: an OpenAPI document by utoipa, made of the functions that serve, and a page of it.
//!
//! ```text
//! cargo run --example openapi                      # checks itself
//! cargo run --example openapi -- 127.0.0.1:8080    # serves; then open http://127.0.0.1:8080/
//! ```
//!
//! The attribute at a function names its arguments and its responses, and `Interface` lists the functions. The router has each path
//! once more, so a test compares the document with `Router::routes`: a route without a description fails, and so does a
//! description without a route.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;

use serde::{Deserialize, Serialize};
use tidegate::Bytes;
use tidegate::http::{ContentType, DebugPages, Json, Path, Response, RouteInfo, Router, Server, State, StatusCode};
use utoipa::openapi::PathItem;
use utoipa::{OpenApi, ToSchema};

type Any = Box<dyn Error>;

/// The level of the water at a harbour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
struct Tide {
    /// The harbour's name.
    #[schema(example = "brest")]
    harbour: String,
    /// Metres above chart datum.
    #[schema(minimum = -2.0, maximum = 20.0)]
    level: f64,
}

/// The levels that this loop knows.
#[derive(Default)]
struct Tides(RefCell<BTreeMap<String, Tide>>);

#[utoipa::path(get, path = "/tides", tag = "tides", responses((status = 200, description = "all levels", body = Vec<Tide>)))]
fn list(State(tides): State<Tides>) -> Json<Vec<Tide>> {
    Json(tides.0.borrow().values().cloned().collect())
}

#[utoipa::path(
    get,
    path = "/tides/{harbour}",
    tag = "tides",
    params(("harbour" = String, Path, description = "the harbour's name")),
    responses((status = 200, description = "its level", body = Tide), (status = 404, description = "no such harbour")),
)]
fn find(State(tides): State<Tides>, Path(harbour): Path<String>) -> Option<Json<Tide>> {
    tides.0.borrow().get(&harbour).cloned().map(Json)
}

#[utoipa::path(
    post,
    path = "/tides",
    tag = "tides",
    request_body = Tide,
    responses(
        (status = 201, description = "it is noted", body = Tide),
        (status = 400, description = "the body is not JSON"),
        (status = 415, description = "the body has another media type"),
        (status = 422, description = "the JSON is no tide, or the level is none"),
    ),
)]
fn note(State(tides): State<Tides>, Json(tide): Json<Tide>) -> Result<(StatusCode, Json<Tide>), StatusCode> {
    if !(-2.0..=20.0).contains(&tide.level) {
        return Err(StatusCode::UNPROCESSABLE_ENTITY);
    }
    tides.0.borrow_mut().insert(tide.harbour.clone(), tide.clone());
    Ok((StatusCode::CREATED, Json(tide)))
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Tides", description = "Levels of the water at harbours", version = "1"),
    paths(list, find, note)
)]
struct Interface;

/// The functions that the document describes.
fn interface() -> Router<Tides> {
    Router::with_state(Tides::default()).get("/tides", list).get("/tides/{harbour}", find).post("/tides", note)
}

/// The same, with the document and its page.
fn router() -> Router<Tides> {
    // It is made once a loop, and each response shares its bytes.
    let document = Bytes::from(Interface::openapi().to_json().expect("its parts become JSON"));
    let document = move || Response::new().content_type(ContentType::JSON).body(document.clone());
    let router = interface().get("/openapi.json", document).get("/", || Response::html(include_str!("page.html")));
    let pages = DebugPages::new().routes(router.routes());
    router.with(pages)
}

/// The operations of the document, as `METHOD PATH`.
fn described() -> Vec<String> {
    let operations = |path: String, item: PathItem| {
        let PathItem { get, put, post, delete, options, head, patch, trace, .. } = item;
        let all = [
            ("GET", get),
            ("PUT", put),
            ("POST", post),
            ("DELETE", delete),
            ("OPTIONS", options),
            ("HEAD", head),
            ("PATCH", patch),
            ("TRACE", trace),
        ];
        all.into_iter().filter(|(_, operation)| operation.is_some()).map(move |(method, _)| format!("{method} {path}"))
    };
    Interface::openapi().paths.paths.into_iter().flat_map(|(path, item)| operations(path, item)).collect()
}

/// That each route is described, and each description has a route.
fn check_interface(routes: &[RouteInfo]) {
    let mut served: Vec<_> = routes.iter().map(ToString::to_string).collect();
    let mut described = described();
    served.sort();
    described.sort();
    assert_eq!(served, described, "the routes are those of the document");
}

fn main() -> Result<(), Any> {
    run(std::env::args().nth(1).as_deref())
}

fn run(address: Option<&str>) -> Result<(), Any> {
    if let Some(address) = address {
        let server = Server::bind(address)?.start(router)?;
        println!("http://{}/", server.address());
        server.wait();
        return Ok(());
    }
    check_interface(&interface().routes());
    check_responses()
}

/// That the server sends the document and the page, and the content of the document.
fn check_responses() -> Result<(), Any> {
    let server = Server::bind("127.0.0.1:0")?.loops(1).start(router)?;
    let root = format!("http://{}", server.address());
    tidegate::EventLoop::on(tidegate::Backend::Auto)?.block_on(async move {
        let client = tidegate::http::Client::new();
        let text = client.get(format!("{root}/openapi.json")).send().await?.text().await?;
        let document: serde_json::Value = serde_json::from_str(&text)?;
        assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")), "{text}");
        assert_eq!(document["paths"]["/tides"]["post"]["requestBody"]["required"], true);
        assert_eq!(document["components"]["schemas"]["Tide"]["required"], serde_json::json!(["harbour", "level"]));
        let page = client.get(format!("{root}/")).send().await?;
        assert_eq!(page.status(), StatusCode::OK);
        assert!(page.text().await?.contains("openapi.json"));
        let tide = Tide { harbour: "brest".into(), level: 4.2 };
        for (level, status) in [(4.2, StatusCode::CREATED), (99.0, StatusCode::UNPROCESSABLE_ENTITY)] {
            let sent = client.post(format!("{root}/tides")).json(&Tide { level, ..tide.clone() }).send().await?;
            assert_eq!(sent.status(), status);
        }
        let found = client.get(format!("{root}/tides/brest")).send().await?.text().await?;
        assert_eq!(serde_json::from_str::<Tide>(&found)?, tide);
        assert_eq!(client.get(format!("{root}/tides/atlantis")).send().await?.status(), StatusCode::NOT_FOUND);
        println!("{} operations are described and served", described().len());
        Ok::<_, Any>(())
    })??;
    server.drain(std::time::Duration::from_secs(1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_checks_itself() -> Result<(), Any> {
        run(None)
    }

    #[test]
    #[should_panic(expected = "the routes are those of the document")]
    fn a_route_without_a_description_is_found() {
        check_interface(&interface().get("/hidden", || "").routes());
    }
}
