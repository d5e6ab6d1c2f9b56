//! Middleware, nested routers and hosts, without a network.

use std::cell::Cell;
use std::panic::catch_unwind;
use std::time::Duration;

use tidegate::http::{
    BasicAuth, Body, Condition, Cors, CorsError, Fields, IntoResponse, Method, Middleware, Next, Request, RequestId,
    RequestIds, RequestInfo, Response, Router, SecurityFields, State, StatusCode, TraceContext, TraceContexts,
};
use tidegate::proxy_protocol::Networks;

use crate::support::ask;

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: sea\r\n{fields}\r\n")
}

/// Appends a letter to the field `Trail` of each response.
struct Letter(char);

impl Middleware for Letter {
    fn after(&self, _: &RequestInfo, response: &mut Response) {
        let mut trail = response.field("trail").unwrap_or_default().to_vec();
        trail.push(self.0 as u8);
        *response = std::mem::take(response).header("Trail", trail).expect("letters");
    }
}

/// Refuses everything.
struct Refuse;

impl Middleware for Refuse {
    fn before(&self, _: &mut Request) -> Result<(), Response> {
        Err(StatusCode::FORBIDDEN.into_response())
    }
}

#[test]
fn middleware_sees_responses_in_reverse_order_and_those_of_refusals() {
    let router = || Router::new().get("/", || "hello").with(Letter('a')).with(Letter('b'));
    let answers = ask(router(), &[&get("/", ""), &get("/nowhere", "")]);
    assert!(answers[0].contains("\r\nTrail: b\r\n") && answers[0].contains("\r\nTrail: ba\r\n"), "{}", answers[0]);
    assert!(answers[1].starts_with("HTTP/1.1 404 ") && answers[1].contains("\r\nTrail: ba\r\n"), "{}", answers[1]);
    let refused = ask(router().with(Refuse).with(Letter('c')), &[&get("/", "")]);
    assert!(refused[0].starts_with("HTTP/1.1 403 ") && refused[0].contains("\r\nTrail: ba\r\n"), "{}", refused[0]);
    assert!(!refused[0].contains("Trail: c"), "middleware behind the refusal has not seen the request");
}

/// Makes the body of each 404.
struct Page(fn() -> Body);

impl Middleware for Page {
    fn after(&self, _: &RequestInfo, response: &mut Response) {
        if response.status_code() == StatusCode::NOT_FOUND {
            *response = std::mem::take(response).body((self.0)());
        }
    }
}

thread_local! {
    /// How often a body was produced.
    static PRODUCED: Cell<u32> = const { Cell::new(0) };
}

fn produced() -> Body {
    Body::produce(async |writer| {
        PRODUCED.set(PRODUCED.get() + 1);
        writer.write("a page").await
    })
}

#[test]
fn a_head_without_a_route_gets_the_head_of_a_get_and_no_body_is_produced() {
    let bodies: [(fn() -> Body, u32); 4] = [
        (|| "a page".into(), 0),
        (|| Body::with_trailers("a page", Fields::new()), 0),
        (produced, 1),
        (|| produced().with_length(6), 1),
    ];
    for (number, (body, by_get)) in bodies.into_iter().enumerate() {
        let router = || {
            let long = || Response::new().body(Body::produce(async |writer| writer.write("long").await));
            Router::new().get("/", || "root").get("/long", long).with(Page(body))
        };
        let head = "HEAD /nowhere HTTP/1.1\r\nHost: sea\r\n\r\n";
        PRODUCED.set(0);
        let page = ask(router(), &[&get("/nowhere", "")]).remove(0);
        let end = page.find("\r\n\r\n").expect("a head") + 4;
        let expected = &page[..end];
        assert!(expected.starts_with("HTTP/1.1 404 ") && page.contains("a page"), "{number}: {page}");
        // On its own, and behind a response that a task has sent.
        assert_eq!(ask(router(), &[head])[0], expected, "{number}");
        let answer = ask(router(), &[&[&get("/long", ""), head, head, &get("/", "")].concat()]).remove(0);
        let (_, behind) = answer.split_once("\r\n0\r\n\r\n").expect("the end of the chunks");
        let behind = behind.strip_prefix(expected).and_then(|behind| behind.strip_prefix(expected)).expect(behind);
        assert!(behind.starts_with("HTTP/1.1 200 ") && behind.ends_with("\r\n\r\nroot"), "{number}: {behind}");
        assert_eq!(PRODUCED.get(), by_get, "{number}");
    }
}

#[test]
fn middleware_of_a_nested_router_is_for_its_routes() {
    let inner =
        || Router::new().get("/", || "root").get("/in", || "in").get("/later", async || "later").with(Letter('i'));
    let router = Router::new().get("/out", || "out").nest("/nest", inner()).with(Letter('o'));
    let answers = ask(router, &[&get("/out", ""), &get("/nest/in", ""), &get("/nest", ""), &get("/nest/later", "")]);
    assert!(answers[0].ends_with("out") && !answers[0].contains("Trail: i"));
    for (answer, body) in answers[1..].iter().zip(["in", "root", "later"]) {
        assert!(answer.ends_with(body) && answer.contains("\r\nTrail: io\r\n"), "{answer}");
    }
}

#[test]
fn middleware_of_a_nested_router_sees_methods_without_a_function() {
    let cors = || Cors::builder().origin("https://sea.example").methods(["PUT"]).build().unwrap();
    let inner = || Router::new().put("/in", || "in").with(cors()).with(Letter('i'));
    let deep = Router::new().nest("/deep", inner()).with(Letter('d'));
    let router = Router::new().nest("/nest", inner()).merge(deep).with(Letter('o'));
    let preflight = |path: &str| {
        let fields = "Origin: https://sea.example\r\nAccess-Control-Request-Method: PUT\r\n";
        format!("OPTIONS {path} HTTP/1.1\r\nHost: sea\r\n{fields}\r\n")
    };
    let wires =
        [preflight("/nest/in"), preflight("/deep/in"), get("/nest/in", ""), get("/deep/in", ""), get("/nest/no", "")];
    let answers = ask(router, &wires.each_ref().map(String::as_str));
    for answer in &answers[..2] {
        assert!(answer.contains("\r\nAccess-Control-Allow-Origin: https://sea.example\r\n"), "{answer}");
        assert!(answer.contains("\r\nAccess-Control-Allow-Methods: PUT\r\n"), "{answer}");
    }
    // The first letter stays the first, so each further one adds a field with both.
    let trails =
        ["Trail: i\r\nVary: Origin\r\nTrail: io", "Trail: i\r\nVary: Origin\r\nTrail: id\r\nTrail: io", "Trail: o"];
    for ((answer, trail), status) in answers[2..].iter().zip(trails).zip(["405", "405", "404"]) {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(&format!("\r\n{trail}\r\n")), "{answer}");
    }
    let wrapped =
        inner().wrap(async |request: Request, next: Next| next.run(request).await.with_status(StatusCode::GONE));
    let answers = ask(Router::new().nest("/wrapped", wrapped), &[&get("/wrapped/in", ""), &get("/wrapped/no", "")]);
    assert!(answers[0].starts_with("HTTP/1.1 410 ") && answers[0].contains("\r\nTrail: i\r\n"), "{}", answers[0]);
    assert!(answers[1].starts_with("HTTP/1.1 404 "), "{}", answers[1]);
}

#[test]
fn a_merged_router_keeps_its_middleware_state_and_fallback() {
    let inner = Router::with_state(7_u8)
        .get("/", |State(number): State<u8>| number.to_string())
        .post("/both", || "posted")
        .fallback_if([Condition::methods([Method::PUT])], || "put")
        .fallback(|| "elsewhere")
        .with(Letter('i'));
    let router = Router::new().get("/both", || "got").merge(inner).with(Letter('o'));
    let post = "POST /both HTTP/1.1\r\nHost: sea\r\nContent-Length: 0\r\n\r\n";
    let put = "PUT /none HTTP/1.1\r\nHost: sea\r\nContent-Length: 0\r\n\r\n";
    let answers = ask(router, &[&get("/", ""), &get("/both", ""), post, &get("/none", ""), put]);
    let expected = [("io", "7"), ("o", "got"), ("io", "posted"), ("io", "elsewhere"), ("io", "put")];
    for (answer, (trail, body)) in answers.iter().zip(expected) {
        assert!(answer.contains(&format!("\r\nTrail: {trail}\r\n")) && answer.ends_with(body), "{answer}");
    }
}

#[test]
fn routers_with_the_same_route_or_two_fallbacks_do_not_merge() {
    let merge = |one: fn() -> Router, other: fn() -> Router| catch_unwind(|| one().merge(other())).is_ok();
    assert!(!merge(|| Router::new().get("/", || "a"), || Router::new().get("/", || "b")));
    assert!(!merge(|| Router::new().fallback(|| "a"), || Router::new().fallback(|| "b")));
    assert!(merge(|| Router::new().fallback(|| "a"), || Router::new().get("/", || "b")));
    assert!(!merge(Router::new, || Router::new().host("sea.example", Router::new())));
}

#[test]
fn a_host_has_a_router_of_its_own() {
    let router = Router::new().get("/", || "any").host("Sea.example.", Router::new().get("/", || "sea"));
    let at = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let hosts = ["other.example", "sea.example", "SEA.example:8080", "sea.example.", "sea.example.org", "[::1]:80"];
    let wires = hosts.map(at);
    let answers = ask(router, &wires.each_ref().map(String::as_str));
    let bodies: Vec<_> = answers.iter().map(|answer| answer.rsplit_once("\r\n").unwrap().1).collect();
    assert_eq!(bodies, ["any", "sea", "sea", "sea", "any", "any"]);
}

#[test]
fn names_and_passwords_are_asked_for() {
    let router = Router::new().get("/", || "secret").with(BasicAuth::new("sea").user("ebb", "flow").user("a", ""));
    let with = |credentials: &str| get("/", &format!("Authorization: {credentials}\r\n"));
    // ebb:flow, a:, ebb:flo, ebb:flow2
    let wires = [
        with("Basic ZWJiOmZsb3c="),
        with("bAsIc YTo="),
        with("Basic ZWJiOmZsbw=="),
        with("Basic ZWJiOmZsb3cy"),
        with("Basic ZWJiOmZsb3c"),
        with("Bearer ZWJiOmZsb3c="),
        with("Basic"),
        get("/", ""),
    ];
    let answers = ask(router, &wires.each_ref().map(String::as_str));
    for (number, answer) in answers.iter().enumerate() {
        if number < 2 {
            assert!(answer.ends_with("secret"), "{number}: {answer}");
        } else {
            let challenge = "\r\nWWW-Authenticate: Basic realm=\"sea\", charset=\"UTF-8\"\r\n";
            assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains(challenge), "{number}: {answer}");
        }
    }
}

#[test]
fn a_request_with_several_authorization_fields_is_refused() {
    let router = Router::new().get("/", || "secret").with(BasicAuth::new("sea").user("ebb", "flow"));
    let pair = |one: &str, other: &str| get("/", &format!("Authorization: {one}\r\nauthorization: {other}\r\n"));
    let (right, other) = ("Basic ZWJiOmZsb3c=", "Basic YWRtaW46");
    let wires = [pair(right, other), pair(other, right), pair(right, right), pair(right, "Bearer a")];
    for answer in ask(router, &wires.each_ref().map(String::as_str)) {
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

#[test]
fn each_request_has_an_id_and_a_trace() {
    let describe = |request: Request| {
        let (id, trace) = (request.extensions().get::<RequestId>(), request.extensions().get::<TraceContext>());
        let (id, trace) = (id.expect("an id"), trace.expect("a trace"));
        format!("{id} {} {:?} {}", trace.trace_id(), trace.parent_id(), trace.traceparent())
    };
    let router = || Router::new().get("/", describe).with(RequestIds::new()).with(TraceContexts::new());
    let parent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
    let wires = [
        get("/", &format!("X-Request-Id: harbour-7\r\n{parent}")),
        get("/", "X-Request-Id: with space\r\n"),
        get("/", "X-Request-Id: \r\ntraceparent: 00-0\r\n"),
    ];
    let answers = ask(router(), &wires.each_ref().map(String::as_str));
    assert!(answers[0].contains("\r\nX-Request-Id: harbour-7\r\n"), "{}", answers[0]);
    assert!(answers[0].contains(
        "harbour-7 4bf92f3577b34da6a3ce929d0e0e4736 Some(\"00f067aa0ba902b7\") 00-4bf92f3577b34da6a3ce929d0e0e4736-"
    ));
    let ids = answers[1..].iter().map(|answer| {
        let field = answer.split("X-Request-Id: ").nth(1).expect("an id").split("\r\n").next().unwrap();
        assert!(field.len() == 32 && field.bytes().all(|byte| byte.is_ascii_hexdigit()), "{answer}");
        field.to_owned()
    });
    let ids: Vec<_> = ids.collect();
    assert_ne!(ids[0], ids[1]);
    let ignoring = Router::new().get("/", || "").with(RequestIds::new().ignoring_peers());
    assert!(!ask(ignoring, &[&wires[0]])[0].contains("harbour-7"));
}

/// The fields of an answer with this name.
fn values<'a>(answer: &'a str, name: &str) -> Vec<&'a str> {
    answer.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
}

#[test]
fn cors_answers_preflights_and_lets_listed_sites_read_responses() {
    let cors = || {
        let builder = Cors::builder().origin("https://sea.example").methods(["GET", "PUT"]).request_fields(["X-Tide"]);
        builder.credentials(true).exposed_fields(["X-Level"]).max_age(Duration::from_secs(60)).build().unwrap()
    };
    let router = || Router::new().get("/", || "hello").with(cors());
    let preflight = |origin: &str| {
        let fields = "Access-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: x-tide\r\n";
        format!("OPTIONS / HTTP/1.1\r\nHost: sea\r\nOrigin: {origin}\r\n{fields}\r\n")
    };
    let answers = ask(
        router(),
        &[
            &preflight("https://sea.example"),
            &preflight("https://other.example"),
            &get("/", "Origin: https://sea.example\r\n"),
            &get("/", "Origin: https://other.example\r\n"),
            &get("/", ""),
            &get("/nowhere", "Origin: https://sea.example\r\n"),
            "OPTIONS / HTTP/1.1\r\nHost: sea\r\nOrigin: https://sea.example\r\n\r\n",
        ],
    );
    let allowed = |answer| values(answer, "Access-Control-Allow-Origin");
    assert!(answers[0].starts_with("HTTP/1.1 204 "), "{}", answers[0]);
    assert_eq!(allowed(&answers[0]), ["https://sea.example"]);
    assert_eq!(values(&answers[0], "Access-Control-Allow-Credentials"), ["true"]);
    assert_eq!(values(&answers[0], "Access-Control-Allow-Methods"), ["GET, PUT"]);
    assert_eq!(values(&answers[0], "Access-Control-Allow-Headers"), ["X-Tide"]);
    assert_eq!(values(&answers[0], "Access-Control-Max-Age"), ["60"]);
    assert!(values(&answers[0], "Vary")[0].starts_with("Origin"));
    assert!(answers[1].starts_with("HTTP/1.1 204 ") && allowed(&answers[1]).is_empty(), "{}", answers[1]);
    assert!(values(&answers[1], "Access-Control-Allow-Methods").is_empty());
    assert_eq!(allowed(&answers[2]), ["https://sea.example"]);
    assert_eq!(values(&answers[2], "Access-Control-Expose-Headers"), ["X-Level"]);
    for answer in &answers[2..5] {
        assert_eq!(values(answer, "Vary"), ["Origin"], "{answer}");
    }
    assert!(allowed(&answers[3]).is_empty() && allowed(&answers[4]).is_empty());
    assert_eq!(allowed(&answers[5]), ["https://sea.example"], "a script may read the 404");
    assert!(answers[6].contains("Allow: GET"), "it is no request for permission: {}", answers[6]);
}

#[test]
fn cors_for_any_site_has_no_credentials_and_varies_by_nothing() {
    let any = Cors::builder().any_origin().any_request_field().build().unwrap();
    let answers = ask(Router::new().get("/", || "hello").with(any), &[&get("/", "Origin: https://sea.example\r\n")]);
    assert_eq!(values(&answers[0], "Access-Control-Allow-Origin"), ["*"]);
    assert!(values(&answers[0], "Vary").is_empty(), "{}", answers[0]);
    let with_credentials = || Cors::builder().credentials(true);
    for (builder, part) in [
        (with_credentials().any_origin(), "origin"),
        (with_credentials().origin("https://a.example").methods(["*"]), "methods"),
        (with_credentials().origin("https://a.example").request_fields(["*"]), "request_fields"),
        (with_credentials().origin("https://a.example").exposed_fields(["*"]), "exposed_fields"),
    ] {
        assert_eq!(builder.build().err(), Some(CorsError::CredentialsOfAny(part)));
    }
    assert_eq!(Cors::builder().build().err(), Some(CorsError::NoOrigin));
    for wrong in
        ["sea.example", "https://sea.example/", "https://sea.example/path", "https://", "://sea", "https://a b"]
    {
        assert_eq!(Cors::builder().origin(wrong).build().err(), Some(CorsError::Origin(wrong.into())));
    }
    let split = Cors::builder().any_origin().request_fields(["X-A\r\nX-B"]).build();
    assert_eq!(split.err(), Some(CorsError::Name("X-A\r\nX-B".into())));
}

#[test]
fn security_fields_are_added_unless_a_response_has_its_own() {
    let fields = SecurityFields::new()
        .without("Referrer-Policy")
        .set("X-Frame-Options", "DENY")
        .strict_transport(Duration::from_secs(60));
    let own = || Response::text("own").header("X-Content-Type-Options", "other");
    let answers = ask(
        Router::new().get("/", || "hello").get("/own", own).with(fields),
        &[&get("/", ""), &get("/own", ""), &get("/nowhere", "")],
    );
    for (answer, sniffing) in [(&answers[0], "nosniff"), (&answers[1], "other"), (&answers[2], "nosniff")] {
        assert_eq!(values(answer, "X-Content-Type-Options"), [sniffing], "{answer}");
        assert_eq!(values(answer, "X-Frame-Options"), ["DENY"]);
        assert!(values(answer, "Referrer-Policy").is_empty());
        assert!(values(answer, "Strict-Transport-Security").is_empty(), "the connection is not encrypted");
    }
}

#[test]
fn request_ids_are_taken_from_trusted_networks_alone() {
    let show = |request: Request| request.extensions().get::<RequestId>().map(ToString::to_string);
    let given = get("/", "X-Request-Id: given-7\r\n");
    for (networks, takes) in [
        // `Embedded` has a peer at 192.0.2.1 or the like: no machine of ours.
        (Networks::default().and([0, 0, 0, 0].into(), 0), true),
        (Networks::default().and([10, 0, 0, 0].into(), 8), false),
    ] {
        let answers = ask(
            Router::new().get("/", show).with(RequestIds::new().trusting(networks)),
            std::slice::from_ref(&&*given),
        );
        assert_eq!(answers[0].ends_with("\r\n\r\ngiven-7"), takes, "{}", answers[0]);
        assert_eq!(values(&answers[0], "X-Request-Id") == ["given-7"], takes);
    }
}

#[test]
fn date_and_server_of_a_function_are_kept() {
    let own = || Response::text("own").header("Server", "ebb")?.header("Date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let answers = ask(Router::new().get("/", own).get("/ours", || "ours"), &[&get("/", ""), &get("/ours", "")]);
    assert_eq!(values(&answers[0], "Server"), ["ebb"]);
    assert_eq!(values(&answers[0], "Date"), ["Sun, 06 Nov 1994 08:49:37 GMT"]);
    assert_eq!(values(&answers[1], "Server"), ["Tidegate"]);
}
