//! Errors with their causes, in a debug build.

use tidegate::http::{Config, DebugPages, Extension, Json, Path, Request, Response, Router, StatusCode};
use tidegate_testkit::Embedded;

#[derive(Clone)]
struct User;

fn ask(request: &str) -> String {
    let router = Router::new()
        .get("/numbers/{number}", |Path(number): Path<u8>| number.to_string())
        .get("/user", |_: Extension<User>| "")
        .get("/panics", || -> &'static str { panic!("as planned") })
        .get("/refuses", || (StatusCode::CONFLICT, "the tide <is> out"))
        .get("/json", || (StatusCode::CONFLICT, Json(1)))
        .post("/json", |Json(number): Json<u8>| number.to_string())
        .get("/fine", |_: Request| Response::text("fine"));
    let pages = DebugPages::new().routes(router.routes());
    let (codec, handler) = Config::new().connections(router.with(pages))();
    let mut pipe = Embedded::new(codec, handler);
    pipe.receive(request.as_bytes());
    String::from_utf8(pipe.take_written()).expect("text")
}

fn get(path: &str, lines: &str) -> String {
    ask(&format!("GET {path} HTTP/1.1\r\nHost: sea\r\n{lines}\r\n"))
}

#[test]
fn a_text_names_the_cause_of_a_refusal() {
    for (path, status, cause) in [
        ("/numbers/many", "400", "number"),
        ("/user", "500", "no middleware has added the extension `suite::debug_pages::User`"),
        ("/panics", "500", "the function panicked"),
        ("/refuses", "409", "the tide <is> out"),
        ("/nothing", "404", "no route matches the path /nothing"),
    ] {
        let response = get(path, "Cookie: sid=secret\r\nauthorization: secret\r\nX-A: b\r\n");
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
        assert!(response.contains("\r\nContent-Type: text/plain"), "{response}");
        let body = response.split("\r\n\r\n").nth(1).unwrap();
        assert!(body.contains("cause:\n") && body.contains(cause), "{path}: {response}");
        assert!(body.contains(&format!("GET {path}\n")) && body.contains("X-A: b\n"), "{response}");
        assert!(!response.contains("secret"), "{response}");
        assert_eq!(body.contains("routes:\n") && body.contains("GET /fine\n"), path == "/nothing", "{response}");
    }
    let wrong =
        ask("POST /json HTTP/1.1\r\nHost: sea\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n\"a\"");
    assert!(wrong.starts_with("HTTP/1.1 422 ") && wrong.contains("invalid type"), "{wrong}");
    let method = ask("DELETE /fine HTTP/1.1\r\nHost: sea\r\n\r\n");
    assert!(method.contains("no function for DELETE; it has some for GET, HEAD, OPTIONS"), "{method}");
}

#[test]
fn a_browser_gets_a_page_without_markup_of_peers() {
    let page = get("/refuses?<script>", "Accept: text/html,*/*\r\nX-A: <b>\r\n");
    assert!(page.contains("\r\nContent-Type: text/html") && page.contains("the tide &lt;is&gt; out"), "{page}");
    assert!(!page.contains("<script>") && !page.contains("<b>"), "{page}");
}

#[test]
fn other_bodies_and_good_responses_stay() {
    assert!(get("/json", "Accept: text/html\r\n").ends_with("\r\n\r\n1"));
    assert!(get("/fine", "Accept: text/html\r\n").ends_with("\r\n\r\nfine"));
}
