//! Floods stay within the budget.

use std::time::Duration;

use tidegate::http::cache::{Cache, CacheLimits};

use crate::support::Sea;

#[test]
fn invented_queries_stay_within_the_budget_and_leave_the_responses_that_are_used() {
    let limits = CacheLimits { memory_bytes_max: 400_000, entry_bytes_max: 50_000, ..CacheLimits::default() };
    let mut sea = Sea::with(Cache::builder().limits(limits));
    sea.script(200, "Cache-Control: max-age=36000", "hot");
    sea.request("GET", "/hot", "");
    for number in 0..1000 {
        sea.script(200, "Cache-Control: max-age=36000", &"c".repeat(2000));
        sea.request("GET", &format!("/cold?{number}"), "");
        if number % 5 == 0 {
            assert_eq!(sea.request("GET", "/hot", "").body, "hot", "{number}");
        }
        assert!(sea.cache.counts().memory_bytes <= limits.memory_bytes_max);
    }
    assert_eq!(sea.requests(), 1001);
    assert!(sea.cache.counts().evictions > 500);
}

#[test]
fn a_cache_without_limits_stores() {
    let limits = CacheLimits {
        memory_bytes_max: usize::MAX,
        entry_bytes_max: usize::MAX,
        header_bytes_max: usize::MAX,
        key_bytes_max: usize::MAX,
        ..CacheLimits::default()
    };
    let mut sea = Sea::with(Cache::builder().limits(limits).stale_if_error(Duration::MAX));
    sea.script(200, "Cache-Control: max-age=3600", "body");
    for _ in 0..3 {
        assert_eq!(sea.get("").body, "body");
    }
    assert_eq!(sea.requests(), 1);
}

#[test]
fn a_cache_without_memory_passes_everything_on() {
    let limits = CacheLimits { memory_bytes_max: 0, ..CacheLimits::default() };
    let mut sea = Sea::with(Cache::builder().limits(limits));
    for requests in 1..4 {
        sea.script(200, "Cache-Control: max-age=3600", "body");
        assert_eq!(sea.get("").body, "body");
        assert_eq!(sea.requests(), requests);
    }
}
