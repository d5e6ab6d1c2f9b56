//! Backend selection: the precedence of flag, environment and default, and the fallback where io_uring is unavailable.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use rustix::process::Signal;

use crate::faults::{assert_no_start, can_trace};
use crate::support::peer::{Peer, assert_same, letters};
use crate::support::program::{
    Directory, Program, VARIABLE, can_use_uring, ending_with_the_test, refused, strace, tidegate,
};

#[test]
fn backend_precedence_is_flag_then_environment_then_auto() {
    // The flag, the variable, and the expected backend.
    for (flag, variable, backend) in [
        (Some("epoll"), Some("uring"), "epoll"),
        (Some("epoll"), Some("pigeon"), "epoll"),
        (Some("epoll"), None, "epoll"),
        (Some("auto"), Some("epoll"), "epoll"),
        (None, Some("epoll"), "epoll"),
        (Some("uring"), Some("epoll"), "uring"),
        (Some("uring"), None, "uring"),
        (Some("auto"), Some("uring"), "uring"),
        (None, Some("uring"), "uring"),
        (Some("auto"), Some("auto"), "uring"),
        (Some("auto"), Some(""), "uring"),
        (Some("auto"), None, "uring"),
        (None, None, "uring"),
    ] {
        if backend == "uring" && !can_use_uring() {
            return;
        }
        let mut program = Program::start(command(flag, variable.map(OsStr::new))).unwrap();
        assert!(program.line.ends_with(&format!(" ({backend}, 2 loops)")), "{flag:?} {variable:?}: {}", program.line);
        assert_serves(&mut program);
        assert_eq!(program.log_without_drain(), Vec::<String>::new());
    }
}

#[test]
fn an_unknown_backend_is_one_error_line_and_exit_code_2() {
    for (flag, variable, named) in [
        (None, Some(OsStr::new("pigeon")), "TIDEGATE_BACKEND is 'pigeon'"),
        (Some("auto"), Some(OsStr::new("io_uring")), "TIDEGATE_BACKEND is 'io_uring'"),
        (None, Some(OsStr::new("EPOLL")), "TIDEGATE_BACKEND is 'EPOLL'"),
        (None, Some(OsStr::from_bytes(b"epoll\xff")), "TIDEGATE_BACKEND is 'epoll"),
        (Some("pigeon"), Some(OsStr::new("epoll")), "'pigeon'"),
        (Some(""), Some(OsStr::new("epoll")), "--backend"),
    ] {
        let (code, errors) = refused(command(flag, variable));
        assert_eq!((code, errors.len()), (Some(2), 1), "{errors:?}");
        assert!(errors[0].starts_with("tidegate: ") && errors[0].contains(named), "{errors:?}");
    }
}

#[test]
fn without_io_uring_auto_falls_back_to_epoll_and_logs_one_line() {
    if !can_trace() {
        return;
    }
    // Sandboxes, kernels without io_uring, kernels that are too old, limits.
    for (error, why) in [
        ("EPERM", "Operation not permitted"),
        ("EACCES", "Permission denied"),
        ("ENOSYS", "Function not implemented"),
        ("EINVAL", "Invalid argument"),
        ("ENOMEM", "locked memory"),
        ("EMFILE", "Too many open files"),
    ] {
        let mut program = start_under(&format!("io_uring_setup:error={error}"), &[]);
        assert!(program.line.ends_with(" (epoll, 2 loops)"), "{error}: {}", program.line);
        assert_serves(&mut program);
        assert_fallback(&program, why);
    }
    // With --quiet the fallback is not logged.
    let mut program = start_under("io_uring_setup:error=EPERM", &["--quiet"]);
    assert_serves(&mut program);
    assert_eq!(program.log(), Vec::<String>::new());
}

/// A seccomp filter may block only some of the io_uring calls.
#[test]
fn with_io_uring_incomplete_auto_falls_back_to_epoll() {
    if !can_trace() || !can_use_uring() {
        return;
    }
    let mut program = start_under("io_uring_register:error=EPERM", &[]);
    assert!(program.line.ends_with(" (epoll, 2 loops)"), "{}", program.line);
    assert_serves(&mut program);
    assert_fallback(&program, "Operation not permitted");
}

#[test]
fn without_io_uring_the_uring_backend_is_an_error_and_exit_code_2() {
    if !can_trace() {
        return;
    }
    for (error, why) in [
        ("EPERM", "kernel.io_uring_disabled"),
        ("EACCES", "sandbox"),
        ("ENOSYS", "Function not implemented"),
        ("EINVAL", "Invalid argument"),
        ("ENOMEM", "locked memory"),
        ("EMFILE", "Too many open files"),
    ] {
        let line = assert_no_start("uring", &format!("io_uring_setup:error={error}"));
        assert!(line.starts_with("tidegate: cannot use io_uring: ") && line.contains(why), "{error}: {line}");
        assert!(line.contains("choose epoll"), "{error}: {line}");
    }
    let directory = Directory::new();
    let mut command = strace(&["io_uring_setup:error=EPERM"], &directory.path("strace"));
    command.args(SERVE).env(VARIABLE, "uring");
    let (code, errors) = refused(command);
    assert_eq!((code, errors.len()), (Some(2), 1), "{errors:?}");
    assert!(errors[0].starts_with("tidegate: cannot use io_uring: "), "{errors:?}");
}

#[test]
fn with_any_descriptor_limit_the_server_starts_or_reports_why_not() {
    for backend in ["epoll", "uring", "auto"] {
        if backend == "uring" && !can_use_uring() {
            continue;
        }
        let mut has_started = false;
        for count in 4..24 {
            let limited = limited(&format!("-n {count}"), backend);
            match Program::start(limited) {
                Ok(mut program) => {
                    has_started = true;
                    program.signal(Signal::TERM);
                    assert_eq!(program.until_ended().code(), Some(0), "{backend}, {count}: {:?}", program.log());
                }
                Err(said) => {
                    assert!(!has_started, "{backend}: {count} descriptors are too few, and fewer are not: {said:?}");
                    let last = said.last().expect("the reason is printed");
                    assert!(last.contains("Too many open files") || count < 6, "{backend}, {count}: {said:?}");
                }
            }
        }
        assert!(has_started, "{backend}");
    }
}

/// Kernels before 5.12 charge the rings to RLIMIT_MEMLOCK; later ones charge only memory that the program does not use.
/// The limit does not apply to root.
#[test]
fn without_lockable_memory_the_server_starts_or_reports_why_not() {
    for backend in ["auto", "uring"] {
        if backend == "uring" && !can_use_uring() {
            continue;
        }
        match Program::start(limited("-l 0", backend)) {
            Ok(mut program) => assert_serves(&mut program),
            Err(said) => {
                assert!(backend == "uring" && said.len() == 1 && said[0].contains("locked memory"), "{said:?}");
            }
        }
    }
}

/// `tidegate serve` with a flag and a variable.
fn command(flag: Option<&str>, variable: Option<&OsStr>) -> Command {
    let mut command = tidegate(&SERVE);
    if let Some(name) = flag {
        command.args(["--backend", name]);
    }
    match variable {
        Some(value) => command.env(VARIABLE, value),
        None => command.env_remove(VARIABLE),
    };
    command
}

/// `tidegate serve` with a limit of the shell.
fn limited(limit: &str, backend: &str) -> Command {
    let mut command = ending_with_the_test("sh");
    command.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_tidegate")]);
    command.args(SERVE).args(["--backend", backend]).env_remove(VARIABLE);
    command
}

/// A server with the `auto` backend, some of whose system calls fail.
fn start_under(fault: &str, arguments: &[&str]) -> Program {
    let directory = Directory::new();
    let mut command = strace(&[fault], &directory.path("strace"));
    command.args(SERVE).args(arguments).env_remove(VARIABLE);
    Program::start(command).unwrap_or_else(|stderr| panic!("{fault}: it did not start: {stderr:?}"))
}

fn assert_fallback(program: &Program, why: &str) {
    let log = program.log_without_drain();
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].contains("io_uring not available; using epoll") && log[0].contains("reason="), "{log:?}");
    assert!(log[0].contains(why) && log[0].contains(" INFO "), "{log:?}");
}

/// Asserts that the server serves on both loops, and drains on a signal.
fn assert_serves(program: &mut Program) {
    for _ in 0..20 {
        let mut peer = Peer::connect(program);
        assert_eq!(peer.get("/plaintext").text(), "Hello, World!");
        assert_same(&peer.get("/bytes/100000").body, &letters(100_000));
    }
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0), "{:?}", program.log());
}

const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--loops", "2"];
