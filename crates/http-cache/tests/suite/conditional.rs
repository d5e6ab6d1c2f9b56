//! Validators: conditional requests of clients and of the cache.

use crate::support::Sea;

const STORED: &str = "Cache-Control: max-age=3600\nETag: \"a\"\nLast-Modified: {-3000}\nContent-Type: text/css\nX: 1";

#[test]
fn a_client_that_has_the_stored_response_gets_a_304() {
    for (lines, etag, status) in [
        ("If-None-Match: \"a\"", "\"a\"", 304),
        ("If-None-Match: W/\"a\"", "\"a\"", 304),
        ("If-None-Match: \"a\"", "W/\"a\"", 304),
        ("If-None-Match: \"b\", \"a\"", "\"a\"", 304),
        ("If-None-Match: \"b\"\nIf-None-Match: \"a\"", "\"a\"", 304),
        ("If-None-Match: \"x, y\"", "\"x, y\"", 304),
        ("If-None-Match: *", "\"a\"", 304),
        ("If-None-Match: \"b\"", "\"a\"", 200),
        ("If-None-Match: a", "\"a\"", 200),
        ("If-None-Match: \"\"", "\"a\"", 200),
        ("If-Modified-Since: {-3000}", "\"a\"", 304),
        ("If-Modified-Since: {-10}", "\"a\"", 304),
        ("If-Modified-Since: {-4000}", "\"a\"", 200),
        ("If-Modified-Since: yesterday", "\"a\"", 200),
        // `If-None-Match` decides alone.
        ("If-None-Match: \"b\"\nIf-Modified-Since: {-10}", "\"a\"", 200),
        ("If-None-Match: \"a\"\nIf-Modified-Since: {-4000}", "\"a\"", 304),
    ] {
        let mut sea = Sea::new();
        sea.script(200, &STORED.replace("\"a\"", etag), "body");
        sea.get("");
        let answer = sea.get(lines);
        let body = if status == 304 { "" } else { "body" };
        assert_eq!((answer.status, &*answer.body, sea.requests()), (status, body, 1), "{lines}");
        assert_eq!((answer.field("etag"), answer.field("x")), (Some(etag), Some("1")), "{lines}");
        assert_eq!(answer.field("content-type").is_some(), status == 200);
    }
}

#[test]
fn a_condition_for_the_origin_goes_there() {
    for lines in ["If-Match: \"a\"", "If-Unmodified-Since: {0}"] {
        let mut sea = Sea::new();
        sea.script(200, STORED, "body");
        sea.get("");
        sea.script(412, "", "");
        assert_eq!(sea.get(lines).status, 412);
        assert_eq!(sea.get("").body, "body");
        assert_eq!(sea.requests(), 2);
    }
}

#[test]
fn the_conditions_of_a_client_do_not_reach_the_origin_of_a_response_that_is_not_stored() {
    let mut sea = Sea::new();
    sea.script(200, STORED, "body");
    // The origin sends the whole response, which is stored, and the client has it.
    assert_eq!(sea.get("If-None-Match: \"a\"").status, 304);
    assert!(!sea.last_request().contains("If-None-Match"));
    assert_eq!(sea.get("").body, "body");
    assert_eq!(sea.requests(), 1);
}

#[test]
fn a_stale_response_is_validated_and_a_304_makes_it_fresh_again() {
    let mut sea = Sea::new();
    sea.script(
        200,
        "Cache-Control: max-age=10\nETag: \"a\"\nLast-Modified: {-3000}\nA: 1\nB: 1\nContent-Type: text/css",
        "body",
    );
    sea.get("");
    sea.advance(20);
    sea.script(304, "Cache-Control: max-age=3600\nETag: \"a\"\nA: 2\nC: 2\nDate: {0}", "");
    let answer = sea.get("");
    let request = sea.last_request();
    assert!(request.contains("If-None-Match: \"a\"\r\n") && request.contains("If-Modified-Since: "), "{request}");
    for answer in [answer, sea.get("")] {
        assert_eq!((answer.status, &*answer.body), (200, "body"));
        for (name, value) in [("a", "2"), ("b", "1"), ("c", "2"), ("content-type", "text/css")] {
            assert_eq!(answer.field(name), Some(value), "{name}");
        }
    }
    sea.advance(3000);
    assert_eq!(sea.get("").field("age"), Some("3000"));
    assert_eq!(sea.requests(), 2);
    assert_eq!(sea.cache.counts().revalidated, 1);
}

#[test]
fn a_no_cache_response_is_validated_each_time() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: no-cache\nETag: \"a\"", "body");
    sea.get("");
    for requests in 2..5 {
        sea.script(304, "", "");
        assert_eq!(sea.get("").body, "body");
        assert_eq!(sea.requests(), requests);
    }
    sea.script(200, "Cache-Control: max-age=3600", "new");
    assert_eq!(sea.get("").body, "new");
    assert_eq!(sea.get("").body, "new");
    assert_eq!(sea.requests(), 5);
}

#[test]
fn a_304_about_another_representation_has_the_request_sent_again() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=10\nETag: \"a\"", "old");
    sea.get("");
    sea.advance(20);
    sea.script(304, "ETag: \"b\"", "");
    sea.script(200, "Cache-Control: max-age=10\nETag: \"b\"", "new");
    assert_eq!(sea.get("").body, "new");
    assert!(!sea.last_request().contains("If-None-Match"));
    assert_eq!(sea.requests(), 3);
}

#[test]
fn a_304_does_not_store_a_cookie() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=10\nETag: \"a\"", "body");
    sea.get("");
    sea.advance(20);
    sea.script(304, "Cache-Control: max-age=3600\nSet-Cookie: a=b", "");
    sea.get("");
    assert_eq!(sea.get("").field("set-cookie"), None);
}

#[test]
fn head_is_answered_from_the_response_to_get() {
    let mut sea = Sea::new();
    sea.script(200, STORED, "body");
    sea.get("");
    let answer = sea.request("HEAD", "/", "");
    assert_eq!((answer.status, &*answer.body, answer.field("content-length")), (200, "", Some("4")));
    assert_eq!(sea.request("HEAD", "/", "If-None-Match: \"a\"").status, 304);
    assert_eq!(sea.requests(), 1);
    // The response to HEAD is not stored.
    sea.script(200, STORED, "");
    sea.script(200, STORED, "other");
    sea.request("HEAD", "/other", "");
    assert_eq!(sea.request("GET", "/other", "").body, "other");
}
