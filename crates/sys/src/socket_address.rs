//! An [`Address`] as the system's, and back.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};
use socket2::SockAddr;
use tidegate_buffer::{Address, canonical};

/// The address for a system call.
///
/// # Errors
/// `InvalidInput` for a path with a zero byte, one that is too long, and an empty abstract name.
pub(crate) fn to_system(address: &Address) -> io::Result<SockAddr> {
    match address {
        Address::Ip(address) => Ok((*address).into()),
        // The system call would use the path up to its first zero byte, which is another file.
        Address::Unix(path) if path.as_os_str().as_bytes().contains(&0) => Err(io::ErrorKind::InvalidInput.into()),
        Address::Unix(path) => SockAddr::unix(path),
        // With an empty name the kernel would choose one.
        Address::Abstract(name) if name.is_empty() => Err(io::ErrorKind::InvalidInput.into()),
        Address::Abstract(name) => SockAddr::unix(OsStr::from_bytes(&[b"\0", name.as_slice()].concat())),
        Address::Vsock { cid, port } => Ok(SockAddr::vsock(*cid, *port)),
    }
}

pub(crate) fn from_system(address: &SockAddr) -> Address {
    if let Some(address) = address.as_socket() {
        return Address::Ip(canonical(address));
    }
    if let Some((cid, port)) = address.as_vsock_address() {
        return Address::Vsock { cid, port };
    }
    if let Some(name) = address.as_abstract_namespace().filter(|name| !name.is_empty()) {
        return Address::Abstract(name.to_vec());
    }
    Address::Unix(address.as_pathname().map(Path::to_path_buf).unwrap_or_default())
}

/// The address of a peer that was accepted.
pub(crate) fn of_peer(address: Option<SocketAddrAny>) -> Address {
    let Some(address) = address else { return Address::Unix(PathBuf::new()) };
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return Address::Ip(canonical(address));
    }
    if address.address_family() == AddressFamily::VSOCK {
        // SAFETY: `SocketAddrAny` has memory for an address of any family, which outlives the read. The kernel has written
        // one of this family, and any bytes are numbers.
        let vsock = unsafe { address.as_ptr().cast::<libc::sockaddr_vm>().read_unaligned() };
        return Address::Vsock { cid: vsock.svm_cid, port: vsock.svm_port };
    }
    let unix = SocketAddrUnix::try_from(address).ok();
    if let Some(name) = unix.as_ref().and_then(|unix| unix.abstract_name()).filter(|name| !name.is_empty()) {
        return Address::Abstract(name.to_vec());
    }
    let path = unix.as_ref().and_then(|unix| unix.path_bytes());
    Address::Unix(path.map(|path| PathBuf::from(OsStr::from_bytes(path))).unwrap_or_default())
}
