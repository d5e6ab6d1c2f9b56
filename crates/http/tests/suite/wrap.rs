//! Async middleware, async extractors, and the limits of single routes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::ConnectionRate;
use tidegate::http::{
    AsyncMiddleware, Body, BodyError, Extension, FromRequestAsync, IntoResponse, Json, Limits, Middleware, Next, Peer,
    RateLimit, Request, RequestInfo, Response, Router, State, StatusCode, Wrapper, route, with_middleware,
};
use tidegate::task;

use crate::support::running::start_with;
use crate::support::{ask, split, start};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: sea\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn chunked(path: &str, body: &str) -> String {
    let fields = "Transfer-Encoding: chunked\r\nConnection: close";
    format!("POST {path} HTTP/1.1\r\nHost: sea\r\n{fields}\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// Adds a letter to the fields `Trail` of the response.
async fn letter(letter: &str, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.add_header("Trail", letter).expect("letters");
    response
}

/// The same, not async.
struct Letter(&'static str);

impl Middleware for Letter {
    fn after(&self, _: &RequestInfo, response: &mut Response) {
        response.add_header("Trail", self.0).expect("letters");
    }
}

#[test]
fn async_middleware_runs_in_its_order_behind_that_which_is_not_async() {
    let inner = Router::new().get("/", || "inner").wrap(async |request, next| letter("i", request, next).await);
    let router = Router::new()
        .get("/", || "hello")
        .nest("/inner", inner)
        .wrap(async |request: Request, next: Next| letter("a", request, next).await)
        .with(Letter("s"))
        .wrap(async |request: Request, next: Next| letter("b", request, next).await);
    let answers = ask(router, &[&get("/"), &get("/inner"), &get("/nowhere")]);
    for (answer, status, trail) in
        [(&answers[0], "200", "bas"), (&answers[1], "200", "ibas"), (&answers[2], "404", "bas")]
    {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        let letters: String = answer.lines().filter_map(|line| line.strip_prefix("Trail: ")).collect();
        assert_eq!(letters, trail, "{answer}");
    }
}

#[test]
fn async_middleware_refuses_requests_and_gives_values_to_functions() {
    #[derive(Clone)]
    struct User(String);
    async fn authenticate(
        State(realm): State<Realm>,
        mut request: Request,
        next: Next,
    ) -> Result<Response, StatusCode> {
        let name = request.header_str("authorization").ok_or(StatusCode::UNAUTHORIZED)?;
        let user = User(format!("{name} of {}", realm.0));
        request.extensions_mut().insert(user);
        Ok(next.run(request).await)
    }
    #[derive(Clone)]
    struct Realm(&'static str);
    let router = Router::with_state(Realm("sea")).get("/", |Extension(User(name))| name).wrap(authenticate);
    let wire = "GET / HTTP/1.1\r\nHost: sea\r\nAuthorization: ebb\r\n\r\n";
    let answers = ask(router, &[&get("/"), wire, &get("/nowhere")]);
    assert!(answers[0].starts_with("HTTP/1.1 401 "), "{}", answers[0]);
    assert!(answers[1].ends_with("\r\n\r\nebb of sea"), "{}", answers[1]);
    assert!(answers[2].starts_with("HTTP/1.1 401 "), "which paths exist is not shown: {}", answers[2]);
}

/// Waits, before and after.
async fn wait(request: Request, next: Next) -> Response {
    task::sleep(Duration::from_millis(1)).await;
    let response = next.run(request).await;
    task::sleep(Duration::from_millis(1)).await;
    response
}

#[test]
fn each_kind_of_function_runs_within_async_middleware_that_waits_or_does_not() {
    fn router() -> Router {
        Router::new()
            .get("/sync", || "sync")
            .get("/async", async || "async")
            .post("/whole", |body: String| body)
            .post("/whole-async", async |body: String| body)
            .post("/pieces", async |mut body: Body| {
                let mut all = Vec::new();
                while let Some(piece) = body.next().await {
                    all.extend_from_slice(&piece?);
                }
                Ok::<_, BodyError>(all)
            })
    }
    let long = "x".repeat(100_000);
    for server in
        [start(|| router().wrap(wait)), start(|| router().wrap(async |request, next: Next| next.run(request).await))]
    {
        assert_eq!(server.get("/sync").1, "sync");
        assert_eq!(server.get("/async").1, "async");
        for path in ["/whole", "/whole-async", "/pieces"] {
            for body in ["short", &long] {
                assert_eq!(split(&server.exchange(&post(path, body))).1, body, "{path}");
                assert_eq!(split(&server.exchange(&chunked(path, body))).1, body, "{path}");
            }
        }
        let too_long = "x".repeat(2 * 1024 * 1024);
        assert!(server.exchange(&chunked("/whole", &too_long)).starts_with("HTTP/1.1 413 "));
    }
}

#[test]
fn a_long_body_is_not_received_before_async_middleware_has_let_the_request_pass() {
    let server =
        start(|| Router::new().post("/", |body: String| body).wrap(async |_: Request, _: Next| StatusCode::FORBIDDEN));
    // The body is announced, and never sent.
    let wire = "POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n";
    assert!(server.exchange(wire).starts_with("HTTP/1.1 403 "));
}

struct Session(String);

impl<S> FromRequestAsync<S> for Session {
    async fn from_request(request: &mut Request, _: &Rc<S>) -> Result<Self, Response> {
        let key = request.header_str("x-session").map(str::to_owned);
        task::sleep(Duration::from_millis(1)).await;
        key.map(Self).ok_or_else(|| StatusCode::UNAUTHORIZED.into_response())
    }
}

#[test]
fn async_extractors_stand_beside_those_that_are_not() {
    let server = start(|| {
        Router::new()
            .get("/", async |Peer(peer), session: Session| format!("{} {}", session.0, peer.ip().is_some()))
            .post("/", async |session: Session, body: String| session.0 + &body)
            .get("/choice", async |session: Result<Session, Response>| session.map_or("none".into(), |found| found.0))
    });
    let ask = |start: &str, rest: &str| {
        server.exchange(&format!("{start} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n{rest}"))
    };
    assert!(ask("GET /", "X-Session: 7\r\n\r\n").ends_with("\r\n\r\n7 true"));
    assert!(ask("GET /", "\r\n").starts_with("HTTP/1.1 401 "));
    assert!(ask("POST /", "X-Session: 7\r\nContent-Length: 3\r\n\r\nebb").ends_with("\r\n\r\n7ebb"));
    assert!(ask("GET /choice", "\r\n").ends_with("\r\n\r\nnone"));
}

#[test]
fn a_route_bounds_its_bodies_above_and_below_those_of_its_router() {
    let mut limits = Limits::default();
    (limits.body_bytes_max, limits.collected_body_bytes_max) = (100_000, 10);
    let server = start_with(limits, || {
        let read = async |mut body: Body| {
            let mut bytes = 0;
            while let Some(piece) = body.next().await {
                bytes += piece?.len();
            }
            Ok::<_, BodyError>(bytes.to_string())
        };
        Router::new()
            .body_bytes_max(1_000)
            .post("/", read)
            .post("/more", route(read).body_bytes_max(50_000))
            .post("/whole", route(|body: String| body.len().to_string()).body_bytes_max(50_000))
            .post("/json", route(|Json(list): Json<Vec<u8>>| list.len().to_string()).body_bytes_max(9))
            .post("/wrapped", route(|body: String| body.len().to_string()).body_bytes_max(50_000))
            .wrap(async |request, next: Next| next.run(request).await)
    });
    for (path, bytes, status) in [
        ("/", 1_000, 200),
        ("/", 1_001, 413),
        ("/more", 50_000, 200),
        ("/more", 50_001, 413),
        ("/whole", 50_000, 200),
        ("/whole", 50_001, 413),
        ("/wrapped", 50_000, 200),
        ("/wrapped", 50_001, 413),
        ("/json", 10, 413),
    ] {
        let body = "x".repeat(bytes);
        for wire in [post(path, &body), chunked(path, &body)] {
            let answer = server.exchange(&wire);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} with {bytes}: {answer}");
        }
    }
}

#[test]
fn a_route_has_a_time_of_its_own() {
    let forever = async || std::future::pending::<&str>().await;
    let server = start(move || {
        Router::new()
            .get("/", route(forever).timeout(Duration::from_millis(20)))
            .post("/", route(async |_: Body| std::future::pending::<&str>().await).timeout(Duration::from_millis(20)))
            .get("/in-time", route(async || "in time").timeout(Duration::from_millis(20)))
    });
    assert!(server.get("/").0.starts_with("HTTP/1.1 503 "));
    assert!(server.exchange(&post("/", "ebb")).starts_with("HTTP/1.1 503 "));
    assert_eq!(server.get("/in-time").1, "in time");
}

#[test]
fn the_time_of_a_router_holds_for_a_request_without_a_route() {
    async fn wait_forever(_: Request, _: Next) -> Response {
        std::future::pending().await
    }
    let server = start(|| Router::new().get("/", || "ebb").timeout(Duration::from_millis(20)).wrap(wait_forever));
    for path in ["/", "/nowhere"] {
        assert!(server.get(path).0.starts_with("HTTP/1.1 503 "), "{path}");
    }
}

#[test]
fn the_middleware_of_a_route_sees_the_response_in_place_of_one_that_is_late_or_of_a_panic() {
    async fn pass(request: Request, next: Next) -> Response {
        next.run(request).await
    }
    async fn wait(_: Body) -> &'static str {
        std::future::pending().await
    }
    let late = Duration::from_millis(20);
    let server = start(move || {
        let inner = Router::new()
            .get("/panic", || -> &'static str { panic!("as planned") })
            .get("/panic-later", async || -> &'static str {
                task::sleep(Duration::from_millis(1)).await;
                panic!("as planned, later")
            })
            .post("/panic-of-body", async |_: Body| -> &'static str { panic!("as planned, with a body") })
            .get("/late", route(async || std::future::pending::<&str>().await).timeout(late))
            .post("/late", route(with_middleware(wait).wrap(pass).with(Letter("a"))).timeout(late))
            .with(Letter("b"))
            .with(Letter("c"));
        Router::new().nest("/in", inner).with(Letter("d"))
    });
    let trail = |answer: &str| answer.lines().filter_map(|line| line.strip_prefix("Trail: ")).collect::<String>();
    for (path, status) in [("/in/panic", 500), ("/in/panic-later", 500), ("/in/late", 503)] {
        let (head, _) = server.get(path);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {head}");
        assert_eq!(trail(&head), "cbd", "{path} {head}");
    }
    for (path, status, expected) in [("/in/panic-of-body", 500, "cbd"), ("/in/late", 503, "acbd")] {
        let answer = server.exchange(&chunked(path, "ebb"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {answer}");
        assert_eq!(trail(&answer), expected, "{path} {answer}");
    }
}

#[test]
fn a_route_has_a_rate_of_its_own_and_refuses_requests_before_their_bodies() {
    let limit = RateLimit::new(ConnectionRate::per_minute(1).burst(2));
    let server = start(move || {
        Router::new()
            .get("/", route(|| "ebb").rate_limit(limit.clone()))
            .post("/", route(|body: String| body).rate_limit(limit.clone()))
            .get("/free", || "flow")
    });
    assert_eq!(server.get("/").1, "ebb");
    assert_eq!(split(&server.exchange(&post("/", "ebb"))).1, "ebb");
    let (head, _) = server.get("/");
    assert!(head.starts_with("HTTP/1.1 429 ") && head.contains("\r\nRetry-After: "), "{head}");
    let announced = "POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 9\r\nConnection: close\r\n\r\n";
    assert!(server.exchange(announced).starts_with("HTTP/1.1 429 "));
    assert_eq!(server.get("/free").1, "flow");
}

#[test]
fn a_panic_in_async_middleware_is_a_500() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let of_router = seen.clone();
    let router = Router::new().get("/", || "never").wrap(async move |request: Request, _: Next| -> Response {
        of_router.borrow_mut().push(request.path().to_owned());
        panic!("as the test expects")
    });
    let answers = ask(router, &[&get("/")]);
    assert!(answers[0].starts_with("HTTP/1.1 500 "), "{}", answers[0]);
    assert_eq!(*seen.borrow(), ["/"]);
}

#[test]
fn one_function_has_async_middleware_of_its_own_behind_its_other_middleware() {
    let function = with_middleware(|| "hello")
        .wrap(async |request: Request, next: Next| letter("a", request, next).await)
        .with(Letter("s"))
        .wrap(async |request: Request, next: Next| letter("b", request, next).await);
    let shared: Wrapper = AsyncMiddleware::<(), _>::into_wrapper(
        async |request: Request, next: Next| letter("c", request, next).await,
        Rc::new(()),
    );
    let router = Router::with_state(7)
        .get("/", function)
        .get("/bare", || "bare")
        .get("/one", with_middleware(async || "one").wrap(shared.clone()))
        .get("/other", with_middleware(|State(number): State<i32>| number.to_string()).wrap(shared));
    let answers = ask(router, &[&get("/"), &get("/bare"), &get("/one"), &get("/other"), &get("/nowhere")]);
    for (answer, trail) in answers.iter().zip(["bas", "", "c", "c", ""]) {
        let letters: String = answer.lines().filter_map(|line| line.strip_prefix("Trail: ")).collect();
        assert_eq!(letters, trail, "{answer}");
    }
    assert!(answers[3].ends_with("\r\n\r\n7"), "{}", answers[3]);
}

/// The fields of a request, but for `Host`.
fn fields_of(request: &Request) -> String {
    let fields = request.headers().filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
    fields.map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value))).collect::<Vec<_>>().join(",")
}

#[test]
fn middleware_changes_the_fields_of_a_request_and_not_its_body() {
    async fn rename(mut request: Request, next: Next) -> Response {
        // Those that the codec reads stay, whatever is asked for.
        let keeps = |name: &str| name.eq_ignore_ascii_case("kept");
        request.edit_headers(keeps, &[("X-User", b"ebb"), ("X-User", b"flow")]).expect("valid fields");
        next.run(request).await
    }
    let router = Router::new()
        .post("/", |request: Request| format!("{} {}", fields_of(&request), String::from_utf8_lossy(request.bytes())))
        .wrap(rename);
    let body = "x".repeat(20_000);
    let wire = format!(
        "POST /?q HTTP/1.1\r\nHost: sea\r\nX-User: forged\r\nKept: yes\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answers = ask(router, &[&wire]);
    let expected = format!("Kept=yes,Content-Length=20000,X-User=ebb,X-User=flow {body}");
    assert!(answers[0].ends_with(&expected), "{}", &answers[0][..300]);
}

#[test]
fn a_field_that_would_split_a_request_or_is_too_long_changes_nothing() {
    async fn check(mut request: Request, next: Next) -> Response {
        let long = vec![b'x'; 70_000];
        let wrong: [(&str, &[u8]); 6] = [
            ("X-User", b"ebb\r\nX-Admin: yes"),
            ("X User", b"ebb"),
            ("", b""),
            ("Content-Length", b"7"),
            ("transfer_encoding", b"chunked"),
            ("X-Long", &long),
        ];
        for field in wrong {
            assert!(request.edit_headers(|_| false, &[field]).is_err(), "{}", field.0);
        }
        next.run(request).await
    }
    let router = Router::new().get("/", |request: Request| fields_of(&request)).wrap(check);
    let answers = ask(router, &["GET / HTTP/1.1\r\nHost: sea\r\nKept: yes\r\n\r\n"]);
    assert!(answers[0].ends_with("\r\n\r\nKept=yes"), "{}", answers[0]);
}

#[test]
fn a_client_cannot_have_a_proxy_drop_a_field_that_middleware_adds() {
    async fn name_user(mut request: Request, next: Next) -> Response {
        if request.edit_headers(|_| true, &[("X-User", b"ebb")]).is_err() {
            return StatusCode::BAD_REQUEST.into_response();
        }
        next.run(request).await
    }
    for (connection, status) in [("keep-alive, x-user", "400"), ("X_User", "400"), ("keep-alive, other", "200")] {
        let answers = ask(
            Router::new().get("/", || "passed").wrap(name_user),
            &[&format!("GET / HTTP/1.1\r\nHost: sea\r\nConnection: {connection}\r\n\r\n")],
        );
        assert!(answers[0].starts_with(&format!("HTTP/1.1 {status} ")), "{connection}: {}", answers[0]);
    }
}

#[test]
fn a_request_without_a_route_goes_on_when_its_client_has_ended_its_side() {
    // The server keeps half-closed requests, and the client ends its side at once.
    let server = start(|| Router::new().get("/", || "hello").wrap(wait));
    let answer = server.exchange("GET /nowhere HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}
