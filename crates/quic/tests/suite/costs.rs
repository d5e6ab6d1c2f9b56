//! The packets of long transfers and of many short streams, and shared bytes.

use std::rc::Rc;

use bytes::Bytes;
use tidegate::engine::{SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::quic::{Direction, TransportLimits};
use tidegate::{Context, Handler, Outcome, Slice};

use crate::scenarios::{echo, exchange, pattern, read_all};
use crate::stage::{NAME, Stage, configs};

/// Responds to the first message with shared bytes, and ends.
struct Download(Bytes);

impl Handler<Raw> for Download {
    type Post = ();

    fn message(&mut self, _: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        let sent = cx.send(self.0.clone().into());
        if sent.is_err() { Outcome::Abort } else { Outcome::Close }
    }
}

/// Downloads `bytes`. Returns the datagrams that the server has sent and received.
fn download(bytes: &Bytes) -> (u64, u64) {
    let mut stage = Stage::network(1);
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let body = bytes.clone();
    let services = move |_| {
        let body = body.clone();
        let streams = Streams::handle(move || (Raw, Download(body.clone())));
        SessionStreams { bidirectional: Some(streams), unidirectional: None }
    };
    let address = stage.server(&server, services);
    let client = stage.client(&config);
    let received = stage.task(async move {
        let connection = Rc::new(client.connect(address, NAME).await.unwrap());
        let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
        channel.send(b"ebb".to_vec().into()).unwrap();
        read_all(&mut channel).await.unwrap()
    });
    assert!(received == bytes[..], "{} bytes came", received.len());
    let counts = stage.with(0, |event_loop| event_loop.counts());
    (counts.datagrams_sent, counts.datagrams_received)
}

#[test]
fn a_peer_acknowledges_fewer_than_every_other_packet() {
    let (sent, received) = download(&pattern(2_000_000).into());
    println!("{sent} datagrams were sent, and {received} came");
    assert!(received * 3 < sent, "{received} of {sent}");
}

#[test]
fn the_channels_that_a_task_opens_at_once_share_datagrams() {
    let mut stage = Stage::network(1);
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    let connection = stage.task(async move { client.connect(address, NAME).await.unwrap() });
    stage.run_a_little();
    let sent = |stage: &mut Stage| stage.with(1, |event_loop| event_loop.counts().datagrams_sent);
    let before = sent(&mut stage);
    let echoed = stage.task(async move {
        let opened = (0..CHANNELS as u8).map(|number| {
            let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
            channel.send(vec![number; 8].into()).unwrap();
            channel.shutdown_write();
            channel
        });
        let mut channels: Vec<_> = opened.collect();
        let mut echoed = Vec::new();
        for channel in &mut channels {
            echoed.push(read_all(channel).await.unwrap());
        }
        echoed
    });
    assert!(echoed.iter().zip(0..).all(|(bytes, number)| *bytes == [number; 8]), "{echoed:?}");
    assert_eq!(echoed.len() as u64, CHANNELS);
    let sent = sent(&mut stage) - before;
    // One datagram has the bytes of all, and few acknowledge the responses.
    assert!(sent <= CHANNELS / 4, "{sent} datagrams");
}

#[test]
fn a_request_of_any_length_comes_whole() {
    let mut stage = Stage::network(1);
    let (server, config) = configs(TransportLimits::default(), TransportLimits::default());
    let address = stage.server(&server, |_| echo());
    let client = stage.client(&config);
    stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        // The first bytes of a stream are read in pieces of 1,024 and 16,384 bytes.
        for length in [1, 1_000, 1_023, 1_024, 1_025, 2_048, 16_383, 16_384, 16_385, 40_000] {
            let bytes = pattern(length);
            assert!(exchange(&connection, bytes.clone()).await == bytes, "{length} bytes");
        }
    });
}

/// As many as a server permits at first.
const CHANNELS: u64 = 16;

#[test]
fn shared_bytes_that_a_window_divides_come_whole() {
    let bytes = Bytes::from(pattern(200_000));
    let _counts = download(&bytes);
    // The connection is gone with its network, and nothing has kept a view.
    assert!(bytes.is_unique());
}

#[test]
fn the_sockets_of_a_server_have_room_for_the_longest_payload() {
    let of = |payload_bytes_max| {
        let limits = TransportLimits { payload_bytes_max, ..TransportLimits::default() };
        let options = configs(limits, TransportLimits::default()).0.socket_options();
        assert!(options.steering.is_some() && !options.joins_runs);
        options.payload_bytes_max
    };
    assert_eq!([of(1_200), of(2_048), of(9_000)], [2_048, 2_048, 9_000]);
}

#[test]
fn the_kernel_joins_datagrams_for_a_client_unless_they_may_be_long() {
    let options = |payload_bytes_max| {
        let limits = TransportLimits { payload_bytes_max, ..TransportLimits::default() };
        configs(TransportLimits::default(), limits).1.socket_options()
    };
    let of = |payload| (options(payload).joins_runs, options(payload).payload_bytes_max);
    assert_eq!([of(1_472), of(2_048), of(9_000)], [(true, 2_048), (true, 2_048), (false, 9_000)]);
}
