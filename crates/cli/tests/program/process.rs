//! The program as a process: start, output, signals and exit.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::peer::{Peer, assert_same, letters, post, request};
use crate::support::program::{Directory, Program, backend, run, tidegate, until};

#[test]
fn the_start_up_line_names_address_backend_and_loops() {
    for (arguments, backend, loops) in [
        (&["--loops", "1"][..], backend(), "1 loop"),
        (&["--loops", "2", "--backend", "epoll"], "epoll", "2 loops"),
        (&["--loops", "1", "--quiet"], backend(), "1 loop"),
    ] {
        let mut program = Program::serve(arguments);
        let expected = format!("tidegate: listening on http://{} ({backend}, {loops})", program.ip());
        assert_eq!(program.line, expected);
        assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
        program.signal(Signal::TERM);
        assert_eq!(program.until_ended().code(), Some(0));
        assert_eq!((program.output().len(), program.log_without_drain()), (1, vec![]));
    }
}

#[test]
fn settings_that_differ_and_names_of_certificates_follow_the_start_up_line() {
    let arguments = ["--loops", "1", "--max-connections", "100", "--idle-timeout", "10", "--age-max", "600"];
    let mut program = Program::serve(&[&arguments[..], &["--tls-self-signed"]].concat());
    until("the settings", || program.output().len() == 4);
    let lines = program.output();
    assert_eq!(lines[1..3], ["tidegate: protocols: HTTP/1.1, HTTP/2", "tidegate: TLS: certificates for localhost"]);
    let settings = lines[3].strip_prefix("tidegate: settings: connections 100 (default ").expect(&lines[3]);
    assert!(settings.ends_with("age 600 s (default none), idle timeout 10 s (default 75 s)"), "{lines:?}");
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
    let mut program = Program::serve(&[&arguments[..], &["--quiet"]].concat());
    program.signal(Signal::TERM);
    assert_eq!((program.until_ended().code(), program.output().len()), (Some(0), 1));
}

#[test]
fn several_addresses_have_one_set_of_loops_and_one_drain() {
    let directory = Directory::new();
    let unix = format!("unix:{}", directory.path("http.sock"));
    let mut program = Program::at(&unix, &["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--loops", "2"]);
    until("a line for each address", || program.output().len() == 3);
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
    for line in &program.output()[1..] {
        let address = line.strip_prefix("tidegate: listening on http://").expect("an address");
        assert!(address.ends_with("2 loops)"), "{line}");
        let address: std::net::SocketAddr = address.split(' ').next().unwrap().parse().expect("an address");
        assert_eq!(Peer::to(&address.into()).get("/plaintext").status, 200);
    }
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
    assert_eq!(program.log_without_drain(), Vec::<String>::new());
}

#[test]
fn addresses_in_use_among_others_are_all_named_and_nothing_starts() {
    let program = Program::serve(&["--loops", "1", "--listen", "127.0.0.1:0"]);
    until("a line for each address", || program.output().len() == 2);
    let host = |line: &str| line.split("http://").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let [first, second] = [host(&program.output()[0]), host(&program.output()[1])];
    let directory = Directory::new();
    let free = format!("unix:{}", directory.path("http.sock"));
    let (code, output, errors) = run(&["serve", "--listen", &first, "--listen", &free, "--listen", &second]);
    assert_eq!((code, output.len(), errors.len()), (Some(2), 0, 1), "{output:?} {errors:?}");
    assert!(errors[0].contains(&first) && errors[0].contains(&second), "{errors:?}");
    assert!(!std::path::Path::new(&directory.path("http.sock")).exists());
}

#[test]
fn the_default_is_one_loop_per_core() {
    let cores = std::thread::available_parallelism().unwrap();
    let program = Program::serve(&[]);
    assert!(program.line.contains(&format!(", {cores} loop")), "{}", program.line);
}

#[test]
fn a_port_in_use_is_one_error_line_and_exit_code_2() {
    for loops in ["1", "2"] {
        let program = Program::serve(&["--loops", loops]);
        let address = program.ip().to_string();
        for other_loops in ["1", "2"] {
            let (code, output, errors) = run(&["serve", "--listen", &address, "--loops", other_loops]);
            assert_eq!((code, output.len(), errors.len()), (Some(2), 0, 1), "{output:?} {errors:?}");
            assert!(errors[0].starts_with("tidegate: ") && errors[0].contains(&address), "{errors:?}");
            assert!(errors[0].contains("in use"), "{errors:?}");
        }
        assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
    }
}

#[test]
fn a_unix_socket_in_use_is_one_error_line_and_exit_code_2() {
    let directory = Directory::new();
    let address = format!("unix:{}", directory.path("http.sock"));
    let program = Program::at(&address, &["--loops", "1"]);
    let (code, output, errors) = run(&["serve", "--listen", &address]);
    assert_eq!((code, output.len(), errors.len()), (Some(2), 0, 1), "{errors:?}");
    assert!(errors[0].contains(&address) && errors[0].contains("in use"), "{errors:?}");
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
}

#[test]
fn usage_errors_are_one_line_and_exit_code_2() {
    let directory = Directory::new();
    let nowhere = format!("unix:{}/nowhere/http.sock", directory.path("."));
    let lost = directory.path("lost/takeover");
    let file = directory.path("precious");
    std::fs::write(&file, "precious").unwrap();
    for (arguments, named) in [
        (&["serve", "--bogus"][..], "--bogus"),
        (&["serve", "extra"], "extra"),
        (&["serve", "--listen"], "--listen"),
        (&["serve", "--listen", "harbour"], "harbour"),
        (&["serve", "--listen", "127.0.0.1"], "127.0.0.1"),
        (&["serve", "--listen", "127.0.0.1:65536"], "65536"),
        // A documentation address, which no interface has (RFC 5737).
        (&["serve", "--listen", "192.0.2.1:80"], "192.0.2.1:80"),
        (&["serve", "--listen", &nowhere], "nowhere"),
        (&["serve", "--takeover"], "--takeover"),
        (&["serve", "--listen", "127.0.0.1:0", "--takeover", &lost], "lost/takeover"),
        (&["serve", "--listen", "127.0.0.1:0", "--takeover", &file], "precious"),
        (&["serve", "--loops", "0"], "--loops"),
        (&["serve", "--loops", "-1"], "-1"),
        (&["serve", "--loops", "two"], "two"),
        (&["serve", "--backend", "pigeon"], "pigeon"),
        (&["serve", "--max-connections", "0"], "--max-connections"),
        (&["serve", "--memory-max", "12"], "--memory-max"),
        (&["serve", "--memory-max", "1e9"], "1e9"),
        (&["serve", "--request-timeout", "0"], "--request-timeout"),
        (&["serve", "--idle-timeout", "0"], "--idle-timeout"),
        (&["serve", "--write-timeout", "soon"], "soon"),
        (&["serve", "--body-rate-min", "-1"], "-1"),
        (&["serve", "--write-rate-min", "fast"], "fast"),
        (&["serve", "--quiet=yes"], "--quiet"),
        (&["sail"], "sail"),
        (&[], "subcommand"),
    ] {
        let (code, output, errors) = run(arguments);
        assert_eq!((code, output.len(), errors.len()), (Some(2), 0, 1), "{arguments:?}: {output:?} {errors:?}");
        assert!(errors[0].starts_with("tidegate: ") && errors[0].contains(named), "{arguments:?}: {errors:?}");
    }
}

#[test]
fn an_argument_that_is_no_text_is_a_usage_error() {
    for arguments in [&[&b"\xff"[..]][..], &[b"serve", b"--listen", b"\xff"]] {
        let mut command = tidegate(&[]);
        command.args(arguments.iter().map(|argument| OsStr::from_bytes(argument))).stdin(Stdio::null());
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    }
}

#[test]
fn help_and_version_are_printed_on_standard_output() {
    for arguments in [&["--help"][..], &["help"], &["serve", "--help"], &["help", "serve"], &["--version"]] {
        let (code, output, errors) = run(arguments);
        assert_eq!((code, errors.len()), (Some(0), 0), "{errors:?}");
        assert!(!output.is_empty());
    }
    let help = run(&["serve", "--help"]).1.join("\n");
    for flag in [
        "--listen",
        "--loops",
        "--backend",
        "--max-connections",
        "--memory-max",
        "--request-timeout",
        "--idle-timeout",
        "--write-timeout",
        "--body-rate-min",
        "--write-rate-min",
        "--takeover",
        "--quiet",
    ] {
        assert!(help.contains(flag), "{flag} is missing: {help}");
    }
}

#[test]
fn a_port_can_be_reused_right_after_exit() {
    let mut program = Program::serve(&["--loops", "1"]);
    let address = program.ip().to_string();
    // The server closes first, so its side of these connections stays in TIME_WAIT.
    let mut peers: Vec<_> = (0..3).map(|_| Peer::connect(&program)).collect();
    for peer in &mut peers {
        assert_eq!(peer.exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").status, 200);
        peer.expect_end();
    }
    drop(peers);
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
    for loops in ["1", "2"] {
        let mut again = Program::at(&address, &["--loops", loops]);
        assert_eq!(Peer::connect(&again).get("/plaintext").status, 200);
        again.signal(Signal::TERM);
        assert_eq!(again.until_ended().code(), Some(0));
    }
}

#[test]
fn a_signal_drains_and_exits_with_success() {
    for (signal, loops) in [(Signal::TERM, "1"), (Signal::INT, "1"), (Signal::TERM, "2"), (Signal::INT, "2")] {
        let mut program = Program::serve(&["--loops", loops]);
        let mut idle: Vec<_> = (0..5).map(|_| Peer::connect(&program)).collect();
        for peer in &mut idle {
            assert_eq!(peer.get("/plaintext").status, 200);
        }
        let mut silent = Peer::connect(&program);
        // More than the kernel's buffers hold.
        let mut slow = Peer::connect(&program);
        slow.send(request("GET", "/bytes/16000000"));
        assert!(slow.head().contains("Content-Length: 16000000\r\n"));

        program.signal(signal);
        // Connections that are idle between two requests, or before the first, are closed after a moment.
        for peer in &mut idle {
            peer.expect_end();
        }
        silent.expect_end();
        drop((idle, silent));
        assert!(program.is_running());
        refuses_new_connections(&program);
        // A response in progress is sent completely.
        assert_same(&slow.take(16_000_000), &letters(16_000_000));
        slow.expect_end();
        drop(slow);
        assert_eq!(program.until_ended().code(), Some(0));
        assert_eq!(program.log_without_drain(), Vec::<String>::new());
    }
}

/// The response has `Connection: close` if its head was not sent before the drain.
#[test]
fn a_request_in_progress_is_answered_during_the_drain() {
    let mut program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::connect(&program);
    let wire = post("/plaintext", b"");
    peer.send(&wire[..wire.len() - 2]);
    let mut body = Peer::connect(&program);
    let upload = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234";
    body.send(upload);
    assert_eq!(crate::support::peer::status(&body.head()), 200);
    let sent = (wire.len() - 2 + upload.len()) as u64;
    until("both requests to be received", || program.count("received_bytes") >= sent);

    program.signal(Signal::TERM);
    until("the listener to be gone", || Peer::try_to(&program.address(), None).is_err());
    peer.send(&wire[wire.len() - 2..]);
    let reply = peer.reply();
    assert_eq!((reply.status, reply.field("connection")), (405, Some("close")));
    peer.expect_end();
    body.send(b"56789");
    assert_eq!(body.take(10), b"0123456789");
    body.expect_end();
    drop((peer, body));
    assert_eq!(program.until_ended().code(), Some(0));
}

/// The peer sent the later requests of the batch before it could know of the drain.
#[test]
fn a_drain_ends_a_pipelined_batch_with_a_complete_response() {
    let mut program = Program::serve(&["--loops", "1"]);
    let mut peer = Peer::narrow(&program);
    peer.send(request("GET", "/bytes/3000000").repeat(20));
    let mut replies = vec![peer.reply()];
    program.signal(Signal::TERM);
    until("the listener to be gone", || Peer::try_to(&program.address(), None).is_err());
    let rest = peer.rest().expect("no reset before everything was read");
    let mut whole = rest.len();
    while whole > 0 {
        let head =
            rest[rest.len() - whole..].windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head") + 4;
        assert!(whole >= head + 3_000_000, "the last response is cut off");
        whole -= head + 3_000_000;
        replies.push(replies[0].clone());
    }
    assert!(replies.len() <= 20);
    drop(peer);
    assert_eq!(program.until_ended().code(), Some(0));
}

#[test]
fn a_second_signal_cuts_the_drain_short() {
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::INT, Signal::INT), (Signal::TERM, Signal::INT)] {
        let mut program = Program::serve(&["--loops", "1"]);
        let mut slow = Peer::narrow(&program);
        slow.send(request("GET", "/bytes/50000000"));
        slow.head();
        program.signal(first);
        until("the listener to be gone", || Peer::try_to(&program.address(), None).is_err());
        assert!(program.is_running());
        // The counts are still served while the server drains.
        until("the loop to publish its counts", || program.count("connections") == 1);
        program.signal(second);
        assert_eq!(program.until_ended().code(), Some(130));
    }
}

/// The exit takes as long as the drain deadline, which is shorter than this test waits.
#[test]
fn a_never_reading_peer_cannot_prevent_exit() {
    let mut program = Program::serve(&["--loops", "2"]);
    let mut stuck: Vec<_> = (0..4).map(|_| Peer::narrow(&program)).collect();
    for peer in &mut stuck {
        peer.send(request("GET", "/bytes/50000000"));
        peer.head();
    }
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
}

#[test]
fn sigusr1_prints_the_counts_and_ends_nothing() {
    let mut program = Program::serve(&["--loops", "2", "--quiet"]);
    let mut peer = Peer::connect(&program);
    for _ in 0..3 {
        assert_eq!(peer.get("/plaintext").status, 200);
    }
    until("the loop to publish its counts", || program.count("messages") >= 3);
    assert_eq!((program.count("connections"), program.count("accepted")), (1, 1));
    assert_eq!(peer.get("/plaintext").status, 200);
    drop(peer);
    until("the connection to be counted out", || program.count("connections") == 0);
    assert_eq!(program.count("closed_done"), 1);
    // SIGUSR1 does not count as the first of two termination signals.
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
}

#[test]
fn a_quiet_server_does_not_log_errors_of_peers() {
    for (arguments, lines) in [(&["--loops", "1", "--quiet"][..], 0), (&["--loops", "1"], 3)] {
        let mut program = Program::serve(arguments);
        for wire in ["nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /\n\n"] {
            let mut peer = Peer::connect(&program);
            assert!(peer.exchange(wire).status >= 400);
            peer.expect_end();
        }
        program.signal(Signal::TERM);
        assert_eq!(program.until_ended().code(), Some(0));
        // A line about the drain is there as well if it begins before the server has seen the end of the last connection.
        let count = || program.log().iter().filter(|line| !line.contains("draining for up to")).count();
        until("the end of the log", || count() >= lines);
        assert_eq!(count(), lines, "{:?}", program.log());
    }
}

#[test]
fn closed_output_streams_do_not_stop_the_server() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // A fixed address, since the start-up line cannot be read.
    let directory = Directory::new();
    let path = directory.path("http.sock");
    let mut command = tidegate(&["serve", "--loops", "1", "--listen", &format!("unix:{path}")]);
    let mut child = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
    let address = socket2::SockAddr::unix(&path).unwrap();
    until("the server", || Peer::try_to(&address, None).is_ok());
    assert_eq!(Peer::to(&address).exchange("nonsense\r\n\r\n").status, 400);
    assert_eq!(Peer::to(&address).get("/plaintext").status, 200);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

fn refuses_new_connections(program: &Program) {
    until("new connections to be refused", || {
        Peer::try_to(&program.address(), None).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
}
