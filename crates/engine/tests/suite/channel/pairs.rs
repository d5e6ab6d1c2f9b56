//! `Pairs`: a loop on the real driver, turned by hand, with connections over socket pairs.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_codec::Pipeline;
use tidegate_engine::{Channel, EventLoop, Handler, Limits};
use tidegate_sys::{Address, Socket};

pub(crate) struct Pairs {
    pub(crate) event_loop: EventLoop,
}

impl Pairs {
    pub(crate) fn new() -> Self {
        Self { event_loop: EventLoop::readiness().expect("there is a descriptor left") }
    }

    pub(crate) fn open<C: Pipeline>(&mut self, codec: C) -> (Channel<C>, Peer) {
        let (ours, theirs) = pair();
        let opened = self.event_loop.open(ours, &Address::Unix(PathBuf::new()), Limits::default(), codec);
        (opened.expect("the driver takes it"), theirs)
    }

    pub(crate) fn adopt<C: Pipeline, H: Handler<C>>(&mut self, codec: C, handler: H) -> Peer {
        let (ours, theirs) = pair();
        let adopted = self.event_loop.adopt(ours, &Address::Unix(PathBuf::new()), Limits::default(), codec, handler);
        adopted.expect("the driver takes it");
        theirs
    }

    /// Two channels, each of which is the other's peer.
    pub(crate) fn connected<C: Pipeline>(&mut self, limits: &Limits, codec: impl Fn() -> C) -> [Channel<C>; 2] {
        let (one, other) = UnixStream::pair().expect("there are descriptors left");
        [one, other].map(|stream| {
            let (socket, peer) = (Socket::from_stream(stream).expect("a stream"), Address::Unix(PathBuf::new()));
            self.event_loop.open(socket, &peer, limits.clone(), codec()).expect("the driver takes it")
        })
    }

    /// Turns until `done`.
    #[track_caller]
    pub(crate) fn turn_until(&mut self, mut done: impl FnMut() -> bool) {
        for _ in 0..20_000 {
            if done() {
                return;
            }
            self.event_loop.turn(Some(Duration::from_millis(1))).expect("waiting does not fail");
        }
        panic!("it has not come to it");
    }
}

/// The other end.
pub(crate) struct Peer(UnixStream);

impl Peer {
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("there is room");
    }

    /// Whether it has sent its last byte; its bytes are thrown away.
    pub(crate) fn has_ended(&mut self) -> bool {
        let mut room = [0; 4096];
        loop {
            match self.0.read(&mut room) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}

fn pair() -> (Socket, Peer) {
    let (ours, theirs) = UnixStream::pair().expect("there are descriptors left");
    theirs.set_nonblocking(true).expect("a socket");
    (Socket::from_stream(ours).expect("a stream"), Peer(theirs))
}
