//! `Vary`: which requests get a stored response.

use tidegate::http::cache::{Cache, CacheLimits};

use crate::support::{Sea, check};

#[test]
fn a_response_is_for_requests_with_the_same_selecting_fields() {
    let (foo, two) =
        ("Cache-Control: max-age=3600\nVary: Foo", "Cache-Control: max-age=3600\nVary: Foo\nVary: BAR, Foo");
    check(
        Cache::builder,
        &[
            ("Foo: 1", 200, foo, 0, "foo: 1", true),
            ("Foo: 1", 200, foo, 0, "Foo: 2", false),
            ("Foo: 1", 200, foo, 0, "", false),
            ("", 200, foo, 0, "Foo: 1", false),
            ("", 200, foo, 0, "Foo:", false),
            ("", 200, foo, 0, "", true),
            ("Foo: 1\nOther: 2", 200, foo, 0, "Foo: 1\nOther: 3", true),
            ("Foo: 1\nBar: a", 200, two, 0, "Bar: a\nFoo: 1", true),
            ("Foo: 1\nBar: a", 200, two, 0, "Foo: 1\nBar: b", false),
            ("Foo: 1\nBar: a", 200, two, 0, "Foo: 1", false),
            ("Foo: 1", 200, two, 0, "Foo: 1", true),
            // White space, and the lines in which the members of a list stand, do not matter; their order does.
            ("Foo: 1,2", 200, foo, 0, "Foo: 1, 2", true),
            ("Foo: 1, 2", 200, foo, 0, "Foo: 1\nFoo: 2", true),
            ("Foo: 1, 2", 200, foo, 0, "Foo: 2, 1", false),
            ("Foo: 1", 200, "Cache-Control: max-age=3600\nVary: *", 0, "Foo: 1", false),
            ("Foo: 1", 200, "Cache-Control: max-age=3600\nVary: Foo, *", 0, "Foo: 1", false),
            ("Foo: 1", 200, "Cache-Control: max-age=3600\nVary: *, *", 0, "Foo: 1", false),
            ("Foo: 1", 200, "Cache-Control: max-age=3600\nVary: *\nVary: *", 0, "Foo: 1", false),
            ("Foo: 1", 200, "Cache-Control: max-age=3600\nVary: , *", 0, "Foo: 1", false),
            ("Foo: 1", 200, "Cache-Control: max-age=3600\nVary:\nVary: *", 0, "Foo: 1", false),
            ("Foo: 1", 200, "Cache-Control: max-age=3600\nVary: *, Foo", 0, "Foo: 1", false),
            ("Foo: 1", 200, "Cache-Control: max-age=3600\nVary: *", 0, "*: 1", false),
            (
                "Accept-Language: en, de",
                200,
                "Cache-Control: max-age=3600\nVary: Accept-Language",
                0,
                "Accept-Language: en,de",
                true,
            ),
            ("", 200, "Cache-Control: max-age=3600\nVary:", 0, "Foo: 1", true),
        ],
    );
}

#[test]
fn a_variant_does_not_replace_another_one() {
    let mut sea = Sea::new();
    for value in ["1", "2"] {
        sea.script(200, "Cache-Control: max-age=3600\nVary: Foo", value);
        sea.get(&format!("Foo: {value}"));
    }
    assert_eq!(sea.get("Foo: 1").body, "1");
    assert_eq!(sea.get("Foo: 2").body, "2");
    assert_eq!(sea.requests(), 2);
}

#[test]
fn a_flood_of_variants_stays_within_the_limit() {
    let limits = CacheLimits { variants_max: 4, ..CacheLimits::default() };
    let mut sea = Sea::with(Cache::builder().limits(limits));
    for number in 0..200 {
        sea.script(200, "Cache-Control: max-age=3600\nVary: Foo", &number.to_string());
        sea.get(&format!("Foo: {number}"));
    }
    assert_eq!(sea.cache.counts().entries, 4);
    assert_eq!(sea.get("Foo: 199").body, "199");
}
