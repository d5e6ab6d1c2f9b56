//! Listeners that were open when the process began, as service managers pass them: `LISTEN_PID` says for whom,
//! `LISTEN_FDS` how many; they are the descriptors from 3 on (`sd_listen_fds(3)`).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::FdFlags;

use crate::handover::{self, LISTENERS_MAX};

/// Takes the listeners that the environment says were passed to this process: `None` if none were. They are taken once:
/// who asks again gets `None`. To be asked before the process opens or closes descriptors by number.
///
/// The variables stay, and are of no effect on child processes, which have other numbers.
///
/// # Errors
/// `InvalidInput` if the variables make no sense, `InvalidData` if a descriptor is no listening stream socket: then
/// none of them is touched.
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

/// How many listeners the variables announce to the process of this number.
fn announced(process: Option<&OsStr>, count: Option<&OsStr>, own: u32) -> io::Result<Option<usize>> {
    let (Some(process), Some(count)) = (process, count) else { return Ok(None) };
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
    let process: u32 = number(process).ok_or_else(|| wrong("LISTEN_PID is no number"))?;
    if process != own {
        // They were meant for a parent.
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
        if !is_open(number) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a descriptor is not open"));
        }
        // SAFETY: it was just seen to be open, and is only looked at here.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        handover::check(descriptor)?;
    }
    // SAFETY: all of them are open. By the protocol behind the variables they belong to whoever reads those, which
    // `take` does once in the life of a process.
    let listeners: Vec<_> = numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect();
    listeners.iter().try_for_each(|listener| rustix::io::fcntl_setfd(listener, FdFlags::CLOEXEC))?;
    Ok(listeners)
}

fn is_open(number: RawFd) -> bool {
    // SAFETY: this command touches no memory, and a number that is no descriptor is an error.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Behind standard input, output and error.
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
    fn listeners_for_another_process_are_left_alone() {
        assert_eq!(announces("78", "2").unwrap(), None);
        assert_eq!(announces("78", "nonsense").unwrap(), None);
        assert_eq!(announced(None, Some("2".as_ref()), 77).unwrap(), None);
        assert_eq!(announced(Some("77".as_ref()), None, 77).unwrap(), None);
    }

    #[test]
    fn as_many_are_announced_as_a_server_may_have_loops() {
        for (count, expected) in [("0", None), ("1", Some(1)), ("1024", Some(1024))] {
            assert_eq!(announces("77", count).unwrap(), expected);
        }
        for (process, count) in [("77", "1025"), ("77", "-1"), ("77", ""), ("", "1"), ("all", "1"), ("77", "1 ")] {
            assert_eq!(announces(process, count).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{process} {count}");
        }
    }

    #[test]
    fn a_listener_is_claimed_and_is_not_inherited_further() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let number = listener.into_raw_fd();
        let claimed = claim(number, 1).unwrap();
        assert!(rustix::io::fcntl_getfd(&claimed[0]).unwrap().contains(FdFlags::CLOEXEC));
        assert_eq!(TcpListener::from(claimed.into_iter().next().unwrap()).local_addr().unwrap(), address);
    }

    #[test]
    fn what_is_no_listener_is_refused() {
        let (reader, _writer) = io::pipe().unwrap();
        assert_eq!(claim(reader.as_raw_fd(), 1).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (stream, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(claim(stream.as_raw_fd(), 1).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(is_open(reader.as_raw_fd()) && is_open(stream.as_raw_fd()), "they are somebody else's");
    }

    #[test]
    fn what_is_not_open_is_not_touched() {
        // No process of a test has descriptors of such numbers.
        let error = claim(1_000_000, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
