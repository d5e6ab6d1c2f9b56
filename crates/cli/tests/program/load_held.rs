//! `tidegate load`: idle connections and connections that never read.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::load::{OK, Server, any_response, errors, load, load_until, only_errors, read_request, requests};
use crate::support::program::{Program, run, tidegate, until};

#[test]
fn idle_connections_are_reported_as_held_or_lost() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    let (code, figures, _) = load_until(&["-c", "2", "--idle", "90", &url], any_response);
    assert_eq!((code, &figures["idle"]["held"], &figures["idle"]["lost"]), (Some(0), &90.into(), &0.into()));

    // This server closes idle connections after a moment.
    let program = Program::serve(&["--loops", "1", "--idle-timeout", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    // In real time: a busy server closes them later.
    let mut loads = ["2500ms", "10s", "60s"].iter().map(|time| load(&["-c", "0", "--idle", "20", "-d", time, &url]));
    let all_lost = loads.find(|(_, figures, _)| figures["idle"]["lost"] == 20);
    let (code, figures, _) = all_lost.expect("the server closes them");
    assert_eq!((code, &figures["idle"]["held"]), (Some(1), &0.into()));
}

#[test]
fn a_never_reading_connection_is_reported_as_held() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/bytes/16384", program.ip());
    let arguments = ["-c", "10", "--never-read", "--pipeline", "256", &url];
    let (code, figures, _) = load_until(&arguments, |figures| figures["stuck"]["held"] == 10);
    assert_eq!((code, errors(&figures), requests(&figures)), (Some(0), vec![], 0), "{figures}");
    // Each connection was answered until its receive window was full.
    until("ten requests", || program.count("messages") >= 10);
}

#[test]
fn an_idle_connection_with_a_bad_response_is_closed() {
    // The server closes no connection before the load has: the end of each is that of the load.
    let ended_by_load = Arc::new(AtomicUsize::new(0));
    let ended = ended_by_load.clone();
    let server = Server::start(move |mut stream| {
        stream.set_read_timeout(None).unwrap();
        while read_request(&mut stream) {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno").unwrap();
        }
        ended.fetch_add(1, Ordering::Relaxed);
    });
    let (code, figures, _) = load(&["-c", "0", "-t", "1", "-d", "100ms", "--idle", "2", &server.url()]);
    until("the load to have closed both connections", || ended_by_load.load(Ordering::Relaxed) == 2);
    assert_eq!((code, only_errors(&figures)), (Some(1), ("status", 2)), "{figures}");
    assert_eq!(figures["idle"], json!({ "requested": 2, "held": 0, "lost": 0 }));
    let (_, table, _) = run(&["load", "-c", "0", "-t", "1", "-d", "100ms", "--idle", "2", &server.url()]);
    assert!(table.iter().any(|line| line == "Idle connections: held 0 of 2, lost 0"), "{table:?}");
}

#[test]
fn failing_idle_connections_do_not_time_out_one_by_one() {
    // 64 are opened concurrently: when these time out, the others are given up.
    let server = Server::start(|mut stream| while read_request(&mut stream) {});
    let (code, figures, _) = load(&["-c", "1", "-t", "1", "-d", "100ms", "--idle", "1000", &server.url()]);
    assert_eq!((code, only_errors(&figures)), (Some(1), ("timeout", 64)), "{figures}");
    assert_eq!(figures["idle"], json!({ "requested": 1000, "held": 0, "lost": 0 }));

    // All connections within the server's limit are held, including the last.
    let room = Arc::new(AtomicUsize::new(100));
    let server = Server::start(move |mut stream| {
        let take = |left: usize| left.checked_sub(1);
        let has_room = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        while has_room && read_request(&mut stream) && stream.write_all(OK).is_ok() {}
    });
    let (code, figures, _) = load(&["-c", "0", "-t", "1", "-d", "100ms", "--idle", "1000", &server.url()]);
    assert_eq!((code, &figures["idle"]), (Some(1), &json!({ "requested": 1000, "held": 100, "lost": 0 })), "{figures}");
}

#[test]
fn a_signal_ends_a_load_while_idle_connections_open() {
    for signal in [Signal::INT, Signal::TERM] {
        let asked = Arc::new(AtomicBool::new(false));
        let has_asked = asked.clone();
        let server = Server::start(move |mut stream| {
            while read_request(&mut stream) {
                has_asked.store(true, Ordering::Relaxed);
            }
        });
        let url = server.url();
        let arguments = ["-c", "1", "-t", "2", "-d", "1s", "--timeout", "1h", "--idle", "1000", "--json", "-", &url];
        let mut load = tidegate(&[&["load"], &arguments[..]].concat());
        let mut load = load.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        until("a request", || asked.load(Ordering::Relaxed));
        rustix::process::kill_process(Pid::from_child(&load), signal).expect("it runs");
        until("its end", || load.try_wait().expect("a child").is_some());
        let output = load.wait_with_output().expect("it has ended");
        let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((output.status.code(), requests(&figures), errors(&figures)), (Some(1), 0, vec![]), "{figures}");
        assert_eq!(figures["idle"], json!({ "requested": 1000, "held": 0, "lost": 0 }));
    }
}

#[test]
fn a_server_that_closes_a_never_reading_connection_is_reported() {
    let closing = Server::start(|mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end");
    });
    let arguments = ["-c", "3", "-t", "2", "--never-read", &closing.url()];
    let (code, figures, _) = load_until(&arguments, |figures| figures["stuck"]["lost"] == 3);
    assert_eq!((code, errors(&figures)), (Some(1), vec![]), "{figures}");
    assert_eq!(figures["stuck"]["held"], 0, "{figures}");
}

#[test]
fn responses_to_idle_connections_are_not_in_bytes_read() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/bytes/1000000", program.ip());
    let (code, figures, _) = load_until(&["-c", "1", "-t", "1", "--rate", "1", "--idle", "30", &url], any_response);
    assert_eq!((code, &figures["idle"]["held"]), (Some(0), &30.into()), "{figures}");
    let most = (requests(&figures) + 1) * 1_001_000;
    assert!(figures["bytes_read"].as_u64() <= Some(most), "{figures}");
}

#[test]
fn threads_start_together_after_all_idle_connections_are_open() {
    let (is_held, is_early) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (held, early) = (is_held.clone(), is_early.clone());
    let server = Server::start(move |mut stream| {
        // Idle connections have a different source address.
        let is_idle = stream.peer_addr().is_ok_and(|address| address.ip().to_string() != "127.0.0.1");
        while read_request(&mut stream) {
            if is_idle {
                std::thread::sleep(Duration::from_millis(500));
                held.store(true, Ordering::Relaxed);
            } else if !held.load(Ordering::Relaxed) {
                early.store(true, Ordering::Relaxed);
            }
            if stream.write_all(OK).is_err() {
                break;
            }
        }
    });
    let (code, figures, _) = load_until(&["-c", "2", "-t", "2", "--idle", "1", &server.url()], any_response);
    assert_eq!((code, &figures["idle"]["held"]), (Some(0), &1.into()), "{figures}");
    assert!(is_held.load(Ordering::Relaxed) && !is_early.load(Ordering::Relaxed), "one thread started early");
}

#[test]
fn a_thread_with_idle_connections_only_has_no_rate() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    // Only one thread sends requests. Rates are those of whole intervals, and a short load has few.
    load_until(&["-c", "1", "-t", "4", "--idle", "4", &url], |figures| {
        let (mean, all) = (figures["thread_rate"]["mean"].as_f64(), figures["requests_per_second"].as_f64());
        any_response(figures) && mean > all.map(|all| all / 2.0)
    });
}
