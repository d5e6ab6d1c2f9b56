//! Several protocols on one listener: the first bytes choose one, and a peer has a deadline to send them.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::Slice;
use tidegate_codec::framing::{Lines, Payload, Raw};
use tidegate_codec::sniff::{self, Match};
use tidegate_engine::{
    Channel, Client, Context, Handler, Limits, Outcome, Protocol, ProtocolIndex, Protocols, Streams,
};
use tidegate_sys::Address;
use tidegate_testkit::{ToyMux, ToyMuxConfig};

use crate::stack::Stack;
use crate::stage::{Family, Served, Site, Stage};

type Sniffing<S> = <S as Stack>::With<sniff::Sniffer<ProtocolIndex>>;
type Serving<S> = <S as Stack>::With<Raw>;

/// Sends every piece back, behind a name.
struct Named(&'static str);

impl<C: tidegate_codec::Pipeline<In = Slice, Out = Payload>> Handler<C> for Named {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        cx.send(self.0.into()).into()
    }

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        cx.send(bytes.into()).into()
    }
}

/// Goes on with that handler.
fn named<S: Stack>(name: &'static str) -> Protocol<Sniffing<S>> {
    Protocol::new(move || Outcome::switch(move |from| (S::map(from, |_| Raw), Named(name))))
}

/// Goes on with a channel that behaves like that handler.
fn channel<S: Stack>(name: &'static str) -> Protocol<Sniffing<S>> {
    let serve = move |mut channel: Channel<Serving<S>>| async move {
        channel.send(name.into())?;
        while let Some(bytes) = channel.recv().await? {
            channel.send(bytes.into())?;
        }
        Served::Ok(())
    };
    Protocol::new(move || Outcome::channel(|from| S::map(from, |_| Raw), serve))
}

fn protocols<S: Stack>() -> Protocols<Sniffing<S>> {
    Protocols::over().on(sniff::http1, named::<S>("http1:")).on(sniff::http2, channel::<S>("http2:"))
}

fn listen<S: Stack>(stage: &Stage, server: &Site, protocols: Protocols<Sniffing<S>>) -> Address {
    let (socket, address) = stage.listener(Family::V4);
    let (protocols, limits) = (protocols.share(), stage.limits(Limits::default()));
    let make = move |_: &Address| (S::server_with(protocols.sniffer()), protocols.handler());
    let listening = server.with(|event_loop| event_loop.listen(socket, limits, Arc::default(), make));
    listening.expect("the listener is taken");
    address
}

/// The deadline of scenarios in which it must not come.
const FOR_EVER: Duration = Duration::from_secs(100_000);

const HTTP1: &[u8] = b"GET / HTTP/1.1\r\n";
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0";

pub(crate) fn the_first_bytes_choose_handler_or_channel<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S>(stage, &server, protocols::<S>().deadline(FOR_EVER));
    for (wire, name) in [(HTTP1, "http1:"), (HTTP2, "http2:")] {
        let expected = [name.as_bytes(), wire].concat();
        let [whole, bytewise] = [stage.connect::<S>(&raw_peer, &to), stage.connect::<S>(&raw_peer, &to)];
        raw_peer.send(whole, &S::encoded(wire));
        for byte in S::encoded(wire) {
            raw_peer.send(bytewise, &[byte]);
            let sent = raw_peer.inspect(bytewise, |seen| seen.sent);
            let received = server.counts().received_bytes;
            // So that most bytes arrive alone, where the backend lets them.
            stage.happens(stage.units(1), || {
                raw_peer.inspect(bytewise, |seen| seen.sent) > sent || server.counts().received_bytes > received
            });
        }
        for end in [whole, bytewise] {
            stage
                .until("all bytes are echoed", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == expected));
            stage.send_goodbye::<S>(&raw_peer, end);
            stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended == 1));
        }
    }
    assert_eq!(server.counts().closed_protocol, 0);
}

/// A multiplexed protocol and one of lines on one port.
pub(crate) fn the_first_bytes_choose_a_session<S: Stack>(stage: &Stage) {
    let (server, client, raw_peer) = (stage.server(), stage.client(), stage.raw_peer());
    let streams = Streams::handle(|| (Lines::new(), Named("stream:")));
    let session = Protocol::new(move || {
        Outcome::session(|from| S::map(from, |_| ToyMux::server(ToyMuxConfig::default())), &streams)
    });
    let protocols = Protocols::over().on(sniff::starts_with(b"\0"), session).otherwise(named::<S>("bytes:"));
    let to = listen::<S>(stage, &server, protocols.deadline(FOR_EVER));
    let connect_to = to.clone();
    let done = stage.start(&client, async move {
        let mux = S::client_with(ToyMux::client(ToyMuxConfig::default()));
        let session = Client::at(connect_to).open_session(mux).await.expect("it listens");
        let mut channels: Vec<_> = (0..3).map(|_| session.open(Lines::new()).expect("a stream")).collect();
        for (number, channel) in channels.iter_mut().enumerate() {
            channel.send(format!("line {number}").into()).expect("the stream is open");
        }
        for (number, channel) in channels.iter_mut().enumerate() {
            let greeting = channel.recv().await.expect("the stream is open").expect("a line");
            assert_eq!(&*greeting, b"stream:");
            let line = channel.recv().await.expect("the stream is open").expect("a line");
            assert_eq!(&*line, format!("line {number}").as_bytes());
        }
        for channel in channels {
            channel.close().await.expect("all was in order");
        }
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    raw_peer.send(end, &S::encoded(b"ebb"));
    stage.until("it is echoed", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"bytes:ebb"));
    stage.outcome(&done);
    stage.until("all streams are closed", || server.counts().streams + client.counts().streams == 0);
    stage.send_goodbye::<S>(&raw_peer, end);
    stage.until("all connections are closed", || server.counts().connections == 0);
    assert_eq!((server.counts().closed_protocol, server.counts().closed_done), (0, 2));
}

/// Sends some bytes, and waits for the end that comes with the deadline.
fn is_cut_off_in_time<S: Stack>(stage: &Stage, bytes: &[u8]) {
    let (server, raw_peer, unit) = (stage.server(), stage.raw_peer(), stage.units(2));
    let to = listen::<S>(stage, &server, protocols::<S>().deadline(unit));
    let end = stage.connect::<S>(&raw_peer, &to);
    if !bytes.is_empty() {
        raw_peer.send(end, &S::encoded(bytes));
    }
    if !stage.is_real() {
        assert!(!stage.happens(unit / 2, || raw_peer.inspect(end, |seen| seen.ended > 0)), "it ends before its time");
    }
    stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended == 1));
    assert!(S::decoded(&raw_peer.completions(end).received).is_empty());
    stage.send_goodbye::<S>(&raw_peer, end);
    stage.until("it is closed", || server.counts().closed_protocol == 1);
}

pub(crate) fn a_silent_peer_is_cut_off_in_time<S: Stack>(stage: &Stage) {
    is_cut_off_in_time::<S>(stage, b"");
}

pub(crate) fn a_peer_that_sends_too_little_is_cut_off_in_time<S: Stack>(stage: &Stage) {
    is_cut_off_in_time::<S>(stage, b"GET");
}

pub(crate) fn a_silent_peer_is_greeted_after_the_deadline<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let protocols = protocols::<S>().when_silent(channel::<S>("220 ")).deadline(stage.units(1) / 4);
    let to = listen::<S>(stage, &server, protocols);
    let end = stage.connect::<S>(&raw_peer, &to);
    stage.until("it greets", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"220 "));
    raw_peer.send(end, &S::encoded(b"HELO\r\n"));
    stage.until("it answers", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"220 HELO\r\n"));
    stage.send_goodbye::<S>(&raw_peer, end);
    stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended == 1));
    assert_eq!(server.counts().closed_protocol, 0);
}

pub(crate) fn garbage_is_cut_off_or_goes_to_the_default<S: Stack>(stage: &Stage) {
    let (server, raw_peer, mut random) = (stage.server(), stage.raw_peer(), stage.random());
    let strict = listen::<S>(stage, &server, protocols::<S>().deadline(FOR_EVER));
    let lenient = listen::<S>(stage, &server, protocols::<S>().otherwise(named::<S>("other:")).deadline(FOR_EVER));
    for round in 1..=5 {
        let length = 1 + random.below(3_000);
        let mut garbage = random.bytes(length);
        garbage[0] |= 0x80;
        let end = stage.connect::<S>(&raw_peer, &strict);
        raw_peer.send(end, &S::encoded(&garbage));
        stage.until("it is closed", || raw_peer.inspect(end, |seen| seen.ended == 1 || !seen.failed.is_empty()));
        raw_peer.close(end, true);
        stage.until("it is counted", || server.counts().closed_protocol == round);
        let end = stage.connect::<S>(&raw_peer, &lenient);
        raw_peer.send(end, &S::encoded(&garbage));
        let expected = [&b"other:"[..], &garbage].concat();
        stage.until("it is echoed", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == expected));
        stage.send_goodbye::<S>(&raw_peer, end);
        stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended == 1));
    }
}

pub(crate) fn a_drain_closes_connections_whose_protocol_is_not_known<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S>(stage, &server, protocols::<S>().deadline(FOR_EVER));
    let ends = [b"".as_slice(), b"GE", HTTP1].map(|bytes| {
        let end = stage.connect::<S>(&raw_peer, &to);
        raw_peer.send(end, &S::encoded(bytes));
        end
    });
    let answer = [&b"http1:"[..], HTTP1].concat();
    stage.until("one is served", || raw_peer.inspect(ends[2], |seen| S::decoded(&seen.received) == answer));
    stage.until("all are open", || server.counts().connections == 3);
    server.with(|event_loop| event_loop.drain(FOR_EVER));
    for end in ends {
        stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended == 1));
        stage.send_goodbye::<S>(&raw_peer, end);
    }
    stage.until("the loop is drained", || server.is_drained());
    assert_eq!((server.counts().closed_protocol, server.counts().closed_done), (0, 3));
}

pub(crate) fn a_panic_of_a_rule_ends_its_own_connection_only<S: Stack>(stage: &Stage) {
    stage.expect_panics();
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let panics = |first: &[u8]| match first {
        [b'!', ..] => resume_unwind(Box::new("on purpose")),
        _ => Match::NotMatched,
    };
    let protocols = Protocols::over().on(panics, named::<S>("none:")).on(sniff::http1, named::<S>("http1:"));
    let to = listen::<S>(stage, &server, protocols.deadline(FOR_EVER));
    let [one, other] = [stage.connect::<S>(&raw_peer, &to), stage.connect::<S>(&raw_peer, &to)];
    raw_peer.send(one, &S::encoded(b"!"));
    stage.until("it is closed", || raw_peer.inspect(one, |seen| seen.ended == 1 || !seen.failed.is_empty()));
    stage.send_goodbye::<S>(&raw_peer, one);
    stage.until("it is counted", || server.counts().closed_panicked == 1);
    raw_peer.send(other, &S::encoded(HTTP1));
    let answer = [&b"http1:"[..], HTTP1].concat();
    stage.until("the other is served", || raw_peer.inspect(other, |seen| S::decoded(&seen.received) == answer));
    stage.send_goodbye::<S>(&raw_peer, other);
    stage.until("the server ends", || raw_peer.inspect(other, |seen| seen.ended == 1));
}
