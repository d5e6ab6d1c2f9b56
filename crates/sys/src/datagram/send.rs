//! Sending a list of datagrams, in batches.
//!
//! Whatever happens to one datagram, the next one is tried: a datagram that the system refuses is reported and dropped,
//! and one for which the device has no room (`ENOBUFS`) is lost, as on any link that is full. Only a full socket buffer
//! ends the call, and an event follows when it has room.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tidegate_buffer::{DatagramError, DatagramErrorReason, Transmit, Transmits};

use super::control::is_unix_name;
use super::messages::{BATCH_MAX, Outgoing};
use super::options::RUN_DATAGRAMS_MAX;
use super::{DatagramIo, DatagramState, reason};
use crate::driver::Transmission;

impl DatagramIo {
    /// Sends as much of the list as the kernel takes.
    pub(crate) fn send(&mut self, slot: u32, socket: impl AsFd, transmits: &mut Transmits) -> Transmission {
        let socket = socket.as_fd();
        let mut transmission = Transmission::default();
        // Of the oldest datagram: its run is sent one by one; it was tried after the error queue was read.
        let (mut one_by_one, mut was_retried) = (false, false);
        while !transmits.is_empty() {
            let Some(state) = self.sockets.get_mut(&slot) else { break };
            if state.refuse_oldest(transmits, &mut transmission) {
                continue;
            }
            let mut lengths = [0; BATCH_MAX];
            let messages = outgoing(state, transmits, one_by_one, &mut lengths);
            match self.messages.send(socket, messages) {
                Ok(count) => {
                    for length in &lengths[..count] {
                        transmission.bytes += *length as u64;
                        transmission.sent += u64::from(consume(transmits, *length, &mut one_by_one));
                    }
                    was_retried = false;
                    if count == 0 {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && state.loses_when_full => {
                    transmission.lost += u64::from(consume(transmits, lengths[0], &mut one_by_one));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    transmission.is_blocked = true;
                    break;
                }
                Err(error) => {
                    let is_run = transmits.oldest().is_some_and(|oldest| oldest.segment_size.is_some());
                    match error.raw_os_error() {
                        Some(libc::EIO) if is_run && state.splits_runs => state.splits_runs = false,
                        Some(libc::EINVAL) if is_run && !one_by_one => one_by_one = true,
                        Some(libc::ENOBUFS | libc::ENOMEM) => {
                            transmission.lost += u64::from(consume(transmits, lengths[0], &mut one_by_one));
                        }
                        _ => {
                            let is_unix = state.is_unix;
                            let mtu =
                                if is_unix { None } else { self.errors_of_send(socket, &mut transmission.errors) };
                            // The error may be about an earlier datagram.
                            if mtu.is_none() && !was_retried && !is_unix {
                                was_retried = true;
                                continue;
                            }
                            let destination = transmits.oldest().and_then(|oldest| oldest.destination);
                            let reason = reason(&error, mtu.unwrap_or(0));
                            transmission.errors.push(DatagramError { destination, reason });
                            transmission.lost += u64::from(consume(transmits, lengths[0], &mut one_by_one));
                            was_retried = false;
                        }
                    }
                }
            }
        }
        transmission
    }

    /// Reads the error queue after a failed send. Returns the largest packet of the interface, if this host has refused
    /// the datagram as too long.
    fn errors_of_send(&mut self, socket: BorrowedFd<'_>, errors: &mut Vec<DatagramError>) -> Option<u32> {
        let mut mtu = None;
        self.read_errors(socket, |error, destination| {
            if error.is_remote {
                let code = io::Error::from_raw_os_error(error.errno);
                errors.push(DatagramError { destination, reason: reason(&code, error.mtu) });
            } else if error.errno == libc::EMSGSIZE {
                mtu = Some(error.mtu);
            }
        });
        mtu
    }
}

impl DatagramState {
    /// Drops the oldest datagram if its destination is not one of the socket's family. Returns whether it has.
    fn refuse_oldest(&self, transmits: &mut Transmits, transmission: &mut Transmission) -> bool {
        let Some(refused) = transmits.oldest().filter(|oldest| !self.can_send(oldest)) else { return false };
        let reason = DatagramErrorReason::Refused(io::ErrorKind::InvalidInput);
        transmission.errors.push(DatagramError { destination: refused.destination, reason });
        transmission.lost += refused.count() as u64;
        transmits.pop();
        true
    }

    /// Whether the destination is one of the socket's family.
    fn can_send(&self, transmit: &Transmit) -> bool {
        let unix = transmit.ancillary.as_ref().and_then(|ancillary| ancillary.peer.as_ref());
        match unix {
            Some(address) => self.is_unix && transmit.destination.is_none() && is_unix_name(address),
            None => !self.is_unix || transmit.destination.is_none(),
        }
    }
}

/// The next messages of the list, whose lengths are put into `lengths`.
fn outgoing<'a>(
    state: &'a DatagramState,
    transmits: &'a Transmits,
    one_by_one: bool,
    lengths: &'a mut [usize; BATCH_MAX],
) -> impl Iterator<Item = Outgoing<'a>> {
    let splits = move |place: usize| state.splits_runs && !(one_by_one && place == 0);
    let sendable = transmits.iter().take_while(|transmit| state.can_send(transmit));
    let parts = sendable.enumerate().flat_map(move |(place, transmit)| {
        parts(transmit, splits(place)).map(move |(payload, segment_size)| (transmit, payload, segment_size))
    });
    parts.zip(lengths).map(move |((transmit, payload, segment_size), length)| {
        *length = payload.len();
        let destination = transmit.destination;
        Outgoing {
            payload,
            destination,
            local: transmit.local,
            ecn: transmit.ecn,
            segment_size,
            socket_is_v6: state.is_v6,
            to_v6: destination.or(state.peer).is_some_and(|address: SocketAddr| address.is_ipv6()),
            ancillary: transmit.ancillary.as_deref(),
        }
    })
}

/// The messages of one datagram or run: runs of as many datagrams as the kernel splits, or single datagrams.
fn parts(transmit: &Transmit, splits_runs: bool) -> impl Iterator<Item = (&[u8], Option<u16>)> {
    let bytes = &*transmit.payload;
    let size = transmit.segment_size.map(|size| usize::from(size.get()));
    let step = match size {
        Some(size) if splits_runs => size * (RUN_BYTES_MAX / size).clamp(1, RUN_DATAGRAMS_MAX),
        Some(size) => size,
        None => bytes.len().max(1),
    };
    let empty = bytes.is_empty().then_some((bytes, None));
    let chunks = bytes.chunks(step).map(move |chunk| {
        let segment_size = size.filter(|size| *size < chunk.len()).map(|size| size as u16);
        (chunk, segment_size)
    });
    empty.into_iter().chain(chunks)
}

/// Removes a message of `length` bytes from the list, and returns the number of its datagrams.
fn consume(transmits: &mut Transmits, length: usize, one_by_one: &mut bool) -> u32 {
    let Some(oldest) = transmits.oldest() else { return 0 };
    let count = match oldest.segment_size {
        Some(size) => length.div_ceil(usize::from(size.get())).max(1) as u32,
        None => 1,
    };
    if length < oldest.payload.len() {
        transmits.advance_oldest(length);
    } else if let Some(sent) = transmits.pop() {
        transmits.recycle(sent.payload);
        *one_by_one = false;
    }
    count
}

/// The longest payload of a run: that of one IPv6 packet without extension headers, and a little less.
const RUN_BYTES_MAX: usize = 65_000;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    fn run(length: usize, size: u16) -> Transmit {
        let mut run = Transmit::new(vec![7; length], SocketAddr::from(([127, 0, 0, 1], 1)));
        run.segment_size = NonZeroU16::new(size);
        run
    }

    #[test]
    fn a_run_is_cut_to_what_the_kernel_splits() {
        let lengths = |length, size, splits| -> Vec<_> {
            parts(&run(length, size), splits).map(|(part, size)| (part.len(), size)).collect()
        };
        assert_eq!(lengths(0, 0, true), [(0, None)]);
        assert_eq!(lengths(0, 5, false), [(0, None)]);
        assert_eq!(lengths(9, 0, true), [(9, None)]);
        assert_eq!(lengths(12, 5, true), [(12, Some(5))]);
        assert_eq!(lengths(12, 5, false), [(5, None), (5, None), (2, None)]);
        assert_eq!(lengths(130, 1, true), [(64, Some(1)), (64, Some(1)), (2, Some(1))]);
        assert_eq!(lengths(90_000, 9_000, true), [(63_000, Some(9_000)), (27_000, Some(9_000))]);
        assert_eq!(lengths(65, 64, true), [(65, Some(64))]);
        assert_eq!(lengths(65 * 3, 3, true), [(192, Some(3)), (3, None)]);
    }

    #[test]
    fn consumed_messages_leave_the_rest_of_a_run() {
        let mut transmits = Transmits::new(&tidegate_buffer::Pool::new());
        transmits.push(run(12, 5));
        let mut one_by_one = true;
        assert_eq!(consume(&mut transmits, 5, &mut one_by_one), 1);
        assert_eq!((transmits.payload_bytes(), one_by_one), (7, true));
        assert_eq!(consume(&mut transmits, 7, &mut one_by_one), 2);
        assert_eq!((transmits.payload_bytes(), transmits.len(), one_by_one), (0, 0, false));
    }

    #[test]
    fn a_run_that_the_kernel_does_not_split_is_sent_one_by_one() {
        let pool = tidegate_buffer::Pool::new();
        let options = super::super::DatagramOptions::default();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = crate::socket::Socket::bind_datagrams(any, &options).expect("a socket");
        let socket = socket.descriptor().expect("a descriptor");
        // Without checksums the kernel splits nothing.
        super::super::messages::set_option(socket, libc::SOL_SOCKET, SO_NO_CHECK, 1).expect("an option");
        let peer = std::net::UdpSocket::bind(any).expect("a peer");
        let to = peer.local_addr().expect("its address");
        let mut io = DatagramIo::new(&pool);
        io.add(7, socket, &options).expect("a socket");
        let mut transmits = Transmits::new(&pool);
        for (length, size) in [(2_500, 1_000), (25, 10)] {
            transmits.push(Transmit { destination: Some(to), ..run(length, size) });
        }
        let transmission = io.send(7, socket, &mut transmits);
        assert_eq!((transmission.sent, transmission.lost, transmission.errors), (6, 0, vec![]));
        let lengths = [0; 6].map(|_| peer.recv(&mut [0; 2_000]).expect("a datagram"));
        assert_eq!(lengths, [1_000, 1_000, 500, 10, 10, 5]);
    }

    /// Sends `1`, a run of `2`s and `3`, while calls fail with these errors. Returns the result, and the payloads that came.
    fn send_with(errors: impl IntoIterator<Item = Option<i32>>) -> (Transmission, Vec<Vec<u8>>) {
        send_from(0, errors)
    }

    /// The same without the first of them.
    fn send_from(first: usize, errors: impl IntoIterator<Item = Option<i32>>) -> (Transmission, Vec<Vec<u8>>) {
        let pool = tidegate_buffer::Pool::new();
        let options = super::super::DatagramOptions::default();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = crate::socket::Socket::bind_datagrams(any, &options).expect("a socket");
        let socket = socket.descriptor().expect("a descriptor");
        let peer = std::net::UdpSocket::bind(any).expect("a peer");
        let to = peer.local_addr().expect("its address");
        let mut io = DatagramIo::new(&pool);
        io.add(7, socket, &options).expect("a socket");
        let mut transmits = Transmits::new(&pool);
        let run = Transmit { segment_size: NonZeroU16::new(2), ..Transmit::new(vec![2; 5], to) };
        let all = [Transmit::new(vec![1], to), run, Transmit::new(vec![3], to)];
        all.into_iter().skip(first).for_each(|transmit| transmits.push(transmit));
        super::super::messages::injected::fail_with(errors);
        let transmission = io.send(7, socket, &mut transmits);
        assert!(transmits.is_empty() || transmission.is_blocked);
        let receive = |_| {
            let mut bytes = [0; 16];
            let length = peer.recv(&mut bytes).expect("a datagram");
            bytes[..length].to_vec()
        };
        let came = (0..transmission.sent).map(receive).collect();
        (transmission, came)
    }

    #[test]
    fn a_device_without_room_loses_one_datagram_and_no_other() {
        for errno in [libc::ENOBUFS, libc::ENOMEM] {
            let (transmission, came) = send_with([Some(errno)]);
            assert_eq!((transmission.sent, transmission.lost, transmission.errors.len()), (4, 1, 0));
            assert_eq!(came, [vec![2, 2], vec![2, 2], vec![2], vec![3]]);
        }
    }

    #[test]
    fn a_destination_without_a_route_is_reported_and_loses_its_datagram_alone() {
        for errno in [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EPERM] {
            // The first error may be about an earlier datagram.
            let (transmission, came) = send_with([Some(errno), Some(errno)]);
            assert_eq!((transmission.sent, transmission.lost, came.len()), (4, 1, 4));
            let reasons: Vec<_> = transmission.errors.iter().map(|error| error.reason).collect();
            let expected = match errno {
                libc::EPERM => DatagramErrorReason::Refused(io::ErrorKind::PermissionDenied),
                _ => DatagramErrorReason::Unreachable,
            };
            assert_eq!(reasons, [expected]);
        }
    }

    #[test]
    fn an_error_about_an_earlier_datagram_loses_none() {
        for errno in [libc::ECONNREFUSED, libc::EMSGSIZE, libc::EHOSTUNREACH] {
            let (transmission, came) = send_with([Some(errno)]);
            assert_eq!((transmission.sent, transmission.lost, transmission.errors.len()), (5, 0, 0));
            assert_eq!(came, [vec![1], vec![2, 2], vec![2, 2], vec![2], vec![3]]);
        }
    }

    #[test]
    fn a_device_that_does_not_split_runs_gets_single_datagrams() {
        for errno in [libc::EIO, libc::EINVAL] {
            let (transmission, came) = send_from(1, [Some(errno)]);
            assert_eq!((transmission.sent, transmission.lost, transmission.errors.len()), (4, 0, 0));
            assert_eq!(came, [vec![2, 2], vec![2, 2], vec![2], vec![3]]);
        }
    }

    #[test]
    fn a_full_socket_keeps_the_unsent_datagrams() {
        let (transmission, came) = send_with([Some(libc::EAGAIN)]);
        assert!(transmission.is_blocked && came.is_empty());
        assert_eq!((transmission.sent, transmission.lost), (0, 0));
    }

    const SO_NO_CHECK: i32 = 11;
}
