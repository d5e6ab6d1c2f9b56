//! Handshakes that no honest client begins. Each limit has a twin that stays below it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate::codec::{Datagram, Endpoint as _, Pool, Transmits};
use tidegate::quic::{ClientConfig, ConnectionError, Endpoint, ServerConfig, TransportLimits};
use tidegate::tls::{Certificates, Provider};
use tidegate_testkit::allocations::Region;

use crate::protected_packets::varint;
use crate::raw_client::{OWN_ID, RawClient};
use crate::scenarios::echo;
use crate::stage::{NAME, Stage, configs, tls};

fn client(parameters: &[u8]) -> RawClient {
    RawClient::new(TransportLimits::default(), parameters)
}

/// A CRYPTO frame (RFC 9000 §19.6).
fn crypto(offset: usize, bytes: &[u8]) -> Vec<u8> {
    [&[6][..], &varint(offset as u64), &varint(bytes.len() as u64), bytes].concat()
}

/// A transport parameter (RFC 9000 §18).
fn parameter(id: u64, value: &[u8]) -> Vec<u8> {
    [&varint(id)[..], &varint(value.len() as u64), value].concat()
}

const CRYPTO_BUFFER_EXCEEDED: u64 = 0xd;
const TRANSPORT_PARAMETER_ERROR: u64 = 8;

#[test]
fn a_client_hello_in_frames_of_one_byte_out_of_order_is_understood() {
    let mut client = client(&[]);
    let hello = client.client_hello();
    let region = Region::new();
    let mut frames: Vec<_> = hello.iter().enumerate().map(|(offset, byte)| crypto(offset, &[*byte])).collect();
    frames.reverse();
    for frames in frames.chunks(100) {
        client.send_initial(&frames.concat());
    }
    assert_eq!((client.closed, client.config.counts().handshakes), (None, 1));
    let bytes = region.change().bytes_in_use();
    assert!(bytes < 512 * 1024, "{bytes} bytes");
}

#[test]
fn handshake_bytes_without_end_have_bounded_memory() {
    // A message of 16 MiB, in order.
    let mut client = client(&[]);
    let region = Region::new();
    client.send_initial(&crypto(0, &[1, 0xff, 0xff, 0xff]));
    for piece in 0..2_000 {
        client.send_initial(&crypto(4 + piece * 1000, &[0; 1000]));
    }
    assert_eq!(client.config.counts().handshakes, 0);
    let bytes = region.change().bytes_in_use();
    assert!(bytes < 512 * 1024, "{bytes} bytes, closed with {:?}", client.closed);
    assert!(client.closed.is_some(), "no ClientHello is that long");
}

#[test]
fn handshake_bytes_out_of_order_have_a_bound() {
    for (offset, code) in [(20 * 1024, Some(CRYPTO_BUFFER_EXCEEDED)), (12 * 1024, None)] {
        let mut client = client(&[]);
        client.send_initial(&crypto(offset, b"x"));
        assert_eq!(client.closed, code, "{offset}");
    }
}

#[test]
fn transport_parameters_are_checked() {
    let max_ack_delay = 0x0b;
    for (name, parameters, code) in [
        ("one twice", [parameter(1, &[1]), parameter(1, &[1])].concat(), Some(TRANSPORT_PARAMETER_ERROR)),
        ("a value that is cut off", vec![1, 4, 0x80], Some(TRANSPORT_PARAMETER_ERROR)),
        ("more bytes than the value has", parameter(1, &[1, 1]), Some(TRANSPORT_PARAMETER_ERROR)),
        ("an exponent above 20", parameter(0x0a, &[21]), Some(TRANSPORT_PARAMETER_ERROR)),
        ("payloads below 1,200 bytes", parameter(3, &varint(1199)), Some(TRANSPORT_PARAMETER_ERROR)),
        (
            "an acknowledgement delay of 2^14",
            parameter(max_ack_delay, &varint(1 << 14)),
            Some(TRANSPORT_PARAMETER_ERROR),
        ),
        ("one active connection id", parameter(0x0e, &[1]), Some(TRANSPORT_PARAMETER_ERROR)),
        ("a parameter of servers", parameter(2, &[5; 16]), Some(TRANSPORT_PARAMETER_ERROR)),
        ("unknown ones", [parameter(0x1b, b"x"), parameter((1 << 62) - 1, &[])].concat(), None),
        (
            "the least delay above the largest",
            parameter(MIN_ACK_DELAY, &varint(30_000)),
            Some(TRANSPORT_PARAMETER_ERROR),
        ),
        // In microseconds; the round trip of this test takes no time.
        ("the least delay above the round trip", parameter(MIN_ACK_DELAY, &varint(20_000)), None),
    ] {
        let mut client = client(&parameters);
        client.write_handshake();
        let handshakes = u64::from(code.is_none());
        assert_eq!((client.closed, client.config.counts().handshakes), (code, handshakes), "{name}");
        if code.is_none() {
            client.send(&[0x0e, 0, 0, 1, 7]);
            assert_eq!((client.closed, client.events.is_empty()), (None, false), "{name}");
        }
    }
}

#[test]
fn a_source_connection_id_that_is_not_that_of_the_packets_is_refused() {
    for (own_id, code) in [([8; 8], Some(TRANSPORT_PARAMETER_ERROR)), (OWN_ID, None)] {
        let mut client = RawClient::claiming(own_id, TransportLimits::default(), &[]);
        client.write_handshake();
        assert_eq!((client.closed, client.config.counts().handshakes), (code, u64::from(code.is_none())));
    }
}

/// RFC draft-ietf-quic-ack-frequency §3.
const MIN_ACK_DELAY: u64 = 0xff04_de1b;

#[test]
fn many_initials_in_one_datagram_are_one_client() {
    let mut client = client(&[]);
    let hello = client.client_hello();
    let first = client.initial(&crypto(0, &hello[..1000]));
    let second = client.initial(&crypto(1000, &hello[1000..]));
    // Those of other clients, of which none can be opened.
    let others: Vec<u8> = (0..50u8)
        .flat_map(|number| {
            let mut other = first[..60].to_vec();
            other[6] = number;
            // The length behind ids of 8 bytes, no token.
            (other[24], other[25]) = (0x40, 34);
            other
        })
        .collect();
    for datagram in [first.clone(), [first, others, second.clone()].concat(), second.repeat(3), second] {
        client.send_raw(&datagram);
        assert_eq!((client.closed, client.config.counts().begun), (None, 1));
    }
    assert_eq!(client.config.counts().handshakes, 1);
}

#[test]
fn a_token_that_leaves_no_room_is_dropped_and_a_long_one_is_not() {
    let mut bench = client(&[]);
    let hello = bench.client_hello();
    let whole = bench.initial(&crypto(0, &hello[..500]));
    // The same header with a token of so many bytes, and the rest of the datagram.
    for (token, datagram) in [(1174, 1200), (1175, 1200), (1170, 1200), (60_000, 1200), (1 << 40, 1200), (1440, 1472)] {
        let mut bytes = [&whole[..23], &varint(token)].concat();
        bytes.resize(datagram, 0x40);
        bench.send_raw(&bytes);
        assert_eq!((bench.closed, bench.config.counts().begun), (None, 0), "{token}");
    }
    // A token that the server does not know, beside a ClientHello in pieces.
    let mut client = client(&[]);
    client.token = vec![7; 500];
    let hello = client.client_hello();
    for (place, piece) in hello.chunks(400).enumerate() {
        client.send_initial(&crypto(place * 400, piece));
    }
    assert_eq!((client.closed, client.config.counts().handshakes), (None, 1));
}

#[test]
fn initials_for_unknown_ids_leave_nothing() {
    let mut client = client(&[]);
    let hello = client.client_hello();
    let packet = client.initial(&crypto(0, &hello[..500]));
    let region = Region::new();
    for number in 0..65_536u32 {
        let mut copy = packet.clone();
        copy[6..10].copy_from_slice(&number.to_be_bytes());
        client.send_raw(&copy);
    }
    let bytes = region.change().bytes_in_use();
    assert!(bytes < 256 * 1024, "{bytes} bytes");
    assert_eq!((client.config.counts().begun, client.endpoint.connections()), (0, 0));
}

#[test]
fn two_endpoints_do_not_reset_each_other_without_end() {
    let pool = Pool::new();
    let mut endpoints = [(); 2].map(|()| {
        let (config, _) = configs(TransportLimits::default(), TransportLimits::default());
        config.endpoint(0)
    });
    let now = Instant::now();
    let receive = |endpoint: &mut Endpoint, bytes: &[u8], now| {
        endpoint.handle_datagram(Datagram::new(pool.copy(bytes), SocketAddr::from(([192, 0, 2, 7], 1))), now);
        let mut transmits = Transmits::new(&pool);
        endpoint.poll_transmit(now, &mut transmits);
        transmits.pop().map(|transmit| transmit.payload.to_vec())
    };
    // A short header with an id that both may have chosen.
    let mut next = Some([&[0x40, 7, 7][..], &[0x40; 1400]].concat());
    let mut hops = 0;
    while let Some(mut bytes) = next.take() {
        // The worst case: the random bytes of each reset are such an id as well.
        bytes[1..3].copy_from_slice(&[7, 7]);
        // Beyond the interval of resets.
        let later = now + Duration::from_secs(hops);
        next = receive(&mut endpoints[hops as usize % 2], &bytes, later);
        hops += 1;
        assert!(hops < 1_500, "each reset is shorter than its cause");
    }
    assert!(hops > 1, "there was a reset");
}

/// A server without a certificate for the requested name refuses the handshake by a TLS alert, and keeps nothing of it.
#[test]
fn a_refused_server_name_is_an_alert_and_leaves_no_memory() {
    let provider = Provider::of_features().unwrap();
    let (_, client_tls) = tls();
    // No certificate was issued for any name.
    let server_tls = tidegate::tls::ServerConfig::builder(&provider, Certificates::issued_later(&provider));
    let server = ServerConfig::new(&server_tls.alpn(["echo"]).build().unwrap(), TransportLimits::default()).unwrap();
    let config = ClientConfig::new(&client_tls, TransportLimits::default()).unwrap();
    let mut stage = Stage::network(1);
    let address = stage.server(&server, |_| echo());
    let client = Rc::new(stage.client(&config));
    let mut refuse = |times: usize| {
        for _ in 0..times {
            let client = client.clone();
            let refused = stage.task(async move { client.connect(address, NAME).await.map(drop) });
            // CRYPTO_ERROR (RFC 9001 §4.8) with the alert that rustls has for it: access_denied.
            assert!(matches!(refused, Err(ConnectionError::AbortedByPeer { code: 0x131, .. })), "{refused:?}");
        }
        // Longer than the closing connections stay.
        stage.simulated().unwrap().run_for(Duration::from_secs(30));
    };
    // The first ones make tables.
    refuse(20);
    let region = Region::new();
    refuse(20);
    let bytes = region.change().bytes_in_use();
    assert!(bytes < 8 * 1024, "{bytes} bytes of 20 refused connections");
    assert_eq!((server.counts().connections, config.counts().connections), (0, 0));
    assert_eq!(server.counts().handshakes, 0);
}
