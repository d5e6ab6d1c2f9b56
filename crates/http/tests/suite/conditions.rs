//! Routes with conditions: which one a request meets, and what a path that is written in another way changes about that.

use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Condition, Method, NetworkRules, Request, Router, Slashes, with_middleware};

use crate::support::{Running, split, start};

fn get(server: &Running, target: &str, lines: &str) -> (String, String) {
    let wire = format!("GET {target} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n{lines}\r\n");
    let (head, body) = split(&server.exchange(&wire));
    (head[9..12].to_owned(), body)
}

fn canary() -> Condition {
    Condition::header_equals("X-Canary", "1")
}

#[test]
fn the_first_route_of_a_path_whose_conditions_hold_is_chosen() {
    let server = start(|| {
        Router::new()
            .any_if("/api/{*path}", [canary(), Condition::query("debug")], || "both")
            .any_if("/api/{*path}", [canary()], |request: Request| format!("canary {:?}", request.parameter("path")))
            .any("/api/{*path}", || "stable")
    });
    for (target, lines, expected) in [
        ("/api/a", "", "stable"),
        ("/api/a?debug", "", "stable"),
        ("/api/a?debug", "X-Canary: 1\r\n", "both"),
        ("/api/a/b", "X-Canary: 1\r\n", "canary Some(\"a/b\")"),
        ("/%61pi/%62?x=debug", "X-Canary: 1\r\n", "canary Some(\"b\")"),
        ("/api/a", "X-Canary: 2\r\n", "stable"),
    ] {
        assert_eq!(get(&server, target, lines), ("200".into(), expected.into()), "{target} {lines}");
    }
}

#[test]
fn the_next_less_specific_path_decides_where_no_condition_holds() {
    let server = start(|| {
        Router::new()
            .any_if("/{*rest}", [Condition::header("X-All")], || "all")
            .any_if("/a/b", [canary()], || "exact")
            .any_if("/a/{name}", [Condition::query("q")], |request: Request| {
                format!("name {}", request.parameter("name").unwrap_or_default())
            })
            .post("/a/c", || "post")
            .any("/a/{*rest}", || "rest")
            .fallback_if([Condition::query("f")], || "fallback")
    });
    for (target, lines, expected) in [
        ("/a/b", "X-Canary: 1\r\n", ("200", "exact")),
        ("/a/b?q", "", ("200", "name b")),
        ("/a/b", "", ("200", "rest")),
        ("/a/b", "X-All: 1\r\n", ("200", "rest")),
        ("/b", "X-All: 1\r\n", ("200", "all")),
        ("/b?f", "", ("200", "fallback")),
        ("/b", "", ("404", "404 Not Found\n")),
        ("/a/c?q", "X-All: 1\r\n", ("405", "405 Method Not Allowed\n")),
    ] {
        let expected = (expected.0.to_owned(), expected.1.to_owned());
        assert_eq!(get(&server, target, lines), expected, "{target} {lines}");
    }
}

#[test]
fn conditions_go_with_their_nested_router_and_its_middleware() {
    let server = start(|| {
        let inner = Router::new()
            .any_if("/", [canary()], || "root")
            .any_if("/x", [canary()], || "x")
            .fallback_if([!Condition::methods([Method::POST])], || "inner")
            .with(NetworkRules::new().deny("127.0.0.2".parse().unwrap()));
        Router::new().nest("/in", inner).fallback(|| "outer")
    });
    for (target, lines, expected) in [
        ("/in", "X-Canary: 1\r\n", "root"),
        ("/in/x", "X-Canary: 1\r\n", "x"),
        ("/in/x", "", "inner"),
        ("/in", "", "inner"),
        ("/in/y/z", "", "inner"),
        ("/inner", "", "outer"),
    ] {
        assert_eq!(get(&server, target, lines).1, expected, "{target} {lines}");
    }
}

#[test]
fn the_middleware_of_one_function_sees_its_requests_alone() {
    let server = start(|| {
        let rules = || NetworkRules::new().deny("127.0.0.0/8".parse().unwrap());
        Router::new().get("/open", || "open").get("/closed", with_middleware(|| "closed").with(rules())).any_if(
            "/{*rest}",
            [canary()],
            with_middleware(|| "canary").with(rules()),
        )
    });
    assert_eq!(get(&server, "/open", "").1, "open");
    assert_eq!(get(&server, "/closed", "").0, "403");
    assert_eq!(get(&server, "/other", "X-Canary: 1\r\n").0, "403");
}

#[test]
fn a_condition_cannot_be_passed_by_by_another_spelling_of_the_path() {
    // The upstream is not there: a request that is passed on gets a 502.
    let router = |slashes| {
        move || {
            let upstreams = Upstreams::new(["http://127.0.0.1:9"]).unwrap();
            let proxy = Proxy::new(&upstreams);
            let denied = with_middleware(proxy.clone()).with(NetworkRules::new().deny_others());
            Router::new()
                .any_if("/admin/{*path}", [Condition::client_in("127.0.0.0/8".parse().unwrap())], denied)
                .any_if("/{*path}", [Condition::header("X-All")], proxy)
                .slashes(slashes)
        }
    };
    let server = start(router(Slashes::MergeForProxies));
    for target in
        ["/admin/x", "//admin/x", "/%61dmin/x", "/admin%2Fx", "/admin%2fx", "/admin//x", "/\\admin/x", "/admin;a/x"]
    {
        assert_eq!(get(&server, target, "X-All: 1\r\n").0, "403", "{target}");
    }
    for target in ["/admin/./x", "/%2e/admin/x", "/x/../admin/x"] {
        // The proxy refuses dot segments, before and after conditions.
        assert_ne!(get(&server, target, "X-All: 1\r\n").0, "502", "{target}");
    }
    assert_eq!(get(&server, "/ADMIN/x", "X-All: 1\r\n").0, "502", "case matters, as in every route");
    let refusing = start(router(Slashes::Refuse));
    assert_eq!(get(&refusing, "//admin/x", "X-All: 1\r\n").0, "400");
}
