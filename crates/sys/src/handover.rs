//! Handing listeners over from one process to the next, across a Unix socket.
//!
//! Listeners are passed as descriptors, so the connections in their backlogs come along, and datagram sockets with the
//! datagrams in their queues. One message carries at most
//! [`PER_MESSAGE_MAX`] descriptors; a header has the total number. The receiver checks everything, and closes the
//! descriptors of a handover that fails. Every step has a deadline, which a trickle of bytes does not extend.
//!
//! Only processes of the same user can connect to the socket at a path. The order of the messages is the engine's: see
//! its `takeover.rs`.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use socket2::{Domain, SockAddr, SockRef, Type};

use tidegate_buffer::Address;

use crate::driver::Side;
use crate::{socket, socket_address};

/// Sends listeners, or other descriptors; [`receive`] or [`receive_any`] is the other end.
///
/// # Errors
/// `InvalidInput` if they are more than [`LISTENERS_MAX`]; `TimedOut` at the deadline; otherwise those of the system.
pub fn send(stream: &UnixStream, listeners: &[BorrowedFd<'_>], deadline: Instant) -> io::Result<()> {
    if listeners.len() > LISTENERS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "so many listeners cannot be handed over"));
    }
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..].copy_from_slice(&(listeners.len() as u32).to_le_bytes());
    write_all(stream, &header, deadline)?;
    for some in listeners.chunks(PER_MESSAGE_MAX) {
        send_some(stream, some, deadline)?;
    }
    Ok(())
}

/// Sends one message: descriptors, and a byte with their number. Without that byte nothing would be sent.
fn send_some(stream: &UnixStream, some: &[BorrowedFd<'_>], deadline: Instant) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(some)), "there is room for as many as a message carries");
    let count = [some.len() as u8];
    loop {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match rustix::net::sendmsg(stream, &[IoSlice::new(&count)], &mut control, SendFlags::NOSIGNAL) {
            Ok(1) => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(timed_out(error.into())),
        }
    }
}

/// Receives the sockets of [`send`]: listening stream sockets and bound datagram sockets.
///
/// # Errors
/// `InvalidData` if the other end sent something else; `UnexpectedEof` if it has ended the stream; `TimedOut` at the
/// deadline; otherwise those of the system. The descriptors that had arrived are closed.
pub fn receive(stream: &UnixStream, deadline: Instant) -> io::Result<Vec<OwnedFd>> {
    let listeners = receive_any(stream, deadline)?;
    let others = listeners.iter().filter(|socket| !is_datagram_socket(socket.as_fd()));
    others.map(AsFd::as_fd).try_for_each(check)?;
    Ok(listeners)
}

/// Receives the descriptors of [`send`], whatever they are.
///
/// # Errors
/// As [`receive`].
pub fn receive_any(stream: &UnixStream, deadline: Instant) -> io::Result<Vec<OwnedFd>> {
    let mut header = [0; HEADER_BYTES];
    read_exact(stream, &mut header, deadline)?;
    let count = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    if header[..4] != MAGIC || count > LISTENERS_MAX {
        return Err(malformed("the message is no handover of listeners"));
    }
    let mut listeners = Vec::new();
    while listeners.len() < count {
        receive_some(stream, &mut listeners, deadline)?;
        if listeners.len() > count {
            return Err(malformed("more listeners came than were announced"));
        }
    }
    Ok(listeners)
}

fn receive_some(stream: &UnixStream, into: &mut Vec<OwnedFd>, deadline: Instant) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    // Dropping the buffer closes the descriptors that are left in it.
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut count = [0];
    let received = loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let parts = &mut [IoSliceMut::new(&mut count)];
        match rustix::net::recvmsg(stream, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other.map_err(|error| timed_out(error.into()))?,
        }
    };
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let before = into.len();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            into.extend(descriptors);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // The kernel drops descriptors for which the process has no room.
        return Err(io::Error::other("not all listeners could be received: are there descriptors left?"));
    }
    let came = into.len() - before;
    if came == 0 || came != usize::from(count[0]) {
        return Err(malformed("another number of listeners came than was announced"));
    }
    Ok(())
}

/// Sends bytes with their length; [`read_block`] is the other end.
///
/// # Errors
/// `InvalidInput` if they are more than [`BLOCK_BYTES_MAX`]; `TimedOut` at the deadline; otherwise those of the system.
pub fn write_block(stream: &UnixStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    if bytes.len() > BLOCK_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "so many bytes cannot be handed over"));
    }
    write_all(stream, &(bytes.len() as u32).to_le_bytes(), deadline)?;
    write_all(stream, bytes, deadline)
}

/// Receives the bytes of [`write_block`].
///
/// # Errors
/// `InvalidData` if they are more than [`BLOCK_BYTES_MAX`]; otherwise as [`read_exact`].
pub fn read_block(stream: &UnixStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    read_exact(stream, &mut length, deadline)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > BLOCK_BYTES_MAX {
        return Err(malformed("the block is too long"));
    }
    let mut bytes = vec![0; length];
    read_exact(stream, &mut bytes, deadline)?;
    Ok(bytes)
}

/// Sends bytes.
///
/// # Errors
/// `TimedOut` at the deadline; otherwise those of the system.
pub fn write_all(mut stream: &UnixStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(timed_out(error)),
        }
    }
    Ok(())
}

/// Receives exactly as many bytes as `room` has.
///
/// # Errors
/// `UnexpectedEof` if the stream ends before; `TimedOut` at the deadline; otherwise those of the system.
pub fn read_exact(mut stream: &UnixStream, mut room: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !room.is_empty() {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => room = &mut room[read..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(timed_out(error)),
        }
    }
    Ok(())
}

/// Receives the bytes that have arrived, as many as `room` has, without waiting. Returns their number.
///
/// # Errors
/// `UnexpectedEof` if the other end has ended the stream; otherwise those of the system.
pub fn read_arrived(stream: &UnixStream, room: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::net::recv(stream, &mut *room, RecvFlags::DONTWAIT) {
            Ok((0, _)) if !room.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((read, _)) => return Ok(read),
            Err(rustix::io::Errno::AGAIN) => return Ok(0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until a process connects, for at most `patience`, or without a limit if that is `None`. Returns `None` if no
/// process has connected by then.
///
/// The kernel reserves a descriptor before it waits, so a process that has used up its descriptors can still accept one
/// connection.
///
/// # Errors
/// Those of the system.
pub fn accept(listener: &UnixListener, patience: Option<Duration>) -> io::Result<Option<UnixStream>> {
    SockRef::from(listener).set_read_timeout(patience)?;
    match listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Listens at a path at which no file exists, so that only processes of this user can connect.
///
/// # Errors
/// Those of the system.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None)?;
    // Before `bind` creates the file, which gets the mode of the socket.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

/// Connects to the process that listens at a path. Returns `None` if there is no file, or a socket file at which no
/// process listens any more.
///
/// # Errors
/// `InvalidInput` if there is a file that is no socket; `TimedOut` if the backlog stays full; otherwise those of the
/// system.
pub fn connect(path: &Path, patience: Duration) -> io::Result<Option<UnixStream>> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is something that is no socket"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None)?;
    // The write timeout bounds connecting as well.
    socket.set_write_timeout(Some(patience))?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(Some(OwnedFd::from(socket).into())),
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(timed_out(error)),
    }
}

/// The process at the other end of a Unix stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process number; zero if it is in a PID namespace that is not visible to us.
    pub process: i32,
    /// Whether its user is that of this process.
    pub is_same_user: bool,
}

/// The process at the other end, at the time when it connected or began to listen.
///
/// # Errors
/// Those of the system.
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = socket::peer_credentials(stream.as_fd())?;
    let is_same_user = credentials.user == rustix::process::geteuid().as_raw();
    Ok(Peer { process: credentials.process, is_same_user })
}

/// Ends a listener's wait for connections, in any thread.
pub fn wake(listener: &UnixListener) {
    // It fails only if the listener was shut down before.
    let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
}

/// Checks that a descriptor is a listening stream socket: TCP, Unix, or between a virtual machine and its host.
///
/// # Errors
/// `InvalidData` if it is anything else.
pub fn check(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let socket = SockRef::from(&descriptor);
    let is_known = matches!(socket.domain(), Ok(Domain::IPV4 | Domain::IPV6 | Domain::UNIX | Domain::VSOCK));
    if is_known && matches!(socket.r#type(), Ok(Type::STREAM)) && matches!(socket.is_listener(), Ok(true)) {
        return Ok(());
    }
    Err(malformed("a descriptor is no listening stream socket"))
}

/// The address of a listening stream socket.
///
/// # Errors
/// `InvalidData` if the descriptor is anything else; otherwise those of the system.
pub fn listener_address(descriptor: BorrowedFd<'_>) -> io::Result<Address> {
    check(descriptor)?;
    socket::address_of(descriptor, Side::Local)
}

/// Whether an IPv6 socket accepts only IPv6 (IPV6_V6ONLY); `None` for a socket of another family. The kernel keeps the
/// value from the moment at which the socket is bound.
///
/// # Errors
/// Those of the system.
pub fn is_only_v6(descriptor: BorrowedFd<'_>) -> io::Result<Option<bool>> {
    let socket = SockRef::from(&descriptor);
    if socket.domain()? == Domain::IPV6 { socket.only_v6().map(Some) } else { Ok(None) }
}

/// Whether a descriptor is a datagram socket that is bound: to a port (UDP), or to the name of a Unix socket.
#[must_use]
pub fn is_datagram_socket(descriptor: BorrowedFd<'_>) -> bool {
    datagram_address(descriptor).is_some()
}

/// The address of such a socket.
#[must_use]
pub fn datagram_address(descriptor: BorrowedFd<'_>) -> Option<Address> {
    let socket = SockRef::from(&descriptor);
    if !matches!(socket.r#type(), Ok(Type::DGRAM)) {
        return None;
    }
    let address = socket.local_addr().ok()?;
    match address.as_socket() {
        Some(address) => (address.port() > 0).then_some(Address::Ip(address)),
        None => Some(socket_address::from_system(&address)).filter(|address| *address != Address::Unix(PathBuf::new())),
    }
}

/// The time that is left, for a socket option in which zero means no timeout.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    // The option counts microseconds.
    if left < Duration::from_micros(1) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Maps the kernel's error for a timeout that has passed to `TimedOut`.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The most listeners of one handover: one for each loop that a server may have.
pub const LISTENERS_MAX: usize = 1024;

/// The most bytes of one block.
pub const BLOCK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The most descriptors in one message: the kernel takes no more (SCM_MAX_FD).
pub const PER_MESSAGE_MAX: usize = 253;

/// The first version of Tidegate's handover protocol.
const MAGIC: [u8; 4] = *b"TgH1";

/// The magic, and a count of four bytes.
const HEADER_BYTES: usize = 8;

const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(PER_MESSAGE_MAX));

/// The number of processes that can wait to take over.
const BACKLOG: i32 = 16;

const _: () = assert!(PER_MESSAGE_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests;
