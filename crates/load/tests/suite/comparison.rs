//! A load that is compared with an earlier one, and one whose rate or connections grow.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{ScriptedServer, TemporaryFile, load, refused};

fn server() -> ScriptedServer {
    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nebbs";
    ScriptedServer::answering(OK, OK)
}

#[test]
fn the_output_of_one_load_is_the_baseline_of_the_next() {
    let (server, file) = (server(), TemporaryFile::new());
    let (url, path) = (format!("http://{}/", server.address), file.0.to_str().expect("a text"));
    let (_, before) = load(&["-n", "50", "-c", "1", &url]);
    assert!(before["baseline"].is_null());
    std::fs::write(&file.0, before.to_string()).expect("it is written");
    let (is_good, figures) = load(&["-n", "50", "-c", "2", "--baseline", path, &url]);
    assert!(is_good && figures["baseline"]["file"] == path, "{figures}");
    assert!(figures["baseline"]["ratios"]["requests a second"].as_f64() > Some(0.0), "{figures}");
    let verdict = figures["baseline"]["verdict"].as_str().expect("a text");
    assert!(verdict.contains("the loads differ in connections, threads"), "{verdict}");
}

#[test]
fn what_is_no_baseline_of_this_load_is_refused_before_the_start() {
    let (server, file) = (server(), TemporaryFile::new());
    let (url, path) = (format!("http://{}/", server.address), file.0.to_str().expect("a text"));
    let (_, before) = load(&["-n", "1", &url]);
    for (text, url, part) in [
        (before.to_string(), "redis://127.0.0.1:1/", "is a load of http"),
        ("{}".to_owned(), &*url, "no output of --json"),
        ("<html>".to_owned(), &url, "no JSON"),
    ] {
        std::fs::write(&file.0, text).expect("it is written");
        let error = refused(&["--baseline", path, url]);
        assert!(error.contains(part), "{error}");
    }
    assert!(refused(&["--baseline", "/nowhere", &url]).contains("/nowhere"));
}

#[test]
fn neither_connections_nor_requests_are_ahead_of_the_ramp() {
    const CONNECTIONS: u32 = 20;
    const RAMP: Duration = Duration::from_millis(600);
    // The times of requests, each with the number of its connection.
    let seen = Arc::new(Mutex::new(Vec::<(Instant, usize)>::new()));
    let (noted, count) = (seen.clone(), AtomicUsize::new(0));
    let server = ScriptedServer::start(move |mut stream| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            noted.lock().expect("no panic").push((Instant::now(), number));
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                break;
            }
        }
    });
    let url = format!("http://{}/", server.address);
    let requests = |arguments: &[&str]| {
        let begun = Instant::now();
        let (is_good, figures) = load(&[arguments, &["-c", "20", "--ramp", "600ms", &url]].concat());
        assert!(is_good || figures["requests"] == 0, "{figures}");
        (begun, std::mem::take(&mut *seen.lock().expect("no panic")))
    };
    // A busy machine may be late; `schedule.rs` and `worker.rs` have tests of the exact times.
    let (begun, all) = requests(&["-t", "2", "-d", "600ms"]);
    for (at, number) in all {
        let due = RAMP * u32::try_from(number).expect("few") / CONNECTIONS;
        assert!(at - begun >= due, "connection {number} after {:?}, not {due:?}", at - begun);
    }
    // 200 in a second are reached after 600 ms, with the 60th request.
    let (begun, mut all) = requests(&["-t", "1", "-n", "60", "--rate", "200"]);
    all.sort_unstable();
    for (number, (at, _)) in all.into_iter().enumerate() {
        let due = RAMP.mul_f64((number as f64 / 60.0).sqrt());
        assert!(at - begun >= due, "request {number} after {:?}, not {due:?}", at - begun);
    }
    assert!(refused(&["-d", "1s", "--ramp", "2s", &url]).contains("--ramp is longer"));
}
