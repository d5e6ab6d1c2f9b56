//! Redirects: which are followed, with which method, body and credentials.

use std::sync::Arc;

use tidegate::http::client::{ClientError, RefusedRedirect};
use tidegate::http::{Body, Client, Request, Response, Router, StatusCode};

use crate::support::{Any, Served, run};

/// Redirects from `/STATUS`, and shows requests at `/show`. `other` is another origin.
fn router(other: &str) -> Router {
    let to = |status: u16, target: String| {
        move || Response::status(StatusCode::from_u16(status).expect("a status")).header("Location", &target)
    };
    let show = async |mut request: Request| {
        let body = request.body_mut().collect(1000).await.map(|body| String::from_utf8_lossy(&body).into_owned());
        let field = |name| request.header_str(name).unwrap_or("-").to_owned();
        let fields = [field("authorization"), field("cookie"), field("content-type"), field("x")].join(" ");
        format!("{} {} {fields}", request.method(), body.unwrap_or_default())
    };
    let mut router = Router::new().any("/show", show);
    for status in [301, 302, 303, 307, 308] {
        router = router.any(&format!("/{status}"), to(status, "/show".to_owned()));
    }
    router
        .get("/elsewhere", to(302, format!("{other}/show")))
        .get("/loop", to(302, "/loop".to_owned()))
        .get("/file", to(302, "file:///etc/passwd".to_owned()))
        .get("/broken", to(302, "http://[".to_owned()))
        .get("/nowhere", || Response::status(StatusCode::FOUND))
}

fn served() -> (Served, Served) {
    let other = Served::start(|| router(""));
    let uri: Arc<str> = other.uri("").into();
    (Served::start(move || router(&uri)), other)
}

#[test]
fn methods_and_bodies_are_kept_or_dropped_as_the_status_says() {
    let (server, _other) = served();
    let uri = server.uri("");
    run(async move {
        let client = Client::new();
        for (status, method, shown) in [
            (301, "POST", "GET  - - - x"),
            (302, "POST", "GET  - - - x"),
            (303, "POST", "GET  - - - x"),
            (307, "POST", "POST body - - text/plain x"),
            (308, "POST", "POST body - - text/plain x"),
            (301, "PUT", "PUT body - - text/plain x"),
            (303, "PUT", "GET  - - - x"),
        ] {
            let request = client.request(method.parse().map_err(Any::from)?, format!("{uri}/{status}"));
            let request = request.header("Content-Type", "text/plain").header("X", "x").body("body");
            let response = request.send().await?;
            assert!(response.uri().path() == "/show", "{status} {method}");
            assert_eq!(response.text().await?, shown, "{status} {method}");
        }
        Ok(())
    });
}

#[test]
fn credentials_stay_at_their_origin() {
    let (server, _other) = served();
    let uri = server.uri("");
    run(async move {
        let client = Client::new();
        for (target, shown) in [("302", "GET  Bearer t c=d - x"), ("elsewhere", "GET  - - - x")] {
            let request = client.get(format!("{uri}/{target}")).bearer_auth("t").header("Cookie", "c=d");
            assert_eq!(request.header("X", "x").send().await?.text().await?, shown, "{target}");
        }
        Ok(())
    });
}

#[test]
fn redirects_without_end_or_to_other_schemes_are_errors() {
    let (server, _other) = served();
    let uri = server.uri("");
    run(async move {
        let client = Client::new();
        let error = client.get(format!("{uri}/loop")).send().await.expect_err("it has no end");
        assert!(matches!(error, ClientError::TooManyRedirects), "{error}");
        let error = client.get(format!("{uri}/file")).send().await.expect_err("it is a file");
        assert!(matches!(error, ClientError::Redirect(RefusedRedirect::Scheme)), "{error}");
        let error = client.get(format!("{uri}/broken")).send().await.expect_err("it is no URI");
        assert!(matches!(error, ClientError::Redirect(RefusedRedirect::Location)), "{error}");
        for target in ["loop", "file", "nowhere"] {
            let response = client.get(format!("{uri}/{target}")).redirects(false).send().await?;
            assert_eq!(response.status(), StatusCode::FOUND, "{target}");
        }
        assert_eq!(client.get(format!("{uri}/nowhere")).send().await?.status(), StatusCode::FOUND);
        Ok(())
    });
}

#[test]
fn a_body_from_a_stream_is_not_sent_again() {
    let (server, _other) = served();
    let uri = server.uri("");
    run(async move {
        let body = || Body::produce(async |writer| writer.write("body").await);
        let client = Client::new();
        let response = client.post(format!("{uri}/307")).body(body()).send().await?;
        assert_eq!(response.status(), StatusCode::TEMPORARY_REDIRECT);
        let response = client.post(format!("{uri}/303")).body(body()).send().await?;
        assert_eq!(response.text().await?, "GET  - - - -");
        Ok(())
    });
}

#[test]
fn cookies_are_kept_for_their_server() {
    use tidegate::http::client::CookieStore;
    let server = Served::start(|| {
        Router::new()
            .get("/set", || Response::see_other("/show")?.header("Set-Cookie", "tide=high; Path=/"))
            .get("/show", |request: Request| request.header_str("cookie").unwrap_or("-").to_owned())
    });
    let uri = server.uri("");
    run(async move {
        let cookies = CookieStore::new();
        let client = Client::builder().cookies(cookies.clone()).build();
        assert_eq!(client.get(format!("{uri}/show")).send().await?.text().await?, "-");
        assert_eq!(client.get(format!("{uri}/set")).send().await?.text().await?, "tide=high");
        assert_eq!(cookies.len(), 1);
        Ok(())
    });
}
