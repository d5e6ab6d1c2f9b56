//! Handshakes that fail, on a simulated network: every waiting operation and every handler gets the error.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Over, Slice};
use tidegate_engine::{Client, CloseReason, Context, Handler, Limits, Outcome};
use tidegate_sys::Address;
use tidegate_testkit::filters::ToyTls;
use tidegate_testkit::network::{Network, SimNode};

type Tls = Over<ToyTls, Raw>;

fn tls() -> Tls {
    Over::new(ToyTls::client(7), Raw)
}

/// A network, and on one of its hosts a server that ends every connection before it has sent anything.
fn in_vain() -> (Network, SimNode, SimNode, Address) {
    let network = Network::new(1);
    let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    let end = async |channel: tidegate_engine::Channel<Raw>| channel.close().await;
    let address = server.serve(7, Limits::default(), || Raw, end).expect("the port is free");
    (network, server, client, address)
}

/// Regression: they waited for ever, since no pending receive decoded the message that would have been the error.
#[test]
fn flush_and_room_fail_when_the_peer_ends_within_the_handshake() {
    for bytes in [1, 100_000] {
        let (network, _server, client, address) = in_vain();
        let waits = client.spawn(async move {
            let mut channel = Client::at(address).connect(tls()).await.expect("it is accepted");
            let mark = channel.send(vec![0; bytes].into()).expect("there is room");
            if bytes > 1 {
                channel.ready().await.expect_err("it cannot leave");
            }
            let error = channel.flushed(mark).await.expect_err("it cannot leave");
            assert!(matches!(error.closed(), Some(CloseReason::Protocol(_))), "{error}");
        });
        network.run_task(Duration::from_secs(1), waits);
    }
}

/// A handler that has sent more than there is room for.
struct Talkative(Rc<Cell<u32>>);

impl Handler<Tls> for Talkative {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Tls>) -> Outcome<Tls> {
        cx.send(Payload::from(vec![0; 100_000])).into()
    }

    fn message(&mut self, _: Slice, _: &mut Context<'_, Tls>) -> Outcome<Tls> {
        Outcome::Continue
    }

    fn closed(&mut self, reason: &CloseReason) {
        assert!(matches!(reason, CloseReason::Protocol(_)), "{reason}");
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_blocked_handler_learns_of_the_end_within_the_handshake() {
    let (network, _server, client, address) = in_vain();
    let closed = Rc::new(Cell::new(0));
    let handler = Talkative(Rc::clone(&closed));
    drop(client.spawn(async move { Client::at(address).connect_with(tls(), handler).await.map(drop) }));
    assert!(network.run_until(Duration::from_secs(1), || closed.get() == 1));
    assert!(network.run_until(Duration::from_secs(5), || client.counts().connections == 0));
}
