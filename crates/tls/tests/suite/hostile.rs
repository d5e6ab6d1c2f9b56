//! Bytes that no client in good faith sends.

use std::io::Write;
use std::time::Duration;

use rustls::crypto::cipher::{AeadKey, InboundOpaqueMessage, OutboundChunks, OutboundPlainMessage};
use rustls::{ConnectionTrafficSecrets, ContentType, ExtractedSecrets, SupportedCipherSuite};
use tidegate::framing::Raw;
use tidegate::{Channel, Over};
use tidegate_testkit::{Embedded, Random, seeds};

use crate::support::{Foreign, NAME, Pair, VERSIONS, configurations, foreign_config, providers, serve, usual};

fn server() -> Embedded<std::convert::Infallible> {
    Embedded::serving(Over::new(usual().0.accept(), Raw), serve)
}

/// Asserts that a server which has received `bytes` sends an alert as its only record and closes.
fn refuses(bytes: &[u8]) {
    for bytewise in [false, true] {
        let mut server = server();
        if bytewise {
            server.receive_bytewise(bytes);
        } else {
            server.receive(bytes);
        }
        let alert = server.take_written();
        assert!(alert.len() == 7 && alert.starts_with(&[21, 3]), "{alert:?} for {bytes:?}");
        assert!(server.is_write_closed(), "{bytes:?}");
    }
}

#[test]
fn bytes_that_are_no_tls_get_an_alert_and_the_end() {
    refuses(b"GET / HTTP/1.1\r\n\r\n");
    refuses(b"SSH-2.0-OpenSSH_9.6\r\n");
    refuses(&[0; 64]);
    refuses(&[0xff; 64]);
}

#[test]
fn lengths_that_no_message_has_are_refused_at_once() {
    // A ClientHello of 16 MiB, in nine bytes.
    refuses(&[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff]);
    // A record of 64 KiB.
    refuses(&[22, 3, 1, 0xff, 0xff]);
}

#[test]
fn a_hello_of_records_without_bytes_is_refused() {
    refuses(&[22, 3, 1, 0, 0].repeat(33));
}

#[test]
fn a_message_in_tiny_records_has_bounded_memory() {
    // A ClientHello of 60,000 bytes, in records of one byte.
    let mut server = server();
    server.receive(&[22, 3, 1, 0, 4, 1, 0, 0xea, 0x60]);
    let mut used_max = 0;
    for _ in 0..600 {
        server.receive(&[22, 3, 1, 0, 1, 0].repeat(100));
        used_max = used_max.max(server.pool().ledger().used());
    }
    assert!(server.is_write_closed() && used_max < 768 * 1024, "{used_max} bytes");
}

#[test]
fn random_bytes_and_changed_handshakes_are_no_panic() {
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        let mut pair = Pair::new(&usual(), &[1_000]);
        for round in 0..6 {
            let (mut to_server, mut to_client) = (pair.client.take_written(), pair.server.take_written());
            for bytes in [&mut to_server, &mut to_client] {
                if !bytes.is_empty() && random.below(3) == 0 {
                    let at = random.below(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                }
                if random.below(12) == 0 {
                    bytes.extend((0..random.below(40)).map(|_| random.below(256) as u8));
                }
                if round > 2 && random.below(12) == 0 {
                    let end = random.below(bytes.len() + 1);
                    bytes.truncate(end);
                }
            }
            pair.server.receive(&to_server);
            pair.client.receive(&to_client);
        }
    }
}

#[test]
fn a_changed_byte_is_noticed() {
    for provider in providers() {
        for version in VERSIONS {
            let both = configurations(&provider, |server| server.versions(&[version]), |client| client);
            let mut pair = Pair::new(&both, &[1_000, 100_000]);
            pair.exchange(usize::MAX);
            pair.advance();
            let request = pair.client.take_written();
            pair.server.receive(&request);
            let mut bulk = pair.server.take_written();
            bulk[40_000] ^= 1;
            pair.client.receive(&bulk);
            assert!(pair.failure.borrow().is_some() && pair.done.get() == 1);
            assert!(!pair.client.take_written().is_empty(), "the client sends an alert");
        }
    }
}

#[test]
fn a_peer_without_end_of_its_hello_has_the_time_of_a_handshake() {
    let mut server = server();
    // One byte a second of a hello of 512 bytes.
    server.receive(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc]);
    for second in 0..10 {
        assert!(!server.is_write_closed(), "after {second} seconds");
        server.advance(Duration::from_secs(1));
        server.receive(&[3]);
    }
    assert!(server.is_write_closed());
}

#[test]
fn a_flood_of_key_updates_is_refused() {
    let mut foreign = Foreign::new(&usual().0, foreign_config(&rustls::version::TLS13));
    assert_eq!(foreign.request(100).unwrap().len(), 100);
    // A few are in order; each is answered with the next bytes.
    for _ in 0..20 {
        foreign.tls.refresh_traffic_keys().unwrap();
    }
    assert_eq!(foreign.request(100).unwrap().len(), 100);
    for _ in 0..40 {
        foreign.tls.refresh_traffic_keys().unwrap();
    }
    // rustls has no alert for it.
    foreign.exchange().unwrap();
    assert!(foreign.server.is_write_closed());
}

#[test]
fn both_sides_may_renew_their_keys_all_the_time() {
    let mut foreign = Foreign::new(&usual().0, foreign_config(&rustls::version::TLS13));
    for _ in 0..100 {
        foreign.tls.refresh_traffic_keys().unwrap();
        assert_eq!(foreign.request(10_000).unwrap(), crate::support::WATER[..10_000]);
    }
}

#[test]
fn a_flood_of_tiny_records_is_served_in_bounded_memory() {
    for version in VERSIONS {
        let mut foreign = Foreign::new(&usual().0, foreign_config(version));
        let idle = foreign.server.pool().ledger().used();
        for _ in 0..20_000 {
            foreign.tls.writer().write_all(b" ").unwrap();
            let mut record = Vec::new();
            foreign.tls.write_tls(&mut record).unwrap();
            foreign.server.receive(&record);
            assert!(foreign.server.pool().ledger().used() <= idle + 128 * 1024);
        }
        assert_eq!(foreign.request(100).unwrap().len(), 100);
    }
}

#[test]
fn a_second_handshake_on_a_connection_is_refused() {
    // A TLS 1.2 client that sends the record of a ClientHello as its application data, with the type changed: the
    // record does not decrypt. The request in the clear is refused as well.
    let mut foreign = Foreign::new(&usual().0, foreign_config(&rustls::version::TLS12));
    foreign.server.receive(&foreign_hello());
    assert!(!foreign.server.take_written().is_empty() && foreign.server.is_write_closed());
}

#[test]
fn a_renegotiation_is_refused_and_the_connection_goes_on() {
    let mut config = foreign_config(&rustls::version::TLS12);
    config.enable_secret_extraction = true;
    let mut foreign = Foreign::new(&usual().0, config);
    assert_eq!(foreign.request(100).unwrap().len(), 100);
    // rustls never asks for it, so the test encrypts the message itself.
    let Foreign { tls, mut server } = foreign;
    let Some(SupportedCipherSuite::Tls12(suite)) = tls.negotiated_cipher_suite() else { panic!("TLS 1.2") };
    let ExtractedSecrets { tx: (first, sending), rx: (mut received, receiving) } =
        tls.dangerous_extract_secrets().unwrap();
    let ((key, iv), (their_key, their_iv)) = (key_and_iv(sending), key_and_iv(receiving));
    let mut encrypter = suite.aead_alg.encrypter(key, &iv[..4], &iv[4..]);
    let mut decrypter = suite.aead_alg.decrypter(their_key, &their_iv[..4]);

    let version = rustls::ProtocolVersion::TLSv1_2;
    let hello = foreign_hello();
    let sent = [(ContentType::Handshake, &hello[5..]), (ContentType::ApplicationData, &b"100\n"[..])];
    for (sequence, (typ, payload)) in (first..).zip(sent) {
        let message = OutboundPlainMessage { typ, version, payload: OutboundChunks::Single(payload) };
        server.receive(&encrypter.encrypt(message, sequence).unwrap().encode());
    }
    assert!(!server.is_write_closed());
    let mut records = Vec::new();
    let mut written = &mut server.take_written()[..];
    while let Some(bytes) = crate::support::record_bytes(written) {
        let (record, rest) = written.split_at_mut(bytes);
        let typ = ContentType::from(record[0]);
        let message = InboundOpaqueMessage::new(typ, version, &mut record[5..]);
        records.push((typ, decrypter.decrypt(message, received).unwrap().payload.to_vec()));
        (received, written) = (received + 1, rest);
    }
    // A warning, 1, with `no_renegotiation`, 100 (RFC 5246 §7.2.2).
    let expected =
        [(ContentType::Alert, vec![1, 100]), (ContentType::ApplicationData, crate::support::WATER[..100].to_vec())];
    assert_eq!(records, expected);
}

/// The record of a TLS 1.2 ClientHello.
fn foreign_hello() -> Vec<u8> {
    let config = std::sync::Arc::new(foreign_config(&rustls::version::TLS12));
    let mut hello = Vec::new();
    rustls::ClientConnection::new(config, NAME.try_into().unwrap()).unwrap().write_tls(&mut hello).unwrap();
    hello
}

fn key_and_iv(secrets: ConnectionTrafficSecrets) -> (AeadKey, Vec<u8>) {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } | ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
            (key, iv.as_ref().to_vec())
        }
        _ => panic!("AES is preferred"),
    }
}

#[test]
fn early_data_is_refused_and_later_data_is_served() {
    // Another server, with other keys of tickets, has promised to accept early data.
    let mut config = foreign_config(&rustls::version::TLS13);
    config.enable_early_data = true;
    let config = std::sync::Arc::new(config);
    promise_early_data(&config);

    let mut tls = rustls::ClientConnection::new(config, NAME.try_into().unwrap()).unwrap();
    tls.early_data().expect("the other server has allowed it").write_all(b"77\n").unwrap();
    let (server, _) = usual();
    let mut foreign = Foreign { tls, server: Embedded::serving(Over::new(server.accept(), Raw), serve) };
    foreign.exchange().unwrap();
    assert!(!foreign.tls.is_handshaking() && !foreign.tls.is_early_data_accepted());
    assert_eq!(foreign.request(1_000).unwrap(), crate::support::WATER[..1_000]);
}

/// Has a server of rustls' own give the client a ticket that allows early data.
fn promise_early_data(config: &std::sync::Arc<rustls::ClientConfig>) {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut server = server.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    server.max_early_data_size = 16_384;
    let mut server = rustls::ServerConnection::new(server.into()).unwrap();
    let mut client = rustls::ClientConnection::new(config.clone(), NAME.try_into().unwrap()).unwrap();
    for _ in 0..4 {
        let (mut sent, mut answer) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        let mut rest = &sent[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        while server.wants_write() {
            server.write_tls(&mut answer).unwrap();
        }
        let mut rest = &answer[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
}

#[test]
fn a_close_in_the_middle_of_anything_is_no_panic() {
    for version in VERSIONS {
        let both =
            configurations(&tidegate_tls::Provider::ring(), |server| server, |client| client.versions(&[version]));
        for bytes in 0..1_500 {
            let mut pair = Pair::new(&both, &[100]);
            pair.server = Embedded::serving(Over::new(both.0.accept(), Raw), async |mut channel: Channel<_>| {
                tidegate::task::sleep(Duration::from_secs(1)).await;
                let _ = channel.send("late".into());
                channel.close().await
            });
            let hello = pair.client.take_written();
            pair.server.receive(&hello[..bytes.min(hello.len())]);
            if bytes > hello.len() {
                let flight = pair.server.take_written();
                pair.client.receive(&flight);
                let rest = pair.client.take_written();
                pair.server.receive(&rest[..(bytes - hello.len()).min(rest.len())]);
                if bytes - hello.len() > rest.len() {
                    break;
                }
            }
            pair.server.advance(Duration::from_secs(1));
            pair.server.receive_fin();
        }
    }
}
