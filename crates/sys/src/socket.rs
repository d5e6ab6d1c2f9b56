//! `Socket`: a stream or a listener that a driver can take over.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{Domain, SockRef, Type};

use crate::driver::{Accepted, Side};
use crate::options::{ListenOptions, SocketOptions, take_urgent_bytes_inline};
use crate::socket_address;
use tidegate_buffer::{Address, Credentials};

/// An owned stream or listener that no driver has taken over yet. It may be moved to another thread.
#[derive(Debug)]
pub enum Socket {
    /// A descriptor of the system, not blocking.
    Descriptor(OwnedFd),
    /// A socket of a simulated network, by its number there.
    Simulated(u64),
}

impl Socket {
    /// Listens at `address`. Replaces a socket file at a Unix path if no process listens at it any more.
    ///
    /// # Errors
    /// Those of the system, most often `AddrInUse`.
    pub fn listen(address: &Address, options: &ListenOptions) -> io::Result<Self> {
        if let Address::Unix(path) = address {
            remove_stale(path, Type::STREAM)?;
        }
        let socket = bound(address, options)?;
        socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
        Ok(Self::Descriptor(socket.into()))
    }

    /// The address of IP at which a listener with these options could listen, with its port if that of `address` is 0. Nothing
    /// listens at it meanwhile: a peer that connects is refused.
    ///
    /// # Errors
    /// Those of the system, most often `AddrInUse`: something listens at the address, whether it shares it or not, unless these
    /// options share it too.
    pub fn find_address(address: &Address, options: &ListenOptions) -> io::Result<Address> {
        address_of(bound(address, options)?.as_fd(), Side::Local)
    }

    /// Takes over a listener that was opened elsewhere, and sets the options of its streams.
    ///
    /// # Errors
    /// Those of the system.
    pub fn from_listener(listener: impl Into<OwnedFd>, options: &ListenOptions) -> io::Result<Self> {
        let descriptor = listener.into();
        let socket = SockRef::from(&descriptor);
        socket.set_nonblocking(true)?;
        let is_ip = socket.local_addr()?.as_socket().is_some();
        options.stream.apply(&socket, is_ip)?;
        Ok(Self::Descriptor(descriptor))
    }

    /// Takes over a connected stream, such as one of `std`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn from_stream(stream: impl Into<OwnedFd>) -> io::Result<Self> {
        let descriptor = stream.into();
        let socket = SockRef::from(&descriptor);
        socket.set_nonblocking(true)?;
        take_urgent_bytes_inline(&socket)?;
        Ok(Self::Descriptor(descriptor))
    }

    /// A second handle to the same socket.
    ///
    /// # Errors
    /// Those of the system, or `Unsupported` in a simulation.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::Descriptor(self.descriptor()?.try_clone_to_owned()?))
    }

    /// The address of one side of the socket.
    ///
    /// # Errors
    /// Those of the system, or `Unsupported` in a simulation.
    pub fn address(&self, side: Side) -> io::Result<Address> {
        address_of(self.descriptor()?, side)
    }

    /// The descriptor of the socket.
    ///
    /// # Errors
    /// `Unsupported` in a simulation.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Self::Descriptor(descriptor) => Ok(descriptor.as_fd()),
            Self::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// A socket at an address, which does not listen.
fn bound(address: &Address, options: &ListenOptions) -> io::Result<socket2::Socket> {
    let socket = new_stream(address)?;
    if let Address::Ip(ip) = address {
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(options.reuse_port)?;
        if ip.is_ipv6() {
            // Explicitly in both cases: the system has a default of its own (net.ipv6.bindv6only).
            socket.set_only_v6(options.only_v6)?;
        }
    }
    if let (Address::Unix(_), Some(mode)) = (address, options.unix_mode) {
        // Before `bind` creates the file, which gets the mode of the socket.
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    }
    options.stream.apply(&SockRef::from(&socket), address.ip().is_some())?;
    socket.bind(&socket_address::to_system(address)?)?;
    Ok(socket)
}

/// Accepts the next stream of a listener, if there is one.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<Option<Accepted>> {
    loop {
        match rustix::net::acceptfrom_with(&listener, SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC)) {
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
            Ok((descriptor, peer)) => {
                let peer = socket_address::of_peer(peer);
                return Ok(Some(Accepted { socket: Socket::Descriptor(descriptor), peer }));
            }
        }
    }
}

/// Begins to connect. The second value is whether the connect is still in progress.
pub(crate) fn connect(
    address: &Address,
    local: Option<&Address>,
    options: &SocketOptions,
) -> io::Result<(OwnedFd, bool)> {
    let socket = new_stream(address)?;
    options.apply(&SockRef::from(&socket), address.ip().is_some())?;
    if let Some(local) = local {
        bind_local(&socket, local)?;
    }
    let pending = match socket.connect(&socket_address::to_system(address)?) {
        Ok(()) => false,
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => true,
        Err(error) => return Err(error),
    };
    Ok((socket.into(), pending))
}

/// Binds the near end of a stream that is going to be connected.
fn bind_local(socket: &socket2::Socket, local: &Address) -> io::Result<()> {
    if local.ip().is_some_and(|ip| ip.port() == 0) {
        // The kernel then chooses the port when the peer's address is known. Only the pair of both addresses has to be
        // free, so there may be more connections than ports.
        let on: libc::c_int = 1;
        // SAFETY: the option is an `int`, as the pointer and the length state; the descriptor is open while the socket
        // is borrowed. If the system does not know the option, binding chooses the port at once.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_IP,
                libc::IP_BIND_ADDRESS_NO_PORT,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            );
        }
    }
    socket.bind(&socket_address::to_system(local)?)
}

pub(crate) fn address_of(descriptor: BorrowedFd<'_>, side: Side) -> io::Result<Address> {
    let socket = SockRef::from(&descriptor);
    let address = match side {
        Side::Local => socket.local_addr()?,
        Side::Peer => socket.peer_addr()?,
    };
    Ok(socket_address::from_system(&address))
}

/// The process at the other end of a Unix stream, at the time when it connected or began to listen.
///
/// # Errors
/// Those of the system; `Unsupported` for a socket of another family.
pub(crate) fn peer_credentials(descriptor: BorrowedFd<'_>) -> io::Result<Credentials> {
    if !SockRef::from(&descriptor).local_addr()?.is_unix() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // Not through rustix, which assumes that a process always has a number.
    // SAFETY: the option is a `ucred`, as the pointer and the length state, and any bytes are a valid one; the
    // descriptor is open while it is borrowed.
    let failed = unsafe {
        libc::getsockopt(
            descriptor.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { process: credentials.pid, user: credentials.uid, group: credentials.gid })
}

/// The number of bytes in the kernel's send buffer that the peer has not acknowledged.
pub(crate) fn unacknowledged(descriptor: BorrowedFd<'_>) -> Option<u64> {
    count(descriptor, libc::TIOCOUTQ)
}

/// Whether the kernel has bytes to receive.
pub(crate) fn has_input(descriptor: BorrowedFd<'_>) -> bool {
    count(descriptor, libc::FIONREAD).is_some_and(|bytes| bytes > 0)
}

/// Whether the error of a send that failed was the error of the connection. The kernel reports that once: after the
/// bytes that arrived before it, a receive then finds the end, as if the peer had ended its side in order.
///
/// `EPIPE` is another case: the peer ended its side before the connection broke, so the end that follows is true.
pub(crate) fn took_error(socket: &OwnedFd, error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|errno| errno != libc::EPIPE) && is_over(socket)
}

/// Whether nothing can be sent or received any more: operations in flight are about to end.
pub(crate) fn is_over(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().contains(PollFlags::HUP)
}

/// Whether a connect has succeeded or failed.
pub(crate) fn is_connect_decided(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec::default())).is_err() || !polled[0].revents().is_empty()
}

/// Whether the peer has ended its side; bytes of it may be unread.
pub(crate) fn has_peer_ended(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().contains(PollFlags::RDHUP)
}

/// The result of an ioctl request that returns one number.
fn count(descriptor: BorrowedFd<'_>, request: libc::Ioctl) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one `int` to where their argument points, and the descriptor is open while borrowed.
    let failed = unsafe { libc::ioctl(descriptor.as_raw_fd(), request, &raw mut bytes) };
    if failed == 0 { u64::try_from(bytes).ok() } else { None }
}

fn new_stream(address: &Address) -> io::Result<socket2::Socket> {
    let domain = match address {
        Address::Ip(ip) => Domain::for_address(*ip),
        Address::Unix(_) | Address::Abstract(_) => Domain::UNIX,
        Address::Vsock { .. } => Domain::VSOCK,
    };
    socket2::Socket::new(domain, Type::STREAM.nonblocking().cloexec(), None)
}

/// Removes the file of a socket of a kind which no process has open, such as that of a process that died.
pub(crate) fn remove_stale(path: &Path, kind: Type) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    // The socket is non-blocking: a blocking connect would wait while the backlog of a live listener is full.
    let address = Address::Unix(path.to_path_buf());
    let probe = socket2::Socket::new(Domain::UNIX, kind.nonblocking().cloexec(), None)?;
    match probe.connect(&socket_address::to_system(&address)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Ok(()),
    }
}
