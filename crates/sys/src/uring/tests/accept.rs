//! Accepting.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::stage::{Report, Stage, ZERO, is_closed};
use crate::driver::{Operation, Token};
use crate::options::ListenOptions;
use crate::socket::Socket;
use crate::uring::kernel::Request;
use crate::uring::operation::{Kind, name};
use tidegate_buffer::Address;

/// A listener and its path, which is removed when the test ends.
struct TestListener(Token, PathBuf);

impl Drop for TestListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.1);
    }
}

fn listen(stage: &mut Stage, test: &str) -> TestListener {
    let path = std::env::temp_dir().join(format!("tidegate-fake-{test}-{}", std::process::id()));
    let socket = Socket::listen(&Address::Unix(path.clone()), &ListenOptions::default()).unwrap();
    let token = stage.token();
    stage.submit(token, Operation::Listen(socket));
    stage.run_until_idle();
    TestListener(token, path)
}

fn polls(stage: &Stage) -> usize {
    stage
        .driver
        .kernel
        .requests
        .iter()
        .filter(|request| matches!(request, Request::Poll { multishot: true, .. }))
        .count()
}

#[test]
fn one_request_accepts_many_connections() {
    let mut stage = Stage::new();
    let listener = listen(&mut stage, "all");
    let before = polls(&stage);
    let _clients: Vec<_> = (0..100).map(|_| UnixStream::connect(&listener.1).unwrap()).collect();
    stage.run_until_idle();
    assert_eq!(stage.accepted.len(), 100);
    assert_eq!(polls(&stage), before);
}

#[test]
fn accepting_continues_after_the_kernel_ended_its_poll() {
    for result in [libc::ECANCELED, libc::EINTR, libc::EAGAIN] {
        let mut stage = Stage::new();
        let listener = listen(&mut stage, &format!("lost-{result}"));
        let before = polls(&stage);
        stage.driver.kernel.lose(name(listener.0, Kind::Accept), -result, None);
        let _client = UnixStream::connect(&listener.1).unwrap();
        stage.run_until_idle();
        assert_eq!(stage.take(listener.0), [Report::Accepted]);
        assert_eq!(polls(&stage), before + 1);
    }
}

#[test]
fn a_paused_listener_accepts_nothing() {
    let mut stage = Stage::new();
    let listener = listen(&mut stage, "pause");
    stage.submit(listener.0, Operation::Accept(false));
    let _clients: Vec<_> = (0..3).map(|_| UnixStream::connect(&listener.1).unwrap()).collect();
    stage.run_until_idle();
    assert_eq!(stage.take(listener.0), []);
    stage.submit(listener.0, Operation::Accept(true));
    stage.run_until_idle();
    assert_eq!(stage.take(listener.0), vec![Report::Accepted; 3]);
}

#[test]
fn closing_a_listener_closes_the_connections_in_its_backlog() {
    let mut stage = Stage::new();
    let listener = listen(&mut stage, "late");
    let client = UnixStream::connect(&listener.1).unwrap();
    client.set_nonblocking(true).unwrap();
    stage.driver.wait(ZERO).unwrap();
    stage.close(listener.0);
    stage.run_until_idle();
    assert_eq!(stage.take(listener.0), [Report::Closed]);
    assert!(stage.accepted.is_empty() && is_closed(&client));
}
