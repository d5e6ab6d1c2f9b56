//! Accepting.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::stage::{Stage, Told, ZERO, is_closed};
use crate::address::Address;
use crate::driver::{Operation, Token};
use crate::options::ListenOptions;
use crate::socket::Socket;
use crate::uring::kernel::Request;
use crate::uring::operation::{Kind, name};

/// A listener, and where it listens; the path is free again when the test is over.
struct Door(Token, PathBuf);

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.1);
    }
}

fn listen(stage: &mut Stage, test: &str) -> Door {
    let path = std::env::temp_dir().join(format!("tidegate-fake-{test}-{}", std::process::id()));
    let socket = Socket::listen(&Address::Unix(path.clone()), &ListenOptions::default()).unwrap();
    let token = stage.token();
    stage.submit(token, Operation::Listen(socket));
    stage.run_until_idle();
    Door(token, path)
}

fn polls(stage: &Stage) -> usize {
    stage
        .machine
        .kernel
        .requests
        .iter()
        .filter(|request| matches!(request, Request::Poll { multishot: true, .. }))
        .count()
}

#[test]
fn one_request_waits_for_all_who_come() {
    let mut stage = Stage::new();
    let door = listen(&mut stage, "all");
    let before = polls(&stage);
    let _clients: Vec<_> = (0..100).map(|_| UnixStream::connect(&door.1).unwrap()).collect();
    stage.run_until_idle();
    assert_eq!(stage.accepted.len(), 100);
    assert_eq!(polls(&stage), before);
}

#[test]
fn accepting_whose_request_ends_for_no_reason_goes_on() {
    for result in [libc::ECANCELED, libc::EINTR, libc::EAGAIN] {
        let mut stage = Stage::new();
        let door = listen(&mut stage, &format!("lost-{result}"));
        let before = polls(&stage);
        stage.machine.kernel.lose(name(door.0, Kind::Accept), -result, None);
        let _client = UnixStream::connect(&door.1).unwrap();
        stage.run_until_idle();
        assert_eq!(stage.take(door.0), [Told::Accepted]);
        assert_eq!(polls(&stage), before + 1);
    }
}

#[test]
fn nobody_is_accepted_who_is_not_asked_for() {
    let mut stage = Stage::new();
    let door = listen(&mut stage, "pause");
    stage.submit(door.0, Operation::Accept(false));
    let _clients: Vec<_> = (0..3).map(|_| UnixStream::connect(&door.1).unwrap()).collect();
    stage.run_until_idle();
    assert_eq!(stage.take(door.0), []);
    stage.submit(door.0, Operation::Accept(true));
    stage.run_until_idle();
    assert_eq!(stage.take(door.0), vec![Told::Accepted; 3]);
}

#[test]
fn who_comes_when_a_listener_is_closed_is_let_go_of_with_it() {
    let mut stage = Stage::new();
    let door = listen(&mut stage, "late");
    let client = UnixStream::connect(&door.1).unwrap();
    client.set_nonblocking(true).unwrap();
    stage.machine.wait(ZERO).unwrap();
    stage.close(door.0);
    stage.run_until_idle();
    assert_eq!(stage.take(door.0), [Told::Closed]);
    assert!(stage.accepted.is_empty() && is_closed(&client));
}
