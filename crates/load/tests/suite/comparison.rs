//! A load that is compared with an earlier one, and one whose rate or connections grow.

use std::time::Duration;

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
fn connections_and_rates_grow_within_the_ramp() {
    // The server answers slowly, so that the number of connections decides how many requests there are.
    let slow = ScriptedServer::start(|mut stream| {
        use std::io::{Read, Write};
        while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            std::thread::sleep(Duration::from_millis(20));
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                break;
            }
        }
    });
    let url = format!("http://{}/", slow.address);
    let halves = |arguments: &[&str]| {
        let (_, figures) = load(&[arguments, &["-c", "20", "-t", "2", "-d", "2s", "--ramp", "2s", &url]].concat());
        let intervals = figures["over_time"].as_array().expect("intervals");
        let sum = |late: bool| -> u64 {
            let halves = intervals.iter().filter(|one| (one["seconds"].as_f64() > Some(1.05)) == late);
            halves.map(|one| one["requests"].as_u64().expect("a count")).sum()
        };
        (sum(false), sum(true))
    };
    // A quarter of the requests of an even growth are in its first half.
    for arguments in [&[][..], &["--rate", "200"]] {
        let (first, second) = halves(arguments);
        assert!(first > 0 && 2 * first < second, "{arguments:?}: {first} and {second}");
    }
    assert!(refused(&["-d", "1s", "--ramp", "2s", &url]).contains("--ramp is longer"));
}
