//! `ConnectionCapture`: one connection in a capture file, as the TCP segments that its bytes could have had.
//!
//! Sequence numbers count the bytes of a stage. A frame that the capture drops leaves a gap, which Wireshark reports.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tidegate_codec::Time;

use super::Capture;
use super::frame::{Frame, PAYLOAD_BYTES_MAX};
use crate::filter::{ByteSink, Direction};

/// Which side of a connection we are: the client sends the first SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The peer has connected.
    Server,
    /// We have connected.
    Client,
}

/// One connection of a [`Capture`]: a sink for [`ByteLog`](crate::ByteLog).
///
/// The TCP handshake is written before the first byte, a FIN where a direction ends in good order, and a RST where the
/// connection is gone without one of ours. A connection without a byte and without an end is not in the file.
#[derive(Debug)]
pub struct ConnectionCapture {
    capture: Capture,
    role: Role,
    /// Indexed by the direction that has them as its source: the peer's, and ours.
    addresses: [SocketAddr; 2],
    /// The next sequence number of each direction.
    sequences: [u32; 2],
    has_begun: bool,
    has_ended: [bool; 2],
    /// The time of the last frame.
    time: Duration,
}

impl ConnectionCapture {
    pub(crate) fn new(
        capture: Capture,
        number: u64,
        role: Role,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
    ) -> Self {
        let port = (number % 65_535) as u16 + 1;
        // An address of TEST-NET-1 (RFC 5737) stands for one that is not known.
        let peer = peer.unwrap_or(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 2), port)));
        let local = local.unwrap_or(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), port)));
        // Two connections with the same addresses have different numbers: else the second would be a retransmission.
        let initial = (number as u32).wrapping_mul(0x9e37_79b1);
        Self {
            capture,
            role,
            addresses: [canonical(peer), canonical(local)],
            sequences: [initial, initial.rotate_left(16)],
            has_begun: false,
            has_ended: [false; 2],
            time: Duration::ZERO,
        }
    }

    /// Sets our address. It has no effect behind the first byte: call it when the connection opens.
    ///
    /// ```
    /// use tidegate::bytelog::{ByteLog, ConnectionCapture};
    /// use tidegate::framing::Lines;
    /// use tidegate::{Context, Handler, Outcome, Over, Slice};
    ///
    /// type Logged = Over<ByteLog<ConnectionCapture>, Lines>;
    ///
    /// struct Echo;
    ///
    /// impl Handler<Logged> for Echo {
    ///     type Post = ();
    ///
    ///     fn open(&mut self, cx: &mut Context<'_, Logged>) -> Outcome<Logged> {
    ///         if let Some(local) = cx.local().ok().and_then(|local| local.ip()) {
    ///             cx.codec_mut().filter_mut().sink_mut().set_local(local);
    ///         }
    ///         Outcome::Continue
    ///     }
    ///
    ///     fn message(&mut self, line: Slice, cx: &mut Context<'_, Logged>) -> Outcome<Logged> {
    ///         cx.send(line.into()).into()
    ///     }
    /// }
    /// ```
    pub fn set_local(&mut self, address: SocketAddr) {
        if !self.has_begun {
            self.addresses[Direction::Outbound as usize] = canonical(address);
        }
    }

    /// Sets the peer's address, as [`set_local`](Self::set_local): for a client, which knows it once it is connected.
    pub fn set_peer(&mut self, address: SocketAddr) {
        if !self.has_begun {
            self.addresses[Direction::Inbound as usize] = canonical(address);
        }
    }

    fn begin(&mut self) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        let (client, server) = match self.role {
            Role::Server => (Direction::Inbound, Direction::Outbound),
            Role::Client => (Direction::Outbound, Direction::Inbound),
        };
        self.send(client, Frame::SYN, &[]);
        self.send(server, Frame::SYN | Frame::ACK, &[]);
        self.send(client, Frame::ACK, &[]);
    }

    fn send(&mut self, direction: Direction, flags: u8, payload: &[u8]) {
        let (from, to) = match direction {
            Direction::Inbound => (0, 1),
            Direction::Outbound => (1, 0),
        };
        self.capture.push(Frame {
            from: self.addresses[from],
            to: self.addresses[to],
            sequence: self.sequences[from],
            acknowledged: if flags & Frame::ACK == 0 { 0 } else { self.sequences[to] },
            flags,
            time: self.time,
            payload: payload.into(),
        });
        // SYN and FIN count as a byte each.
        let length = payload.len() as u32 + u32::from(flags & (Frame::SYN | Frame::FIN) != 0);
        self.sequences[from] = self.sequences[from].wrapping_add(length);
    }
}

impl ByteSink for ConnectionCapture {
    fn is_active(&self) -> bool {
        self.capture.is_open()
    }

    fn record(&mut self, direction: Direction, bytes: &[u8], time: &Time) {
        self.time = self.capture.since_epoch(time);
        self.begin();
        for payload in bytes.chunks(PAYLOAD_BYTES_MAX) {
            self.send(direction, Frame::PUSH | Frame::ACK, payload);
        }
    }

    fn skip(&mut self, direction: Direction, bytes: u64) {
        let sequence = &mut self.sequences[direction as usize];
        *sequence = sequence.wrapping_add(bytes as u32);
    }

    fn end(&mut self, direction: Direction, time: &Time) {
        if !self.capture.is_open() {
            return;
        }
        self.time = self.capture.since_epoch(time);
        self.begin();
        self.has_ended[direction as usize] = true;
        self.send(direction, Frame::FIN | Frame::ACK, &[]);
    }
}

impl Drop for ConnectionCapture {
    fn drop(&mut self) {
        if self.has_begun && self.capture.is_open() && !self.has_ended[Direction::Outbound as usize] {
            self.send(Direction::Outbound, Frame::RST | Frame::ACK, &[]);
        }
    }
}

/// An IPv4 address that came through an IPv6 socket is one of IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
