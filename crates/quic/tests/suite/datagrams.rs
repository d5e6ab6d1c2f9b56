//! Datagrams of a connection (RFC 9221): each scenario on epoll, on io_uring and in the simulated network.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::codec::DatagramRefused;
use tidegate::engine::{EndpointSession, SessionError, SessionStreams};
use tidegate::quic::{ClientConfig, Connection, Endpoint, ServerConfig, TransportLimits};
use tidegate::task;
use tidegate_testkit::network::DatagramFaults;

use crate::stage::{NAME, Stage, configs};

fn with_datagrams(bytes: u32) -> TransportLimits {
    TransportLimits { datagram_receive_bytes: Some(bytes), ..TransportLimits::default() }
}

fn each(scenario: fn(&mut Stage)) {
    for stage in [Stage::epoll(), Stage::uring(), Stage::network(1)] {
        stage.run(scenario);
    }
}

/// Sends each datagram of a client back.
pub(crate) fn echo_datagrams(session: EndpointSession<Endpoint>) -> SessionStreams {
    drop(task::spawn(async move {
        while let Ok(datagram) = session.recv_datagram().await {
            session.send_datagram(datagram).expect("a datagram");
        }
    }));
    SessionStreams::default()
}

fn connect(stage: &mut Stage, (server, client): &(ServerConfig, ClientConfig)) -> Connection {
    let address = stage.server(server, echo_datagrams);
    let client = stage.client(client);
    stage.task(async move { client.connect(address, NAME).await.expect("a connection") })
}

#[test]
fn datagrams_come_back_in_both_roles() {
    each(|stage| {
        let connection = connect(stage, &configs(with_datagrams(64 * 1024), with_datagrams(64 * 1024)));
        let longest = connection.datagram_bytes_max().expect("datagrams");
        assert!(longest >= 1_100, "{longest}");
        stage.task(async move {
            for length in [0, 1, 1_000, longest] {
                let datagram = vec![7; length];
                connection.send_datagram(datagram.clone()).expect("a datagram");
                assert_eq!(connection.recv_datagram().await.expect("an echo"), datagram, "{length} bytes");
            }
            let too_long = connection.send_datagram(vec![0; 70_000]);
            assert_eq!(too_long, Err(SessionError::Datagram(DatagramRefused::TooLong)));
        });
    });
}

#[test]
fn without_the_limit_neither_side_sends_any() {
    each(|stage| {
        let connection = connect(stage, &configs(TransportLimits::default(), with_datagrams(1_000)));
        assert_eq!(connection.datagram_bytes_max(), None);
        stage.task(async move {
            let refused = connection.send_datagram(&b"ebb"[..]);
            assert_eq!(refused, Err(SessionError::Datagram(DatagramRefused::Unsupported)));
        });
        let connection = connect(stage, &configs(with_datagrams(1_000), TransportLimits::default()));
        stage.task(async move {
            let refused = connection.send_datagram(&b"ebb"[..]);
            assert_eq!(refused, Err(SessionError::Datagram(DatagramRefused::Unsupported)));
        });
    });
}

#[test]
fn a_flood_that_is_not_read_keeps_the_newest_datagrams_and_counts_the_others() {
    each(|stage| {
        // Room for ten datagrams of four bytes, and for the frame of each.
        let (server, client) = configs(with_datagrams(10 * 36), with_datagrams(1_000));
        let sessions = Rc::<RefCell<Vec<EndpointSession<Endpoint>>>>::default();
        let seen = sessions.clone();
        let address = stage.server(&server, move |session| {
            seen.borrow_mut().push(session);
            SessionStreams::default()
        });
        let connector = stage.client(&client);
        let connection = stage.task(async move { connector.connect(address, NAME).await.expect("a connection") });
        let connection = Rc::new(connection);
        let sender = connection.clone();
        stage.task(async move {
            for number in 0..100_u32 {
                sender.send_datagram(number.to_be_bytes().to_vec()).expect("a datagram");
            }
        });
        stage.run_until(|| server.counts().datagrams_dropped == 90);
        let session = sessions.borrow()[0].clone();
        let mut task = stage.with(0, |event_loop| {
            event_loop.spawn(async move {
                let mut read = Vec::new();
                for _ in 0..10 {
                    let datagram = session.recv_datagram().await.expect("a datagram");
                    read.push(u32::from_be_bytes(datagram[..].try_into().expect("four bytes")));
                }
                read
            })
        });
        stage.run_until(|| task.is_finished());
        let read = stage.task(async move { (&mut task).await.expect("an output") });
        assert_eq!(read, (90..100).collect::<Vec<_>>());
        assert_eq!(client.counts().datagrams_dropped, 0);
        drop(connection);
    });
}

#[test]
fn datagrams_that_wait_to_be_sent_have_a_bound() {
    each(|stage| {
        let narrow = TransportLimits { datagram_send_bytes: 10 * 36, ..with_datagrams(64 * 1024) };
        let (server, client) = configs(with_datagrams(64 * 1024), narrow);
        let connection = connect(stage, &(server, client.clone()));
        let newest = stage.task(async move {
            for number in 0..100_u32 {
                connection.send_datagram(number.to_be_bytes().to_vec()).expect("a datagram");
            }
            let mut newest = 0;
            while newest != 99 {
                let datagram = connection.recv_datagram().await.expect("an echo");
                newest = u32::from_be_bytes(datagram[..].try_into().expect("four bytes"));
                assert!(newest >= 90, "an older one waited: {newest}");
            }
            newest
        });
        assert_eq!((newest, client.counts().datagrams_dropped), (99, 90));
    });
}

#[test]
fn a_task_that_waits_for_a_datagram_learns_of_the_end() {
    each(|stage| {
        let connection = connect(stage, &configs(with_datagrams(1_000), with_datagrams(1_000)));
        let session = Rc::new(connection);
        let waiting = session.clone();
        let mut task = stage.with(1, |event_loop| event_loop.spawn(async move { waiting.recv_datagram().await }));
        stage.run_a_little();
        assert!(!task.is_finished());
        let number = session.number();
        stage.task(async move {
            session.with(|endpoint, now| endpoint.close_connection(number, 0, "done", now)).expect("a connection");
        });
        stage.run_until(|| task.is_finished());
        assert_eq!(stage.task(async move { (&mut task).await.expect("an output") }), Err(SessionError::Closed));
    });
}

#[test]
fn datagrams_are_lost_where_streams_are_not() {
    for seed in 1..=5 {
        println!("seed {seed}");
        Stage::network(seed).run(|stage| {
            let connection = connect(stage, &configs(with_datagrams(64 * 1024), with_datagrams(64 * 1024)));
            let faults = DatagramFaults { lost: 10, duplicated: 10, ..DatagramFaults::default() };
            stage.simulated().expect("a network").set_datagram_faults(faults);
            let received = stage.task(async move {
                let mut received = Vec::new();
                for number in 0..200_u32 {
                    connection.send_datagram(number.to_be_bytes().to_vec()).expect("a datagram");
                    let echo = std::pin::pin!(connection.recv_datagram());
                    if let Ok(echo) = task::timeout(Duration::from_millis(50), echo).await {
                        received.push(u32::from_be_bytes(echo.expect("an echo")[..].try_into().expect("four bytes")));
                    }
                }
                received
            });
            assert!(received.len() > 50 && received.len() < 200, "{}", received.len());
            let mut once = received.clone();
            once.dedup();
            assert_eq!(once, received, "no datagram comes twice");
        });
    }
}
