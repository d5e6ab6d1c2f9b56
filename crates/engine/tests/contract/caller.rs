//! `Caller`: a bare peer that speaks a pipeline as a client does, and reads only when a scenario wants it to.

use std::marker::PhantomData;

use tidegate_sys::{Address, SocketOptions};

use crate::bare::{Bare, Said};
use crate::stack::Stack;
use crate::stage::Stage;

/// One connection of a bare peer.
pub(crate) struct Caller<S> {
    bare: Bare,
    end: usize,
    stack: PhantomData<S>,
}

impl<S: Stack> Caller<S> {
    /// Connects, sends its hello, and receives.
    pub(crate) fn new(stage: &Stage, to: &Address) -> Self {
        let caller = Self::deaf(stage, to);
        caller.listen(true);
        caller
    }

    /// Connects, sends its hello, and receives nothing.
    pub(crate) fn deaf(stage: &Stage, to: &Address) -> Self {
        let bare = stage.bare();
        // With an automatic size, the kernel's buffer would grow for a fast reader, and nothing would wait anywhere
        // else.
        let options = SocketOptions { receive_buffer_bytes: Some(64 * 1024), ..SocketOptions::default() };
        let end = bare.connect_with(to, &options);
        bare.send(end, &S::hello());
        stage.until("a caller is connected", || bare.look(end, |said| said.connected == Some(Ok(()))));
        Self { bare, end, stack: PhantomData }
    }

    /// Waits until the server has sent its hello as well, and receives nothing more.
    pub(crate) fn is_greeted(&self, stage: &Stage) {
        stage.until("a caller is greeted", || self.look(|said| said.received.len() >= S::hello().len()));
        self.listen(false);
    }

    pub(crate) fn say(&self, plain: &[u8]) {
        self.send(&S::said(plain));
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&self, wire: &[u8]) {
        self.bare.send(self.end, wire);
    }

    /// Resumes or pauses receiving.
    pub(crate) fn listen(&self, on: bool) {
        self.bare.receive(self.end, on);
    }

    /// Sends its goodbye and shuts down its side.
    pub(crate) fn end(&self, stage: &Stage) {
        self.send(&S::goodbye());
        stage.until("everything was sent", || self.pending() == 0);
        self.bare.shut(self.end);
    }

    /// Closes the connection, and drops its pending bytes.
    pub(crate) fn close(&self) {
        self.bare.close(self.end, false);
    }

    /// Bytes that wait to be sent.
    pub(crate) fn pending(&self) -> u64 {
        self.bare.pending(self.end)
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Said) -> T) -> T {
        self.bare.look(self.end, look)
    }

    /// Whether nothing more will come, in good order or not.
    pub(crate) fn is_over(&self) -> bool {
        self.look(|said| said.ended > 0 || !said.failed.is_empty())
    }

    /// The bytes that the server has sent so far, decoded.
    pub(crate) fn heard(&self) -> Vec<u8> {
        self.look(|said| S::heard(&said.received))
    }

    /// The bytes that the server sent until it closed, which it must do in good order.
    #[track_caller]
    pub(crate) fn all_heard(&self, stage: &Stage) -> Vec<u8> {
        stage.until("a server ends", || self.is_over());
        assert_eq!(self.look(|said| (said.ended, said.failed.clone())), (1, Vec::new()), "ends, and failures");
        self.heard()
    }
}
