//! Servers that answer our client with datagrams of their own, in the simulated network.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use tidegate::EndpointLimits;
use tidegate::codec::{Datagram, Endpoint as _, Pool, Transmits};
use tidegate::quic::{Admit, ClientConfig, ConnectionError, Endpoint, ServerConfig, TransportLimits};
use tidegate::sys::DatagramOptions;

use crate::protected_packets::varint;
use crate::raw_server::{RawServer, SERVER_ID, honest, parameter};
use crate::stage::{NAME, Stage, tls};

/// Answers the datagrams of a client by a function, which gets the number of each, until the connection is made or has
/// failed. Returns how many datagrams came, and the client's error.
fn connect_to(
    config: &ClientConfig,
    mut answer: impl FnMut(usize, &[u8]) -> Vec<Vec<u8>> + 'static,
) -> (usize, Option<ConnectionError>) {
    let mut stage = Stage::network(1);
    let socket = stage.socket(0);
    let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
    let mut server = stage.with(0, |event_loop| event_loop.open_datagrams(socket, &options, limits)).unwrap();
    let address = server.local_address().unwrap();
    let count = Rc::new(RefCell::new(0));
    let counted = count.clone();
    let _answering = stage.with(0, |event_loop| {
        event_loop.spawn(async move {
            while let Ok(datagram) = std::future::poll_fn(|cx| server.poll_recv_from(cx)).await {
                let number = counted.replace_with(|count| *count + 1);
                for bytes in answer(number, &datagram.payload) {
                    server.send_to(bytes, datagram.source).unwrap();
                }
            }
        })
    });
    let client = stage.client(config);
    let error = stage.task(async move { client.connect(address, NAME).await.map(drop).err() });
    (count.take(), error)
}

/// The datagrams with which an endpoint answers one.
fn answers_of(endpoint: &mut Endpoint, bytes: &[u8]) -> Vec<Vec<u8>> {
    let (pool, now) = (Pool::new(), Instant::now());
    let source = SocketAddr::from(([192, 0, 2, 7], 4433));
    endpoint.handle_datagram(Datagram::new(pool.copy(bytes), source), now);
    let mut transmits = Transmits::new(&pool);
    endpoint.poll_transmit(now, &mut transmits);
    std::iter::from_fn(|| transmits.pop()).map(|transmit| transmit.payload.to_vec()).collect()
}

fn is_retry(bytes: &[u8]) -> bool {
    bytes[0] & 0xf0 == 0xf0
}

fn client() -> (tidegate::tls::ServerConfig, ClientConfig) {
    let (server_tls, client_tls) = tls();
    (server_tls, ClientConfig::new(&client_tls, TransportLimits::default()).unwrap())
}

#[test]
fn a_client_follows_one_retry_and_no_further_one() {
    let (server_tls, config) = client();
    // Two servers of different keys: neither knows a token of the other, and each wants the address to be proved.
    let mut servers = [(); 2].map(|()| {
        let server = ServerConfig::new(&server_tls, TransportLimits::default()).unwrap();
        server.admit(|_, _| Admit::Retry).endpoint(0)
    });
    let retries = Rc::new(RefCell::new(0));
    let seen = retries.clone();
    let (datagrams, error) = connect_to(&config, move |number, bytes| {
        let answers = answers_of(&mut servers[number % 2], bytes);
        *seen.borrow_mut() += answers.iter().filter(|answer| is_retry(answer)).count();
        answers
    });
    println!("{datagrams} datagrams, {} Retry packets", retries.borrow());
    assert!(*retries.borrow() >= 2, "there was a loop to follow");
    // Those of a handshake that nobody answers: a few probes, each later than the one before.
    assert!(datagrams < 40, "{datagrams} datagrams");
    assert_eq!(error, Some(ConnectionError::HandshakeTimeout));
}

#[test]
fn forged_answers_neither_end_nor_make_a_connection() {
    let (_, config) = client();
    let (_, error) = connect_to(&config, |_, bytes| {
        if bytes[0] & 0x80 == 0 {
            // It answers a short header with a reset.
            return Vec::new();
        }
        let ids = |first: u8, version: u32| {
            let mut answer = vec![first];
            answer.extend(version.to_be_bytes());
            // The ids are exchanged.
            let own = usize::from(bytes[5]);
            let peer = usize::from(bytes[6 + own]);
            answer.push(peer as u8);
            answer.extend(&bytes[7 + own..7 + own + peer]);
            answer.push(own as u8);
            answer.extend(&bytes[6..6 + own]);
            answer
        };
        vec![
            // A Retry without a right tag (RFC 9001 §5.8), and one without a token.
            [ids(0xf0, 1), vec![7; 64], vec![0; 16]].concat(),
            [ids(0xf0, 1), vec![0; 16]].concat(),
            // Version Negotiation with the version of the client (RFC 9000 §6.2), and one that is cut off.
            [ids(0x80, 0), vec![0, 0, 0, 1, 0x1a, 0x2a, 0x3a, 0x4a]].concat(),
            [ids(0x80, 0), vec![0, 0]].concat(),
            // A packet that claims to have HANDSHAKE_DONE, in the open, before there are keys: a long and a short header.
            [ids(0xe0, 1), vec![0x40, 30], vec![0x1e; 30]].concat(),
            [&[0x40][..], &[0x1e; 60]].concat(),
            // A stateless reset of a token that the client has not got.
            [&[0x5f][..], &[9; 40]].concat(),
        ]
    });
    assert_eq!(error, Some(ConnectionError::HandshakeTimeout));
}

#[test]
fn a_server_without_the_version_is_an_error_at_once() {
    let (_, config) = client();
    let (datagrams, error) = connect_to(&config, |_, bytes| {
        let own = usize::from(bytes[5]);
        let peer = usize::from(bytes[6 + own]);
        let mut answer = vec![0x80, 0, 0, 0, 0, peer as u8];
        answer.extend(&bytes[7 + own..7 + own + peer]);
        answer.push(own as u8);
        answer.extend(&bytes[6..6 + own]);
        answer.extend([0x6b, 0x33, 0x43, 0xcf]);
        vec![answer]
    });
    assert!(datagrams <= 3, "{datagrams}");
    assert_eq!(error, Some(ConnectionError::Version));
}

/// The client's error with a server that has these transport parameters and sends these frames.
fn error_of(parameters: impl Fn(&[u8]) -> Vec<u8> + 'static, frames: [Vec<u8>; 3]) -> (usize, Option<ConnectionError>) {
    let (server_tls, config) = client();
    let mut server = RawServer::new(server_tls.tls(), parameters, frames);
    connect_to(&config, move |_, bytes| server.answer(bytes))
}

fn code_of(error: Option<ConnectionError>) -> Option<u64> {
    error.map(|error| match error {
        ConnectionError::Transport { code, .. } => code,
        error => panic!("{error:?}"),
    })
}

/// RFC 9000 §20.1.
const TRANSPORT_PARAMETER_ERROR: Option<u64> = Some(8);
const PROTOCOL_VIOLATION: Option<u64> = Some(10);

#[test]
fn transport_parameters_of_a_server_are_checked() {
    let with = |more: Vec<u8>| move |first_id: &[u8]| [honest(first_id), more.clone()].concat();
    for (name, more, code) in [
        ("an honest server", Vec::new(), None),
        ("unknown ones", [parameter(0x1b, b"x"), parameter((1 << 62) - 1, &[])].concat(), None),
        ("a reset token", parameter(2, &[5; 16]), None),
        ("one twice", [parameter(1, &[1]), parameter(1, &[1])].concat(), TRANSPORT_PARAMETER_ERROR),
        ("a value that is cut off", vec![1, 4, 0x80], TRANSPORT_PARAMETER_ERROR),
        ("more bytes than the value has", parameter(1, &[1, 1]), TRANSPORT_PARAMETER_ERROR),
        ("an exponent above 20", parameter(0x0a, &[21]), TRANSPORT_PARAMETER_ERROR),
        ("payloads below 1,200 bytes", parameter(3, &varint(1199)), TRANSPORT_PARAMETER_ERROR),
        ("an acknowledgement delay of 2^14", parameter(0x0b, &varint(1 << 14)), TRANSPORT_PARAMETER_ERROR),
        ("one active connection id", parameter(0x0e, &[1]), TRANSPORT_PARAMETER_ERROR),
        ("a short reset token", parameter(2, &[5; 15]), TRANSPORT_PARAMETER_ERROR),
        ("a preferred address that is cut off", parameter(0x0d, &[1; 20]), TRANSPORT_PARAMETER_ERROR),
        ("the id of a Retry that there was not", parameter(0x10, &[6; 8]), TRANSPORT_PARAMETER_ERROR),
    ] {
        let (datagrams, error) = error_of(with(more), Default::default());
        println!("{name}: {error:?} after {datagrams} datagrams");
        assert_eq!(code_of(error), code, "{name}");
    }
}

/// The ids of the parameters are those of the packets (RFC 9000 §7.3).
#[test]
fn a_server_whose_parameters_name_other_ids_is_refused() {
    let own = parameter(0x0f, &SERVER_ID);
    type Parameters = Box<dyn Fn(&[u8]) -> Vec<u8>>;
    let cases: [(&str, Parameters); 4] = [
        ("another first id", Box::new(move |_| [parameter(0, &[1; 8]), own.clone()].concat())),
        ("no first id", Box::new(|_| parameter(0x0f, &SERVER_ID))),
        ("another id of the server", Box::new(|first_id| [parameter(0, first_id), parameter(0x0f, &[4; 8])].concat())),
        ("no id of the server", Box::new(|first_id| parameter(0, first_id))),
    ];
    for (name, parameters) in cases {
        let (_, error) = error_of(parameters, Default::default());
        assert_eq!(code_of(error), TRANSPORT_PARAMETER_ERROR, "{name}");
    }
}

/// A server may send HANDSHAKE_DONE once it has the client's Finished (RFC 9001 §4.1.2). In a packet of the handshake it is a
/// violation, as other frames are (RFC 9000 §12.5); in one that comes with the server's Finished the client has no way to know.
#[test]
fn frames_of_a_server_before_their_time_end_the_connection_or_change_nothing() {
    let [done, token, window, stream] = [vec![0x1e], vec![7, 1, 9], vec![0x10, 0x40, 0xff], vec![0x0b, 3, 1, 7]];
    for (name, frame) in [("HANDSHAKE_DONE", &done), ("NEW_TOKEN", &token), ("MAX_DATA", &window), ("STREAM", &stream)]
    {
        for space in [0, 1] {
            let mut frames: [Vec<u8>; 3] = Default::default();
            frames[space].clone_from(frame);
            let (_, error) = error_of(honest, frames);
            assert_eq!(code_of(error), PROTOCOL_VIOLATION, "{name} in space {space}");
        }
        let (_, error) = error_of(honest, [Vec::new(), Vec::new(), frame.clone()]);
        assert_eq!(error, None, "{name} in the first packet behind the handshake");
    }
}
