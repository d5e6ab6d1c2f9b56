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

/// A developer presses Ctrl-C while a client is in the middle of a request.
#[test]
fn a_drain_at_a_signal_is_announced_and_a_second_signal_ends_it_at_once() {
    let folder = Directory::new();
    let file = folder.path("respond.toml");
    std::fs::write(&file, "[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = { body = \"up\" }\n").unwrap();
    let of_file = || Program::start(tidegate(&["run", "--config", &file])).expect("it starts");
    let starts: [&dyn Fn() -> Program; 2] = [&|| Program::serve(&[]), &of_file];
    for start in starts {
        let mut program = start();
        let mut peer = Peer::connect(&program);
        peer.get("/plaintext");
        peer.send("GET / HTTP/1.1\r\n");
        // The server has the bytes before it ends.
        assert!(peer.receives_nothing(Duration::from_millis(50)));
        program.signal(Signal::INT);
        program.until_logged("draining for up to 25 s; a second signal (Ctrl-C again) closes all", 1);
        assert!(program.log().iter().any(|line| line.contains("connections=1")), "{:?}", program.log());
        program.signal(Signal::INT);
        assert_eq!(program.until_ended().code(), Some(130), "{:?}", program.log());

        let mut idle = start();
        idle.signal(Signal::INT);
        assert_eq!(idle.until_ended().code(), Some(0));
        assert!(!idle.log().iter().any(|line| line.contains("draining")), "{:?}", idle.log());
    }
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
