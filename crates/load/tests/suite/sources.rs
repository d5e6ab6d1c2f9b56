//! Requests from a file, a HAR file and a line of curl, as a server receives them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use crate::support::{ScriptedServer, TemporaryFile, load, refused};

type Seen = Arc<Mutex<BTreeSet<String>>>;

/// A server that keeps each different request: its line, the fields that begin with `X-`, and its body.
fn server() -> (ScriptedServer, Seen) {
    let seen = Seen::default();
    let requests = seen.clone();
    let server = ScriptedServer::start(move |stream| while answer(&stream, &requests).is_some() {});
    (server, seen)
}

fn answer(stream: &TcpStream, seen: &Seen) -> Option<()> {
    let mut reader = BufReader::with_capacity(1, stream);
    let (mut request, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if request.is_empty() || lower.starts_with("x-") {
            request.push_str(line.trim_end());
            request.push('|');
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    request.push_str(&String::from_utf8_lossy(&body));
    seen.lock().expect("no panic").insert(request);
    let status = if length > 0 { "201 Created" } else { "200 OK" };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
    (&mut &*stream).write_all(&[head.as_bytes(), &body].concat()).ok()
}

fn file(text: &str) -> TemporaryFile {
    let file = TemporaryFile::new();
    std::fs::write(&file.0, text).expect("it is written");
    file
}

/// Loads with these flags, and returns the different requests.
fn seen(arguments: &[&str], server: &ScriptedServer, seen: &Seen) -> Vec<String> {
    seen.lock().expect("no panic").clear();
    let (is_good, figures) = load(&[&["-n", "30", "-c", "2", "--pipeline", "3"], arguments].concat());
    assert!(is_good && figures["requests"] == 30, "{figures}");
    assert!(figures["url"].as_str().is_some_and(|url| url.contains(&server.address.to_string())), "{figures}");
    seen.lock().expect("no panic").iter().cloned().collect()
}

#[test]
fn every_line_of_a_file_is_requested() {
    let (server, requests) = server();
    let base = format!("http://{}/", server.address);
    let lines =
        format!("GET /a\nPUT {base}b ebb\n{{\"url\": \"/c\", \"headers\": {{\"X-Tide\": \"high\"}}}}\nHEAD /d\n");
    let file = file(&lines);
    let path = file.0.to_str().expect("a text");
    let expected =
        ["GET /a HTTP/1.1|X-All: 1|", "GET /c HTTP/1.1|X-All: 1|X-Tide: high|", "HEAD /d HTTP/1.1|X-All: 1|"];
    let found = seen(&["--requests", path, "-H", "X-All: 1", &base], &server, &requests);
    assert_eq!(found, [&expected[..], &["PUT /b HTTP/1.1|X-All: 1|ebb"]].concat());
}

#[test]
fn the_requests_of_a_har_file_are_sent() {
    let (server, requests) = server();
    let entry = |method: &str, target: &str, rest: &str| {
        format!("{{\"request\": {{\"method\": \"{method}\", \"url\": \"http://{}{target}\"{rest}}}}}", server.address)
    };
    let post = ", \"headers\": [{\"name\": \"X-A\", \"value\": \"b\"}], \"postData\": {\"text\": \"flow\"}";
    let entries = [entry("GET", "/a?b", ""), entry("POST", "/c", post)].join(",");
    let file = file(&format!("{{\"log\": {{\"entries\": [{entries}]}}}}"));
    let found = seen(&["--har", file.0.to_str().expect("a text")], &server, &requests);
    assert_eq!(found, ["GET /a?b HTTP/1.1|", "POST /c HTTP/1.1|X-A: b|flow"]);
}

#[test]
fn a_line_of_curl_is_the_request() {
    let (server, requests) = server();
    let line =
        format!("curl -X PATCH 'http://{}/a' -H 'X-A: b c' --data-raw '{{\"d\": 1}}' --compressed", server.address);
    assert_eq!(seen(&["--curl", &line], &server, &requests), ["PATCH /a HTTP/1.1|X-A: b c|{\"d\": 1}"]);
}

#[test]
fn sources_that_cannot_be_used_are_refused() {
    let (empty, two) = (file("# nothing\n"), file("GET http://127.0.0.1:1/\nGET http://127.0.0.1:2/\n"));
    let (wrong, redis) = (file("GET http://127.0.0.1:1/\nGE T\n"), file("GET redis://127.0.0.1:1/\n"));
    let path = |file: &TemporaryFile| file.0.to_str().expect("a text").to_owned();
    for (arguments, part) in [
        (&["--requests", &path(&empty)][..], "no request"),
        (&["--requests", &path(&two)], "on two"),
        (&["--requests", &path(&wrong)], "line 2"),
        (&["--requests", &path(&redis)], "are for HTTP"),
        (&["--requests", "/nowhere"], "/nowhere"),
        (&["--requests", "/nowhere", "--har", "/nowhere"], "cannot be used with"),
        (&["--har", &path(&two)], "no HAR file"),
        (&["--curl", "curl 'http://a"], "--curl: a quote"),
        (&["--curl", "curl --fly http://a"], "--fly"),
        (&[], "<URL>"),
    ] {
        let error = refused(arguments);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}
