//! Datagrams, of UDP and of Unix sockets: batches of them by `recvmmsg` and `sendmmsg`, which both drivers call when a socket is ready.
//!
//! | part | file |
//! |---|---|
//! | options of a socket | `options.rs`; opening: `open.rs`; multicast groups: `groups.rs` |
//! | the system calls for batches | `messages.rs` |
//! | control messages and addresses as bytes | `control.rs` |
//! | batches: memory, sizes, errors | here; sending: `send.rs` |
//! | memory for datagrams that may be long and are short | `sparse_space.rs` |
//! | which socket of a group gets a datagram | `steering.rs` |
//!
//! An error of one datagram never ends its socket. The kernel reports errors of the network through the socket's next
//! call, whatever that call is about, and keeps them in an error queue: so after an error the queue is read, and the
//! call is repeated once.
//!
//! All sockets of a driver receive into one block of memory, for as many datagrams as the last batches had. A handler
//! that keeps a view keeps the block, and the next batch gets another one. Where datagrams may be long and are short, a
//! batch of them comes into a sparse space first, and is copied into a block of its size.

mod control;
mod groups;
mod messages;
mod open;
mod options;
mod send;
mod sparse_space;
mod steering;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tidegate_buffer::{Address, Ancillary, Datagram, DatagramError, DatagramErrorReason, Pool, Scratch};

use self::control::{CONTROL_BYTES, QueuedError, unix_control_bytes};
pub(crate) use self::groups::set_membership;
use self::messages::{BATCH_MAX, Incoming, Messages, drops_so_far};
pub use self::options::{DatagramOptions, SourceGroup};
use self::sparse_space::SparseSpace;
pub use self::steering::Steering;
use crate::driver::Side;
use crate::socket::address_of;

/// A driver's datagram sockets, and the memory that they share.
pub(crate) struct DatagramIo {
    pool: Pool,
    sockets: HashMap<u32, DatagramState>,
    messages: Messages,
    scratch: Scratch,
    /// The length of the scratch.
    scratch_bytes: usize,
    /// Places for short datagrams of sockets that receive long ones as well, if there are any.
    sparse: Option<SparseSpace>,
    /// From one datagram of the last batch to the next in the scratch, in bytes; `None` if each begins where the one before
    /// ends.
    step: Option<usize>,
    /// The empty vector of a batch that the loop has given back.
    spare: Vec<Datagram>,
}

/// The state of a socket.
#[derive(Debug)]
struct DatagramState {
    /// The memory for one datagram or run.
    buffer_bytes: usize,
    /// Datagrams that the next call receives at most.
    batch: usize,
    /// Batches in a row that had less than a quarter of that.
    small_batches: u8,
    is_v6: bool,
    /// The peer of a connected socket.
    peer: Option<SocketAddr>,
    is_unix: bool,
    /// A datagram for which there is no room is lost: on a Unix socket without a peer, the full queue is that of one
    /// receiver, and the kernel does not report when it has room again.
    loses_when_full: bool,
    /// Descriptors of a datagram that are kept.
    descriptors_max: usize,
    /// Room for the control messages of each datagram.
    control_bytes: usize,
    /// Control messages are reported as bytes.
    reports_control: bool,
    /// The kernel splits runs that are sent from this socket.
    splits_runs: bool,
    /// The kernel's count of drops, modulo 2^32, and ours. A socket that was taken over begins with those before.
    kernel_drops: u32,
    drops: u64,
}

/// The result of a receive.
#[derive(Debug)]
pub(crate) enum Received {
    /// Datagrams, and whether there may be more.
    Batch(Vec<Datagram>, bool),
    /// Reports of the network. There may be datagrams.
    Errors(Vec<DatagramError>),
    /// There is nothing to receive.
    Nothing,
}

impl DatagramIo {
    pub(crate) fn new(pool: &Pool) -> Self {
        Self {
            pool: pool.clone(),
            sockets: HashMap::new(),
            messages: Messages::new(pool),
            scratch: Scratch::with_room(pool, 0, 0),
            scratch_bytes: 0,
            sparse: None,
            step: None,
            spare: Vec::new(),
        }
    }

    /// Adds a socket.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn add(&mut self, slot: u32, socket: impl AsFd, options: &DatagramOptions) -> io::Result<()> {
        let socket = socket.as_fd();
        // The address itself, not the canonical one: it names the family of the socket.
        let local = socket2::SockRef::from(&socket).local_addr()?;
        let (is_v6, is_unix) = (local.is_ipv6(), local.is_unix());
        let peer = address_of(socket, Side::Peer).ok();
        let has_credentials = options.credentials || socket2::SockRef::from(&socket).passcred().unwrap_or(false);
        // On other sockets nobody sends descriptors, and kinds of messages that are not known here need room.
        let control_bytes = if is_unix && !options.control_messages {
            unix_control_bytes(has_credentials, options.descriptors_max.into())
        } else {
            CONTROL_BYTES
        };
        let state = DatagramState {
            buffer_bytes: if is_unix { options.payload_bytes() } else { options.buffer_bytes() },
            batch: BATCH_MIN,
            small_batches: 0,
            is_v6,
            is_unix,
            loses_when_full: is_unix && peer.is_none(),
            descriptors_max: usize::from(options.descriptors_max),
            control_bytes,
            reports_control: options.control_messages,
            peer: peer.as_ref().and_then(Address::ip),
            splits_runs: !is_unix,
            kernel_drops: drops_so_far(socket).unwrap_or(0),
            drops: 0,
        };
        self.sockets.insert(slot, state);
        Ok(())
    }

    /// Removes a socket. Returns whether it was the last one.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        self.sockets.remove(&slot);
        self.sockets.is_empty()
    }

    /// The datagrams that the kernel has dropped since the socket was added, since its receive buffer was full.
    pub(crate) fn drops(&self, slot: u32) -> u64 {
        self.sockets.get(&slot).map_or(0, |state| state.drops)
    }

    /// Takes the memory of a batch.
    pub(crate) fn give_back(&mut self, mut batch: Vec<Datagram>) {
        batch.clear();
        if batch.capacity() > self.spare.capacity() {
            self.spare = batch;
        }
    }

    /// Receives one batch.
    pub(crate) fn receive(&mut self, slot: u32, socket: impl AsFd) -> Received {
        let socket = socket.as_fd();
        let Some(state) = self.sockets.get_mut(&slot) else { return Received::Nothing };
        let (size, control_bytes, mut wanted) = (state.buffer_bytes, state.control_bytes, state.batch);
        let received = if state.takes_sparse_space() && self.has_sparse_space(size) {
            // Places that were made for longer datagrams of another socket may be fewer.
            wanted = wanted.min(self.sparse.as_ref().map_or(wanted, SparseSpace::places_count));
            self.receive_sparsely(socket, (size, control_bytes), wanted)
        } else {
            wanted = wanted.min((BATCH_BYTES_MAX / size).max(BATCH_MIN));
            self.receive_directly(socket, (size, control_bytes), wanted)
        };
        match received {
            // A full batch: there may be more, and the system does not report them again.
            Ok(count) => Received::Batch(self.batch(slot, count, size), count == wanted),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Nothing,
            Err(error) => {
                let mut errors = self.network_errors(slot, socket);
                if errors.is_empty() && !is_of_network(&error) {
                    errors.push(DatagramError { destination: None, reason: reason(&error, 0) });
                }
                if errors.is_empty() { Received::Nothing } else { Received::Errors(errors) }
            }
        }
    }

    /// Whether there is a sparse space for datagrams of up to `size` bytes; makes one if need be.
    fn has_sparse_space(&mut self, size: usize) -> bool {
        if !self.sparse.as_ref().is_some_and(|sparse| sparse.fits(size)) {
            // Without addresses for it batches stay small.
            self.sparse = SparseSpace::new(&self.pool, size).ok();
        }
        self.sparse.is_some()
    }

    /// Receives up to `wanted` datagrams into the scratch, each into a place of `size` bytes.
    fn receive_directly(
        &mut self,
        socket: BorrowedFd<'_>,
        (size, control_bytes): (usize, usize),
        wanted: usize,
    ) -> io::Result<usize> {
        resize_scratch(&mut self.scratch, &mut self.scratch_bytes, &self.pool, wanted * size);
        let count = self.messages.receive(socket, self.scratch.space(wanted * size), (size, size), control_bytes)?;
        self.step = Some(size);
        Ok(count)
    }

    /// Receives up to `wanted` datagrams into the sparse space, and copies them into the scratch.
    fn receive_sparsely(
        &mut self,
        socket: BorrowedFd<'_>,
        (size, control_bytes): (usize, usize),
        wanted: usize,
    ) -> io::Result<usize> {
        let Some(sparse) = &mut self.sparse else { return Err(io::ErrorKind::OutOfMemory.into()) };
        let stride = sparse.stride();
        let count = self.messages.receive(socket, sparse.places(wanted), (size, stride), control_bytes)?;
        let lengths = || self.messages.lengths(count).map(move |length| length.min(size));
        sparse.note_received(lengths());
        let needed = lengths().sum::<usize>();
        resize_scratch(&mut self.scratch, &mut self.scratch_bytes, &self.pool, needed.max(SPARSE_SCRATCH_BYTES));
        let mut rest = self.scratch.space(needed);
        for (place, length) in sparse.places(count).chunks_exact(stride).zip(lengths()) {
            let (own, others) = rest.split_at_mut(length);
            own.copy_from_slice(&place[..length]);
            rest = others;
        }
        sparse.trim();
        self.step = None;
        Ok(count)
    }

    /// The datagrams of the last call, as views of the scratch.
    fn batch(&mut self, slot: u32, count: usize, size: usize) -> Vec<Datagram> {
        let mut batch = std::mem::take(&mut self.spare);
        let bytes = self.messages.lengths(count).map(|length| length.min(size)).sum::<usize>();
        let received = self.scratch.received(self.step.map_or(bytes, |step| step * count));
        let Some(state) = self.sockets.get_mut(&slot) else { return batch };
        state.resize(count, bytes);
        let mut start = 0;
        for place in 0..count {
            let mut incoming = self.messages.take_incoming(place, state.reports_control);
            let ancillary = state.ancillary(&mut incoming, || self.messages.unix_source(place));
            let length = incoming.length.min(size);
            let first = start;
            start += self.step.unwrap_or(length);
            // A connected socket has one peer. A datagram without a source is of no use.
            let source = if state.is_unix { Some(Datagram::NO_SOURCE) } else { incoming.source.or(state.peer) };
            let Some(source) = source else { continue };
            if let Some(drops) = incoming.facts.drops {
                state.note_drops(drops);
            }
            let is_run = |step: &std::num::NonZeroU16| usize::from(step.get()) < length;
            batch.push(Datagram {
                payload: received.slice(first..first + length),
                source,
                local: incoming.facts.local,
                ecn: incoming.facts.ecn,
                ttl: incoming.facts.ttl,
                segment_size: incoming.facts.segment_size.filter(is_run),
                truncated: incoming.truncated,
                ancillary,
            });
        }
        batch
    }

    /// The reports of the network in the error queue, and clears the error that is due with the socket's next call.
    pub(crate) fn network_errors(&mut self, slot: u32, socket: impl AsFd) -> Vec<DatagramError> {
        let mut errors = Vec::new();
        if self.sockets.get(&slot).is_some_and(|state| state.is_unix) {
            // It has no error queue: reading that would take a datagram.
            let _ = rustix::net::sockopt::socket_error(socket);
            return errors;
        }
        self.read_errors(socket.as_fd(), |error, destination| {
            if error.is_remote {
                let code = io::Error::from_raw_os_error(error.errno);
                errors.push(DatagramError { destination, reason: reason(&code, error.mtu) });
            }
        });
        errors
    }

    /// Reads up to [`ERRORS_MAX`] entries of the error queue. Under a flood of reports the rest follows with the next
    /// call.
    fn read_errors(&mut self, socket: BorrowedFd<'_>, mut each: impl FnMut(QueuedError, Option<SocketAddr>)) {
        for _ in 0..ERRORS_MAX {
            let Some((error, destination)) = self.messages.next_error(socket) else { break };
            each(error, destination);
        }
        // Otherwise the next call returns it.
        let _ = rustix::net::sockopt::socket_error(socket);
    }
}

impl DatagramState {
    /// The ancillary data of a datagram, if it has any. Descriptors above the limit are closed, and the datagram counts as
    /// truncated.
    fn ancillary(&self, incoming: &mut Incoming, peer: impl FnOnce() -> Address) -> Option<Box<Ancillary>> {
        let mut descriptors = std::mem::take(&mut incoming.descriptors);
        if descriptors.len() > self.descriptors_max {
            descriptors.truncate(self.descriptors_max);
            incoming.truncated = true;
        }
        let messages = std::mem::take(&mut incoming.facts.others);
        if !self.is_unix && messages.is_empty() {
            return None;
        }
        let mut ancillary = Ancillary::received(descriptors, messages);
        ancillary.credentials = incoming.facts.credentials;
        ancillary.peer = self.is_unix.then(peer);
        Some(Box::new(ancillary))
    }

    /// Whether the next batch would need too much memory if each of its datagrams were as long as they may be.
    fn takes_sparse_space(&self) -> bool {
        self.batch > BATCH_MIN && self.batch * self.buffer_bytes > BATCH_BYTES_MAX
    }

    /// Counts drops: `drops` is the kernel's count when a datagram came.
    fn note_drops(&mut self, drops: u32) {
        let more = drops.wrapping_sub(self.kernel_drops);
        // A datagram that came before the socket was added has a lower count.
        if more <= u32::MAX / 2 {
            self.drops += u64::from(more);
            self.kernel_drops = drops;
        }
    }

    /// Sizes the next batch by the number of datagrams in the last one, and by their bytes.
    fn resize(&mut self, count: usize, bytes: usize) {
        let most = if bytes <= count * SHORT_BYTES {
            // More than one block of memory has room for come into a sparse space.
            SparseSpace::places_max(self.buffer_bytes)
        } else {
            BATCH_BYTES_MAX / self.buffer_bytes
        };
        if count == self.batch {
            self.batch *= 2;
            self.small_batches = 0;
        } else if count <= self.batch / 4 {
            self.small_batches += 1;
            if self.small_batches >= SMALL_BATCHES {
                (self.batch, self.small_batches) = (self.batch / 2, 0);
            }
        } else {
            self.small_batches = 0;
        }
        self.batch = self.batch.min(most.min(BATCH_MAX)).max(BATCH_MIN);
    }
}

/// Replaces a scratch that is too short for the next batch, or much too long.
fn resize_scratch(scratch: &mut Scratch, scratch_bytes: &mut usize, pool: &Pool, needed: usize) {
    if *scratch_bytes < needed || *scratch_bytes / SCRATCH_EXCESS > needed {
        *scratch = Scratch::with_room(pool, 0, needed.next_multiple_of(8));
        *scratch_bytes = needed;
    }
}

impl std::fmt::Debug for DatagramIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramIo").field("sockets", &self.sockets.len()).finish_non_exhaustive()
    }
}

/// Whether an error may be a report about an earlier datagram.
fn is_of_network(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied};
    let kinds = [ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied];
    kinds.contains(&error.kind())
        || matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::EPROTO | libc::ENOPROTOOPT | libc::EHOSTDOWN))
}

fn reason(error: &io::Error, mtu: u32) -> DatagramErrorReason {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => DatagramErrorReason::PortUnreachable,
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETDOWN) => {
            DatagramErrorReason::Unreachable
        }
        Some(libc::EMSGSIZE) => DatagramErrorReason::TooLong { mtu: (mtu > 0).then_some(mtu) },
        _ => DatagramErrorReason::Refused(error.kind()),
    }
}

/// The first batch of a socket, and the smallest.
const BATCH_MIN: usize = 4;

/// So many small batches in a row halve the next one.
const SMALL_BATCHES: u8 = 16;

/// The most memory of a batch of more than [`BATCH_MIN`] datagrams: 64 of the default length are 128 KiB. A larger batch of
/// [short](SHORT_BYTES) datagrams comes into a sparse space.
const BATCH_BYTES_MAX: usize = 512 * 1024;

/// Datagrams are short if a batch has no more bytes a datagram: then a copy costs far less than a call saves.
const SHORT_BYTES: usize = 4096;

/// The least scratch for copies of short datagrams. No longer one is too long for them.
const SPARSE_SCRATCH_BYTES: usize = BATCH_BYTES_MAX / SCRATCH_EXCESS;

/// A scratch that is longer by this factor than the next batch is replaced.
const SCRATCH_EXCESS: usize = 16;

/// Entries of the error queue that are read at a time.
const ERRORS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use std::os::unix::net::UnixDatagram;

    use tidegate_buffer::{Transmit, Transmits};

    use super::*;

    #[test]
    fn the_kernel_opens_no_descriptor_that_is_not_asked_for() {
        let pool = Pool::new();
        let mut io = DatagramIo::new(&pool);
        let (sender, receiver) = UnixDatagram::pair().expect("a pair");
        io.add(1, &sender, &DatagramOptions::default()).expect("a socket");
        for (credentials, descriptors_max, expected) in
            [(false, 0, 0), (true, 0, 0), (false, 2, 2), (true, 2, 2), (true, 9, 5)]
        {
            socket2::SockRef::from(&receiver).set_passcred(credentials).expect("an option");
            io.add(2, &receiver, &DatagramOptions { descriptors_max, ..Default::default() }).expect("a socket");
            let mut ancillary = Ancillary::default();
            for _ in 0..5 {
                ancillary.attach(sender.try_clone().expect("a descriptor")).expect("room");
            }
            let mut transmits = Transmits::new(&pool);
            transmits.push(Transmit::with_ancillary(b"ebb".to_vec(), ancillary));
            assert_eq!(io.send(1, &sender, &mut transmits).sent, 1);
            let control_bytes = io.sockets[&2].control_bytes;
            let mut space = [0; 8];
            let received = io.messages.receive(receiver.as_fd(), &mut space, (8, 8), control_bytes);
            assert_eq!(received.expect("a datagram"), 1);
            let incoming = io.messages.take_incoming(0, false);
            let came = (incoming.length, incoming.descriptors.len(), incoming.facts.credentials.is_some());
            assert_eq!(came, (3, expected, credentials));
            assert_eq!(incoming.truncated, expected < 5);
        }
    }

    #[test]
    fn a_batch_that_fills_the_places_there_are_says_that_there_may_be_more() {
        let pool = Pool::new();
        let mut io = DatagramIo::new(&pool);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_nonblocking(true).expect("an option");
        io.add(1, &socket, &DatagramOptions { payload_bytes_max: 65_535, ..Default::default() }).expect("a socket");
        // As another socket of the driver has it, whose runs are far longer.
        io.sparse = Some(SparseSpace::new(&pool, 64 * 65_535).expect("addresses"));
        io.sockets.get_mut(&1).expect("it was added").batch = 16;
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a peer");
        for number in 0..6_u8 {
            peer.send_to(&[number], socket.local_addr().expect("an address")).expect("room");
        }
        let (mut came, mut is_first) = (0, true);
        while came < 6 {
            match io.receive(1, &socket) {
                Received::Batch(batch, has_more) => {
                    came += batch.len();
                    assert!(!is_first || has_more == (batch.len() == 4), "{} {has_more}", batch.len());
                    is_first = false;
                }
                Received::Nothing => {}
                Received::Errors(errors) => panic!("{errors:?}"),
            }
        }
    }

    #[test]
    fn drops_before_a_socket_was_added_do_not_count() {
        let mut io = DatagramIo::new(&Pool::new());
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        io.add(1, &socket, &DatagramOptions::default()).expect("a socket");
        let state = io.sockets.get_mut(&1).expect("it was added");
        state.kernel_drops = u32::MAX - 1;
        for (kernel, ours) in [(u32::MAX - 3, 0), (u32::MAX - 1, 0), (u32::MAX, 1), (2, 4), (2, 4)] {
            state.note_drops(kernel);
            assert_eq!(state.drops, ours, "{kernel}");
        }
    }
}
