//! Descriptors that processes pass to each other over Unix streams (SCM_RIGHTS).
//!
//! A stream that asks for descriptors receives by `recvmsg`, with room for as many as it may keep; the kernel closes the
//! others. A receive then ends before the next bytes that have descriptors, so a short one does not mean that the socket is
//! drained. All other streams receive by `recv`, for which the kernel closes every descriptor.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use socket2::SockRef;

use crate::driver::Token;

/// Descriptors that came over a Unix stream, in their order.
#[derive(Debug, Default)]
pub struct PassedDescriptors {
    /// The descriptors. The receiver owns them.
    pub descriptors: Vec<OwnedFd>,
    /// The peer has passed more than the stream keeps, or than this process may have open: those are closed.
    pub is_truncated: bool,
}

/// The streams of a driver that keep descriptors.
#[derive(Debug, Default)]
pub(crate) struct DescriptorStreams(HashMap<Token, DescriptorStream>);

#[derive(Debug, Default)]
struct DescriptorStream {
    descriptors_max: usize,
    passed: PassedDescriptors,
}

impl DescriptorStreams {
    /// Sets how many descriptors a stream keeps. Returns whether no stream is left that keeps any.
    pub(crate) fn keep(&mut self, token: Token, descriptors_max: usize) -> bool {
        if descriptors_max == 0 {
            self.0.remove(&token);
        } else {
            self.0.entry(token).or_default().descriptors_max = descriptors_max;
        }
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, token: Token) -> PassedDescriptors {
        self.0.get_mut(&token).map(|stream| std::mem::take(&mut stream.passed)).unwrap_or_default()
    }

    /// Receives once into `space`, if the stream keeps descriptors.
    pub(crate) fn receive(&mut self, token: Token, socket: &OwnedFd, space: &mut [u8]) -> Option<Result<usize, Errno>> {
        let DescriptorStream { descriptors_max, passed } = self.0.get_mut(&token)?;
        let room = descriptors_max.saturating_sub(passed.descriptors.len());
        let mut control_space = vec![MaybeUninit::uninit(); CREDENTIALS_BYTES + control_bytes(room)];
        // Dropping the buffer closes the descriptors that are left in it.
        let mut control = RecvAncillaryBuffer::new(&mut control_space);
        let received = loop {
            match recvmsg(socket, &mut [IoSliceMut::new(space)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        let received = match received {
            Ok(received) => received,
            Err(errno) => return Some(Err(errno)),
        };
        let mut came: Vec<OwnedFd> = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                came.extend(descriptors);
            }
        }
        // Without credentials there is room for more than was asked for.
        passed.is_truncated |= received.flags.contains(ReturnFlags::CTRUNC) || came.len() > room;
        came.truncate(room);
        passed.descriptors.append(&mut came);
        Some(Ok(received.bytes))
    }
}

/// Sends bytes, and descriptors with the first of them.
///
/// # Errors
/// As [`Driver::send_descriptors`](crate::Driver::send_descriptors).
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    check_family(socket)?;
    if bytes.is_empty() || descriptors.is_empty() || descriptors.len() > PER_MESSAGE_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The buffer begins at a word.
    let mut control_space = vec![MaybeUninit::uninit(); size_of::<usize>() + control_bytes(descriptors.len())];
    let mut control = SendAncillaryBuffer::new(&mut control_space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// # Errors
/// `Unsupported` if the socket is none of Unix.
pub(crate) fn check_family(socket: BorrowedFd<'_>) -> io::Result<()> {
    let is_unix = SockRef::from(&socket).local_addr()?.is_unix();
    if is_unix { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// The control messages of so many descriptors: a header, and words.
fn control_bytes(descriptors: usize) -> usize {
    if descriptors == 0 { 0 } else { size_of::<libc::cmsghdr>() + (4 * descriptors).next_multiple_of(8) }
}

/// The control message of the sender's credentials, which comes first. A socket has it with SO_PASSCRED, as those of a listener
/// that systemd has opened with `PassCredentials=yes`.
const CREDENTIALS_BYTES: usize = size_of::<libc::cmsghdr>() + size_of::<libc::ucred>().next_multiple_of(8);

/// `SCM_MAX_FD`.
const PER_MESSAGE_MAX: usize = 253;
