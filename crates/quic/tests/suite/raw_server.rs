//! A server that completes the handshake with any transport parameters and frames of a test, without I/O: for our client.

use std::sync::Arc;

use tidegate::tls::rustls::quic::{Connection, KeyChange, Keys, ServerConnection, Version};
use tidegate::tls::rustls::{CipherSuite, ServerConfig, Side};

use crate::protected_packets::{open_header, read_varint, seal, skip, take, varint};

/// A server for one client. The functions of the test get the id that the client has chosen.
pub(crate) struct RawServer<P> {
    tls: Arc<ServerConfig>,
    parameters: P,
    /// Frames by the space of their packet: before those of the handshake in the Initial and the Handshake space, and behind all
    /// of them in 1-RTT.
    frames: [Vec<u8>; 3],
    /// Since the first packet of the client.
    connection: Option<RawConnection>,
}

struct RawConnection {
    tls: Connection,
    keys: [Option<Keys>; 3],
    client_id: Vec<u8>,
    next: [u64; 3],
    crypto_received: [usize; 2],
    sent: Vec<Vec<u8>>,
}

pub(crate) const SERVER_ID: [u8; 8] = [5; 8];

/// The transport parameters of an honest server (RFC 9000 §18.2).
pub(crate) fn honest(first_id: &[u8]) -> Vec<u8> {
    let mut parameters = parameter(0, first_id);
    parameters.extend(parameter(0x0f, &SERVER_ID));
    for kind in [4, 5, 6, 7] {
        parameters.extend(parameter(kind, &[0x80, 0x10, 0, 0]));
    }
    [parameters, parameter(8, &[50]), parameter(9, &[50])].concat()
}

/// A transport parameter.
pub(crate) fn parameter(kind: u64, value: &[u8]) -> Vec<u8> {
    [varint(kind), varint(value.len() as u64), value.to_vec()].concat()
}

impl<P: Fn(&[u8]) -> Vec<u8>> RawServer<P> {
    pub(crate) fn new(tls: Arc<ServerConfig>, parameters: P, frames: [Vec<u8>; 3]) -> Self {
        Self { tls, parameters, frames, connection: None }
    }

    /// The datagrams with which the server answers one.
    pub(crate) fn answer(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut rest = datagram.to_vec();
        // A short header: the client needs no answer.
        while rest.first().is_some_and(|first| first & 0x80 != 0) {
            let space = usize::from(rest[0] & 0x30 != 0);
            let first_id_end = 6 + usize::from(rest[5]);
            let id_end = first_id_end + 1 + usize::from(rest[first_id_end]);
            let mut at = id_end;
            if space == 0 {
                let (token, length) = read_varint(&rest[at..]);
                at += length + token as usize;
            }
            let (length, bytes) = read_varint(&rest[at..]);
            let number_at = at + bytes;
            let after = rest.split_off(number_at + length as usize);
            let (first_id, id) = (&rest[6..first_id_end], &rest[first_id_end + 1..id_end]);
            let connection = self.connection.get_or_insert_with(|| {
                let parameters = (self.parameters)(first_id);
                RawConnection::new(self.tls.clone(), parameters, first_id, id)
            });
            connection.receive(space, number_at, rest, &self.frames);
            rest = after;
        }
        self.connection.as_mut().map(|connection| std::mem::take(&mut connection.sent)).unwrap_or_default()
    }
}

impl RawConnection {
    fn new(tls: Arc<ServerConfig>, parameters: Vec<u8>, first_id: &[u8], client_id: &[u8]) -> Self {
        // The one of Initial packets (RFC 9001 §5.2).
        let mut suites = tls.crypto_provider().cipher_suites.iter();
        let suite = suites.find(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
        let suite = suite.unwrap().tls13().unwrap().quic_suite().unwrap();
        let keys = [Some(suite.keys(first_id, Side::Server, Version::V1)), None, None];
        let tls = ServerConnection::new(tls, Version::V1, parameters).unwrap().into();
        Self { tls, keys, client_id: client_id.to_vec(), next: [0; 3], crypto_received: [0; 2], sent: Vec::new() }
    }

    fn receive(&mut self, space: usize, number_at: usize, mut packet: Vec<u8>, frames: &[Vec<u8>; 3]) {
        let Some(keys) = &self.keys[space] else { return };
        let Some((number, length)) = open_header(keys, number_at, &mut packet) else { return };
        let mut body = packet.split_off(number_at + length);
        let Ok(opened) = keys.remote.packet.decrypt_in_place(number, &packet, &mut body) else { return };
        let mut rest = opened;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            match take(&mut rest) {
                0 | 1 => {}
                2 => {
                    let [_, _, ranges, _] = [(); 4].map(|()| take(&mut rest));
                    skip(&mut rest, 2 * ranges);
                }
                6 => {
                    let (offset, length) = (take(&mut rest) as usize, take(&mut rest) as usize);
                    pieces.push((offset, rest[..length].to_vec()));
                    rest = &rest[length..];
                }
                // The client closes the connection.
                _ => return,
            }
        }
        // quinn-proto sends them in any order.
        pieces.sort_unstable();
        for (offset, piece) in pieces {
            // A probe repeats them.
            if offset == self.crypto_received[space] && self.tls.read_hs(&piece).is_ok() {
                self.crypto_received[space] += piece.len();
                self.write_handshake(frames);
            }
        }
    }

    fn write_handshake(&mut self, frames: &[Vec<u8>; 3]) {
        let mut offset = [0; 2];
        // Tickets follow the end of the handshake, and need no packet here.
        while self.keys[2].is_none() {
            let mut bytes = Vec::new();
            let space = usize::from(self.keys[1].is_some());
            let change = self.tls.write_hs(&mut bytes);
            if !bytes.is_empty() && !frames[space].is_empty() {
                self.send(space, frames[space].clone());
            }
            for piece in bytes.chunks(1000) {
                let frame = [&[6][..], &varint(offset[space]), &varint(piece.len() as u64), piece].concat();
                offset[space] += piece.len() as u64;
                self.send(space, frame);
            }
            match change {
                Some(KeyChange::Handshake { keys }) => self.keys[1] = Some(keys),
                Some(KeyChange::OneRtt { keys, .. }) => {
                    self.keys[2] = Some(keys);
                    if !frames[2].is_empty() {
                        self.send(2, frames[2].clone());
                    }
                }
                None if bytes.is_empty() => return,
                None => {}
            }
        }
    }

    /// Sends frames in a packet and a datagram of their own.
    fn send(&mut self, space: usize, mut body: Vec<u8>) {
        let number = self.next[space];
        self.next[space] += 1;
        let keys = self.keys[space].as_ref().unwrap();
        // A sample for the protection of the header needs that much.
        body.resize(body.len().max(4), 0);
        let mut header = Vec::new();
        if space == 2 {
            header.push(0x43);
            header.extend(&self.client_id);
        } else {
            header.push(if space == 0 { 0xc3 } else { 0xe3 });
            header.extend([0, 0, 0, 1, self.client_id.len() as u8]);
            header.extend(&self.client_id);
            header.push(SERVER_ID.len() as u8);
            header.extend(SERVER_ID);
            let tag = keys.local.packet.tag_len();
            if space == 0 {
                // No token. A datagram with an Initial packet has 1,200 bytes (RFC 9000 §14.1).
                header.push(0);
                body.resize(1200 - header.len() - 2 - 4 - tag, 0);
            }
            header.extend((0x4000 | (4 + body.len() + tag) as u16).to_be_bytes());
        }
        self.sent.push(seal(keys, header, number, body));
    }
}
