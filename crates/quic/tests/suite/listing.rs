//! QUIC connections in the lists and counts that an operator sees, and their end by an operator.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate::engine::{ConnectionCursor, ConnectionInfo, ConnectionState, SessionLimits};
use tidegate::quic::{Connector, TransportLimits};
use tidegate::{Backend, EndpointListener, EventLoop, Server, ServerHandle, task};

use crate::scenarios::{echo, exchange};
use crate::stage::{NAME, configs};

async fn list(server: &ServerHandle) -> Vec<ConnectionInfo> {
    let (mut found, mut cursor) = (Vec::new(), Some(ConnectionCursor::default()));
    while let Some(at) = cursor {
        let page = server.connections(0, at).await.expect("the loop runs");
        found.extend(page.connections);
        cursor = page.next;
    }
    found
}

#[test]
fn connections_are_listed_counted_and_ended_by_an_operator() {
    let (config, client) = configs(TransportLimits::default(), TransportLimits::default());
    let make = move |loop_number| config.endpoint(loop_number);
    let listener = EndpointListener::bind("127.0.0.1:0").unwrap();
    let listener = listener.serve_sessions(SessionLimits::default(), make, |_| echo());
    let server = Server::new().loops(1).endpoint(listener).run().unwrap();
    let address = server.address().ip().unwrap();
    let handle = &server;
    let scenario = async move {
        let connector = Connector::bind("127.0.0.1:0".parse().unwrap(), &client).unwrap();
        let first = connector.connect(address, NAME).await.unwrap();
        let second = connector.connect(address, NAME).await.unwrap();
        assert_eq!(exchange(&first, b"ebb".to_vec()).await, b"ebb");
        assert_eq!(exchange(&second, b"ebb".to_vec()).await, b"ebb");
        let listed = list(handle).await;
        assert_eq!(listed.len(), 2, "{listed:?}");
        assert_ne!(listed[0].id, listed[1].id);
        let local = connector.endpoint().local_address().unwrap();
        for info in &listed {
            assert_eq!((info.peer.ip(), info.is_accepted, info.state), (Some(local), true, ConnectionState::Open));
            assert_eq!(
                (info.protocols.to_string(), info.inbound_bytes, info.outbound_bytes),
                ("QUIC".to_owned(), 0, 0)
            );
        }
        assert!(handle.close_connection(0, listed[0].id).await);
        assert!(!handle.close_connection(0, listed[0].id).await, "it is gone");
        let left = list(handle).await;
        assert_eq!((left.len(), left[0].id), (1, listed[1].id));
        // One of them has ended, and the other one goes on.
        let (one, other) = (Box::pin(first.closed()), Box::pin(second.closed()));
        drop(task::timeout(Duration::from_secs(120), std::future::poll_fn(first_of(one, other))).await.unwrap());
        // The client's loop sends the end of the other one. Without it the server waits for its idle timeout.
        drop((first, second));
        let begun = Instant::now();
        while handle.counts()[0].sessions.connections > 0 {
            assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", handle.counts()[0].sessions);
            task::sleep(Duration::from_millis(1)).await;
        }
    };
    EventLoop::on(Backend::Auto).unwrap().block_on(scenario).unwrap();
    let counts = server.counts()[0].sessions;
    assert_eq!((counts.begun, counts.handshakes, counts.handshakes_failed), (2, 2, 0));
    server.drain(Duration::ZERO);
}

/// Polls two futures until one is ready.
fn first_of<T>(
    mut one: Pin<Box<impl Future<Output = T>>>,
    mut other: Pin<Box<impl Future<Output = T>>>,
) -> impl FnMut(&mut Context<'_>) -> Poll<T> {
    move |cx| match one.as_mut().poll(cx) {
        Poll::Pending => other.as_mut().poll(cx),
        ready => ready,
    }
}
