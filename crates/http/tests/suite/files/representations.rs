//! Conditions, ranges, variants, and files that change.

use std::fs;
use std::io::{Read, Write};
use std::time::Duration;

use tidegate::Backend;

use super::folder::{Folder, Got, ask, content, get, request};

#[test]
fn conditions_are_evaluated() {
    let folder = Folder::new();
    folder.write("file", "tides");
    let server = folder.serve(|files| files.cache_control("no-cache"));
    let first = get(&server, "/file");
    let (etag, date) = (first.field("ETag").unwrap(), first.field("Last-Modified").unwrap());
    let weak = format!("W/{etag}");
    let old = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (name, value, expected) in [
        ("If-None-Match", etag, 304),
        ("If-None-Match", weak.as_str(), 304),
        ("If-None-Match", "*", 304),
        ("If-None-Match", "\"other\"", 200),
        ("If-Modified-Since", date, 304),
        ("If-Modified-Since", old, 200),
        ("If-Match", etag, 200),
        ("If-Match", "*", 200),
        ("If-Match", weak.as_str(), 412),
        ("If-Match", "\"other\"", 412),
        ("If-Unmodified-Since", date, 200),
        ("If-Unmodified-Since", old, 412),
    ] {
        for method in ["GET", "HEAD"] {
            let got = ask(&server, method, "/file", &[(name, value)]);
            assert_eq!(got.status, expected, "{method} {name}: {value}");
            assert_eq!(got.field("ETag"), Some(etag));
            assert_eq!(got.field("Cache-Control"), Some("no-cache"));
            if expected == 304 {
                assert_eq!((got.body.len(), got.field("Content-Type")), (0, None));
            }
        }
    }
    // A file that changes has another tag, even within the same second and of the same length.
    fs::remove_file(folder.root.join("file")).unwrap();
    folder.write("other", "x");
    folder.write("file", "waves");
    let got = ask(&server, "GET", "/file", &[("If-None-Match", etag)]);
    assert_eq!((got.status, got.text()), (200, "waves"));
}

#[test]
fn single_ranges_are_sent() {
    let folder = Folder::new();
    let bytes = content(100_000);
    folder.write("file", &bytes);
    folder.write("empty", "");
    let server = folder.serve(|files| files);
    for (range, start, end) in [
        ("bytes=0-0", 0, 1),
        ("bytes=500-", 500, 100_000),
        ("bytes=-7", 99_993, 100_000),
        ("bytes=-200000", 0, 100_000),
        ("bytes=99999-18446744073709551616", 99_999, 100_000),
        ("bytes=0-9,5-20", 0, 21),
    ] {
        let got = ask(&server, "GET", "/file", &[("Range", range)]);
        assert_eq!(got.status, 206, "{range}");
        let expected = format!("bytes {start}-{}/100000", end - 1);
        assert_eq!(got.field("Content-Range"), Some(expected.as_str()), "{range}");
        assert!(got.body == bytes[start..end], "{range}");
    }
    for range in ["bytes=100000-", "bytes=-0", "bytes=99999999999999999999-"] {
        let got = ask(&server, "GET", "/file", &[("Range", range)]);
        assert_eq!((got.status, got.field("Content-Range")), (416, Some("bytes */100000")), "{range}");
    }
    for range in ["bytes=5-4", "lines=0-1", "bytes", "bytes=a-"] {
        let got = ask(&server, "GET", "/file", &[("Range", range)]);
        assert_eq!((got.status, got.body.len(), got.field("Content-Range")), (200, 100_000, None), "{range}");
    }
    let head = ask(&server, "HEAD", "/file", &[("Range", "bytes=0-0")]);
    assert_eq!((head.status, head.field("Content-Length")), (200, Some("100000")));
    assert_eq!(ask(&server, "GET", "/empty", &[("Range", "bytes=0-")]).status, 416);
    assert_eq!(ask(&server, "GET", "/empty", &[("Range", "bytes=-1")]).status, 200);
}

#[test]
fn a_range_depends_on_its_condition() {
    let folder = Folder::new();
    folder.write("file", "0123456789");
    let server = folder.serve(|files| files);
    let etag = get(&server, "/file").field("ETag").unwrap().to_owned();
    let weak = format!("W/{etag}");
    for (value, expected) in
        [(etag.as_str(), 206), ("\"other\"", 200), (&weak, 200), ("Sun, 06 Nov 1994 08:49:37 GMT", 200)]
    {
        let got = ask(&server, "GET", "/file", &[("Range", "bytes=1-2"), ("If-Range", value)]);
        assert_eq!(got.status, expected, "{value}");
    }
    let got = ask(&server, "GET", "/file", &[("Range", "bytes=1-2"), ("If-None-Match", &etag)]);
    assert_eq!(got.status, 304);
}

#[test]
fn several_ranges_are_parts_of_one_response() {
    let folder = Folder::new();
    let bytes = content(1_000_000);
    folder.write("file.css", &bytes);
    let server = folder.serve(|files| files);
    let got = ask(&server, "GET", "/file.css", &[("Range", "bytes=900000-,0-4, 100000-499999")]);
    assert_eq!(got.status, 206, "{}", got.head);
    let boundary = got.field("Content-Type").unwrap().strip_prefix("multipart/byteranges; boundary=").unwrap();
    assert_eq!(got.field("Content-Length"), Some(got.body.len().to_string().as_str()));
    assert_eq!(got.field("Content-Range"), None);
    let mut expected = Vec::new();
    for (start, end) in [(900_000, 1_000_000), (0, 5), (100_000, 500_000)] {
        let line_end = if expected.is_empty() { "" } else { "\r\n" };
        let head = format!(
            "{line_end}--{boundary}\r\nContent-Type: text/css; charset=utf-8\r\nContent-Range: bytes {start}-{}/1000000\r\n\r\n",
            end - 1
        );
        expected.extend_from_slice(head.as_bytes());
        expected.extend_from_slice(&bytes[start..end]);
    }
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(got.body == expected);
    let many = |count: usize| (0..count).map(|at| format!("{}-{}", at * 3, at * 3)).collect::<Vec<_>>().join(",");
    let got = ask(&server, "GET", "/file.css", &[("Range", &format!("bytes={}", many(16)))]);
    assert_eq!(got.status, 206);
    for count in [17, 1000] {
        let got = ask(&server, "GET", "/file.css", &[("Range", &format!("bytes={}", many(count)))]);
        assert_eq!((got.status, got.body.len()), (200, 1_000_000), "{count} ranges");
    }
}

#[test]
fn a_connection_goes_on_after_every_kind_of_response() {
    let folder = Folder::new();
    folder.write("file", "0123456789");
    folder.write("sub/index.html", "index");
    let server = folder.serve(|files| files.listing(true).precompressed(true));
    let one = |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
    let wire = [
        one("/file", ""),
        one("/file", "Range: bytes=0-1,5-6\r\n"),
        one("/file", "Range: bytes=1-1\r\n"),
        one("/sub", ""),
        one("/", ""),
        one("/file", "If-None-Match: *\r\n"),
        one("/../x", ""),
        one("/sub/", ""),
    ]
    .concat();
    let answer = server.exchange(&wire);
    let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect();
    assert_eq!(statuses, ["200", "206", "206", "308", "200", "304", "404", "200"], "{answer}");
    assert!(answer.ends_with("index"));
}

#[test]
fn a_precompressed_variant_is_chosen_by_the_peer() {
    let folder = Folder::new();
    folder.write("app.js", "plain");
    folder.write("app.js.br", "brotli");
    folder.write("app.js.gz", "gzip");
    folder.write("only.css.zst", "zstd");
    folder.write("index.html", "index");
    folder.write("index.html.gz", "index in gzip");
    fs::create_dir(folder.root.join("index.html.br")).unwrap();
    let server = folder.serve(|files| files.precompressed(true));
    for (accept, expected, encoding) in [
        (None, "plain", None),
        (Some(""), "plain", None),
        (Some("br;q=1, gzip;q=0.8"), "brotli", Some("br")),
        (Some("gzip, br"), "brotli", Some("br")),
        (Some("gzip, br;q=0.9"), "gzip", Some("gzip")),
        (Some("zstd, gzip;q=0.1"), "gzip", Some("gzip")),
        (Some("zstd"), "plain", None),
        (Some("br;q=0, *"), "gzip", Some("gzip")),
        (Some("identity, br;q=0.5"), "plain", None),
        (Some("identity;q=0, gzip"), "gzip", Some("gzip")),
    ] {
        let fields: Vec<_> = accept.map(|accept| ("Accept-Encoding", accept)).into_iter().collect();
        for _ in 0..2 {
            let got = ask(&server, "GET", "/app.js", &fields);
            assert_eq!(
                (got.status, got.text(), got.field("Content-Encoding")),
                (200, expected, encoding),
                "{accept:?}"
            );
            assert_eq!(got.field("Content-Type"), Some("text/javascript; charset=utf-8"));
            assert_eq!(got.field("Vary"), Some("Accept-Encoding"));
        }
    }
    let (plain, brotli) = (get(&server, "/app.js"), ask(&server, "GET", "/app.js", &[("Accept-Encoding", "br")]));
    assert_ne!(plain.field("ETag"), brotli.field("ETag"));
    let etag = plain.field("ETag").unwrap();
    let got = ask(&server, "GET", "/app.js", &[("Accept-Encoding", "br"), ("If-None-Match", etag)]);
    assert_eq!((got.status, got.text()), (200, "brotli"));
    let got = ask(&server, "GET", "/app.js", &[("Accept-Encoding", "br"), ("Range", "bytes=0-1")]);
    assert_eq!((got.status, got.text(), got.field("Content-Encoding")), (206, "br", Some("br")));
    let got = ask(&server, "GET", "/app.js", &[("Accept-Encoding", "identity;q=0, zstd")]);
    assert_eq!((got.status, got.field("Vary")), (406, Some("Accept-Encoding")));
    let got = ask(&server, "GET", "/", &[("Accept-Encoding", "br, gzip;q=0.5")]);
    assert_eq!((got.text(), got.field("Content-Encoding")), ("index in gzip", Some("gzip")));
    assert_eq!(ask(&server, "GET", "/only.css", &[("Accept-Encoding", "zstd")]).text(), "zstd");
    assert_eq!(get(&server, "/only.css").status, 404);
    assert_eq!(ask(&server, "GET", "/nothing", &[("Accept-Encoding", "*;q=0")]).status, 404);
    // The variant by its own name is a file like others.
    let got = get(&server, "/app.js.br");
    assert_eq!((got.text(), got.field("Content-Encoding")), ("brotli", None));
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_the_connection() {
    let folder = Folder::new();
    let bytes = content(64 * 1024 * 1024);
    let path = folder.write("file", &bytes);
    let server = folder.serve(|files| files);
    let mut stream = server.connect();
    // The second request would be answered in the place of the missing bytes.
    let wire = request("GET", "/file", &[]).replace("Connection: close\r\n", "").repeat(2);
    stream.write_all(wire.as_bytes()).unwrap();
    let mut received = vec![0; 1024];
    stream.read_exact(&mut received).unwrap();
    // The sockets have room for some of the file, not for all of it. The kernel shares its pages with the sockets, and
    // writes zeros to the page that a file ends within: an empty file has none.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest);
    received.extend_from_slice(&rest);
    let got = Got::of(&received);
    assert_eq!(got.field("Content-Length"), Some(bytes.len().to_string().as_str()));
    assert!(got.body.len() < bytes.len(), "{} bytes, {ended:?}", got.body.len());
    assert!(got.body == bytes[..got.body.len()], "only bytes of the file are sent");
}

#[test]
fn a_file_that_is_cut_in_its_middle_while_it_is_sent_ends_the_connection_on_each_driver() {
    let folder = Folder::new();
    let bytes = content(64 * 1024 * 1024);
    for backend in [Backend::Epoll, Backend::Uring] {
        let path = folder.write("file", &bytes);
        let Some(server) = folder.serve_on(backend) else { continue };
        let mut stream = server.connect();
        let wire = request("GET", "/file", &[]).replace("Connection: close\r\n", "").repeat(2);
        stream.write_all(wire.as_bytes()).unwrap();
        let mut received = vec![0; 1024];
        stream.read_exact(&mut received).unwrap();
        // Behind everything that the sockets have room for, and within a page.
        let length = 48 * 1024 * 1024 + 1_000;
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        let mut rest = Vec::new();
        // The connection is reset: bytes that the peer has not read by then may be lost.
        let _ = stream.read_to_end(&mut rest);
        received.extend_from_slice(&rest);
        let got = Got::of(&received);
        assert_eq!(got.field("Content-Length"), Some(bytes.len().to_string().as_str()), "{backend:?}");
        assert!(got.body.len() as u64 <= length, "{backend:?}: {} bytes", got.body.len());
        assert!(got.body == bytes[..got.body.len()], "{backend:?}: only bytes of the file are sent");
    }
}

#[test]
fn a_file_that_is_replaced_while_it_is_sent_is_sent_as_it_was() {
    let folder = Folder::new();
    let bytes = content(32 * 1024 * 1024);
    let path = folder.write("file", &bytes);
    let server = folder.serve(|files| files);
    let mut stream = server.connect();
    stream.write_all(request("GET", "/file", &[]).as_bytes()).unwrap();
    let mut received = vec![0; 1024];
    stream.read_exact(&mut received).unwrap();
    let new = folder.write("new", "new");
    fs::rename(new, &path).unwrap();
    stream.read_to_end(&mut received).unwrap();
    assert!(Got::of(&received).body == bytes);
    assert_eq!(get(&server, "/file").text(), "new");
    fs::remove_file(&path).unwrap();
    assert_eq!(get(&server, "/file").status, 404);
}

#[test]
fn a_file_that_is_kept_open_is_served_as_it_was_until_it_is_closed() {
    let folder = Folder::new();
    folder.write("file", "old");
    let kept = folder.serve(|files| files.keep_open(Duration::from_secs(3600)));
    let soon = folder.serve(|files| files.keep_open(Duration::from_millis(5)));
    for server in [&kept, &soon] {
        assert_eq!(get(server, "/file").text(), "old");
    }
    fs::rename(folder.write("new", "new one"), folder.root.join("file")).unwrap();
    assert_eq!(get(&kept, "/file").text(), "old");
    while get(&soon, "/file").text() == "old" {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(get(&soon, "/file").text(), "new one");
}
