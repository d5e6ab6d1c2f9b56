//! SIGTERM at bad moments: before the program listens, and while one server takes over from another.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::peer::{LAST, Peer};
use crate::support::program::{Directory, Program, tidegate, until};

/// A program of which nothing is known yet, not even whether it listens.
struct Starting(Child);

impl Starting {
    fn new(mut command: Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("the program starts"))
    }

    fn terminate(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("it was not waited for");
        let mut status = None;
        until("the end of the program", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.expect("it was just seen")
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// It drained, or was not yet so far that it handles signals.
fn is_orderly(status: ExitStatus) -> bool {
    status.code() == Some(0) || status.signal() == Some(Signal::TERM.as_raw())
}

#[test]
fn during_its_start_the_program_ends() {
    for step in 0..30 {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--loops", "2", "--admin", "127.0.0.1:0"];
        let mut program = Starting::new(tidegate(&arguments));
        std::thread::sleep(Duration::from_micros(300) * step);
        let status = program.terminate();
        assert!(is_orderly(status), "{status} after {step} steps");
    }
}

#[test]
fn a_successor_that_ends_while_it_takes_over_leaves_the_way_free() {
    for step in 0..10 {
        let directory = Directory::new();
        let path = directory.path("takeover");
        let arguments = ["--loops", "1", "--takeover", &path];
        let mut old = Program::serve(&arguments);
        let mut new = Starting::new(tidegate(&[&["serve", "--listen", "127.0.0.1:0"], &arguments[..]].concat()));
        std::thread::sleep(Duration::from_millis(1) * step);
        let status = new.terminate();
        assert!(is_orderly(status), "{status} after {step} ms");
        // It serves, unless the successor had its listeners; then it drains.
        let next = Program::serve(&arguments);
        assert_eq!(Peer::connect(&next).exchange(LAST).status, 200);
        assert_eq!(old.until_ended().code(), Some(0), "after {step} ms");
    }
}

#[test]
fn a_server_that_ends_while_it_is_taken_over_is_replaced() {
    for step in 0..10 {
        let directory = Directory::new();
        let path = directory.path("takeover");
        let arguments = ["--loops", "1", "--takeover", &path];
        let mut old = Program::serve(&arguments);
        let mut new = tidegate(&[&["serve", "--listen", "127.0.0.1:0"], &arguments[..]].concat());
        let mut new = Program::spawn(new.stdin(Stdio::null()));
        std::thread::sleep(Duration::from_millis(1) * step);
        old.signal(Signal::TERM);
        assert_eq!(old.until_ended().code(), Some(0), "after {step} ms");
        new.until_started();
        assert_eq!(Peer::connect(&new).exchange(LAST).status, 200);
    }
}
