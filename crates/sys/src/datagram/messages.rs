//! `Messages`: the system calls for batches of datagrams.
//!
//! The arrays that the kernel reads and writes belong to a `Messages`. Their pointers are set for each call, and no
//! pointer is used after the call. Everything in them is bytes or numbers (`control.rs`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use tidegate_buffer::{Address, Ancillary, Charge, Ecn, LocalAddress, Pool};

use super::control::{CONTROL_BYTES, Control, Facts, Name, QueuedError};

/// Arrays for a batch.
pub(super) struct Messages {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    /// The memory above, in the loop's ledger.
    _charge: Charge,
}

/// A datagram or a run to send.
pub(super) struct Outgoing<'a> {
    pub(super) payload: &'a [u8],
    pub(super) destination: Option<SocketAddr>,
    pub(super) local: LocalAddress,
    pub(super) ecn: Ecn,
    pub(super) segment_size: Option<u16>,
    /// The socket is one of IPv6.
    pub(super) socket_is_v6: bool,
    /// The packet is one of IPv6.
    pub(super) to_v6: bool,
    /// Its peer is a Unix socket that [`is_unix_name`](super::control::is_unix_name) accepts, if it has one.
    pub(super) ancillary: Option<&'a Ancillary>,
}

/// A received datagram or run: its length, its source, and the facts beside it.
pub(super) struct Incoming {
    pub(super) length: usize,
    pub(super) source: Option<SocketAddr>,
    pub(super) facts: Facts,
    pub(super) descriptors: Vec<OwnedFd>,
    pub(super) truncated: bool,
}

impl Messages {
    pub(super) fn new(pool: &Pool) -> Self {
        let each = size_of::<libc::mmsghdr>() + size_of::<libc::iovec>() + size_of::<Name>() + size_of::<Control>();
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            headers: (0..BATCH_MAX).map(|_| empty_header()).collect(),
            vectors: vec![vector; BATCH_MAX].into(),
            names: vec![Name::EMPTY; BATCH_MAX].into(),
            controls: vec![Control::EMPTY; BATCH_MAX].into(),
            _charge: pool.charge(each * BATCH_MAX),
        }
    }

    /// Receives a batch: each datagram into the first `size` bytes of the next `stride` bytes of `space`, with up to
    /// `control_bytes` of control messages. Returns their number, which is not zero.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if there is none.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        space: &mut [u8],
        (size, stride): (usize, usize),
        control_bytes: usize,
    ) -> io::Result<usize> {
        let control_bytes = control_bytes.min(CONTROL_BYTES);
        let mut count = 0;
        for (chunk, place) in space.chunks_exact_mut(stride).zip(0..BATCH_MAX) {
            let chunk = &mut chunk[..size];
            self.vectors[place] = libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len() };
            self.prepare(place, size_of::<Name>(), control_bytes);
            count = place + 1;
        }
        loop {
            // SAFETY: the headers up to `count` point to vectors, names and controls of `self` and to `space`, which are
            // all borrowed mutably, and the lengths beside the pointers are theirs.
            let received = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    count as libc::c_uint,
                    libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
                    ptr::null_mut(),
                )
            };
            if received >= 0 {
                return Ok(received as usize);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// The lengths of the first `count` datagrams of the last batch.
    pub(super) fn lengths(&self, count: usize) -> impl Iterator<Item = usize> {
        self.headers[..count].iter().map(|header| header.msg_len as usize)
    }

    /// Takes a datagram of the last batch, by its place; its control messages as well if `with_others`.
    pub(super) fn take_incoming(&mut self, place: usize, with_others: bool) -> Incoming {
        let header = &mut self.headers[place];
        let lost = libc::MSG_TRUNC | libc::MSG_CTRUNC;
        // A second call finds no control messages, and so no descriptors.
        let control = std::mem::take(&mut header.msg_hdr.msg_controllen);
        let mut facts = self.controls[place].facts(control, with_others);
        let own = |number| {
            // SAFETY: the kernel has opened the descriptor for this process with this datagram, and reports it once. A
            // control message of it is taken once.
            unsafe { OwnedFd::from_raw_fd(number) }
        };
        let numbers = std::mem::take(&mut facts.descriptors);
        Incoming {
            length: header.msg_len as usize,
            source: self.names[place].decode(header.msg_hdr.msg_namelen as usize),
            facts,
            descriptors: numbers.into_iter().map(own).collect(),
            truncated: header.msg_hdr.msg_flags & lost != 0,
        }
    }

    /// The Unix socket that a datagram of the last batch came from.
    pub(super) fn unix_source(&self, place: usize) -> Address {
        self.names[place].decode_unix(self.headers[place].msg_hdr.msg_namelen as usize)
    }

    /// Sends up to [`BATCH_MAX`] datagrams or runs with one call, and returns how many of them the kernel took: at least
    /// one.
    ///
    /// # Errors
    /// That of the first datagram.
    pub(super) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        messages: impl Iterator<Item = Outgoing<'a>>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (message, place) in messages.zip(0..BATCH_MAX) {
            // The kernel only reads the payload.
            let base = message.payload.as_ptr().cast_mut().cast();
            self.vectors[place] = libc::iovec { iov_base: base, iov_len: message.payload.len() };
            let unix = message.ancillary.and_then(|ancillary| ancillary.peer.as_ref());
            let name = match (unix, message.destination) {
                (Some(address), _) => self.names[place].encode_unix(address),
                (None, Some(address)) => self.names[place].encode(address, message.socket_is_v6),
                (None, None) => 0,
            };
            let control = &mut self.controls[place];
            let mut length = control.encode(message.to_v6, message.local, message.ecn, message.segment_size);
            if let Some(ancillary) = message.ancillary {
                length = control.encode_ancillary(length, ancillary);
            }
            self.prepare(place, name, length);
            count = place + 1;
        }
        #[cfg(test)]
        if let Some(errno) = injected::next_error() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        loop {
            // SAFETY: the headers up to `count` point to vectors, names and controls of `self`, which is borrowed
            // mutably, and to payloads that live for `'a`; the lengths beside the pointers are theirs. The kernel only
            // reads them.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    count as libc::c_uint,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if sent >= 0 {
                return Ok(sent as usize);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Takes the next entry of the socket's error queue, with the destination of the datagram that it is about.
    pub(super) fn next_error(&mut self, socket: BorrowedFd<'_>) -> Option<(QueuedError, Option<SocketAddr>)> {
        self.vectors[0] = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        self.prepare(0, size_of::<Name>(), size_of::<Control>());
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header points to a vector without bytes, and to a name and controls of `self` with their lengths.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut self.headers[0].msg_hdr, flags) };
        if received < 0 {
            return None;
        }
        let header = &self.headers[0].msg_hdr;
        let error = self.controls[0].queued_error(header.msg_controllen)?;
        Some((error, self.names[0].decode(header.msg_namelen as usize)))
    }

    /// Points a header to the arrays, of which the kernel uses so many bytes.
    fn prepare(&mut self, place: usize, name: usize, control: usize) {
        let header = &mut self.headers[place];
        header.msg_len = 0;
        let header = &mut header.msg_hdr;
        header.msg_iov = &raw mut self.vectors[place];
        header.msg_iovlen = 1;
        header.msg_name = if name == 0 { ptr::null_mut() } else { (&raw mut self.names[place]).cast() };
        header.msg_namelen = name as libc::socklen_t;
        header.msg_control = if control == 0 { ptr::null_mut() } else { (&raw mut self.controls[place]).cast() };
        header.msg_controllen = control as _;
        header.msg_flags = 0;
    }
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: a header of zeroes is valid: null pointers, and lengths of zero.
    unsafe { std::mem::zeroed() }
}

/// Sets a socket option whose value is a number.
///
/// # Errors
/// The system's.
pub(super) fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_option_bytes(socket, level, name, &value.to_ne_bytes())
}

/// Sets a socket option whose value is a struct.
///
/// # Errors
/// The system's.
pub(super) fn set_option_bytes(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let (bytes, length) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    // SAFETY: the pointer and the length describe `value`, which the kernel only reads, and copies: it need not be aligned.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, bytes, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The datagrams that the kernel has dropped at a socket so far, modulo 2^32, if it says.
pub(super) fn drops_so_far(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut counts = [0_u32; SOCKET_COUNTS];
    let mut length = size_of_val(&counts) as libc::socklen_t;
    let name = libc::SO_MEMINFO;
    // SAFETY: the pointer and the length describe `counts`, of which the kernel writes at most so many bytes.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, counts.as_mut_ptr().cast(), &raw mut length)
    };
    (result == 0 && length as usize == size_of_val(&counts)).then(|| counts[SOCKET_COUNTS - 1])
}

/// The counts of `SO_MEMINFO`. The last is that of drops.
const SOCKET_COUNTS: usize = 9;

/// Datagrams of one call.
pub(super) const BATCH_MAX: usize = 64;

/// Errors of the next calls that send, for tests.
#[cfg(test)]
pub(super) mod injected {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    thread_local! {
        static ERRORS: RefCell<VecDeque<Option<i32>>> = const { RefCell::new(VecDeque::new()) };
    }

    /// The next calls of this thread fail so, one after the other; a call for which there is `None` is made.
    pub(in crate::datagram) fn fail_with(errors: impl IntoIterator<Item = Option<i32>>) {
        ERRORS.with_borrow_mut(|all| all.extend(errors));
    }

    pub(super) fn next_error() -> Option<i32> {
        ERRORS.with_borrow_mut(VecDeque::pop_front).flatten()
    }
}
