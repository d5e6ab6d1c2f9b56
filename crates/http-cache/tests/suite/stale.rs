//! Stale responses: while they are revalidated, and in the place of errors.

use std::time::Duration;

use tidegate::http::cache::Cache;

use crate::support::{Sea, check};

#[test]
fn a_stale_response_is_sent_while_it_is_revalidated() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=10, stale-while-revalidate=60\nETag: \"a\"", "old");
    sea.get("");
    sea.advance(20);
    sea.script(200, "Cache-Control: max-age=10, stale-while-revalidate=60", "new");
    let answer = sea.get("Cookie: a=b");
    assert_eq!((&*answer.body, sea.requests()), ("old", 2));
    assert!(sea.last_request().contains("If-None-Match: \"a\""));
    assert_eq!(sea.get("").body, "new");
    // Beyond the time it waits.
    sea.advance(100);
    sea.script(200, "", "newest");
    assert_eq!(sea.get("").body, "newest");
    assert_eq!(sea.requests(), 3);
}

#[test]
fn only_one_request_revalidates() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=10, stale-while-revalidate=60", "old");
    sea.get("");
    sea.advance(20);
    sea.origin.delay.set(Duration::from_secs(5));
    sea.script(200, "Cache-Control: max-age=10", "new");
    for _ in 0..10 {
        assert_eq!(sea.get("").body, "old");
    }
    assert_eq!(sea.requests(), 2);
    sea.advance(5);
    assert_eq!(sea.get("").body, "new");
}

#[test]
fn a_revalidation_that_hangs_has_an_end() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=10, stale-while-revalidate=600", "old");
    sea.get("");
    sea.advance(20);
    sea.origin.delay.set(Duration::from_secs(3600));
    sea.get("");
    sea.advance(31);
    sea.origin.delay.set(Duration::ZERO);
    sea.script(200, "Cache-Control: max-age=10", "new");
    assert_eq!(sea.get("").body, "old");
    assert_eq!((&*sea.get("").body, sea.requests()), ("new", 3));
}

#[test]
fn a_stale_response_replaces_an_error() {
    for (lines, seconds, is_replaced) in [
        ("Cache-Control: max-age=10, stale-if-error=60", 20, true),
        ("Cache-Control: max-age=10, stale-if-error=60", 80, false),
        ("Cache-Control: max-age=10", 20, false),
        ("Cache-Control: max-age=10, stale-if-error=60, must-revalidate", 20, false),
        ("Cache-Control: max-age=10, stale-if-error=60, proxy-revalidate", 20, false),
        ("Cache-Control: s-maxage=10", 20, false),
        ("Cache-Control: s-maxage=10, stale-if-error=60", 20, true),
    ] {
        for status in [500, 502, 503, 504] {
            let mut sea = Sea::new();
            sea.script(200, lines, "old");
            sea.get("");
            sea.advance(seconds);
            sea.script(status, "", "error");
            let answer = sea.get("");
            let expected = if is_replaced { (200, "old") } else { (status, "error") };
            assert_eq!((answer.status, &*answer.body), expected, "{lines}");
            if is_replaced {
                // For a second the origin is left alone.
                assert_eq!((&*sea.get("").body, sea.requests()), ("old", 2));
            }
        }
    }
}

#[test]
fn the_operator_may_replace_errors_unless_the_response_forbids_it() {
    for (lines, status) in [
        ("Cache-Control: max-age=10", 200),
        ("Cache-Control: max-age=10, must-revalidate", 503),
        ("Cache-Control: s-maxage=10", 503),
    ] {
        let mut sea = Sea::with(Cache::builder().stale_if_error(Duration::from_secs(60)));
        sea.script(200, lines, "old");
        sea.get("");
        sea.advance(20);
        sea.script(503, "", "");
        assert_eq!(sea.get("").status, status, "{lines}");
    }
}

#[test]
fn a_response_that_forbids_it_is_not_sent_stale() {
    check(
        Cache::builder,
        &[
            ("", 200, "Cache-Control: max-age=10, stale-while-revalidate=60, must-revalidate", 20, "", false),
            ("", 200, "Cache-Control: max-age=10, stale-while-revalidate=60, no-cache", 20, "", false),
            ("", 200, "Cache-Control: max-age=10, stale-while-revalidate=60", 20, "Cache-Control: no-cache", false),
            ("", 200, "Cache-Control: max-age=10, stale-while-revalidate=60", 20, "Cache-Control: max-age=60", false),
        ],
    );
}

#[test]
fn an_upstream_that_fails_is_asked_once_a_second() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=10, stale-while-revalidate=600", "old");
    sea.get("");
    sea.advance(20);
    (0..9).for_each(|_| sea.script(503, "", "error"));
    for second in 0..3 {
        for _ in 0..10 {
            assert_eq!(sea.get("").body, "old");
        }
        assert_eq!(sea.requests(), 2 + second);
        sea.advance(1);
    }
}

#[test]
fn a_response_that_may_not_be_stored_any_more_replaces_the_stored_one() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=10, stale-while-revalidate=600", "old");
    sea.get("");
    sea.advance(20);
    sea.script(200, "Cache-Control: private", "unseen");
    assert_eq!(sea.get("").body, "old");
    sea.script(200, "Cache-Control: private", "mine");
    assert_eq!(sea.get("").body, "mine");
}
