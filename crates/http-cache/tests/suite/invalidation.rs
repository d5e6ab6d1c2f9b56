//! Unsafe methods and purges remove responses.

use crate::support::Sea;

fn with_stored(targets: &[&str]) -> Sea {
    let mut sea = Sea::new();
    for target in targets {
        sea.script(200, "Cache-Control: max-age=3600", target);
        assert_eq!(sea.request("GET", target, "").body, *target);
    }
    sea
}

fn is_stored(sea: &mut Sea, target: &str) -> bool {
    sea.request("GET", target, "Cache-Control: only-if-cached").status == 200
}

#[test]
fn an_unsafe_method_removes_the_responses_for_its_target_and_those_that_it_names() {
    for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH"] {
        let mut sea = with_stored(&["/a", "/b", "/c?d", "/e"]);
        sea.script(201, "Location: http://sea/b\nContent-Location: /c?d", "");
        sea.request(method, "/a", "Content-Length: 0");
        let left = ["/a", "/b", "/c?d", "/e"].map(|target| is_stored(&mut sea, target));
        assert_eq!(left, [false, false, false, true], "{method}");
    }
}

#[test]
fn an_error_and_another_origin_remove_nothing() {
    for (method, status, lines) in
        [("POST", 500, ""), ("POST", 404, "Location: /b"), ("OPTIONS", 200, ""), ("GET", 200, "Location: /a")]
    {
        let mut sea = with_stored(&["/a", "/b"]);
        sea.script(status, lines, "");
        sea.request(method, if method == "GET" { "/x" } else { "/a" }, "");
        assert!(is_stored(&mut sea, "/a") && is_stored(&mut sea, "/b"), "{method} {status}");
    }
    let mut sea = with_stored(&["/b"]);
    sea.script(303, "Location: http://ocean/b\nContent-Location: //sea/b", "");
    sea.request("POST", "/a", "Content-Length: 0");
    assert!(is_stored(&mut sea, "/b"));
}

#[test]
fn a_reference_is_resolved_as_a_client_does() {
    for reference in ["../b", "/x/../b", "http://SEA/x/../b", "/b#part"] {
        let mut sea = with_stored(&["/b", "/a/"]);
        sea.script(201, &format!("Location: {reference}"), "");
        sea.request("POST", "/a/c", "Content-Length: 0");
        assert!(!is_stored(&mut sea, "/b") && is_stored(&mut sea, "/a/"), "{reference}");
    }
}

#[test]
fn all_variants_are_removed() {
    let mut sea = Sea::new();
    for value in ["1", "2"] {
        sea.script(200, "Cache-Control: max-age=3600\nVary: Foo", value);
        sea.get(&format!("Foo: {value}"));
    }
    sea.script(204, "", "");
    sea.request("DELETE", "/", "");
    assert_eq!(sea.cache.counts().entries, 0);
}

#[test]
fn a_client_that_leaves_does_not_keep_the_response_that_its_request_changes() {
    let mut sea = with_stored(&["/a", "/b"]);
    let mut other = Sea::over(&sea);
    sea.origin.delay.set(std::time::Duration::from_secs(5));
    sea.script(200, "", "done");
    other.pipe.receive(b"POST /a HTTP/1.1\r\nHost: sea\r\nContent-Length: 0\r\n\r\n");
    assert!(is_stored(&mut sea, "/a"));
    drop(other);
    assert!(!is_stored(&mut sea, "/a") && is_stored(&mut sea, "/b"));
}

#[test]
fn purges_remove_what_they_name() {
    let mut sea = with_stored(&["/a", "/a/b?c", "/b"]);
    assert_eq!(sea.cache.purge("http://SEA:80/a"), Some(1));
    assert_eq!(sea.cache.purge("http://sea/a"), Some(0));
    assert_eq!(sea.cache.purge("/a"), None);
    assert!(!is_stored(&mut sea, "/a") && is_stored(&mut sea, "/a/b?c"));
    assert_eq!(sea.cache.purge_prefix("http://sea/a"), Some(1));
    assert_eq!(sea.cache.purge_host("ocean"), 0);
    assert_eq!(sea.cache.purge_host("Sea"), 1);
    assert_eq!(sea.cache.counts().memory_bytes, 0);
    let sea = with_stored(&["/a", "/b"]);
    assert_eq!(sea.cache.purge_all(), 2);
}

#[test]
fn a_response_on_its_way_is_not_stored_after_a_purge() {
    let mut sea = Sea::new();
    sea.origin.delay.set(std::time::Duration::from_secs(5));
    sea.script(200, "Cache-Control: max-age=3600", "old");
    sea.pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
    sea.cache.purge("http://sea/");
    sea.advance(5);
    assert!(sea.pipe.take_written().ends_with(b"old"));
    assert!(!is_stored(&mut sea, "/"));
}
