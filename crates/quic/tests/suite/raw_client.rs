//! A client that completes the handshake and then sends any frames of a test, without I/O: against an endpoint.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate::codec::{Datagram, Endpoint as _, Pool, SessionEvent, StreamEndpoint as _, Transmits};
use tidegate::quic::{Endpoint, ServerConfig, TransportLimits};
use tidegate::tls::rustls::pki_types::ServerName;
use tidegate::tls::rustls::quic::{ClientConnection, Connection, KeyChange, Keys, Secrets, Version};
use tidegate::tls::rustls::{CipherSuite, Side};

use crate::protected_packets::{open_header, read_varint, seal, skip, take, varint};
use crate::stage::{NAME, configs_with_tls};

/// A server's endpoint, and a connected client of its own.
pub(crate) struct RawClient {
    pub(crate) endpoint: Endpoint,
    pub(crate) config: ServerConfig,
    pub(crate) now: Instant,
    /// The events of the endpoint.
    pub(crate) events: Vec<SessionEvent>,
    /// The code with which the server has closed the connection (RFC 9000 §19.19).
    pub(crate) closed: Option<u64>,
    /// Frames of the server by type, beside those that the handshake needs.
    pub(crate) received: Vec<u64>,
    pool: Pool,
    tls: Connection,
    keys: [Option<Keys>; 3],
    /// For the next update of keys, which the server makes by itself (RFC 9001 §6).
    secrets: Option<Secrets>,
    key_phase: u8,
    next: [u64; 3],
    /// Bytes of the handshake that were sent.
    crypto_sent: [usize; 3],
    crypto_received: [usize; 3],
    server_id: Vec<u8>,
    pub(crate) port: u16,
    /// The token of Initial packets.
    pub(crate) token: Vec<u8>,
    /// The largest packet number of the server, after the handshake.
    pub(crate) largest: u64,
    /// Those that were not acknowledged.
    numbers: BTreeSet<u64>,
}

pub(crate) const OWN_ID: [u8; 8] = [7; 8];
const FIRST_ID: [u8; 8] = [9; 8];

impl RawClient {
    /// Connects, with limits of the server.
    pub(crate) fn connect(limits: TransportLimits) -> Self {
        let mut client = Self::new(limits, &[]);
        client.write_handshake();
        assert_eq!(client.config.counts().handshakes, 1);
        client
    }

    /// A client that has sent nothing, with further transport parameters (RFC 9000 §18).
    pub(crate) fn new(limits: TransportLimits, more: &[u8]) -> Self {
        Self::claiming(OWN_ID, limits, more)
    }

    /// The same, where the transport parameters claim this source connection id (RFC 9000 §7.3).
    pub(crate) fn claiming(own_id: [u8; 8], limits: TransportLimits, more: &[u8]) -> Self {
        let (config, client_tls) = configs_with_tls(limits);
        let tls = client_tls.tls().clone();
        // The one of Initial packets (RFC 9001 §5.2).
        let mut suites = tls.crypto_provider().cipher_suites.iter();
        let suite = suites.find(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
        let suite = suite.unwrap().tls13().unwrap().quic_suite().unwrap();
        let name = ServerName::try_from(NAME.to_owned()).unwrap();
        let mut parameters = vec![0x0f, 8];
        parameters.extend(own_id);
        // Windows and streams for the server.
        for kind in [4, 5, 6, 7] {
            parameters.extend([kind, 4, 0x80, 0x10, 0, 0]);
        }
        parameters.extend([8, 1, 50, 9, 1, 50]);
        parameters.extend(more);
        let tls = ClientConnection::new(tls, Version::V1, name, parameters).unwrap();
        Self {
            endpoint: config.endpoint(0),
            config,
            now: Instant::now(),
            events: Vec::new(),
            closed: None,
            received: Vec::new(),
            pool: Pool::new(),
            tls: tls.into(),
            keys: [Some(suite.keys(&FIRST_ID, Side::Client, Version::V1)), None, None],
            secrets: None,
            key_phase: 0,
            next: [0; 3],
            crypto_sent: [0; 3],
            crypto_received: [0; 3],
            server_id: FIRST_ID.to_vec(),
            port: 4433,
            token: Vec::new(),
            largest: 0,
            numbers: BTreeSet::new(),
        }
    }

    /// Acknowledges the packets of the server that have come (RFC 9000 §19.3).
    pub(crate) fn acknowledge(&mut self) {
        let mut ranges: Vec<[u64; 2]> = Vec::new();
        for number in std::mem::take(&mut self.numbers).into_iter().rev() {
            match ranges.last_mut() {
                Some([first, _]) if number + 1 == *first => *first = number,
                _ => ranges.push([number, number]),
            }
        }
        let Some([first, last]) = ranges.first().copied() else { return };
        let more = varint(ranges.len() as u64 - 1);
        let mut frame = [&[2][..], &varint(last), &[0], &more, &varint(last - first)].concat();
        for (before, after) in ranges.iter().zip(&ranges[1..]) {
            frame.extend(varint(before[0] - after[1] - 2));
            frame.extend(varint(after[1] - after[0]));
        }
        self.send(&frame);
    }

    /// The bytes of the ClientHello, which the test sends.
    pub(crate) fn client_hello(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert!(self.tls.write_hs(&mut bytes).is_none());
        self.crypto_sent[0] = bytes.len();
        bytes
    }

    /// Sends frames in an Initial packet of its own.
    pub(crate) fn send_initial(&mut self, frames: &[u8]) {
        let packet = self.initial(frames);
        self.receive_at_server(&packet);
    }

    /// An Initial packet of 1,200 bytes.
    pub(crate) fn initial(&mut self, frames: &[u8]) -> Vec<u8> {
        self.packet(0, frames)
    }

    /// This side updates its keys (RFC 9001 §6).
    pub(crate) fn update_keys(&mut self) {
        self.key_phase ^= 1;
        let next = self.secrets.as_mut().unwrap().next_packet_keys();
        let keys = self.keys[2].as_mut().unwrap();
        (keys.local.packet, keys.remote.packet) = (next.local, next.remote);
    }

    /// Sends frames in a packet of its own, after the handshake.
    pub(crate) fn send(&mut self, frames: &[u8]) {
        let packet = self.packet(2, frames);
        self.receive_at_server(&packet);
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.receive_at_server(bytes);
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.endpoint.handle_timeout(self.now);
        self.take_transmits();
    }

    /// The id that the server is known by.
    pub(crate) fn server_id(&self) -> &[u8] {
        &self.server_id
    }

    pub(crate) fn write_handshake(&mut self) {
        loop {
            let mut bytes = Vec::new();
            let level = self.level();
            let change = self.tls.write_hs(&mut bytes);
            for piece in bytes.chunks(1000) {
                let mut frame = vec![6];
                frame.extend(varint(self.crypto_sent[level] as u64));
                frame.extend(varint(piece.len() as u64));
                frame.extend(piece);
                self.crypto_sent[level] += piece.len();
                let packet = self.packet(level, &frame);
                self.receive_at_server(&packet);
            }
            match change {
                Some(KeyChange::Handshake { keys }) => self.keys[1] = Some(keys),
                Some(KeyChange::OneRtt { keys, next }) => {
                    (self.keys[2], self.secrets) = (Some(keys), Some(next));
                }
                None if bytes.is_empty() => return,
                None => {}
            }
        }
    }

    /// The space in which this side sends its handshake.
    fn level(&self) -> usize {
        usize::from(self.keys[1].is_some())
    }

    fn packet(&mut self, space: usize, frames: &[u8]) -> Vec<u8> {
        let number = self.next[space];
        self.next[space] += 1;
        let keys = self.keys[space].as_ref().unwrap();
        let tag = keys.local.packet.tag_len();
        let mut body = frames.to_vec();
        let mut packet = Vec::new();
        if space == 2 {
            packet.push(0x43 | self.key_phase << 2);
            packet.extend(&self.server_id);
            // A sample for the protection of the header needs that much.
            body.resize(body.len().max(4), 0);
        } else {
            packet.push(if space == 0 { 0xc3 } else { 0xe3 });
            packet.extend([0, 0, 0, 1, self.server_id.len() as u8]);
            packet.extend(&self.server_id);
            packet.push(8);
            packet.extend(OWN_ID);
            if space == 0 {
                packet.extend(varint(self.token.len() as u64));
                packet.extend(&self.token);
                body.resize(1200 - packet.len() - 2 - 4 - tag, 0);
            }
            packet.extend((0x4000 | (4 + body.len() + tag) as u16).to_be_bytes());
        }
        seal(keys, packet, number, body)
    }

    fn receive_at_server(&mut self, bytes: &[u8]) {
        let source = SocketAddr::from(([192, 0, 2, 7], self.port));
        self.endpoint.handle_datagram(Datagram::new(self.pool.copy(bytes), source), self.now);
        self.take_transmits();
    }

    /// Receives all that the server sends, from whichever address it has.
    fn take_transmits(&mut self) {
        while let Some(event) = self.endpoint.poll_event(self.now) {
            self.events.push(event);
        }
        let mut transmits = Transmits::new(&self.pool);
        self.endpoint.poll_transmit(self.now, &mut transmits);
        while let Some(transmit) = transmits.pop() {
            let bytes = transmit.payload.to_vec();
            let size = transmit.segment_size.map_or(bytes.len(), |size| usize::from(size.get()));
            for datagram in bytes.chunks(size.max(1)) {
                self.receive(datagram.to_vec());
            }
        }
    }

    fn receive(&mut self, mut datagram: Vec<u8>) {
        while !datagram.is_empty() {
            let (space, number_at, end) = if datagram[0] & 0x80 == 0 {
                (2, 9, datagram.len())
            } else {
                let space = usize::from(datagram[0] & 0x30 != 0);
                let mut at = 6 + usize::from(datagram[5]);
                let length = usize::from(datagram[at]);
                self.server_id = datagram[at + 1..at + 1 + length].to_vec();
                at += 1 + length;
                if space == 0 {
                    let (token, length) = read_varint(&datagram[at..]);
                    at += length + token as usize;
                }
                let (rest, length) = read_varint(&datagram[at..]);
                (space, at + length, at + length + rest as usize)
            };
            let after = datagram.split_off(end);
            if let Some(payload) = self.open(space, number_at, datagram) {
                self.read_frames(space, &payload);
            }
            datagram = after;
        }
    }

    fn open(&mut self, space: usize, number_at: usize, mut packet: Vec<u8>) -> Option<Vec<u8>> {
        let (number, length) = open_header(self.keys[space].as_ref()?, number_at, &mut packet)?;
        let number = if space == 2 { decode_number(self.largest, number, 8 * length as u32) } else { number };
        if space == 2 && packet[0] >> 2 & 1 != self.key_phase {
            self.key_phase ^= 1;
            let next = self.secrets.as_mut()?.next_packet_keys();
            let keys = self.keys[2].as_mut()?;
            (keys.local.packet, keys.remote.packet) = (next.local, next.remote);
        }
        let keys = self.keys[space].as_ref()?;
        let mut body = packet.split_off(number_at + length);
        let length = keys.remote.packet.decrypt_in_place(number, &packet, &mut body).ok()?.len();
        body.truncate(length);
        if space == 2 {
            self.largest = self.largest.max(number);
            self.numbers.insert(number);
        }
        Some(body)
    }

    fn read_frames(&mut self, space: usize, mut rest: &[u8]) {
        while !rest.is_empty() {
            let kind = take(&mut rest);
            match kind {
                0 | 1 | 0x1e => {}
                2 | 3 => {
                    let [_, _, ranges, _] = [(); 4].map(|()| take(&mut rest));
                    skip(&mut rest, 2 * ranges + if kind == 3 { 3 } else { 0 });
                }
                6 => {
                    let (offset, length) = (take(&mut rest) as usize, take(&mut rest) as usize);
                    // A probe repeats them.
                    if offset == self.crypto_received[space] {
                        self.crypto_received[space] += length;
                        self.tls.read_hs(&rest[..length]).unwrap();
                        // The next packet of the datagram may need new keys.
                        self.write_handshake();
                    }
                    rest = &rest[length..];
                }
                7 => {
                    let length = take(&mut rest) as usize;
                    rest = &rest[length..];
                }
                0x10 | 0x12 | 0x13 | 0x14 | 0x16 | 0x17 | 0x19 => skip(&mut rest, 1),
                0x05 | 0x11 | 0x15 => skip(&mut rest, 2),
                0x04 => skip(&mut rest, 3),
                0x18 => {
                    skip(&mut rest, 2);
                    rest = &rest[1 + usize::from(rest[0]) + 16..];
                }
                0x1a | 0x1b => rest = &rest[8..],
                0x1c | 0x1d => {
                    self.closed = Some(take(&mut rest));
                    return;
                }
                _ => {
                    // STREAM: no test needs the frames behind it.
                    self.received.push(kind);
                    return;
                }
            }
            if space == 2 {
                self.received.push(kind);
            }
        }
    }
}

/// A packet number of which so many bits came (RFC 9000 §A.3).
fn decode_number(largest: u64, number: u64, bits: u32) -> u64 {
    let window = 1 << bits;
    let near = (largest + 1) & !(window - 1) | number;
    match near {
        _ if near + window / 2 <= largest + 1 => near + window,
        _ if near > largest + 1 + window / 2 && near >= window => near - window,
        _ => near,
    }
}
