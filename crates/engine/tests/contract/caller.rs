//! `Caller`: a raw peer that speaks a pipeline as a client does, and reads only when a scenario wants it to.

use std::marker::PhantomData;

use tidegate_sys::{Address, SocketOptions};

use crate::backends::KERNEL_BUFFER_BYTES;
use crate::raw_peer::{Completions, RawPeer};
use crate::stack::Stack;
use crate::stage::Stage;

/// One connection of a raw peer.
pub(crate) struct Caller<S> {
    raw_peer: RawPeer,
    end: usize,
    stack: PhantomData<S>,
}

impl<S: Stack> Caller<S> {
    /// Connects, sends its hello, and receives.
    pub(crate) fn new(stage: &Stage, to: &Address) -> Self {
        let caller = Self::not_reading(stage, to);
        caller.set_reading(true);
        caller
    }

    /// Connects, sends its hello, and receives nothing.
    pub(crate) fn not_reading(stage: &Stage, to: &Address) -> Self {
        let raw_peer = stage.raw_peer();
        // With automatic sizes, the kernel's buffers would grow, and nothing would wait anywhere else.
        let [send_buffer_bytes, receive_buffer_bytes] = [Some(KERNEL_BUFFER_BYTES); 2];
        let options = SocketOptions { send_buffer_bytes, receive_buffer_bytes, ..SocketOptions::default() };
        let end = raw_peer.connect_with(to, &options);
        raw_peer.send(end, &S::hello());
        stage.until("a caller is connected", || raw_peer.inspect(end, |seen| seen.connected == Some(Ok(()))));
        Self { raw_peer, end, stack: PhantomData }
    }

    /// Waits until the server has sent its hello as well, and receives nothing more.
    pub(crate) fn is_greeted(&self, stage: &Stage) {
        stage.until("a caller is greeted", || {
            self.raw_peer.is_established(self.end) && self.inspect(|seen| seen.received.len() >= S::hello().len())
        });
        self.set_reading(false);
    }

    pub(crate) fn say(&self, plain: &[u8]) {
        self.send(&S::encoded(plain));
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&self, wire: &[u8]) {
        self.raw_peer.send(self.end, wire);
    }

    /// Resumes or pauses receiving.
    pub(crate) fn set_reading(&self, on: bool) {
        self.raw_peer.receive(self.end, on);
    }

    /// Sends its goodbye and shuts down its side.
    pub(crate) fn end(&self, stage: &Stage) {
        self.send(&S::goodbye());
        self.raw_peer.end_plain(self.end);
        stage.until("everything was sent", || self.pending() == 0);
        self.raw_peer.shutdown_write(self.end);
    }

    /// Closes the connection, and drops its pending bytes.
    pub(crate) fn close(&self) {
        self.raw_peer.close(self.end, false);
    }

    /// Bytes that wait to be sent.
    pub(crate) fn pending(&self) -> u64 {
        self.raw_peer.pending(self.end)
    }

    pub(crate) fn inspect<T>(&self, look: impl FnOnce(&Completions) -> T) -> T {
        self.raw_peer.inspect(self.end, look)
    }

    /// Whether nothing more will come, in good order or not.
    pub(crate) fn is_over(&self) -> bool {
        self.inspect(|seen| seen.ended > 0 || !seen.failed.is_empty())
    }

    /// Whether the server has sent so many bytes. They are decoded only after as many have arrived: a test asks at each step.
    pub(crate) fn has_received(&self, plain: usize) -> bool {
        self.inspect(|seen| seen.received.len() >= plain) && self.received().len() == plain
    }

    /// The bytes that the server has sent so far, decoded.
    pub(crate) fn received(&self) -> Vec<u8> {
        self.inspect(|seen| S::decoded(&seen.received))
    }

    /// The bytes that the server sent until it closed, which it must do in good order.
    #[track_caller]
    pub(crate) fn all_received(&self, stage: &Stage) -> Vec<u8> {
        stage.until("a server ends", || self.is_over());
        assert_eq!(self.inspect(|seen| (seen.ended, seen.failed.clone())), (1, Vec::new()), "ends, and failures");
        self.received()
    }
}
