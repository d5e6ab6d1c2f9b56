//! Bodies both ways, in memory and in pieces, over connections that are used again.

use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidegate::compress::DecompressionLimits;
use tidegate::http::client::{ClientError, Response as ClientResponse};
use tidegate::http::{Body, Client, Request, Response, ResponseCompression, Router};
use tidegate::task;

use crate::support::{Any, Served, backends, read_head, run, run_on};

fn router() -> Router {
    Router::new()
        .get("/", || "ebb and flow")
        .get("/empty", || ())
        .get("/pieces", || {
            Response::new().body(Body::produce(async |writer| {
                for piece in ["ebb", " and ", "flow"] {
                    writer.write(piece).await?;
                    task::sleep(Duration::from_millis(1)).await;
                }
                Ok(())
            }))
        })
        .get("/large", || vec![b'a'; 3_000_000])
        .post("/echo", async |request: Request| Response::new().body(request.into_body()))
        .post("/count", async |mut request: Request| {
            let mut count = 0;
            while let Some(piece) = request.body_mut().next().await {
                count += piece?.len();
            }
            Ok::<_, tidegate::http::BodyError>(count.to_string())
        })
}

#[test]
fn responses_of_all_kinds_come_over_one_connection() {
    let server = Served::start(router);
    let [root, empty, pieces, large] = ["/", "/empty", "/pieces", "/large"].map(|target| server.uri(target));
    run(async move {
        let client = Client::new();
        for _ in 0..3 {
            assert_eq!(client.get(&root).send().await?.text().await?, "ebb and flow");
            let response = client.head(&root).send().await?;
            assert_eq!(response.header_str("content-length"), Some("12"));
            assert_eq!(response.bytes().await?, "");
            assert_eq!(client.get(&empty).send().await?.bytes().await?, "");
            let response = client.get(&pieces).send().await?;
            assert_eq!((response.status().as_u16(), response.content_length()), (200, None));
            assert_eq!(response.text().await?, "ebb and flow");
            assert_eq!(client.get(&large).send().await?.bytes().await?.len(), 3_000_000);
        }
        assert_eq!((client.connections(), client.idle_connections()), (1, 1));
        Ok(())
    });
}

/// A caller that passes a response on announces the body that it has.
#[test]
fn a_decompressed_response_has_no_fields_about_its_coding() {
    let text = || "the tide rises, the tide falls ".repeat(100);
    let server = Served::start(move || Router::new().get("/", text).with(ResponseCompression::new()));
    let uri = server.uri("/");
    run(async move {
        let fields_of = |response: &ClientResponse| {
            ["content-encoding", "content-length", "content-type"].map(|name| response.header(name).is_some())
        };
        let client = Client::builder().decompression(DecompressionLimits::default()).build();
        let response = client.get(&uri).send().await?;
        assert_eq!((fields_of(&response), response.content_length()), ([false, false, true], None));
        assert_eq!(response.text().await?, text());
        // The coding of a body that stays as it is, is that of the field.
        let response = Client::new().get(&uri).header("Accept-Encoding", "gzip").send().await?;
        assert_eq!(fields_of(&response), [true, true, true]);
        Ok(())
    });
}

#[test]
fn a_body_in_pieces_is_sent_as_fast_as_the_server_reads() {
    let server = Served::start(router);
    let uri = server.uri("/count");
    run(async move {
        let client = Client::new();
        for length in [None, Some(5_000_000)] {
            let mut body = Body::produce(async |writer| {
                for _ in 0..500 {
                    writer.write(vec![b'a'; 10_000]).await?;
                }
                Ok(())
            });
            if let Some(length) = length {
                body = body.with_length(length);
            }
            let response = client.post(&uri).body(body).send().await?;
            assert_eq!(response.text().await?, "5000000");
        }
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

#[test]
fn a_body_goes_both_ways_at_once() {
    let server = Served::start(router);
    let uri = server.uri("/echo");
    run(async move {
        let client = Client::new();
        for _ in 0..2 {
            let body = Body::produce(async |writer| {
                for number in 0..200 {
                    writer.write(vec![number; 10_000]).await?;
                }
                Ok(())
            });
            let mut response = client.post(&uri).body(body).send().await?;
            let mut count = 0;
            while let Some(piece) = response.body_mut().next().await.transpose()? {
                assert!(piece.iter().enumerate().all(|(at, &byte)| byte == ((count + at) / 10_000) as u8));
                count += piece.len();
            }
            assert_eq!(count, 2_000_000);
        }
        assert_eq!((client.connections(), client.idle_connections()), (1, 1));
        Ok(())
    });
}

/// A server reads no more of a body before its response is read, and keeps less than all of it.
#[test]
fn a_whole_body_is_sent_while_its_response_is_read() {
    let server = Served::start(router);
    let uri = server.uri("/echo");
    run(async move {
        let client = Client::new();
        let mut response = client.post(&uri).body(vec![7; 6_000_000]).send().await?;
        let mut length = 0;
        while let Some(piece) = response.body_mut().next().await.transpose()? {
            length += piece.len();
        }
        assert_eq!(length, 6_000_000);
        assert_eq!((client.connections(), client.idle_connections()), (1, 1));
        Ok(())
    });
}

#[test]
fn a_response_is_the_body_of_another_request() {
    let server = Served::start(router);
    let (from, to) = (server.uri("/large"), server.uri("/count"));
    run(async move {
        let client = Client::new();
        let body = client.get(&from).send().await?.into_body();
        assert_eq!(client.post(&to).body(body).send().await?.text().await?, "3000000");
        Ok(())
    });
}

#[test]
fn a_body_that_fails_closes_its_connection_and_is_the_error() {
    let server = Served::start(router);
    let (count, root) = (server.uri("/count"), server.uri("/"));
    run(async move {
        let client = Client::new();
        let body = Body::produce(async |writer| {
            writer.write("a part").await?;
            Err(Any::from("the rest is missing"))
        });
        let error = client.post(&count).body(body).send().await.expect_err("the body fails");
        assert!(matches!(&error, ClientError::RequestBody(error) if error.to_string() == "the rest is missing"));
        assert_eq!(client.connections(), 0);
        assert_eq!(client.get(&root).send().await?.text().await?, "ebb and flow");
        Ok(())
    });
}

#[test]
fn a_response_that_is_dropped_leaves_its_connection_only_if_all_of_it_is_there() {
    let server = Served::start(router);
    let (root, large) = (server.uri("/"), server.uri("/large"));
    run(async move {
        let client = Client::new();
        let response = client.get(&root).send().await?;
        assert_eq!((client.connections(), client.idle_connections()), (1, 0));
        drop(response);
        assert_eq!((client.connections(), client.idle_connections()), (1, 1));
        drop(client.get(&large).send().await?);
        assert_eq!(client.connections(), 0);
        assert_eq!(client.get(&root).send().await?.text().await?, "ebb and flow");
        Ok(())
    });
}

#[test]
fn a_response_that_comes_before_the_server_resets_the_connection_is_received() {
    for backend in backends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let (notify_head, has_head) = mpsc::channel();
        let (notify_close, has_closed) = mpsc::channel();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_head(&mut stream).unwrap();
            // The kernel resets the connection with the close, since a part of the body is unread.
            stream.peek(&mut [0]).unwrap();
            notify_head.send(()).unwrap();
            let response = "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\nmuch";
            stream.write_all(response.as_bytes()).unwrap();
            drop(stream);
            // A client that already has the response has dropped the body.
            let _ended = notify_close.send(());
        });
        run_on(backend, async move {
            let body = Body::produce(async move |writer| {
                writer.write("ebb").await?;
                // The loop turns until the server has a part of the body. Then it stands still until the server has closed.
                while has_head.try_recv().is_err() {
                    task::sleep(Duration::from_millis(1)).await;
                }
                has_closed.recv()?;
                for _ in 0..100 {
                    writer.write(vec![b'a'; 10_000]).await?;
                }
                Ok(())
            });
            let response = Client::new().post(&uri).body(body).send().await?;
            assert_eq!(response.status().as_u16(), 413);
            assert_eq!(response.text().await?, "much");
            Ok(())
        });
        server.join().unwrap();
    }
}
