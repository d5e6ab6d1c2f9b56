//! Which responses are stored, and which of their fields.

use tidegate::http::cache::{Cache, CacheLimits};

use crate::support::{Sea, check};

#[test]
fn a_response_says_whether_it_may_be_stored() {
    check(
        Cache::builder,
        &[
            ("", 200, "Cache-Control: no-store", 0, "", false),
            ("", 200, "Cache-Control: no-store, max-age=3600", 0, "", false),
            ("", 200, "Cache-Control: No-StOrE, max-age=3600\nExpires: {3600}", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600, private", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600, no-cache", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600, must-revalidate", 60, "", true),
            ("", 200, "Cache-Control: max-age=3600, proxy-revalidate", 60, "", true),
            ("", 200, "Cache-Control: max-age=3600, public", 60, "", true),
            ("", 200, "Cache-Control: max-age=3600, foobar", 60, "", true),
            ("", 200, "Pragma: no-cache\nCache-Control: max-age=3600", 60, "", true),
            ("", 200, "Cache-Control: no-store, must-understand, max-age=3600", 60, "", true),
            ("", 599, "Cache-Control: no-store, must-understand, max-age=3600", 0, "", false),
            ("", 599, "Cache-Control: must-understand, max-age=3600", 0, "", false),
        ],
    );
}

#[test]
fn each_final_status_with_a_lifetime_is_stored() {
    let statuses = [200, 203, 299, 301, 302, 303, 307, 308, 400, 404, 410, 499, 500, 502, 503, 504, 599];
    check(Cache::builder, &statuses.map(|status| ("", status, "Cache-Control: max-age=3600", 60, "", true)));
    check(Cache::builder, &[("", 206, "Cache-Control: max-age=3600\nContent-Range: bytes 0-4/9", 0, "", false)]);
}

#[test]
fn authorized_responses_and_cookies_are_stored_if_they_say_so() {
    let (authorized, fresh) = ("Authorization: Basic YTpi", "Cache-Control: max-age=3600");
    check(
        Cache::builder,
        &[
            (authorized, 200, fresh, 0, authorized, false),
            (authorized, 200, fresh, 0, "", false),
            ("", 200, fresh, 0, authorized, true),
            (authorized, 200, "Cache-Control: max-age=3600, public", 60, authorized, true),
            (authorized, 200, "Cache-Control: max-age=3600, must-revalidate", 60, "", true),
            (authorized, 200, "Cache-Control: s-maxage=3600", 60, "", true),
            (authorized, 200, "Cache-Control: max-age=3600, private", 0, authorized, false),
            ("", 200, "Cache-Control: max-age=3600\nSet-Cookie: a=b", 0, "", false),
            ("", 200, "Cache-Control: s-maxage=3600\nSet-Cookie: a=b", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600, public\nSet-Cookie: a=b", 60, "", true),
            ("", 200, "Cache-Control: max-age=3600, no-cache=\"Set-Cookie\"\nSet-Cookie: a=b", 60, "", true),
        ],
    );
}

#[test]
fn fields_are_stored_but_for_those_that_the_response_withholds() {
    let mut sea = Sea::new();
    let lines = "Cache-Control: max-age=3600, no-cache=\"a, B\", private=\"c\"\nA: 1\nB: 2\nC: 3\nD: 4\n\
                 Content-Type: text/css\nX-Frame-Options: deny\nProxy-Authenticate: Basic\nServer: origin\nDate: {-5}";
    sea.script(200, lines, "body");
    let first = sea.get("");
    assert_eq!((first.field("a"), first.field("proxy-authenticate")), (Some("1"), Some("Basic")));
    let second = sea.get("");
    assert_eq!(sea.requests(), 1);
    for (name, value) in [
        ("a", None),
        ("b", None),
        ("c", None),
        ("d", Some("4")),
        ("content-type", Some("text/css")),
        ("x-frame-options", Some("deny")),
        ("proxy-authenticate", None),
        ("server", Some("origin")),
        ("age", Some("5")),
        ("content-length", Some("4")),
        ("date", first.field("date")),
    ] {
        assert_eq!(second.field(name), value, "{name}");
    }
}

#[test]
fn the_query_is_a_part_of_the_key_and_a_cookie_is_not() {
    let mut sea = Sea::new();
    for query in ["a", "b"] {
        sea.script(200, "Cache-Control: max-age=3600\nContent-Disposition: attachment; filename=a.txt", query);
        assert_eq!(sea.request("GET", &format!("/?{query}"), "").body, query);
    }
    for query in ["a", "b"] {
        assert_eq!(sea.request("GET", &format!("/?{query}"), "Cookie: a=b").body, query);
    }
    assert_eq!(sea.requests(), 2);
}

#[test]
fn fields_about_a_site_are_stored() {
    let lines = [
        ("Clear-Site-Data", "\"cookies\""),
        ("Strict-Transport-Security", "max-age=1"),
        ("WWW-Authenticate", "Basic"),
        ("Public-Key-Pins", "a"),
        ("X-XSS-Protection", "1"),
        ("Content-Security-Policy", "default-src 'self'"),
        ("Content-Foo", "a"),
    ];
    let mut sea = Sea::new();
    let text: String = lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    sea.script(200, &format!("{text}Cache-Control: max-age=3600"), "");
    sea.get("");
    let answer = sea.get("");
    for (name, value) in lines {
        assert_eq!(answer.field(name), Some(value));
    }
    assert_eq!(sea.requests(), 1);
}

#[test]
fn a_response_without_a_body_is_stored() {
    let mut sea = Sea::new();
    sea.script(204, "Cache-Control: max-age=3600", "");
    assert_eq!([sea.get("").status, sea.get("").status], [204, 204]);
    assert_eq!(sea.requests(), 1);
}

#[test]
fn a_response_that_may_not_be_stored_leaves_a_fresh_one_or_takes_its_place() {
    for lines in ["Cache-Control: no-store", "Cache-Control: no-store, max-age=0"] {
        let mut sea = Sea::new();
        sea.script(200, "Cache-Control: max-age=10000", "old");
        sea.get("");
        sea.script(200, lines, "new");
        assert_eq!(sea.get("Cache-Control: no-cache").body, "new");
        sea.script(200, "", "newest");
        assert_eq!(sea.get("").body, "newest", "the newest is known to differ");
    }
}

#[test]
fn a_head_that_the_limits_of_the_server_admit_reaches_the_function() {
    let mut limits = tidegate::http::Limits::default();
    (limits.head_bytes_max, limits.headers_max) = (60_000, 500);
    let mut sea = Sea::new();
    sea.pipe = crate::support::pipe_with(limits, &sea.cache, &sea.origin);
    let lines: String = (0..300).map(|number| format!("X-{number}: {}\n", "x".repeat(150))).collect();
    sea.script(200, "Cache-Control: max-age=10\nETag: \"a\"", "body");
    assert_eq!((sea.get(&lines).status, sea.requests()), (200, 1));
    sea.advance(20);
    sea.script(304, "", "");
    assert_eq!((sea.get(&lines).status, sea.requests()), (200, 2));
    assert!(sea.last_request().contains("If-None-Match"));
}

#[test]
fn a_response_beyond_a_limit_is_passed_on_and_not_stored() {
    let limits =
        CacheLimits { entry_bytes_max: 100, header_bytes_max: 1000, key_bytes_max: 50, ..CacheLimits::default() };
    let mut sea = Sea::with(Cache::builder().limits(limits));
    for (target, lines, body) in [
        ("/", String::new(), "b".repeat(101)),
        ("/", format!("\nX: {}", "x".repeat(1000)), String::new()),
        (&*format!("/{}", "k".repeat(50)), String::new(), String::new()),
    ] {
        for _ in 0..2 {
            sea.script(200, &format!("Cache-Control: max-age=3600{lines}"), &body);
            let before = sea.requests();
            assert_eq!(sea.request("GET", target, "").body, body);
            assert_eq!(sea.requests(), before + 1);
        }
    }
    assert_eq!(sea.cache.counts().stored, 0);
}

#[test]
fn other_methods_neither_get_nor_make_a_stored_response() {
    for method in ["POST", "PUT", "OPTIONS", "DELETE", "QUERY"] {
        let mut sea = Sea::new();
        sea.script(200, "Cache-Control: max-age=3600", "first");
        sea.script(200, "Cache-Control: max-age=3600", "second");
        sea.request(method, "/", "Content-Length: 0");
        assert_eq!(sea.get("").body, "second", "{method}");
    }
}

#[test]
fn a_host_that_looks_like_a_path_names_no_other_url() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=3600", "of another host");
    sea.pipe.receive(b"GET /b HTTP/1.1\r\nHost: sea/a\r\n\r\n");
    drop(sea.pipe.take_written());
    let mut other = Sea::over(&sea);
    // Whether the codec has refused the host or not.
    sea.origin.clear();
    other.script(200, "Cache-Control: max-age=3600", "page");
    assert_eq!(other.request("GET", "/a/b", "").body, "page");
}

#[test]
fn a_list_of_names_beyond_the_bound_is_about_the_whole_response() {
    let names = |count: usize| (0..count).map(|number| format!("x{number}")).collect::<Vec<_>>().join(", ");
    let [within, beyond, two] = [names(32), names(33), names(20)];
    check(
        Cache::builder,
        &[
            ("", 200, &format!("Cache-Control: max-age=3600, private=\"{within}\""), 1, "", true),
            ("", 200, &format!("Cache-Control: max-age=3600, private=\"{beyond}\""), 1, "", false),
            ("", 200, &format!("Cache-Control: max-age=3600, no-cache=\"{beyond}\""), 1, "", false),
            ("", 200, &format!("Cache-Control: max-age=3600, private=\"{two}\", private=\"{two}\""), 1, "", false),
        ],
    );
}
