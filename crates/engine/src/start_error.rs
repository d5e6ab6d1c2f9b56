//! `StartError`: why a server did not start, and the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tidegate_sys::Address;

use crate::limits::MEMORY_PER_LOOP_MIN;

/// Why a server, or an [event loop](crate::EventLoop::on), did not start.
///
/// Its `Debug` equals its `Display`, because `main` prints the `Debug` of an error that it returns.
#[non_exhaustive]
pub enum StartError {
    /// The text is not an address.
    Address(Box<str>),
    /// Another socket listens there already.
    InUse(Address),
    /// A socket that a service manager passed listens there already, under another address.
    InUseByPassed {
        /// The address of the listener.
        address: Address,
        /// That of the passed socket.
        passed: Address,
    },
    /// A socket that was opened elsewhere accepts other versions of IP at `[::]` than the listener, and cannot change that.
    IpVersions {
        /// The address of both.
        address: Address,
        /// The listener accepts only IPv6 ([`ListenOptions::only_v6`](tidegate_sys::ListenOptions::only_v6)), and the
        /// socket IPv4 too; otherwise it is the other way round.
        only_v6: bool,
        /// A service manager passed the socket; otherwise a running server has opened it.
        is_passed: bool,
    },
    /// The system does not let us listen there.
    Listen(Address, io::Error),
    /// Several addresses cannot be used; this is the error of each.
    Several(Box<[StartError]>),
    /// The server has no listener.
    NoListener,
    /// The server has an address of its own, and nothing serves it.
    NotServed,
    /// The listeners that the environment announces cannot be used.
    Inherited(io::Error),
    /// The path cannot be used for a takeover, or the takeover from the server there failed.
    Takeover(PathBuf, io::Error),
    /// The low water mark is zero, or lies above the high one: a connection would never become writable again.
    WaterMarks,
    /// The memory is too little for this number of loops.
    Memory {
        /// [`Limits::memory_max`](crate::Limits::memory_max).
        bytes: usize,
        /// How many loops were to share it.
        loops: usize,
    },
    /// `TIDEGATE_BACKEND` names no known backend.
    Backend(Box<str>),
    /// io_uring was requested by name, and is not available: the kernel has none or is older than Linux 6.0, a sandbox
    /// forbids it, or descriptors or memory are used up.
    Uring(io::Error),
    /// The closure that makes codecs and handlers for a loop panicked.
    Panicked,
    /// The system failed in another way.
    System(io::Error),
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(text) => {
                write!(f, "'{text}' is no address: write IP:PORT, [IPV6]:PORT, localhost:PORT, unix:PATH or unix:@NAME")
            }
            Self::InUse(address) => write!(f, "{address} is in use: stop its listener, or choose another port"),
            Self::InUseByPassed { address, passed } => write!(
                f,
                "{address} is in use by the passed socket {passed}: write {passed} as the address of the listener, or change \
                 the address in the unit that opens the socket"
            ),
            Self::IpVersions { address, only_v6, is_passed } => write_ip_versions(f, address, *only_v6, *is_passed),
            Self::Listen(address, error) => {
                write!(f, "cannot listen on {address}: {error}{}", listen_advice(address, error))
            }
            Self::Several(errors) => errors.iter().enumerate().try_for_each(|(number, error)| {
                let separator = if number == 0 { "" } else { "; " };
                write!(f, "{separator}{error}")
            }),
            Self::NoListener => f.write_str("there is no listener: bind an address, or add a listener"),
            Self::NotServed => {
                f.write_str("the server's own address is not served: call `start` or `serve`, not `run`")
            }
            Self::Inherited(error) => write!(f, "cannot use the listeners that LISTEN_FDS announces: {error}"),
            Self::Takeover(path, error) => write!(f, "cannot use {} for a takeover: {error}", path.display()),
            Self::WaterMarks => f.write_str("the low water mark has to lie above zero and not above the high one"),
            Self::Memory { bytes, loops } => {
                write!(f, "{bytes} bytes of memory are too little for {loops} loops: each needs {MEMORY_PER_LOOP_MIN}")
            }
            Self::Backend(name) => {
                write!(f, "TIDEGATE_BACKEND is '{name}', which is no backend: there are auto, epoll and uring")
            }
            Self::Uring(error) => {
                write!(
                    f,
                    "cannot use io_uring: {error}{}; choose epoll, or auto to use the available backend",
                    uring_advice(error)
                )
            }
            Self::Panicked => f.write_str("cannot start: the closure that prepares a loop panicked"),
            Self::System(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(_, error)
            | Self::Takeover(_, error)
            | Self::Inherited(error)
            | Self::Uring(error)
            | Self::System(error) => Some(error),
            _ => None,
        }
    }
}

/// The two sides of [`StartError::IpVersions`], and the remedies.
fn write_ip_versions(f: &mut fmt::Formatter<'_>, address: &Address, only_v6: bool, is_passed: bool) -> fmt::Result {
    let socket = if is_passed { "passed socket" } else { "socket of the running server at" };
    let (bound, wanted) = match only_v6 {
        true => ("accepts IPv4 too", "the listener only IPv6 (ipv6-only)"),
        false => ("accepts only IPv6", "the listener IPv4 too: set ipv6-only for it"),
    };
    let remedy = match (is_passed, only_v6) {
        (true, true) => ": set BindIPv6Only=ipv6-only in the unit that opens the socket",
        (true, false) => ", or BindIPv6Only=both in the unit that opens the socket",
        (false, true) => ": stop that server first",
        (false, false) => ", or stop that server first",
    };
    write!(f, "the {socket} {address} {bound}, and {wanted}{remedy}")
}

/// The probable cause of an error of listening, where its text does not name it.
fn listen_advice(address: &Address, error: &io::Error) -> &'static str {
    match (error.kind(), address) {
        (io::ErrorKind::PermissionDenied, Address::Ip(at)) if at.port() < 1024 => {
            "; a port below 1024 needs the capability CAP_NET_BIND_SERVICE, or a service manager that passes its socket"
        }
        (io::ErrorKind::AddrNotAvailable, Address::Ip(_)) => "; no interface of this machine has the IP address",
        _ => "",
    }
}

/// The probable cause of an io_uring error, where its text does not name it.
pub(crate) fn uring_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ", by the sandbox (Docker's seccomp profile, SELinux) or the setting kernel.io_uring_disabled"
        }
        io::ErrorKind::OutOfMemory => ", which may be the limit of locked memory (ulimit -l)",
        _ => "",
    }
}
