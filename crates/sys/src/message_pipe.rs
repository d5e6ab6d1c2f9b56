//! `MessageSender`, `MessageReceiver`: messages from one process to another on the same machine, without waiting.
//!
//! It is a pair of Unix sockets that keep the bounds of messages (SOCK_SEQPACKET). The kernel bounds the bytes under way; a
//! message that does not fit is refused. The receiver sees the end when every process has closed its clone of the sender.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use socket2::{Domain, SockRef, Socket, Type};

/// The end that sends. Processes may have clones of it.
#[derive(Debug)]
pub struct MessageSender(OwnedFd);

/// The end that receives.
#[derive(Debug)]
pub struct MessageReceiver(OwnedFd);

/// The outcome of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageOutcome {
    /// It is under way.
    Sent,
    /// Too many bytes are under way.
    Full,
    /// The other end is closed.
    Gone,
}

/// Both ends.
///
/// ```
/// use tidegate::sys::message_pipe::{self, MessageOutcome};
///
/// let (sender, receiver) = message_pipe::open()?;
/// assert_eq!(sender.send(&[b"eb", b"b"]), MessageOutcome::Sent);
/// let mut space = [0; 8];
/// assert_eq!(receiver.receive(&mut space)?, Some(3));
/// assert_eq!((receiver.receive(&mut space)?, &space[..3]), (None, &b"ebb"[..]));
/// drop(receiver);
/// assert_eq!(sender.send(&[b"flow"]), MessageOutcome::Gone);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of the system.
pub fn open() -> io::Result<(MessageSender, MessageReceiver)> {
    let (sender, receiver) = Socket::pair(Domain::UNIX, Type::SEQPACKET.cloexec(), None)?;
    // The kernel grants as many as its limit permits.
    let _ = sender.set_send_buffer_size(SEND_BUFFER_BYTES);
    Ok((MessageSender(sender.into()), MessageReceiver(receiver.into())))
}

impl MessageSender {
    /// Takes over a sender that has come from another process.
    ///
    /// # Errors
    /// `InvalidData` if it is another descriptor.
    pub fn adopt(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = SockRef::from(&descriptor);
        if matches!((socket.domain(), socket.r#type()), (Ok(Domain::UNIX), Ok(Type::SEQPACKET))) {
            return Ok(Self(descriptor));
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "a descriptor is no sender of messages"))
    }

    /// The same end once more.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Whether the other end is closed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
    }

    /// Sends one message of these parts, of at most [`MESSAGE_BYTES_MAX`] together.
    #[must_use]
    pub fn send(&self, parts: &[&[u8]]) -> MessageOutcome {
        let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match rustix::net::sendmsg(&self.0, &parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(_) => return MessageOutcome::Sent,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED | Errno::NOTCONN) => {
                    return MessageOutcome::Gone;
                }
                Err(_) => return MessageOutcome::Full,
            }
        }
    }
}

impl MessageReceiver {
    /// Receives one message into `space`, which has [`MESSAGE_BYTES_MAX`]; `None` if there is none. Returns its length, which
    /// is zero once no process has the sender.
    ///
    /// # Errors
    /// Those of the system.
    pub fn receive(&self, space: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::net::recv(&self.0, &mut *space, RecvFlags::DONTWAIT) {
                Ok((length, _)) => return Ok(Some(length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                // The sender was closed while a message was under way.
                Err(Errno::CONNRESET) => return Ok(Some(0)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until one of the receivers has a message or has ended, for at most `timeout`. Returns the places of those.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait_any(receivers: &[&Self], timeout: Option<Duration>) -> io::Result<Vec<usize>> {
        let mut polled: Vec<PollFd<'_>> =
            receivers.iter().map(|receiver| PollFd::new(&receiver.0, PollFlags::IN)).collect();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
            match rustix::event::poll(&mut polled, left.as_ref()) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let is_due = |(place, polled): (usize, &PollFd<'_>)| (!polled.revents().is_empty()).then_some(place);
        Ok(polled.iter().enumerate().filter_map(is_due).collect())
    }
}

impl From<MessageSender> for OwnedFd {
    fn from(sender: MessageSender) -> Self {
        sender.0
    }
}

/// The longest message.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024;

/// Bytes under way, with the kernel's overhead.
const SEND_BUFFER_BYTES: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_bounds_and_are_refused_while_too_many_bytes_are_under_way() {
        let (sender, receiver) = open().expect("a pair");
        let message = vec![7; 60_000];
        let mut sent = 0;
        while sender.send(&[&[sent], &message]) == MessageOutcome::Sent {
            sent += 1;
            assert!(sent < 250, "the bytes under way are bounded");
        }
        assert!(sent > 1);
        let mut space = vec![0; MESSAGE_BYTES_MAX];
        for number in 0..sent {
            assert_eq!(receiver.receive(&mut space).expect("a message"), Some(60_001));
            assert_eq!(space[0], number);
        }
        assert_eq!(receiver.receive(&mut space).expect("none"), None);
        assert_eq!(sender.send(&[b"ebb"]), MessageOutcome::Sent);
    }

    #[test]
    fn the_receiver_sees_the_end_when_no_clone_of_the_sender_is_left() {
        let (sender, receiver) = open().expect("a pair");
        let clone = MessageSender::adopt(sender.0.try_clone().expect("a descriptor")).expect("a sender");
        drop(sender);
        assert!(!clone.is_gone());
        assert_eq!(clone.send(&[b"ebb"]), MessageOutcome::Sent);
        assert_eq!(MessageReceiver::wait_any(&[&receiver], None).expect("a message"), [0]);
        let mut space = [0; 16];
        assert_eq!(receiver.receive(&mut space).expect("a message"), Some(3));
        let none = MessageReceiver::wait_any(&[&receiver], Some(Duration::ZERO)).expect("a result");
        assert!(none.is_empty());
        drop(clone);
        assert_eq!(MessageReceiver::wait_any(&[&receiver], None).expect("the end"), [0]);
        assert_eq!(receiver.receive(&mut space).expect("the end"), Some(0));
        let (sender, receiver) = open().expect("a pair");
        drop(receiver);
        assert!(sender.is_gone());
    }

    #[test]
    fn another_descriptor_is_no_sender() {
        let stream = std::os::unix::net::UnixStream::pair().expect("a pair").0;
        assert_eq!(
            MessageSender::adopt(stream.into()).map(drop).map_err(|error| error.kind()),
            Err(io::ErrorKind::InvalidData)
        );
    }
}
