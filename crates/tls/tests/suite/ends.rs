//! How connections end: in good order, in either order, and cut off.

use tidegate::framing::Raw;
use tidegate::{Channel, Over};
use tidegate_testkit::Embedded;

use crate::support::{Pair, VERSIONS, configurations, serve, usual};

#[test]
fn an_end_without_close_notify_is_an_error() {
    let mut pair = Pair::new(&usual(), &[1_000, 1_000_000]);
    pair.exchange(usize::MAX);
    pair.advance();
    // The download is under way when the wire breaks.
    let request = pair.client.take_written();
    pair.server.receive(&request);
    let bulk = pair.server.take_written();
    pair.client.receive(&bulk[..500_000]);
    pair.client.receive_fin();
    let failure = pair.failure.borrow().clone();
    assert!(failure.as_ref().is_some_and(|reason| reason.contains("without a close_notify")), "{failure:?}");
}

#[test]
fn each_side_answers_a_close_notify_with_its_own() {
    for version in VERSIONS {
        let both = configurations(
            &tidegate_tls::Provider::ring(),
            |server| server.versions(&[version]),
            |client| client.versions(&[version]),
        );
        let mut pair = Pair::new(&both, &[1_000]);
        pair.exchange(usize::MAX);
        pair.advance();
        // The client closes first.
        let goodbye = pair.client.take_written();
        assert!(!goodbye.is_empty() && pair.client.is_write_closed());
        pair.server.receive(&goodbye);
        let answer = pair.server.take_written();
        assert!(!answer.is_empty() && pair.server.is_write_closed());
        pair.client.receive(&answer);
        pair.client.receive_fin();
        pair.server.receive_fin();
        assert!(pair.client.is_closed() && pair.server.is_closed());
        assert!(pair.failure.borrow().is_none(), "{:?}", pair.failure);
    }
}

#[test]
fn a_server_may_close_first() {
    let (server, client) = usual();
    let mut pair = Pair::new(&(server.clone(), client), &[5]);
    pair.server = Embedded::serving(Over::new(server.accept(), Raw), async |mut channel: Channel<_>| {
        channel.recv().await?;
        channel.send("short".into())?;
        Ok::<_, tidegate::ChannelError>(())
    });
    pair.exchange(usize::MAX);
    assert!(pair.server.is_write_closed());
    pair.client.receive_fin();
    let failure = pair.failure.borrow().clone();
    // It got other bytes than it expected, and no TLS error.
    assert!(failure.is_some_and(|reason| reason.contains("other bytes")));
    pair.exchange(usize::MAX);
    pair.server.receive_fin();
    assert!(pair.server.is_closed() && pair.client.is_closed());
}

#[test]
fn bytes_behind_a_close_notify_are_not_read() {
    let mut pair = Pair::new(&usual(), &[1_000]);
    pair.exchange(usize::MAX);
    pair.advance();
    let mut goodbye = pair.client.take_written();
    goodbye.extend_from_slice(b"anything");
    pair.server.receive(&goodbye);
    pair.server.receive_fin();
    assert!(pair.server.is_closed() && !pair.server.is_reset());
}

#[test]
fn an_end_before_the_handshake_is_an_error_and_the_connection_closes() {
    let mut server = Embedded::serving(Over::new(usual().0.accept(), Raw), serve);
    server.receive_fin();
    assert!(server.is_closed());
}
