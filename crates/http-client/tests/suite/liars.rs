//! Servers that break the rules: no response is that of another request, and no connection is used again that could mix
//! them up.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use tidegate::http::client::{ClientError, ClientLimits};
use tidegate::http::{Body, BodyError, Client};
use tidegate::tls::{ClientConfig, Provider};

use crate::support::{Any, Scripted, read_head, run};

/// Sends a GET, and returns the status and the body.
async fn fetch(client: &Client, uri: &str) -> Result<(u16, String), ClientError> {
    let response = client.get(uri).send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

#[test]
fn a_body_that_is_shorter_than_its_length_is_an_error() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nebb",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nebb",
    ] {
        let server = Scripted::start(move |_, stream| {
            if read_head(stream).is_some() {
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let uri = server.uri("/");
        run(async move {
            let client = Client::new();
            let error = fetch(&client, &uri).await.expect_err("the body is cut off");
            assert!(matches!(error, ClientError::Body(BodyError::Closed(_))), "{error}");
            assert_eq!(client.connections(), 0);
            Ok(())
        });
    }
}

#[test]
fn bytes_after_a_response_are_not_the_next_response() {
    const TWO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nebbHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    let server = Scripted::answering(&[TWO]);
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        for _ in 0..3 {
            assert_eq!(fetch(&client, &uri).await?, (200, "ebb".to_owned()));
            assert_eq!(client.idle_connections(), 0, "its connection is not used again");
        }
        Ok(())
    });
}

#[test]
fn bytes_on_an_idle_connection_end_it() {
    let server = Scripted::start(|_, stream| {
        if read_head(stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nebb");
            std::thread::sleep(Duration::from_millis(20));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        for _ in 0..3 {
            assert_eq!(fetch(&client, &uri).await?, (200, "ebb".to_owned()));
            while client.idle_connections() > 0 {
                tidegate::task::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(client.connections(), 0);
        }
        Ok(())
    });
}

#[test]
fn garbage_is_an_error_and_is_asked_for_once() {
    for answer in [
        "garbage\r\n\r\n",
        "SSH-2.0-x\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ] {
        let server = Scripted::start(move |number, stream| {
            assert!(number < 2, "the request is not sent again");
            if read_head(stream).is_some() {
                let _ = stream.write_all(answer.as_bytes());
                let _ = read_head(stream);
            }
        });
        let uri = server.uri("/");
        run(async move {
            let error = fetch(&Client::new(), &uri).await.expect_err("it is no response");
            assert!(matches!(error, ClientError::Closed(_)), "{error}");
            Ok(())
        });
    }
}

#[test]
fn interim_responses_have_an_end() {
    let server = Scripted::start(|_, stream| {
        if read_head(stream).is_some() {
            while stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").is_ok() {}
        }
    });
    let uri = server.uri("/");
    run(async move {
        let error = fetch(&Client::new(), &uri).await.expect_err("there is no final response");
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        Ok(())
    });
}

#[test]
fn a_connection_that_its_server_closes_at_reuse_is_replaced_for_requests_that_may_be_sent_twice() {
    // The second request of each connection is read, and the connection is closed without an answer.
    let server = Scripted::start(|_, stream| {
        if read_head(stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nebb");
            let _ = read_head(stream);
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        for _ in 0..4 {
            assert_eq!(fetch(&client, &uri).await?, (200, "ebb".to_owned()));
        }
        let error = client.post(&uri).body("once").send().await.expect_err("a POST is not sent twice");
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        assert_eq!(fetch(&client, &uri).await?, (200, "ebb".to_owned()));
        let body = Body::produce(async |writer| writer.write("once").await);
        let error = client.put(&uri).body(body).send().await.expect_err("the body has been consumed");
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        Ok(())
    });
}

/// The same over TLS: many servers end an idle connection without `close_notify`.
#[test]
fn a_tls_connection_that_its_server_cuts_off_at_reuse_is_replaced_as_well() {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![issued.cert.der().clone()], key);
    let config = Arc::new(config.expect("a configuration"));
    let server = Scripted::start(move |_, stream| {
        let mut connection = ServerConnection::new(config.clone()).expect("a connection");
        let mut stream = rustls::Stream::new(&mut connection, stream);
        if read_head(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nebb");
            let _ = read_head(&mut stream);
        }
    });
    let uri = format!("https://{}/", server.address());
    run(async move {
        let tls = ClientConfig::dangerous_builder_without_verification(&Provider::ring()).build()?;
        let client = Client::builder().tls(tls).build();
        for _ in 0..4 {
            assert_eq!(fetch(&client, &uri).await?, (200, "ebb".to_owned()));
        }
        let error = client.post(&uri).body("once").send().await.expect_err("a POST is not sent twice");
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        Ok(())
    });
}

#[test]
fn a_fresh_connection_without_an_answer_is_not_tried_again() {
    let server = Scripted::start(|number, stream| {
        assert!(number < 2);
        let _ = read_head(stream);
    });
    let uri = server.uri("/");
    run(async move {
        let error = fetch(&Client::new(), &uri).await.expect_err("there is no answer");
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        Ok(())
    });
}

#[test]
fn a_response_before_the_end_of_the_request_is_the_response() {
    let server = Scripted::start(|_, stream| {
        if read_head(stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nebb");
            let _ = read_head(stream);
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        let body = Body::produce(async |writer| {
            loop {
                writer.write("more ").await?;
                tidegate::task::sleep(Duration::from_millis(1)).await;
            }
        });
        let response = client.post(&uri).body(body).send().await?;
        assert_eq!(response.status().as_u16(), 413);
        assert_eq!(response.text().await?, "ebb");
        assert_eq!(client.connections(), 0, "the request is not complete");
        Ok(())
    });
}

#[test]
fn a_server_that_refuses_an_expectation_is_spared_the_body() {
    let server = Scripted::start(|number, stream| {
        let head = read_head(stream).unwrap_or_default();
        if head.contains("Expect: 100-continue\r\n") && number == 0 {
            let _ = stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(read_head(stream), None, "no body follows");
        } else if number == 1 {
            let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
            let mut body = [0; 4];
            let _ = std::io::Read::read_exact(stream, &mut body);
            assert_eq!(&body, b"body");
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
            let _ = read_head(stream);
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        let send = || client.post(&uri).body("body").expect_continue().send();
        assert_eq!(send().await?.status().as_u16(), 401);
        assert_eq!(client.connections(), 0);
        assert_eq!(send().await?.status().as_u16(), 204);
        assert_eq!(client.idle_connections(), 1);
        client.close_idle();
        Ok(())
    });
}

#[test]
fn a_request_whose_expectation_is_not_known_is_sent_again_without_it() {
    let server = Scripted::start(|number, stream| {
        let head = read_head(stream).unwrap_or_default();
        assert_eq!(head.contains("\r\nExpect: 100-continue\r\n"), number == 0, "{head}");
        if number == 0 {
            let _ = stream.write_all(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(read_head(stream), None, "no body follows");
        } else if !head.is_empty() {
            let mut body = [0; 4];
            let _ = std::io::Read::read_exact(stream, &mut body);
            assert_eq!(&body, b"body");
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
            let _ = read_head(stream);
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = Client::new();
        assert_eq!(client.post(&uri).body("body").expect_continue().send().await?.status().as_u16(), 204);
        client.close_idle();
        Ok(())
    });
}

/// Responses that have no body whatever they say, and interim ones, in an order that would shift later responses if one of
/// them was read wrongly; torn at every byte.
#[test]
fn responses_are_paired_with_their_requests_at_every_split() {
    const ANSWERS: [&str; 7] = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1",
        "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n4\r\n0\r\nT: u\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n6",
    ];
    const METHODS: [&str; 7] = ["HEAD", "GET", "GET", "GET", "GET", "GET", "GET"];
    const BODIES: [&str; 7] = ["", "1", "", "", "4", "", "6"];
    let longest = ANSWERS.iter().map(|answer| answer.len()).max().unwrap_or(0);
    let server = Scripted::start(move |number, stream| {
        stream.set_nodelay(true).expect("a socket");
        for answer in ANSWERS {
            if read_head(stream).is_none() {
                return;
            }
            let (first, rest) = answer.as_bytes().split_at((number + 1).min(answer.len()));
            let _ = stream.write_all(first);
            std::thread::sleep(Duration::from_micros(200));
            let _ = stream.write_all(rest);
        }
        let _ = read_head(stream);
    });
    let uri = server.uri("/");
    run(async move {
        for at in 0..longest {
            let client = Client::new();
            for (method, expected) in METHODS.iter().zip(BODIES) {
                let method = method.parse().map_err(Any::from)?;
                let response = client.request(method, &uri).send().await?;
                assert_eq!(response.text().await?, expected, "torn at {at}");
            }
            assert_eq!((client.connections(), client.idle_connections()), (1, 1), "torn at {at}");
        }
        Ok(())
    });
}

#[test]
fn a_head_is_no_longer_than_its_limit() {
    let server = Scripted::start(|_, stream| {
        if read_head(stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while stream.write_all(b"Field: value\r\n").is_ok() {}
        }
    });
    let uri = server.uri("/");
    run(async move {
        let mut limits = ClientLimits::default();
        limits.head_bytes_max = 4096;
        let error = fetch(&Client::builder().limits(limits).build(), &uri).await.expect_err("the head has no end");
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        Ok(())
    });
}
