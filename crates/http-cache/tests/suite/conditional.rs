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
fn a_cookie_and_withheld_fields_of_a_304_are_for_its_client_alone() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=10\nETag: \"a\"", "body");
    sea.get("");
    sea.advance(20);
    sea.script(304, "Cache-Control: max-age=10, private=\"x\"\nSet-Cookie: a=b\nX: 1\nContent-Type: text/css", "");
    let answer = sea.get("");
    assert_eq!((answer.field("set-cookie"), answer.field("x"), &*answer.body), (Some("a=b"), Some("1"), "body"));
    let answer = sea.get("");
    assert_eq!((answer.field("set-cookie"), answer.field("x"), answer.status), (None, None, 200));
    // Without `Cache-Control` that of the stored response counts.
    sea.advance(20);
    sea.script(304, "X: 2\nY: 2", "");
    let (first, second) = (sea.get(""), sea.get(""));
    assert_eq!((first.field("x"), second.field("x"), second.field("y")), (Some("2"), None, Some("2")));
    assert_eq!(sea.requests(), 3);
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: public, max-age=10\nETag: \"a\"\nSet-Cookie: a=1", "body");
    sea.get("");
    sea.advance(20);
    sea.script(304, "Set-Cookie: a=2", "");
    assert_eq!(
        [sea.get(""), sea.get("")].map(|answer| answer.field("set-cookie").map(str::to_owned)),
        [Some("a=2".to_owned()), Some("a=2".to_owned())]
    );
}

#[test]
fn a_304_with_another_vary_chooses_by_its_fields() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=10\nETag: \"a\"", "first");
    sea.get("Foo: 1");
    sea.advance(20);
    sea.script(304, "Vary: Foo", "");
    assert_eq!(sea.get("Foo: 1").body, "first");
    assert_eq!((&*sea.get("Foo: 1").body, sea.requests()), ("first", 2));
    sea.script(200, "Cache-Control: max-age=10\nVary: Foo", "second");
    assert_eq!(sea.get("Foo: 2").body, "second");
    assert!(!sea.last_request().contains("If-None-Match"));
    assert_eq!((&*sea.get("Foo: 1").body, sea.cache.counts().entries), ("first", 2));
}

#[test]
fn a_304_that_forbids_storing_removes_the_stored_response() {
    for lines in ["Vary: *", "Cache-Control: no-store", "Cache-Control: private, max-age=3600"] {
        let mut sea = Sea::new();
        sea.script(200, "Cache-Control: max-age=10, stale-if-error=600\nETag: \"a\"", "old");
        sea.get("");
        sea.advance(20);
        sea.script(304, lines, "");
        assert_eq!(sea.get("").body, "old", "{lines}");
        assert_eq!(sea.cache.counts().entries, 0, "{lines}");
        sea.script(503, "", "error");
        assert_eq!(sea.get("").body, "error", "{lines}");
    }
}

#[test]
fn a_304_without_a_date_has_that_of_its_arrival() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=10\nETag: \"a\"\nDate: {0}", "body");
    sea.get("");
    sea.advance(5000);
    sea.script(304, "", "");
    let answer = sea.get("");
    let date = answer.field("date").and_then(|date| httpdate::parse_http_date(date).ok()).expect("a date");
    let ahead = date.duration_since(std::time::SystemTime::now()).expect("it is later");
    assert!(ahead.as_secs() > 4000, "{ahead:?}");
    assert_eq!(answer.field("age"), Some("0"));
}

#[test]
fn a_tag_is_compared_as_it_came() {
    for (etag, lines, status) in [
        ("\"abcdefü\"", "If-None-Match: \"abcdefü\"", 304),
        ("abcdef", "If-None-Match: abcdef", 304),
        ("abcdef", "If-None-Match: \"abcdef\"", 200),
        ("w/\"a\"", "If-None-Match: w/\"a\"", 304),
        ("w/\"a\"", "If-None-Match: \"a\"", 200),
        ("W\\\"a\"", "If-None-Match: W\\\"a\"", 304),
        ("\"a\"", "If-None-Match: \"a\", \"b\", \"c\"", 304),
        ("\"a\"", "If-None-Match: \"b\", \"a\", \"c\"", 304),
        ("\"a\"", "If-None-Match: \"b\", \"c\", \"a\"", 304),
    ] {
        let mut sea = Sea::new();
        sea.script(200, &format!("Cache-Control: max-age=3600\nETag: {etag}"), "body");
        sea.get("");
        assert_eq!((sea.get(lines).status, sea.requests()), (status, 1), "{etag} {lines}");
    }
    // A stale one is validated by the tag as it came.
    for etag in ["\"a\"", "W/\"a\"", "a"] {
        let mut sea = Sea::new();
        sea.script(200, &format!("Cache-Control: max-age=1\nETag: {etag}"), "body");
        sea.get("");
        sea.advance(2);
        sea.script(304, "", "");
        assert_eq!(sea.get("").body, "body");
        assert!(sea.last_request().contains(&format!("If-None-Match: {etag}\r\n")));
    }
}

#[test]
fn a_time_of_any_form_and_a_response_without_one_answer_a_condition() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=3600\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT", "body");
    sea.get("");
    for (since, status) in [
        ("Sunday, 06-Nov-94 08:49:37 GMT", 304),
        ("Sun Nov  6 08:49:37 1994", 304),
        ("Sun, 06 Nov 1994 08:49:36 GMT", 200),
    ] {
        assert_eq!(sea.get(&format!("If-Modified-Since: {since}")).status, status, "{since}");
    }
    // Without `Last-Modified` the time of arrival counts.
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=3600", "body");
    sea.get("");
    assert_eq!(sea.get("If-Modified-Since: {-3000}").status, 200);
    assert_eq!(sea.get("If-Modified-Since: {10}").status, 304);
    assert_eq!(sea.requests(), 1);
}

#[test]
fn a_condition_of_a_client_is_answered_from_a_response_that_was_validated() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=2\nETag: \"a\"\nLast-Modified: {-3000}", "body");
    sea.get("");
    sea.advance(5);
    sea.script(304, "", "");
    assert_eq!(sea.get("If-None-Match: \"a\"").status, 304);
    assert_eq!(sea.requests(), 2);
}

#[test]
fn the_validator_of_another_variant_is_not_sent() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=3600\nETag: \"a\"\nVary: Abc", "first");
    sea.get("Abc: 1");
    sea.script(200, "Cache-Control: max-age=3600\nVary: Abc", "second");
    assert_eq!(sea.get("Abc: 2").body, "second");
    assert!(!sea.last_request().contains("If-None-Match"));
    // That of the same variant is, with its selecting field.
    sea.advance(4000);
    sea.script(304, "", "");
    assert_eq!(sea.get("Abc: 1").body, "first");
    let request = sea.last_request();
    assert!(request.contains("If-None-Match: \"a\"\r\n") && request.contains("Abc: 1\r\n"), "{request}");
}

#[test]
fn a_response_to_head_that_differs_removes_the_stored_one() {
    for (lines, is_kept) in
        [("ETag: \"a\"", true), ("", true), ("ETag: \"b\"", false), ("ETag: \"a\"\nLast-Modified: {-10}", false)]
    {
        let mut sea = Sea::new();
        sea.script(
            200,
            "Cache-Control: max-age=10, stale-while-revalidate=600\nETag: \"a\"\nLast-Modified: {-3000}",
            "old",
        );
        sea.get("");
        sea.script(200, lines, "old");
        sea.request("HEAD", "/", "Cache-Control: no-cache");
        assert_eq!(sea.cache.counts().entries, usize::from(is_kept), "{lines}");
    }
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
