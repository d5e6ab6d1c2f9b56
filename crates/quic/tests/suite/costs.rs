//! Long transfers: the packets that the receiver sends, and shared bytes.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use bytes::Bytes;
use tidegate::codec::{CodecStatus, Input, Output, Pipeline, Step};
use tidegate::engine::{SessionStreams, Streams};
use tidegate::framing::{Payload, Raw};
use tidegate::quic::{Direction, TransportLimits};
use tidegate::{CloseReason, Codec, Context, Handler, Outcome, Slice};

use crate::scenarios::{pattern, read_all};
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
fn shared_bytes_that_a_window_divides_come_whole() {
    let bytes = Bytes::from(pattern(200_000));
    let _counts = download(&bytes);
    // The connection is gone with its network, and nothing has kept a view.
    assert!(bytes.is_unique());
}

/// Raw bytes, of which the first message is the response.
#[derive(Debug, Default)]
struct OneAnswer {
    is_finished: bool,
}

impl Codec for OneAnswer {
    type In = Slice;
    type Out = Payload;
    type Error = Infallible;

    fn protocol(&self) -> &'static str {
        "bytes"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, Infallible> {
        Raw.decode(input, reply)
    }

    fn encode(&mut self, bytes: Payload, out: &mut Output<'_>) -> Result<(), Infallible> {
        self.is_finished = true;
        Raw.encode(bytes, out)
    }

    fn status(&self) -> CodecStatus {
        CodecStatus { is_finished: self.is_finished, ..CodecStatus::default() }
    }
}

/// How many streams are open, and the most that were at a time.
#[derive(Default)]
struct OpenStreams {
    open: Cell<usize>,
    most: Cell<usize>,
}

/// Responds with the message.
struct Answers {
    seen: Rc<OpenStreams>,
    /// It ends the stream itself.
    ends: bool,
}

impl<C: Pipeline<In = Slice, Out = Payload>> Handler<C> for Answers {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        let open = self.seen.open.get() + 1;
        self.seen.open.set(open);
        self.seen.most.set(self.seen.most.get().max(open));
        let sent = cx.send(bytes.to_vec().into());
        if sent.is_err() || self.ends { Outcome::Close } else { Outcome::Continue }
    }

    fn closed(&mut self, _: &CloseReason) {
        self.seen.open.set(self.seen.open.get() - 1);
    }
}

/// The most streams of a server that are open at a time, of 90 that its peer opens at once.
fn most_open(streams: impl FnOnce(Rc<OpenStreams>) -> Streams) -> usize {
    const STREAMS: usize = 90;
    let mut stage = Stage::network(1);
    let limits = TransportLimits { bidirectional_initial: 100, ..TransportLimits::default() };
    let (server, config) = configs(limits, TransportLimits::default());
    let seen = Rc::new(OpenStreams::default());
    let streams = streams(seen.clone());
    let address =
        stage.server(&server, move |_| SessionStreams { bidirectional: Some(streams.clone()), unidirectional: None });
    let client = stage.client(&config);
    stage.task(async move {
        let connection = client.connect(address, NAME).await.unwrap();
        let mut channels = Vec::new();
        for _ in 0..STREAMS {
            let mut channel = connection.open(Direction::Bidirectional, Raw).unwrap();
            channel.send(b"ebb".to_vec().into()).unwrap();
            channel.shutdown_write();
            channels.push(channel);
        }
        for channel in &mut channels {
            assert_eq!(read_all(channel).await.unwrap(), b"ebb");
        }
    });
    assert_eq!(seen.open.get(), 0);
    seen.most.get()
}

#[test]
fn streams_whose_codec_is_finished_are_answered_one_by_one() {
    let handled = |seen: Rc<OpenStreams>| {
        Streams::handle(move || (OneAnswer::default(), Answers { seen: seen.clone(), ends: false }))
    };
    assert_eq!(most_open(handled), 1);
}

#[test]
fn streams_that_their_handlers_end_do_not_pile_up() {
    let handled = |seen: Rc<OpenStreams>| Streams::handle(move || (Raw, Answers { seen: seen.clone(), ends: true }));
    let most = most_open(handled);
    assert!(most <= 32, "{most}");
}
