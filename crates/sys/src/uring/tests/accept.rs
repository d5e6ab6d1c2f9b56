//! Accepting.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::stage::{Stage, Told, ZERO, is_closed};
use crate::address::Address;
use crate::driver::{Operation, Token};
use crate::options::ListenOptions;
use crate::socket::Socket;
use crate::uring::kernel::{Event, Request};
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
    stage.settle();
    Door(token, path)
}

fn accepts(stage: &Stage) -> usize {
    stage.machine.kernel.requests.iter().filter(|request| matches!(request, Request::Accept { .. })).count()
}

#[test]
fn one_request_accepts_all_who_come() {
    let mut stage = Stage::new();
    let door = listen(&mut stage, "all");
    let _clients: Vec<_> = (0..20).map(|_| UnixStream::connect(&door.1).unwrap()).collect();
    stage.settle();
    assert_eq!(stage.accepted.len(), 20);
    assert_eq!(accepts(&stage), 1);
}

#[test]
fn accepting_that_ends_for_no_reason_goes_on() {
    for result in [libc::ECANCELED, libc::EINTR, libc::EAGAIN, libc::ECONNABORTED] {
        let mut stage = Stage::new();
        let door = listen(&mut stage, &format!("lost-{result}"));
        stage.machine.kernel.lose(name(door.0, Kind::Accept), -result, None);
        let _client = UnixStream::connect(&door.1).unwrap();
        stage.settle();
        assert_eq!(stage.take(door.0), [Told::Accepted]);
        assert_eq!(accepts(&stage), 2);
    }
}

#[test]
fn a_failure_to_accept_pauses_it_until_it_is_asked_to_go_on() {
    let mut stage = Stage::new();
    let door = listen(&mut stage, "pause");
    stage.machine.kernel.lose(name(door.0, Kind::Accept), -libc::EMFILE, None);
    let _client = UnixStream::connect(&door.1).unwrap();
    stage.settle();
    assert_eq!(stage.take(door.0), [Told::AcceptFailed(Some(libc::EMFILE))]);
    assert_eq!(accepts(&stage), 1, "it was to pause");
    stage.submit(door.0, Operation::Accept(true));
    stage.settle();
    assert_eq!(stage.take(door.0), [Told::Accepted]);
}

#[test]
fn a_stream_that_comes_after_its_listener_was_closed_is_closed() {
    let mut stage = Stage::new();
    let door = listen(&mut stage, "late");
    let client = UnixStream::connect(&door.1).unwrap();
    client.set_nonblocking(true).unwrap();
    stage.machine.wait(ZERO).unwrap();
    stage.close(door.0);
    stage.settle();
    assert_eq!(stage.take(door.0), [Told::Closed]);
    assert!(stage.accepted.is_empty() && is_closed(&client));
}

#[test]
fn a_stream_that_nobody_knows_is_closed() {
    let mut stage = Stage::new();
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let unknown = name(Token { slot: 77, generation: 3 }, Kind::Accept);
    let result = std::os::fd::IntoRawFd::into_raw_fd(near);
    stage.machine.kernel.tell(Event { name: unknown, result, more: true, buffer: None, nonempty: false });
    stage.settle();
    assert!(is_closed(&far));
}
