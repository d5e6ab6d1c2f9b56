//! The work of a driver for one socket among many idle ones. Callgrind does not count the kernel.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_buffer::Pool;
use tidegate_sys::readiness::Readiness;
use tidegate_sys::uring::Uring;
use tidegate_sys::{Completion, Driver, Operation, Socket, Token};

use crate::counted::count_this;

/// The reason why jobs with so many sockets cannot run here, if any.
pub(crate) fn lack_of_descriptors() -> Option<String> {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let current = getrlimit(Resource::Nofile).current;
    let lacks = current.is_some_and(|current| current < DESCRIPTORS);
    lacks.then(|| format!("{DESCRIPTORS} descriptors are needed, and the limit is {}", current.unwrap_or(u64::MAX)))
}

/// The reason why jobs on io_uring cannot run here, if any.
pub(crate) fn lack_of_uring() -> Option<String> {
    Uring::probe().err().map(|error| format!("io_uring: {error}")).or_else(lack_of_descriptors)
}

pub(crate) fn close_on_epoll<const SOCKETS: usize>(rounds: usize) {
    close(&mut Readiness::new(&Pool::new()).expect("epoll is there"), SOCKETS, rounds);
}

pub(crate) fn close_on_uring<const SOCKETS: usize>(rounds: usize) {
    close(&mut Uring::new(&Pool::new()).expect("io_uring was probed"), SOCKETS, rounds);
}

pub(crate) fn hold_on_epoll<const SOCKETS: usize>(rounds: usize) {
    hold(&mut Readiness::new(&Pool::new()).expect("epoll is there"), SOCKETS, rounds);
}

pub(crate) fn hold_on_uring<const SOCKETS: usize>(rounds: usize) {
    hold(&mut Uring::new(&Pool::new()).expect("io_uring was probed"), SOCKETS, rounds);
}

/// Closes each socket in turn, up to the driver's last completion, and adopts another one in its slot.
fn close(driver: &mut dyn Driver, sockets: usize, rounds: usize) {
    let (mut crowd, _peer) = crowd(driver, sockets);
    for round in 0..rounds {
        let token = &mut crowd.tokens[round % sockets];
        count_this(|| close_one(driver, *token));
        token.generation += 1;
        adopt(driver, *token, crowd.stream.try_clone().expect("a descriptor is left"));
        look(driver, |_, _| {});
    }
}

fn close_one(driver: &mut dyn Driver, token: Token) {
    let mut is_closed = matches!(driver.submit(token, Operation::Close { reset: false }), Some(Completion::Closed));
    for _ in 0..LOOKS_MAX {
        if is_closed {
            return;
        }
        look(driver, |closed, completion| is_closed |= closed == token && matches!(completion, Completion::Closed));
    }
    panic!("the close did not complete");
}

/// Pauses receives, requests a receive on a socket with input, and resumes receives.
fn hold(driver: &mut dyn Driver, sockets: usize, rounds: usize) {
    let (crowd, _peer) = crowd(driver, sockets - 1);
    let (mut peer, ours) = UnixStream::pair().expect("descriptors are left");
    let token = Token { slot: crowd.tokens.len() as u32, generation: 1 };
    adopt(driver, token, ours);
    look(driver, |_, _| {});
    for _ in 0..rounds {
        let mut received = 0;
        let mut take = |of: Token, completion: Completion| match completion {
            Completion::Received(bytes) if of == token => received += bytes.len(),
            other => panic!("{other:?} of {of:?}"),
        };
        count_this(|| {
            driver.pause_receives(true);
            look(driver, &mut take);
        });
        peer.write_all(b"x").expect("there is room");
        count_this(|| {
            driver.submit(token, Operation::Receive(true));
            look(driver, &mut take);
            driver.pause_receives(false);
            look(driver, &mut take);
            look(driver, &mut take);
        });
        assert_eq!(received, 1, "input is received once receives resume");
    }
}

/// Polls the driver without waiting, and takes its completions.
fn look(driver: &mut dyn Driver, mut take: impl FnMut(Token, Completion)) {
    driver.wait(Some(Duration::ZERO)).expect("waiting does not fail");
    while let Some((token, completion)) = driver.next_of_any() {
        take(token, completion);
    }
}

/// Idle sockets of a driver.
struct Crowd {
    tokens: Vec<Token>,
    /// All sockets are duplicates of this one, so each needs only one descriptor.
    stream: UnixStream,
}

/// `sockets` sockets, and their peer.
fn crowd(driver: &mut dyn Driver, sockets: usize) -> (Crowd, UnixStream) {
    let (peer, stream) = UnixStream::pair().expect("descriptors are left");
    let tokens: Vec<_> = (0..sockets as u32).map(|slot| Token { slot, generation: 1 }).collect();
    for token in &tokens {
        adopt(driver, *token, stream.try_clone().expect("a descriptor is left"));
    }
    for _ in 0..SETTLING_LOOKS {
        look(driver, |_, _| {});
    }
    (Crowd { tokens, stream }, peer)
}

fn adopt(driver: &mut dyn Driver, token: Token, stream: UnixStream) {
    let socket = Socket::from_stream(stream).expect("it can be made nonblocking");
    assert!(driver.submit(token, Operation::Adopt(socket)).is_none(), "the driver takes it");
    driver.submit(token, Operation::Receive(true));
}

/// The maximum number of polls until a socket is closed.
const LOOKS_MAX: u32 = 8;

/// The number of polls until the driver has finished its work for many new sockets.
const SETTLING_LOOKS: u32 = 64;

const DESCRIPTORS: u64 = 15_100;
