//! Sockets that a service manager passes to the process when it starts: `LISTEN_PID` is the process for which they
//! are meant, `LISTEN_FDS` is their number. They are the descriptors from 3 on (`sd_listen_fds(3)`). Their names,
//! `LISTEN_FDNAMES`, have no effect: the engine knows them by their addresses.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::FdFlags;

use crate::handover::{self, LISTENERS_MAX};

/// Takes the sockets that were passed to this process, according to the environment: listening stream sockets, and bound
/// datagram sockets. Returns `None` if there are none, and from the second call on. Call it before the process opens or closes descriptors by number.
///
/// The variables stay set. They have no effect on child processes, which have other process numbers.
///
/// # Errors
/// `InvalidInput` if the variables are malformed, `InvalidData` if a descriptor is no such socket: then no descriptor is
/// taken.
pub fn take() -> io::Result<Option<Vec<OwnedFd>>> {
    let count = announced(
        std::env::var_os("LISTEN_PID").as_deref(),
        std::env::var_os("LISTEN_FDS").as_deref(),
        std::process::id(),
    )?;
    static TAKEN: AtomicBool = AtomicBool::new(false);
    match count {
        Some(count) if !TAKEN.swap(true, Ordering::Relaxed) => claim(FIRST, count).map(Some),
        _ => Ok(None),
    }
}

/// The number of listeners that the variables announce to the process `own`.
fn announced(process: Option<&OsStr>, count: Option<&OsStr>, own: u32) -> io::Result<Option<usize>> {
    let (Some(process), Some(count)) = (process, count) else { return Ok(None) };
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
    let process: u32 = number(process).ok_or_else(|| wrong("LISTEN_PID is no number"))?;
    if process != own {
        // They are meant for another process, such as the parent.
        return Ok(None);
    }
    let count: usize = number(count).ok_or_else(|| wrong("LISTEN_FDS is no number"))?;
    match count {
        0 => Ok(None),
        1..=LISTENERS_MAX => Ok(Some(count)),
        _ => Err(wrong("LISTEN_FDS is more than 1,024")),
    }
}

fn number<T: std::str::FromStr>(text: &OsStr) -> Option<T> {
    text.to_str()?.parse().ok()
}

/// Takes `count` descriptors from `first` on.
fn claim(first: RawFd, count: usize) -> io::Result<Vec<OwnedFd>> {
    let numbers = first..first + count as RawFd;
    for number in numbers.clone() {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("descriptor {number} {what}"));
        if !is_open(number) {
            return Err(wrong("is not open"));
        }
        // SAFETY: the descriptor is open, as checked above, and the checks only query it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        if !handover::is_datagram_socket(descriptor) && handover::check(descriptor).is_err() {
            return Err(wrong(
                "is neither a listening stream socket nor a bound datagram socket (systemd: `ListenStream=` with \
                 `Accept=no`, or `ListenDatagram=`)",
            ));
        }
    }
    // SAFETY: all of them are open. By the protocol of the variables they belong to the process that reads those, which
    // `take` does once in the life of a process.
    let listeners: Vec<_> = numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect();
    listeners.iter().try_for_each(|listener| rustix::io::fcntl_setfd(listener, FdFlags::CLOEXEC))?;
    Ok(listeners)
}

fn is_open(number: RawFd) -> bool {
    // SAFETY: this command accesses no memory, and fails for a number that is no descriptor.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// The first descriptor after standard input, output and error.
const FIRST: RawFd = 3;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd, IntoRawFd};

    use super::*;

    fn announces(process: &str, count: &str) -> io::Result<Option<usize>> {
        announced(Some(process.as_ref()), Some(count.as_ref()), 77)
    }

    #[test]
    fn listeners_for_another_process_are_not_taken() {
        assert_eq!(announces("78", "2").unwrap(), None);
        assert_eq!(announces("78", "nonsense").unwrap(), None);
        assert_eq!(announced(None, Some("2".as_ref()), 77).unwrap(), None);
        assert_eq!(announced(Some("77".as_ref()), None, 77).unwrap(), None);
    }

    #[test]
    fn the_announced_count_is_limited_and_validated() {
        for (count, expected) in [("0", None), ("1", Some(1)), ("1024", Some(1024))] {
            assert_eq!(announces("77", count).unwrap(), expected);
        }
        for (process, count) in [("77", "1025"), ("77", "-1"), ("77", ""), ("", "1"), ("all", "1"), ("77", "1 ")] {
            assert_eq!(announces(process, count).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{process} {count}");
        }
    }

    #[test]
    fn a_claimed_listener_is_close_on_exec() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let number = listener.into_raw_fd();
        let claimed = claim(number, 1).unwrap();
        assert!(rustix::io::fcntl_getfd(&claimed[0]).unwrap().contains(FdFlags::CLOEXEC));
        assert_eq!(TcpListener::from(claimed.into_iter().next().unwrap()).local_addr().unwrap(), address);
    }

    #[test]
    fn descriptors_that_are_no_listeners_are_refused_and_stay_open() {
        let (reader, _writer) = io::pipe().unwrap();
        assert_eq!(claim(reader.as_raw_fd(), 1).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (stream, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(claim(stream.as_raw_fd(), 1).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(is_open(reader.as_raw_fd()) && is_open(stream.as_raw_fd()), "`claim` closed a descriptor");
    }

    #[test]
    fn a_bound_datagram_socket_is_claimed() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let claimed = claim(socket.into_raw_fd(), 1).unwrap();
        assert_eq!(handover::datagram_address(std::os::fd::AsFd::as_fd(&claimed[0])), Some(address.into()));
    }

    #[test]
    fn claiming_descriptors_that_are_not_open_is_an_error() {
        // No test process has descriptors with such numbers.
        let error = claim(1_000_000, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
