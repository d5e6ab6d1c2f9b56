//! `Ancillary`: data beside the payload of a datagram, if it has more of them than UDP.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::address::Address;

/// The ancillary data of a datagram (RFC 3542 §4): the name of a Unix socket, descriptors, credentials, and control messages
/// as bytes. Few datagrams have any, so a [`Datagram`](crate::Datagram) and a [`Transmit`](crate::Transmit) have it boxed.
///
/// ```
/// use tidegate::codec::{Ancillary, ControlMessage};
///
/// let mut ancillary = Ancillary::default();
/// let (level, kind) = (0, 8); // the type of service (IP_TOS)
/// ancillary.push(ControlMessage { level, kind, data: 16_i32.to_ne_bytes().to_vec() })?;
/// ancillary.attach(std::fs::File::open("/dev/null")?)?;
/// assert_eq!((ancillary.messages().len(), ancillary.descriptors().len()), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Ancillary {
    /// The peer's Unix socket: the source of a received datagram, the destination of one to send. `None` for UDP, and on a
    /// connected socket.
    pub peer: Option<Address>,
    /// The process that sent the datagram, if the receiving socket asks for it. A datagram to send has none: the kernel
    /// fills them in.
    pub credentials: Option<Credentials>,
    descriptors: Vec<Arc<OwnedFd>>,
    messages: Vec<ControlMessage>,
}

impl Ancillary {
    /// The longest ancillary data of a datagram to send, in bytes as [`message_bytes`](Self::message_bytes) counts them.
    pub const BYTES_MAX: usize = 192;

    /// The ancillary data of a datagram from or to a Unix socket.
    #[must_use]
    pub fn of(peer: Address) -> Self {
        Self { peer: Some(peer), ..Self::default() }
    }

    /// The ancillary data that came with a datagram.
    #[doc(hidden)]
    #[must_use]
    pub fn received(descriptors: Vec<OwnedFd>, messages: Vec<ControlMessage>) -> Self {
        Self { descriptors: descriptors.into_iter().map(Arc::new).collect(), messages, ..Self::default() }
    }

    /// Sends a descriptor along: the receiver gets one of its own for the same file. Ours closes with its last handle.
    ///
    /// # Errors
    /// [`AncillaryFull`] if there is no room for it.
    pub fn attach(&mut self, descriptor: impl Into<OwnedFd>) -> Result<(), AncillaryFull> {
        self.attach_shared(Arc::new(descriptor.into()))
    }

    /// The same with a descriptor that has other handles, such as one that was [taken](Self::take_descriptors).
    ///
    /// # Errors
    /// [`AncillaryFull`] if there is no room for it.
    pub fn attach_shared(&mut self, descriptor: Arc<OwnedFd>) -> Result<(), AncillaryFull> {
        self.descriptors.push(descriptor);
        if self.message_bytes() > Self::BYTES_MAX {
            self.descriptors.pop();
            return Err(AncillaryFull);
        }
        Ok(())
    }

    /// Adds a control message.
    ///
    /// # Errors
    /// [`AncillaryFull`] if there is no room for it.
    pub fn push(&mut self, message: ControlMessage) -> Result<(), AncillaryFull> {
        self.messages.push(message);
        if self.message_bytes() > Self::BYTES_MAX {
            self.messages.pop();
            return Err(AncillaryFull);
        }
        Ok(())
    }

    /// The descriptors that came along, or that are to be sent.
    #[must_use]
    pub fn descriptors(&self) -> &[Arc<OwnedFd>] {
        &self.descriptors
    }

    /// Takes the descriptors out. A received one has no other handle, unless the datagram was cloned.
    pub fn take_descriptors(&mut self) -> Vec<Arc<OwnedFd>> {
        std::mem::take(&mut self.descriptors)
    }

    /// The control messages as bytes.
    #[must_use]
    pub fn messages(&self) -> &[ControlMessage] {
        &self.messages
    }

    /// The bytes of the control messages on the way to the kernel: each has a header of 16 bytes, and fills words of 8. All
    /// descriptors are one message, with 4 bytes each.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        let message = |data: usize| HEADER_BYTES + data.next_multiple_of(WORD_BYTES);
        let descriptors = if self.descriptors.is_empty() { 0 } else { message(4 * self.descriptors.len()) };
        descriptors + self.messages.iter().map(|one| message(one.data.len())).sum::<usize>()
    }

    /// The memory that it occupies, about.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + PEER_BYTES + self.message_bytes()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.peer.is_none() && self.credentials.is_none() && self.descriptors.is_empty() && self.messages.is_empty()
    }
}

/// A control message as the kernel has it (`cmsghdr`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlMessage {
    /// The protocol that it belongs to: `SOL_SOCKET`, `IPPROTO_IP`.
    pub level: i32,
    /// Its kind within the protocol: `SCM_TIMESTAMPNS`, `IP_TOS`.
    pub kind: i32,
    /// Its data, in the order of bytes of this machine.
    pub data: Vec<u8>,
}

/// A process, as the kernel reports it to the other end of a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// The process number; zero if it is in a PID namespace that is not visible here.
    pub process: i32,
    /// The user number.
    pub user: u32,
    /// The group number.
    pub group: u32,
}

/// The error of ancillary data that is longer than [`Ancillary::BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AncillaryFull;

impl fmt::Display for AncillaryFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a datagram has at most {} bytes of control messages", Ancillary::BYTES_MAX)
    }
}

impl std::error::Error for AncillaryFull {}

const HEADER_BYTES: usize = 16;
const WORD_BYTES: usize = 8;

/// The memory of a Unix socket's name: at most 108 bytes.
const PEER_BYTES: usize = 108;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancillary_data_has_a_limit_and_stays_as_it_was_at_it() {
        let mut ancillary = Ancillary::default();
        let long = ControlMessage { level: 1, kind: 2, data: vec![0; Ancillary::BYTES_MAX] };
        assert_eq!(ancillary.push(long), Err(AncillaryFull));
        assert!(ancillary.is_empty());
        let null = || std::fs::File::open("/dev/null").expect("it is there");
        let attached = (0..100).filter(|_| ancillary.attach(null()).is_ok()).count();
        assert_eq!((attached, ancillary.descriptors().len()), (44, 44));
        assert_eq!(ancillary.message_bytes(), Ancillary::BYTES_MAX);
        assert_eq!(ancillary.push(ControlMessage { level: 1, kind: 2, data: Vec::new() }), Err(AncillaryFull));
        assert_eq!(ancillary.take_descriptors().len(), 44);
        assert!(ancillary.is_empty());
    }
}
