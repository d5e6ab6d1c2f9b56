//! Deadlines of a request, and servers that let it wait.

use std::io;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate::http::client::{ClientError, ClientLimits, Phase, Resolve, Resolving};
use tidegate::http::{BodyError, Client};
use tidegate::tls::{ClientConfig, Provider};
use tidegate_testkit::ClosedPort;

use crate::support::{Scripted, read_head, run};

#[test]
fn a_server_that_never_answers_is_left_at_the_deadline() {
    let server = Scripted::start(|_, stream| {
        let _ = read_head(stream);
        let _ = read_head(stream);
    });
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        let error = client.get(&uri).head_timeout(Duration::from_millis(20)).send().await.expect_err("it is silent");
        assert!(matches!(error, ClientError::Timeout(Phase::Head)), "{error}");
        let error = client.get(&uri).timeout(Duration::from_millis(20)).send().await.expect_err("it is silent");
        assert!(matches!(error, ClientError::Timeout(Phase::Request)), "{error}");
        assert_eq!(client.connections(), 0);
        let mut limits = ClientLimits::default();
        limits.head_timeout = Duration::from_millis(20);
        let client = Client::builder().limits(limits).build();
        let error = client.get(&uri).send().await.expect_err("it is silent");
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        Ok(())
    });
}

/// A busy machine may be too slow for the first of them.
const TIMEOUTS: [Duration; 3] = [Duration::from_millis(50), Duration::from_secs(1), Duration::from_secs(20)];

#[test]
fn the_deadline_of_a_request_holds_for_the_body_too() {
    let server = Scripted::start(|_, stream| {
        if read_head(stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nebb");
            let _ = read_head(stream);
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        let mut response = None;
        for timeout in TIMEOUTS {
            let Ok(mut one) = client.get(&uri).timeout(timeout).send().await else { continue };
            if let Some(Ok(first)) = one.body_mut().next().await {
                assert_eq!(&*first, b"ebb");
                response = Some(one);
                break;
            }
        }
        let mut response = response.expect("the head and a piece come within one of the timeouts");
        let error = response.body_mut().next().await.expect("the body is not complete").expect_err("it is late");
        assert!(matches!(error, BodyError::Deadline), "{error}");
        assert_eq!(client.connections(), 0);
        Ok(())
    });
}

#[test]
fn a_deadline_does_not_stay_with_a_connection() {
    let server = Scripted::start(|_, stream| {
        while read_head(stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nebb");
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        let mut deadline = None;
        for timeout in TIMEOUTS {
            let Ok(response) = client.get(&uri).timeout(timeout).send().await else { continue };
            if response.text().await.is_ok_and(|text| text == "ebb") {
                deadline = Some(timeout);
                break;
            }
        }
        tidegate::task::sleep(deadline.expect("a response comes within one of the timeouts") * 2).await;
        assert_eq!((client.connections(), client.idle_connections()), (1, 1));
        assert_eq!(client.get(&uri).send().await?.text().await?, "ebb");
        assert_eq!(client.connections(), 1);
        client.close_idle();
        Ok(())
    });
}

#[test]
fn dropping_a_request_in_flight_closes_its_connection() {
    let server = Scripted::start(|number, stream| {
        if read_head(stream).is_some() && number > 0 {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nebb");
        }
        assert_eq!(read_head(stream), None, "the connection carries no other request");
    });
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        let request = client.get(&uri).send();
        assert!(tidegate::task::timeout(Duration::from_millis(30), request).await.is_err());
        assert_eq!(client.connections(), 0);
        assert_eq!(client.get(&uri).send().await?.text().await?, "ebb");
        client.close_idle();
        Ok(())
    });
}

#[test]
fn a_handshake_that_never_ends_counts_as_connecting_whatever_the_version_is() {
    let server = Scripted::start(|_, stream| {
        // The client says hello, unless its time is over before on a busy machine, and leaves, perhaps by a reset.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let uri = format!("https://{}/", server.address());
    run(async move {
        let tls = ClientConfig::dangerous_builder_without_verification(&Provider::ring()).build()?;
        for offers_http2 in [true, false] {
            let mut limits = ClientLimits::default();
            limits.connections_per_origin_max = 1;
            let client = Client::builder().tls(tls.clone()).http2(offers_http2).limits(limits.clone()).build();
            let request = client.get(&uri).send();
            assert!(tidegate::task::timeout(Duration::from_millis(30), request).await.is_err());
            assert_eq!(client.connections(), 0, "a request that is dropped meanwhile returns its place");
            limits.connect_timeout = Duration::from_millis(30);
            let client = Client::builder().tls(tls.clone()).http2(offers_http2).limits(limits).build();
            for _ in 0..2 {
                let error = client.get(&uri).send().await.expect_err("there is no handshake");
                assert!(matches!(error, ClientError::Timeout(Phase::Connect)) && error.is_connect(), "{error}");
                assert_eq!(client.connections(), 0);
            }
        }
        Ok(())
    });
}

/// Resolves each name in its own way.
struct Odd {
    address: SocketAddr,
    closed: ClosedPort,
}

impl Resolve for Odd {
    fn resolve(&self, host: &str, _: u16) -> Resolving {
        let (address, refused, host) = (self.address, self.closed.address(), host.to_owned());
        Box::pin(async move {
            match &*host {
                "none" => Ok(Vec::new()),
                "unknown" => Err(io::ErrorKind::NotFound.into()),
                "thousand" => {
                    // None of these has a server; the one that has is behind the limit.
                    Ok((0..1000).map(|number| if number == 999 { address } else { refused }).collect())
                }
                "never" => std::future::pending().await,
                _ => Ok(vec![address]),
            }
        })
    }
}

#[test]
fn names_resolve_to_nothing_to_many_addresses_or_never() {
    let server = Scripted::answering(&["HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nebb"]);
    let address = server.address();
    run(async move {
        let mut limits = ClientLimits::default();
        limits.resolve_timeout = Duration::from_millis(20);
        let client = Client::builder().limits(limits).resolver(Odd { address, closed: ClosedPort::tcp() }).build();
        let get = |host: &str| client.get(format!("http://{host}/")).send();
        assert_eq!(get("sea").await?.text().await?, "ebb");
        let error = get("none").await.expect_err("it has no address");
        assert!(matches!(error, ClientError::Connect(_)), "{error}");
        let error = get("unknown").await.expect_err("it is unknown");
        assert!(matches!(error, ClientError::Resolve(..)), "{error}");
        let error = get("thousand").await.expect_err("no address within the limit has a server");
        assert!(matches!(error, ClientError::Connect(_)), "{error}");
        let error = get("never").await.expect_err("the resolver is silent");
        assert!(matches!(error, ClientError::Timeout(Phase::Resolve)) && error.is_connect(), "{error}");
        assert_eq!(client.connections(), 0, "each has returned its place");
        Ok(())
    });
}
