//! Clients that change their address while a server has several loops.

use std::rc::Rc;
use std::time::Duration;

use tidegate::engine::SessionLimits;
use tidegate::quic::TransportLimits;
use tidegate::{Backend, EndpointListener, Server};

use crate::scenarios::{echo, exchange};
use crate::stage::{NAME, Stage, configs, relay};

/// Connections stay at their loops; by chance one in four would in any case.
fn connections_outlast_a_change_of_the_port(mut stage: Stage, backend: Backend) {
    let (server, client) = configs(TransportLimits::default(), TransportLimits::default());
    let options = server.socket_options();
    let listener = EndpointListener::bind("127.0.0.1:0").unwrap().options(options);
    let endpoint = listener.serve_sessions(SessionLimits::default(), move |number| server.endpoint(number), |_| echo());
    let server = Server::new().loops(4).backend(backend).endpoint(endpoint).run().unwrap();
    let address = server.address().ip().unwrap();
    let client = stage.client(&client);
    for _ in 0..12 {
        let (relayed, relay) = relay(&mut stage, address);
        let client = client.clone();
        let connection = Rc::new(stage.task(async move { client.connect(relayed, NAME).await.unwrap() }));
        let first = stage.task({
            let connection = connection.clone();
            async move { exchange(&connection, b"ebb".to_vec()).await }
        });
        relay.change();
        let second = stage.task(async move { exchange(&connection, b"flow".to_vec()).await });
        assert_eq!((&first[..], &second[..]), (&b"ebb"[..], &b"flow"[..]));
    }
    let forwarded: u64 = server.counts().iter().map(|counts| counts.datagrams_forwarded).sum();
    assert_eq!(forwarded, 0, "the kernel steers");
    server.drain(Duration::ZERO);
}

#[test]
fn connections_outlast_a_change_of_the_port_on_epoll() {
    connections_outlast_a_change_of_the_port(Stage::epoll(), Backend::Epoll);
}

#[test]
fn connections_outlast_a_change_of_the_port_on_uring() {
    if tidegate::sys::uring::Uring::probe().is_ok() {
        connections_outlast_a_change_of_the_port(Stage::uring(), Backend::Uring);
    }
}
