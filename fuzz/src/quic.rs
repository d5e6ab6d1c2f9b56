//! QUIC: datagrams of peers that have not completed a handshake, to the endpoint of a server.
//!
//! The first byte chooses limits; then each datagram is one of: bytes as they are, an Initial whose frames are bytes of the
//! input, with the encryption that everybody can compute (RFC 9001 §5.2), a packet for an id that the server chose, or
//! time that passes. The server never sends an address that is not validated more than its bytes permit, and keeps
//! nothing once the deadline of handshakes is over. Keys and ids are random, so the same input is not the same twice.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tidegate_buffer::{Datagram, Pool, Transmits};
use tidegate_codec::{Endpoint as _, StreamEndpoint as _};
use tidegate_quic::{Endpoint, ServerConfig, TransportLimits};
use tidegate_tls::rustls::quic::{Keys, Suite, Version};
use tidegate_tls::rustls::{CipherSuite, Side, crypto};
use tidegate_tls::{Certificates, Provider};

use crate::choices::Choices;

/// Datagrams to one endpoint.
pub fn quic(data: &[u8]) {
    let mut choices = Choices::new(data);
    let config = &configurations()[choices.below(2)];
    let mut server = Peerless::new(config.endpoint(0));
    let mut packet_number = 0;
    while !choices.is_over() && packet_number < STEPS_MAX {
        packet_number += 1;
        let (kind, port) = (choices.below(4), 1 + choices.below(4) as u16);
        match kind {
            0 => {
                let length = choices.below(64);
                server.receive(choices.take(length), port);
            }
            1 => {
                let length = choices.below(256);
                let frames = choices.take(length);
                server.receive(&initial(port as u8, packet_number, frames), port);
            }
            2 => {
                let length = 1 + choices.below(64);
                let mut packet = choices.take(length).to_vec();
                let id = server.ids.get(&port).copied().unwrap_or_default();
                packet.insert(0, 0x40);
                packet.splice(1..1, id);
                server.receive(&packet, port);
            }
            _ => server.pass(Duration::from_millis(10 << choices.below(12))),
        }
        server.check();
    }
    for _ in 0..120 {
        server.pass(Duration::from_secs(1));
    }
    server.check();
    assert_eq!((server.endpoint.connections(), server.endpoint.poll_timeout()), (0, None), "nothing is left");
}

/// A server, and the bytes of each address.
struct Peerless {
    endpoint: Endpoint,
    pool: Pool,
    now: Instant,
    received: HashMap<u16, usize>,
    sent: HashMap<u16, usize>,
    /// The last id that the server chose for an address.
    ids: HashMap<u16, [u8; 8]>,
}

impl Peerless {
    fn new(endpoint: Endpoint) -> Self {
        let (received, sent, ids) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { endpoint, pool: Pool::new(), now: Instant::now(), received, sent, ids }
    }

    fn receive(&mut self, bytes: &[u8], port: u16) {
        *self.received.entry(port).or_default() += bytes.len();
        let source = SocketAddr::from(([192, 0, 2, 7], port));
        self.endpoint.handle_datagram(Datagram::new(self.pool.copy(bytes), source), self.now);
        self.send();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.endpoint.handle_timeout(self.now);
        self.send();
    }

    fn send(&mut self) {
        let event = self.endpoint.poll_event(self.now);
        assert!(event.is_none(), "no handshake is complete: {event:?}");
        let mut transmits = Transmits::new(&self.pool);
        self.endpoint.poll_transmit(self.now, &mut transmits);
        while let Some(transmit) = transmits.pop() {
            let port = transmit.destination.expect("a peer").port();
            *self.sent.entry(port).or_default() += transmit.payload.len();
            // A long header, with our id as its source (RFC 9000 §17.2).
            if transmit.payload.first().is_some_and(|first| first & 0x80 != 0)
                && let Some(&length) = transmit.payload.get(5)
                && let Some(id) = transmit.payload.get(7 + usize::from(length)..15 + usize::from(length))
                && let Ok(id) = id.try_into()
            {
                self.ids.insert(port, id);
            }
        }
    }

    /// RFC 9000 §8.1. quinn-proto begins a datagram while any of the budget is left.
    fn check(&self) {
        assert!(self.endpoint.connections() <= HANDSHAKES_MAX);
        for (port, sent) in &self.sent {
            let received = self.received.get(port).copied().unwrap_or_default();
            // Several connections may come from one address.
            assert!(*sent <= 3 * received + HANDSHAKES_MAX * 1472, "{sent} bytes for {received}");
        }
    }
}

/// An Initial packet with these frames and PADDING, in a datagram of 1,200 bytes (RFC 9000 §17.2.2).
fn initial(id: u8, number: u8, frames: &[u8]) -> Vec<u8> {
    let keys = initial_suite().keys(&[id; 8], Side::Client, Version::V1);
    let (header_bytes, tag) = (1 + 4 + 1 + 8 + 1 + 8 + 1 + 2 + 1, keys.local.packet.tag_len());
    let payload = DATAGRAM_BYTES - header_bytes - tag;
    let mut packet = vec![0xc0, 0, 0, 0, 1, 8];
    packet.extend([id; 8]);
    packet.push(8);
    packet.extend([id ^ 0xff; 8]);
    packet.push(0);
    packet.extend((0x4000 | (1 + payload + tag) as u16).to_be_bytes());
    packet.push(number);
    let mut body = frames.to_vec();
    body.resize(payload, 0);
    protect(&keys, number, &mut packet, body);
    packet
}

/// Encrypts a packet (RFC 9001 §5.3, §5.4).
fn protect(keys: &Keys, number: u8, packet: &mut Vec<u8>, mut body: Vec<u8>) {
    let number_at = packet.len() - 1;
    let tag = keys.local.packet.encrypt_in_place(number.into(), packet, &mut body).expect("there is room");
    packet.extend_from_slice(&body);
    packet.extend_from_slice(tag.as_ref());
    let sample_at = number_at + 4;
    let sample = packet[sample_at..sample_at + keys.local.header.sample_len()].to_vec();
    let (first, rest) = packet.split_at_mut(1);
    let number = &mut rest[number_at - 1..number_at];
    keys.local.header.encrypt_in_place(&sample, &mut first[0], number).expect("a sample");
}

fn initial_suite() -> Suite {
    let provider = crypto::ring::default_provider();
    let suites = provider.cipher_suites.iter();
    let suite = suites.filter(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256).find_map(|suite| {
        let suite = suite.tls13()?;
        suite.quic_suite()
    });
    suite.expect("each provider has it")
}

/// Of all inputs: to make a key takes long. The second one makes all clients prove their address soon.
fn configurations() -> &'static [ServerConfig; 2] {
    static BOTH: OnceLock<[ServerConfig; 2]> = OnceLock::new();
    BOTH.get_or_init(|| {
        let provider = Provider::ring();
        let made = rcgen::generate_simple_self_signed(["fuzz.test".to_owned()]).expect("a certificate");
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes()).expect("it is valid");
        let tls = tidegate_tls::ServerConfig::builder(&provider, certificates).build().expect("it is valid");
        [HANDSHAKES_MAX * 8, HANDSHAKES_MAX].map(|handshakes_max| {
            let limits = TransportLimits {
                connections_max: HANDSHAKES_MAX,
                handshakes_max,
                crypto_bytes: 4096,
                ..TransportLimits::default()
            };
            ServerConfig::new(&tls, limits).expect("it is valid")
        })
    })
}

const HANDSHAKES_MAX: usize = 8;
const STEPS_MAX: u8 = 100;
const DATAGRAM_BYTES: usize = 1200;
