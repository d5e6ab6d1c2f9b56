//! Lifetimes and ages.

use tidegate::http::cache::{Cache, CacheLimits};

use crate::support::{Sea, check};

#[test]
fn a_response_is_used_as_long_as_it_is_fresh() {
    check(
        Cache::builder,
        &[
            ("", 200, "", 0, "", false),
            ("", 200, "Date: {0}", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600", 3599, "", true),
            ("", 200, "Cache-Control: max-age=3600", 3601, "", false),
            ("", 200, "Cache-Control: max-age=0", 0, "", false),
            ("", 200, "Cache-Control: max-age=99999999999", 86400, "", true),
            ("", 200, "Cache-Control: s-maxage=3600", 3599, "", true),
            ("", 200, "Cache-Control: max-age=1, s-maxage=3600", 60, "", true),
            ("", 200, "Cache-Control: max-age=3600, s-maxage=1", 60, "", false),
            ("", 200, "Cache-Control: max-age=3600\nExpires: {-60}\nDate: {0}", 60, "", true),
            ("", 200, "Cache-Control: max-age=0\nExpires: {3600}\nDate: {0}", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600\nExpires: 0", 60, "", true),
            ("", 200, "Expires: {3600}\nDate: {0}", 3500, "", true),
            ("", 200, "Expires: {3600}\nDate: {0}", 3700, "", false),
            ("", 200, "Expires: {3600}", 3500, "", true),
            ("", 200, "Expires: {-3600}\nDate: {0}", 0, "", false),
            ("", 200, "Expires: 0\nDate: {0}\nLast-Modified: {-36000}", 0, "", false),
            ("", 200, "Expires: {3600}\nDate: {3600}", 0, "", false),
            // Each number that is not valid is 0; the least of several counts.
            ("", 200, "Cache-Control: max-age=1, max-age=1800", 60, "", false),
            ("", 200, "Cache-Control: max-age='3600'", 0, "", false),
            ("", 200, "Cache-Control: max-age=\"3600\"", 60, "", true),
            ("", 200, "Cache-Control: extension=\"max-age=3600\", max-age=1", 60, "", false),
            ("", 200, "Cache-Control: MaX-aGe=3600", 60, "", true),
        ],
    );
}

#[test]
fn the_age_that_a_response_has_on_its_arrival_counts() {
    check(
        Cache::builder,
        &[
            ("", 200, "Cache-Control: max-age=3600\nAge: 1800", 1790, "", true),
            ("", 200, "Cache-Control: max-age=3600\nAge: 7200", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600\nAge: 7200,0", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600\nAge: abc", 60, "", true),
            ("", 200, "Cache-Control: max-age=3600\nAge: -7200", 60, "", true),
            ("", 200, "Cache-Control: max-age=3600\nAge: 99999999999999999999999", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600\nAge: 7200.0", 60, "", true),
            // The first number counts, of a line and of all lines (RFC 9111 §5.1).
            ("", 200, "Cache-Control: max-age=3600\nAge: 7200\nAge: 0", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600\nAge: 0,7200", 60, "", true),
            ("", 200, "Cache-Control: max-age=3600\nAge: 0\nAge: 7200", 60, "", true),
            ("", 200, "Cache-Control: max-age=3600\nAge: 0, 0", 60, "", true),
            ("", 200, "Cache-Control: max-age=3600\nAge: 7200, 7200", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600\nDate: {-7200}", 0, "", false),
            ("", 200, "Cache-Control: max-age=3600\nDate: {7200}", 60, "", true),
        ],
    );
    let mut sea = Sea::new();
    sea.script(200, "Cache-Control: max-age=3600\nAge: 30", "");
    sea.get("");
    sea.advance(12);
    assert_eq!(sea.get("").field("age"), Some("42"));
}

#[test]
fn an_expiry_that_is_no_date_is_in_the_past() {
    check(
        Cache::builder,
        &[
            ("", 200, "Expires: Thu, 18 Aug 2050 02:01:18 GMT\nDate: {0}", 60, "", true),
            ("", 200, "Expires: Thu, 18 Aug 2050 02:01:18 UTC\nDate: {0}", 0, "", false),
            ("", 200, "Expires: Thu, 18 Aug 50 02:01:18 GMT\nDate: {0}", 0, "", false),
            ("", 200, "Expires: Thu 18 Aug 2050 02:01:18 GMT\nDate: {0}", 0, "", false),
            ("", 200, "Expires: Thu, 18  Aug  2050 02:01:18 GMT\nDate: {0}", 0, "", false),
            ("", 200, "Expires: Thu, 18-Aug-2050 02:01:18 GMT\nDate: {0}", 0, "", false),
            ("", 200, "Expires: Thu, 18 Aug 2050 02.01.18 GMT\nDate: {0}", 0, "", false),
            ("", 200, "Expires: Thu, 18 Aug 2050 2:01:18 GMT\nDate: {0}", 0, "", false),
        ],
    );
}

#[test]
fn the_date_of_the_origin_is_kept_and_the_age_grows() {
    for lines in ["Expires: {2592000}\nDate: {0}\nAge: 30", "Cache-Control: max-age=600\nDate: {0}\nAge: 30"] {
        let mut sea = Sea::new();
        sea.script(200, lines, "");
        let first = sea.get("");
        sea.advance(3);
        let second = sea.get("");
        assert_eq!((second.field("date"), second.field("age")), (first.field("date"), Some("33")), "{lines}");
    }
}

#[test]
fn a_lifetime_that_is_not_told_is_a_tenth_of_the_time_since_the_modification() {
    check(
        Cache::builder,
        &[
            ("", 200, "Last-Modified: {-36000}\nDate: {0}", 3500, "", true),
            ("", 200, "Last-Modified: {-36000}\nDate: {0}", 3700, "", false),
            ("", 200, "Last-Modified: yesterday", 0, "", false),
            ("", 404, "Last-Modified: {-36000}\nDate: {0}", 60, "", true),
            ("", 410, "Last-Modified: {-36000}\nDate: {0}", 60, "", true),
            ("", 201, "Last-Modified: {-36000}\nDate: {0}", 0, "", false),
            ("", 403, "Last-Modified: {-36000}\nDate: {0}", 0, "", false),
            ("", 599, "Last-Modified: {-36000}\nDate: {0}", 0, "", false),
            ("", 403, "Last-Modified: {-36000}\nDate: {0}\nCache-Control: public", 60, "", true),
            // A day at most.
            ("", 200, "Last-Modified: {-360000000}\nDate: {0}", 86_500, "", false),
        ],
    );
    let none = || {
        Cache::builder()
            .limits(CacheLimits { heuristic_lifetime_max: std::time::Duration::ZERO, ..CacheLimits::default() })
    };
    check(none, &[("", 200, "Last-Modified: {-36000}\nDate: {0}", 1, "", false)]);
}

#[test]
fn a_request_may_ask_for_less_and_for_more() {
    let fresh = "Cache-Control: max-age=3600";
    check(
        Cache::builder,
        &[
            ("", 200, fresh, 60, "Cache-Control: no-cache", false),
            ("", 200, fresh, 60, "Pragma: no-cache", false),
            ("", 200, fresh, 60, "Pragma: no-cache\nCache-Control: max-age=600", true),
            ("", 200, fresh, 60, "Cache-Control: max-age=59", false),
            ("", 200, fresh, 60, "Cache-Control: max-age=61", true),
            ("", 200, fresh, 1, "Cache-Control: max-age=0", false),
            ("", 200, fresh, 60, "Cache-Control: min-fresh=3000", true),
            ("", 200, fresh, 60, "Cache-Control: min-fresh=3590", false),
            ("", 200, fresh, 3700, "Cache-Control: max-stale=200", true),
            ("", 200, fresh, 3700, "Cache-Control: max-stale", true),
            ("", 200, fresh, 3900, "Cache-Control: max-stale=200", false),
            ("", 200, "Cache-Control: max-age=3600, must-revalidate", 3700, "Cache-Control: max-stale", false),
            ("", 200, "Cache-Control: s-maxage=3600", 3700, "Cache-Control: max-stale", false),
            ("", 200, fresh, 3500, "Cache-Control: only-if-cached", true),
            ("Cache-Control: no-store", 200, fresh, 0, "", false),
        ],
    );
    check(
        || Cache::builder().ignore_client_control(),
        &[
            ("", 200, fresh, 60, "Cache-Control: no-cache", true),
            ("", 200, fresh, 60, "Cache-Control: max-age=0", true),
            ("", 200, fresh, 60, "Pragma: no-cache", true),
            ("Cache-Control: no-store", 200, fresh, 0, "", false),
        ],
    );
}

#[test]
fn only_if_cached_gets_a_504_and_the_origin_nothing() {
    let mut sea = Sea::new();
    assert_eq!(sea.get("Cache-Control: only-if-cached").status, 504);
    assert_eq!(sea.requests(), 0);
}

#[test]
fn a_targeted_field_replaces_cache_control() {
    let targeted = || Cache::builder().targeted_field("CDN-Cache-Control");
    check(
        targeted,
        &[
            ("", 200, "CDN-Cache-Control: max-age=3600", 60, "", true),
            ("", 200, "CDN-Cache-Control: max-age=3600\nAge: 7200", 0, "", false),
            ("", 200, "CDN-Cache-Control: max-age=0", 0, "", false),
            ("", 200, "CDN-Cache-Control: max-age=3600\nExpires: {-60}\nDate: {0}", 60, "", true),
            ("", 200, "CDN-Cache-Control: max-age=0\nExpires: {3600}\nDate: {0}", 0, "", false),
            ("", 200, "CDN-Cache-Control: max-age=3600\nCache-Control: max-age=1", 60, "", true),
            ("", 200, "CDN-Cache-Control: max-age=1\nCache-Control: max-age=3600", 60, "", false),
            ("", 200, "CDN-Cache-Control: private\nCache-Control: max-age=3600", 0, "", false),
            ("", 200, "CDN-Cache-Control: no-cache\nCache-Control: max-age=3600", 0, "", false),
            ("", 200, "CDN-Cache-Control: no-store\nCache-Control: max-age=3600", 0, "", false),
            ("", 200, "CDN-Cache-Control: max-age=3600\nCache-Control: no-store", 60, "", true),
            // One that is not valid is ignored.
            ("", 200, "CDN-Cache-Control: max-age=3600, &&&\nCache-Control: no-store", 0, "", false),
            ("", 200, "CDN-Cache-Control: max-age=\"3600\"\nCache-Control: no-store", 0, "", false),
            ("", 200, "CDN-Cache-Control: max-age =100\nCache-Control: max-age=1", 60, "", false),
        ],
    );
    check(Cache::builder, &[("", 200, "CDN-Cache-Control: max-age=3600", 0, "", false)]);
}
