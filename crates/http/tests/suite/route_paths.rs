//! Routes match a path however a client writes it: no rule of a route depends on the encoding.

use tidegate::ConnectionRate;
use tidegate::http::proxy::{Edit, Proxy, RateLimit};
use tidegate::http::{BasicAuth, Config, Path, Request, Router, Slashes, StatusCode};
use tidegate_testkit::Embedded;

use crate::support;
use crate::support::proxy_peers::{self, Peer, Upstream, client, upstreams};
use crate::support::start;

fn open(router: Router) -> Embedded<()> {
    let (codec, handler) = Config::new().connections(router)();
    Embedded::new(codec, handler)
}

/// The status, and the body, of the response to a GET.
fn get(router: Router, path: &str) -> (String, String) {
    let mut pipe = open(router);
    pipe.receive(format!("GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n").as_bytes());
    let text = String::from_utf8(pipe.take_written()).expect("text");
    let (head, body) = support::split(&text);
    (head[9..12].to_owned(), body)
}

#[test]
fn a_function_is_found_however_its_path_is_written() {
    let router = || {
        Router::new()
            .get("/login", || "login")
            .get("/café", || "café")
            .get("/a%3ab", || "colon")
            .get("/of/{name}/{*rest}", |Path((name, rest)): Path<(String, String)>| format!("{name} and {rest}"))
            .get("/raw/{name}", |request: Request| {
                let values: Vec<_> = request.parameters().map(|(_, value)| value).collect();
                format!("{values:?} {}", request.normal_path())
            })
            .fallback(|| (StatusCode::NOT_FOUND, "other"))
    };
    for (path, expected) in [
        ("/login", "login"),
        ("/%6cogin", "login"),
        ("/%6C%6f%67in", "login"),
        ("/%6cogin?a=%6c", "login"),
        ("http://sea/%6cogin", "login"),
        ("/caf%c3%a9", "café"),
        ("/caf%C3%A9", "café"),
        ("/café", "café"),
        ("/a:b", "colon"),
        ("/a%3Ab", "colon"),
        ("/%6ff/%C3%A9%2Fx/y//%7a", "é/x and y//z"),
        ("/r%61w/%7ea%2fb|é", "[\"%7ea%2fb|é\"] /raw/~a%2Fb|%C3%A9"),
        ("/%256cogin", "other"),
        ("//login", "other"),
        ("/login%2f", "other"),
        ("/%2flogin", "other"),
        ("/Login", "other"),
    ] {
        assert_eq!(get(router(), path).1, expected, "{path}");
    }
}

#[test]
fn middleware_of_a_nested_router_sees_every_spelling_of_its_paths() {
    let router = || {
        let auth = BasicAuth::new("private").user("a", "b");
        let private = Router::new().get("/page", || "secret").fallback(|| "secret").with(auth);
        Router::new().nest("/private", private).fallback(|request: Request| format!("public {}", request.path()))
    };
    for path in ["/private/page", "/%70rivate/page", "/privat%65", "/priv%61te/", "/private/%70age", "/%70rivate/x/y"] {
        assert_eq!(get(router(), path).0, "401", "{path}");
    }
    assert_eq!(get(router(), "/%50rivate").1, "public /%50rivate");
}

#[test]
fn the_choice_of_slashes_applies_to_functions() {
    let router = |slashes| {
        let router = Router::new().get("/a/{name}", |Path(name): Path<String>| format!("a {name}"));
        router.get("/a/b/{*rest}", |Path(rest): Path<String>| format!("b {rest}")).slashes(slashes)
    };
    for (path, kept, merged, refused) in [
        ("/a/b", "200", "200", "200"),
        ("/a/b%2fc", "200 a b/c", "200 b c", "400"),
        ("/a//b///c//d", "404", "200 b c//d", "400"),
        ("/a\\b\\c", "404", "200 b c", "400"),
        ("/a/x;y=1", "200 a x;y=1", "200 a x;y=1", "200 a x;y=1"),
        ("/a;z/x", "404", "200 a x", "404"),
    ] {
        let all = [Slashes::Keep, Slashes::MergeForProxies, Slashes::Merge, Slashes::Refuse];
        for (slashes, expected) in all.into_iter().zip([kept, kept, merged, refused]) {
            let (status, body) = get(router(slashes), path);
            assert!(format!("{status} {body}").starts_with(expected), "{slashes:?} {path}: {status} {body}");
        }
    }
    let alone = Router::new().fallback(|| "all").slashes(Slashes::Refuse);
    assert_eq!(get(alone, "/a//b").0, "400");
}

/// The request that the upstream gets, whose connection serves the next one.
fn received(client: &mut Peer, server: &mut Option<Peer>, upstream: &Upstream, path: &str) -> String {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let server = server.get_or_insert_with(|| upstream.accept());
    let head = server.head();
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 204 "), "{path}");
    head
}

/// Spellings of `/login/page` for an upstream that decodes, merges slashes, or drops the parameters of segments.
const SPELLINGS: [&str; 12] = [
    "/login/page",
    "/%6cogin/page",
    "/logi%6E/p%61ge",
    "//login/page",
    "///login//page",
    "/login%2fpage",
    "/%2Flogin/page",
    "/login%5Cpage",
    "/login\\page",
    "/login;x=1/page",
    "/;x/login/page",
    "//%6cogin%2f%70age",
];

#[test]
fn the_rules_of_a_route_hold_for_every_spelling_that_its_upstream_may_read() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy = start(move || {
        let all = Proxy::new(&upstreams);
        let login = all.clone().edit_request(Edit::set("X-Zone", "login").expect("a field"));
        Router::new().fallback(all).nest("/login", Router::new().fallback(login))
    });
    let (mut client, mut server) = (client(&proxy), None);
    for path in SPELLINGS {
        let head = received(&mut client, &mut server, &upstream, path);
        assert!(head.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "it is passed on as it came: {head}");
        assert!(head.contains("\r\nX-Zone: login\r\n"), "{path}: {head}");
    }
    for path in ["/", "/logins", "//a/login", "/a%2flogin", "/a;login", "/%256cogin", "/LOGIN"] {
        let head = received(&mut client, &mut server, &upstream, path);
        assert!(!head.contains("X-Zone") && head.starts_with(&format!("GET {path} ")), "{path}: {head}");
    }
    for path in ["/./login/page", "/a/../login/page", "/%2e/login/page", "/a/%2E%2e/login/page", "/a/..;/login/page"] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(client.head().starts_with("HTTP/1.1 400 "), "{path}");
        client.until("Bad Request\n");
    }
}

#[test]
fn a_router_that_refuses_slashes_leaves_out_the_parameters_of_segments() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy = start(move || {
        let all = Proxy::new(&upstreams);
        let login = all.clone().edit_request(Edit::set("X-Zone", "login").expect("a field"));
        Router::new().fallback(all).nest("/login", Router::new().fallback(login)).slashes(Slashes::Refuse)
    });
    let (mut client, mut server) = (client(&proxy), None);
    for path in ["/login/page", "/login;x=1/page", "/%6cogin;x/page", "/login;/"] {
        let head = received(&mut client, &mut server, &upstream, path);
        assert!(head.contains("\r\nX-Zone: login\r\n"), "{path}: {head}");
    }
    let elsewhere = received(&mut client, &mut server, &upstream, "/a;login/page");
    assert!(!elsewhere.contains("X-Zone"), "{elsewhere}");
}

#[test]
fn a_rate_limit_is_one_for_all_spellings() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let limit = RateLimit::new(ConnectionRate::per_minute(1));
    let proxy = start(move || {
        let login = Proxy::new(&upstreams).rate_limit(&limit);
        Router::new().fallback(Proxy::new(&upstreams)).nest("/login", Router::new().fallback(login))
    });
    let (mut client, mut server) = (client(&proxy), None);
    received(&mut client, &mut server, &upstream, "/login/page");
    for path in SPELLINGS {
        let mut client = proxy_peers::client(&proxy);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(client.head().starts_with("HTTP/1.1 429 "), "{path}");
    }
}

#[test]
fn the_prefix_of_a_route_is_removed_from_every_spelling() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy = start(move || {
        let api = Proxy::new(&upstreams).strip_prefix("/api");
        Router::new().nest("/api", Router::new().fallback(api))
    });
    let (mut client, mut server) = (client(&proxy), None);
    for (path, expected) in [("/api/a?b", "/a?b"), ("/%61pi/%61", "/%61"), ("/api", "/"), ("/ap%69?%", "/?%")] {
        let head = received(&mut client, &mut server, &upstream, path);
        assert!(head.starts_with(&format!("GET {expected} HTTP/1.1\r\n")), "{path}: {head}");
    }
}

#[test]
fn a_proxy_keeps_slashes_by_choice() {
    let upstream = Upstream::new();
    let upstreams = upstreams(&[&upstream]);
    let proxy = start(move || {
        let all = Proxy::new(&upstreams);
        let login = all.clone().edit_request(Edit::set("X-Zone", "login").expect("a field"));
        Router::new().fallback(all).nest("/login", Router::new().fallback(login)).slashes(Slashes::Keep)
    });
    let (mut client, mut server) = (client(&proxy), None);
    for (path, is_login) in [("/%6cogin/page", true), ("//login/page", false), ("/login%2fpage", false)] {
        let head = received(&mut client, &mut server, &upstream, path);
        assert_eq!(head.contains("\r\nX-Zone: login\r\n"), is_login, "{path}: {head}");
    }
}
