//! Ranges of a stored response.

use crate::support::Sea;

const STORED: &str = "Cache-Control: max-age=3600\nETag: \"a\"\nLast-Modified: {-3000}\nDate: {0}";

fn stored(lines: &str) -> Sea {
    let mut sea = Sea::new();
    sea.script(200, lines, "01234567890");
    sea.get("");
    sea
}

#[test]
fn a_range_comes_from_the_whole_response() {
    for (range, status, content_range, body) in [
        ("bytes=0-1", 206, Some("bytes 0-1/11"), "01"),
        ("bytes=1-", 206, Some("bytes 1-10/11"), "1234567890"),
        ("bytes=-1", 206, Some("bytes 10-10/11"), "0"),
        ("bytes=11-", 416, Some("bytes */11"), ""),
        ("bytes=0-1,3-4", 200, None, "01234567890"),
        ("lines=0-1", 200, None, "01234567890"),
    ] {
        let mut sea = stored(STORED);
        let answer = sea.get(&format!("Range: {range}"));
        let found = (answer.status, answer.field("content-range"), &*answer.body);
        assert_eq!(found, (status, content_range, body), "{range}");
        assert_eq!(sea.requests(), 1);
    }
}

#[test]
fn a_condition_decides_whether_the_range_is_sent() {
    for (lines, status) in [
        ("If-Range: \"a\"", 206),
        ("If-Range: \"b\"", 200),
        ("If-Range: W/\"a\"", 200),
        ("If-Range: {-3000}", 206),
        ("If-Range: {-2000}", 200),
        ("If-None-Match: \"a\"", 304),
        ("If-None-Match: \"b\"", 206),
    ] {
        let mut sea = stored(STORED);
        assert_eq!(sea.get(&format!("Range: bytes=0-1\n{lines}")).status, status, "{lines}");
    }
    // A weak tag is no strong validator, and a date is none within its second.
    assert_eq!(
        stored("Cache-Control: max-age=9\nETag: W/\"a\"").get("Range: bytes=0-1\nIf-Range: W/\"a\"").status,
        200
    );
    let mut young = stored("Cache-Control: max-age=9\nLast-Modified: {0}\nDate: {0}");
    assert_eq!(young.get("Range: bytes=0-1\nIf-Range: {0}").status, 200);
}

#[test]
fn a_range_that_is_not_stored_goes_to_the_origin_as_it_is() {
    let mut sea = Sea::new();
    sea.script(206, "Cache-Control: max-age=3600\nContent-Range: bytes 0-1/11", "01");
    assert_eq!(sea.get("Range: bytes=0-1").status, 206);
    assert!(sea.last_request().contains("Range: bytes=0-1"));
    sea.script(200, STORED, "whole");
    assert_eq!(sea.get("").body, "whole");
}
