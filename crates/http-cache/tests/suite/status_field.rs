//! `Cache-Status` and the figures.

use tidegate::http::cache::{Cache, CacheCounts};
use tidegate::metrics::{Format, MetricsText};

use crate::support::Sea;

#[test]
fn each_response_names_its_way() {
    let mut sea = Sea::with(Cache::builder().status_name("gate"));
    let status = |sea: &mut Sea, method: &str, lines: &str| {
        sea.request(method, "/", lines).field("cache-status").map(str::to_owned).unwrap_or_default()
    };
    sea.script(200, "Cache-Control: max-age=60\nETag: \"a\"\nVary: Foo", "");
    assert_eq!(status(&mut sea, "GET", ""), "gate; fwd=uri-miss; fwd-status=200; ttl=60; stored");
    assert_eq!(status(&mut sea, "GET", ""), "gate; hit; ttl=60");
    sea.script(304, "", "");
    assert_eq!(status(&mut sea, "GET", "Cache-Control: no-cache"), "gate; fwd=request; fwd-status=304; ttl=60; stored");
    sea.script(200, "Cache-Control: private", "");
    assert_eq!(status(&mut sea, "GET", "Foo: 1"), "gate; fwd=vary-miss; fwd-status=200; detail=private");
    sea.advance(70);
    assert_eq!(status(&mut sea, "GET", "Cache-Control: max-stale"), "gate; hit; ttl=-10");
    sea.script(200, "Cache-Control: max-age=60", "");
    assert_eq!(status(&mut sea, "GET", ""), "gate; fwd=stale; fwd-status=200; ttl=60; stored");
    sea.script(200, "", "");
    assert_eq!(status(&mut sea, "POST", "Content-Length: 0"), "gate; fwd=method; fwd-status=200");
    let counts = sea.cache.counts();
    assert_eq!((counts.hits, counts.stale, counts.misses, counts.bypassed, counts.stored), (1, 1, 3, 1, 3));
}

#[test]
fn a_response_in_the_place_of_an_error_is_no_hit_if_the_upstream_was_asked() {
    let mut sea = Sea::with(Cache::builder().status_name("gate"));
    sea.script(200, "Cache-Control: max-age=10, stale-if-error=60", "old");
    sea.get("");
    sea.advance(20);
    sea.script(503, "", "");
    for expected in [
        "gate; fwd=stale; fwd-status=503; ttl=-10; detail=stale-if-error",
        // Within a second the upstream is left alone.
        "gate; hit; ttl=-10; detail=stale-if-error",
    ] {
        let answer = sea.get("");
        assert_eq!((answer.field("cache-status"), &*answer.body), (Some(expected), "old"));
    }
    assert_eq!((sea.requests(), sea.cache.counts().stale), (2, 2));
}

#[test]
fn the_caches_before_this_one_stay_in_the_field() {
    let mut sea = Sea::with(Cache::builder().status_name("gate"));
    sea.script(200, "Cache-Control: max-age=60\nCache-Status: inner; hit", "");
    let members = |answer: &crate::support::Answer| {
        let lines = answer.head.lines().filter_map(|line| line.strip_prefix("Cache-Status: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(members(&sea.get("")), ["inner; hit", "gate; fwd=uri-miss; fwd-status=200; ttl=60; stored"]);
    assert_eq!(members(&sea.get("")), ["inner; hit", "gate; hit; ttl=60"]);
}

#[test]
fn a_cache_without_a_name_sends_no_field() {
    let mut sea = Sea::with(Cache::builder().status_name(""));
    sea.script(200, "Cache-Control: max-age=60", "");
    assert_eq!(sea.get("").field("cache-status"), None);
    assert_eq!((sea.get("").field("cache-status"), sea.requests()), (None, 1));
}

#[test]
fn the_figures_are_metrics() {
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=60", "body");
    sea.get("");
    sea.get("");
    let mut text = MetricsText::new(Format::Prometheus);
    CacheCounts::write_metrics(&[("pages", &sea.cache)], &mut text);
    let text = text.finish();
    for line in [
        "tidegate_cache_requests_total{cache=\"pages\",outcome=\"hit\"} 1\n",
        "tidegate_cache_requests_total{cache=\"pages\",outcome=\"miss\"} 1\n",
        "tidegate_cache_stored_total{cache=\"pages\"} 1\n",
        "tidegate_cache_entries{cache=\"pages\"} 1\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
