//! `ReceiveSpace`: the memory that a driver receives into by system calls, of the size that fits the socket.
//!
//! Most receives go into one scratch. A socket that fills it, and of which many bytes more follow that its codec yields
//! as they come, receives into a larger one: each call to the kernel, and each turn of a task, brings four times as many
//! bytes then. Views of the larger scratch may be kept as those of any other. As long as one is, receives go into the
//! usual scratch, so that a loop has at most one of the large ones.
//!
//! A message that its codec decodes where it is whole, and that is longer than the usual scratch, is received into one
//! of its size: in two parts it would be copied. As the usual one, it gets other memory if a view of it is kept.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tidegate_buffer::{
    BULK_RECEIVE_BYTES, FRAME_RECEIVE_BYTES, HEADROOM_BYTES, Pool, RECEIVE_BYTES_MAX, ReceiveHint, Scratch, Slice,
};

use crate::driver::Token;
use crate::passed_descriptors::{self, DescriptorStreams, PassedDescriptors};
use crate::recv_sizer::ReceiveHints;

/// A driver's receive memory, and its estimate of the next receives.
#[derive(Debug)]
pub(crate) struct ReceiveSpace {
    usual: Scratch,
    frame: Scratch,
    bulk: Scratch,
    hints: ReceiveHints,
    /// Streams that keep the descriptors that their peers pass, if there are any.
    descriptor_streams: Option<Box<DescriptorStreams>>,
    /// Where the last requested space is.
    place: ScratchPlace,
}

/// One of the scratches.
#[derive(Debug)]
enum ScratchPlace {
    Usual,
    Frame,
    Bulk,
}

impl ReceiveSpace {
    pub(crate) fn new(pool: &Pool) -> Self {
        Self {
            usual: Scratch::new(pool),
            frame: Scratch::with_room(pool, HEADROOM_BYTES, FRAME_RECEIVE_BYTES),
            bulk: Scratch::with_room(pool, HEADROOM_BYTES, BULK_RECEIVE_BYTES),
            hints: ReceiveHints::default(),
            descriptor_streams: None,
            place: ScratchPlace::Usual,
        }
    }

    /// Keeps a hint for the next receive of a socket.
    pub(crate) fn hint(&mut self, token: Token, hint: ReceiveHint) {
        self.hints.put(token, hint);
    }

    /// The space for the next receive of a socket, which has `usual` bytes without a hint.
    pub(crate) fn space(&mut self, token: Token, usual: usize) -> &mut [u8] {
        let hint = self.hints.take(token);
        let is_bulk = usual == RECEIVE_BYTES_MAX
            && hint.is_some_and(|hint| hint.bulk_bytes() >= BULK_RECEIVE_BYTES)
            && self.bulk.is_free();
        let bytes = if is_bulk { BULK_RECEIVE_BYTES } else { hint.map_or(usual, |hint| hint.receive_bytes(usual)) };
        self.place = match bytes {
            ..=RECEIVE_BYTES_MAX => ScratchPlace::Usual,
            _ if is_bulk => ScratchPlace::Bulk,
            _ => ScratchPlace::Frame,
        };
        self.scratch().space(bytes)
    }

    /// Receives once, into the space for a socket that has `usual` bytes without a hint. Returns the length of the space,
    /// and the number of received bytes.
    #[inline]
    pub(crate) fn receive(&mut self, token: Token, socket: &OwnedFd, usual: usize) -> (usize, Result<usize, Errno>) {
        if self.descriptor_streams.is_some() {
            return self.receive_with_descriptors(token, socket, usual);
        }
        let space = self.space(token, usual);
        (space.len(), receive_bytes(socket, space))
    }

    #[cold]
    fn receive_with_descriptors(
        &mut self,
        token: Token,
        socket: &OwnedFd,
        usual: usize,
    ) -> (usize, Result<usize, Errno>) {
        let mut streams = self.descriptor_streams.take();
        let space = self.space(token, usual);
        let size = space.len();
        let of_stream = streams.as_mut().and_then(|streams| streams.receive(token, socket, space));
        let received = of_stream.unwrap_or_else(|| receive_bytes(socket, space));
        self.descriptor_streams = streams;
        (size, received)
    }

    /// Sets how many of the descriptors that the peer of a Unix stream passes are kept.
    ///
    /// # Errors
    /// `Unsupported` for a socket of another family.
    pub(crate) fn keep_descriptors(&mut self, token: Token, socket: &OwnedFd, descriptors_max: u8) -> io::Result<()> {
        passed_descriptors::check_family(socket.as_fd())?;
        if self.descriptor_streams.get_or_insert_default().keep(token, descriptors_max.into()) {
            self.descriptor_streams = None;
        }
        Ok(())
    }

    /// The descriptors that came over a Unix stream.
    pub(crate) fn take_descriptors(&mut self, token: Token) -> PassedDescriptors {
        self.descriptor_streams.as_mut().map(|streams| streams.take(token)).unwrap_or_default()
    }

    /// Forgets a socket that closes, and closes the descriptors that nobody took.
    pub(crate) fn forget(&mut self, token: Token) {
        if let Some(streams) = &mut self.descriptor_streams
            && streams.keep(token, 0)
        {
            self.descriptor_streams = None;
        }
    }

    /// Receives once from a connection that has failed.
    pub(crate) fn receive_rest(&mut self, token: Token, socket: &OwnedFd) -> Option<Slice> {
        let received = self.receive(token, socket, RECEIVE_BYTES_MAX).1.unwrap_or(0);
        (received > 0).then(|| self.received(received))
    }

    /// The first `length` bytes of the last requested space.
    pub(crate) fn received(&mut self, length: usize) -> Slice {
        self.scratch().received(length)
    }

    fn scratch(&mut self) -> &mut Scratch {
        match self.place {
            ScratchPlace::Usual => &mut self.usual,
            ScratchPlace::Frame => &mut self.frame,
            ScratchPlace::Bulk => &mut self.bulk,
        }
    }
}

fn receive_bytes(socket: &OwnedFd, space: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match recv(socket, &mut *space, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            other => return other.map(|(length, _)| length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Token = Token { slot: 1, generation: 1 };

    fn of_body(missing_bytes: u32) -> ReceiveHint {
        ReceiveHint { missing_bytes, ..ReceiveHint::default() }
    }

    #[test]
    fn only_a_socket_that_fills_its_receives_gets_the_large_space_for_missing_bytes() {
        let mut space = ReceiveSpace::new(&Pool::new());
        let mut size = |hint: Option<ReceiveHint>, usual| {
            hint.into_iter().for_each(|hint| space.hint(ONE, hint));
            space.space(ONE, usual).len()
        };
        let much = of_body(20 * 1024 * 1024);
        assert_eq!(size(Some(much), RECEIVE_BYTES_MAX), BULK_RECEIVE_BYTES);
        assert_eq!(size(None, RECEIVE_BYTES_MAX), RECEIVE_BYTES_MAX, "a hint is about one receive");
        assert_eq!(size(Some(much), 2_048), RECEIVE_BYTES_MAX);
        assert_eq!(size(Some(of_body(BULK_RECEIVE_BYTES as u32 - 1)), RECEIVE_BYTES_MAX), RECEIVE_BYTES_MAX);
        assert_eq!(size(Some(ReceiveHint { bytes_max: 5_000, ..much }), RECEIVE_BYTES_MAX), 5_000);
    }

    #[test]
    fn a_message_that_is_longer_than_the_usual_space_is_received_whole() {
        let pool = Pool::new();
        let mut space = ReceiveSpace::new(&pool);
        let whole = |bytes| ReceiveHint { whole_bytes: bytes, ..ReceiveHint::default() };
        let mut receive = |hint: Option<ReceiveHint>| {
            hint.into_iter().for_each(|hint| space.hint(ONE, hint));
            let length = space.space(ONE, 2_048).len();
            (length, space.received(length))
        };
        assert_eq!(receive(Some(whole(65_550))).0, 65_550);
        assert_eq!(receive(Some(whole(u32::MAX))).0, FRAME_RECEIVE_BYTES);
        assert_eq!(receive(None).0, 2_048);
        let (_, kept) = receive(Some(whole(65_550)));
        let (_, next) = receive(Some(whole(65_550)));
        assert_ne!(kept.as_ptr(), next.as_ptr());
        drop((kept, next));
        assert!(pool.ledger().used() < 3 * FRAME_RECEIVE_BYTES, "a space without views is kept once");
    }

    #[test]
    fn while_a_view_of_the_large_space_is_kept_receives_go_elsewhere() {
        let pool = Pool::new();
        let mut space = ReceiveSpace::new(&pool);
        let mut receive = |byte| {
            space.hint(ONE, of_body(u32::MAX));
            space.space(ONE, RECEIVE_BYTES_MAX).fill(byte);
            space.received(RECEIVE_BYTES_MAX)
        };
        let kept = receive(1);
        let first = kept.as_ptr();
        let memory = pool.ledger().used();
        assert!(memory >= BULK_RECEIVE_BYTES);
        for _ in 0..3 {
            assert_ne!(receive(2).as_ptr(), first);
        }
        assert!(pool.ledger().used() < memory + BULK_RECEIVE_BYTES, "no second large space");
        assert_eq!(*kept, [1; RECEIVE_BYTES_MAX]);
        drop(kept);
        assert_eq!(receive(3).as_ptr(), first, "the large space is free again");
    }
}
