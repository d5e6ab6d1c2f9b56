//! The client over HTTP/2 against servers that are written by hand: they leave, refuse, reset, lie, and permit nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate::http::client::{ClientError, ClientLimits};
use tidegate::http::{Body, BodyError, Client};
use tidegate::task;

use crate::support::{Scripted, backends, run, run_on};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

fn goaway(last: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat())
}

fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// A response with status 200 and this body.
fn ok(stream: u32, body: &[u8]) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, stream, &[0x88]), frame(DATA, END_STREAM, stream, body)].concat()
}

/// A frame of the client.
#[derive(Debug)]
struct Received {
    kind: u8,
    flags: u8,
    stream: u32,
    length: usize,
}

/// The server's side of a connection.
struct Peer<'a>(&'a mut TcpStream);

impl<'a> Peer<'a> {
    /// Reads the preface, and sends these settings.
    fn greet(stream: &'a mut TcpStream, settings: &[u8]) -> Option<Self> {
        stream.read_exact(&mut [0; 24]).ok()?;
        stream.write_all(&frame(SETTINGS, 0, 0, settings)).ok()?;
        Some(Self(stream))
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.write_all(bytes.as_ref());
    }

    /// The next frame, unless the client has ended. Settings are acknowledged.
    fn receive(&mut self) -> Option<Received> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        self.0.read_exact(&mut vec![0; length]).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if (head[3], head[4]) == (SETTINGS, 0) {
            self.send(frame(SETTINGS, 1, 0, &[]));
        }
        Some(Received { kind: head[3], flags: head[4], stream, length })
    }

    /// The next frame of this type.
    fn next(&mut self, kind: u8) -> Option<Received> {
        std::iter::from_fn(|| self.receive()).find(|frame| frame.kind == kind)
    }

    /// The stream of the next request.
    fn request(&mut self) -> Option<u32> {
        self.next(HEADERS).map(|frame| frame.stream)
    }

    /// Answers all that comes, until the client ends.
    fn answer_all(&mut self, body: &[u8]) {
        while let Some(stream) = self.request() {
            self.send(ok(stream, body));
        }
    }
}

fn client() -> Client {
    Client::builder().http2_prior_knowledge(true).build()
}

#[test]
fn requests_that_goaway_leaves_unprocessed_are_sent_again_on_another_connection() {
    let server = Scripted::start(|number, stream| {
        let Some(mut peer) = Peer::greet(stream, &[]) else { return };
        if number > 0 {
            return peer.answer_all(b"second");
        }
        let streams: Vec<_> = (0..4).filter_map(|_| peer.request()).collect();
        // Two were processed, and their responses come behind GOAWAY.
        peer.send(goaway(streams[1]));
        peer.send([ok(streams[0], b"first"), ok(streams[1], b"first")].concat());
        while peer.receive().is_some() {}
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        // Not idempotent, and nevertheless safe.
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (client, uri) = (client.clone(), uri.clone());
                task::spawn(async move { client.post(&uri).body("tides").send().await?.text().await })
            })
            .collect();
        let mut texts = Vec::new();
        for task in tasks {
            texts.push(task.await??);
        }
        assert_eq!(texts, ["first", "first", "second", "second"]);
        assert_eq!(client.get(&uri).send().await?.text().await?, "second");
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

#[test]
fn a_refused_stream_is_sent_again_but_not_for_ever() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = Scripted::start(move |_, stream| {
        let Some(mut peer) = Peer::greet(stream, &[]) else { return };
        while let Some(stream) = peer.request() {
            let refused = counted.fetch_add(1, Ordering::SeqCst) + 1;
            // One and two are refused, three is answered; then all are refused.
            peer.send(if refused == 3 { ok(stream, b"third") } else { reset(stream, 7) });
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        assert_eq!(client.post(&uri).body("tides").send().await?.text().await?, "third");
        let error = client.get(&uri).send().await.expect_err("it is refused each time");
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        assert_eq!(count.load(Ordering::SeqCst), 3 + 3);
        // A body that was a stream is gone: its request is sent once.
        let body = Body::produce(async |writer| writer.write("tides").await);
        client.post(&uri).body(body).send().await.expect_err("it is refused");
        assert_eq!(count.load(Ordering::SeqCst), 3 + 3 + 1);
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

#[test]
fn responses_that_are_dropped_reset_few_streams_and_other_requests_go_on() {
    let resets = Arc::new(AtomicUsize::new(0));
    let counted = resets.clone();
    let server = Scripted::start(move |_, stream| {
        let Some(mut peer) = Peer::greet(stream, &[]) else { return };
        let (mut posted, mut got) = (None, Vec::new());
        while let Some(received) = peer.receive() {
            match received.kind {
                RST_STREAM => drop(counted.fetch_add(1, Ordering::SeqCst)),
                HEADERS if received.flags & END_STREAM == 0 => posted = Some(received.stream),
                HEADERS => {
                    got.push(received.stream);
                    if got.len() <= 20 {
                        peer.send(frame(HEADERS, END_HEADERS, received.stream, &[0x88]));
                        peer.send(frame(DATA, 0, received.stream, b"half"));
                    }
                }
                _ => {}
            }
            if let (21, Some(posted)) = (got.len(), posted) {
                peer.send([ok(posted, b"whole"), ok(got[20], b"whole")].concat());
                got.push(0);
            }
        }
    });
    let uri = server.uri("/");
    run(async move {
        let began = Instant::now();
        let mut limits = ClientLimits::default();
        (limits.resets_max, limits.resets_per_second) = (4, 1);
        let client = Client::builder().http2_prior_knowledge(true).limits(limits).build();
        let posting = {
            let (client, uri) = (client.clone(), uri.clone());
            let body = Body::produce(async |writer| writer.write("tides").await);
            task::spawn(async move { client.post(&uri).body(body).send().await?.text().await })
        };
        for _ in 0..20 {
            drop(client.get(&uri).send().await?);
        }
        assert_eq!(client.get(&uri).send().await?.text().await?, "whole");
        assert_eq!(posting.await??, "whole");
        let (resets, seconds) = (resets.load(Ordering::SeqCst), began.elapsed().as_secs() as usize + 1);
        assert!(resets <= 4 + seconds, "{resets} resets in {seconds} s");
        Ok(())
    });
}

#[test]
fn a_reset_fails_one_request_without_another_attempt() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = Scripted::start(move |_, stream| {
        let Some(mut peer) = Peer::greet(stream, &[]) else { return };
        while let Some(stream) = peer.request() {
            match counted.fetch_add(1, Ordering::SeqCst) {
                // CANCEL, INTERNAL_ERROR, and within a body.
                0 => peer.send(reset(stream, 8)),
                1 => peer.send(reset(stream, 2)),
                2 => {
                    peer.send(frame(HEADERS, END_HEADERS, stream, &[0x88]));
                    peer.send([frame(DATA, 0, stream, b"half"), reset(stream, 2)].concat());
                }
                _ => peer.send(ok(stream, b"good")),
            }
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        for _ in 0..2 {
            let error = client.get(&uri).send().await.expect_err("it is reset");
            assert!(error.to_string().contains("reset"), "{error}");
        }
        let mut half = client.get(&uri).send().await?;
        let result = half.body_mut().collect(1000).await;
        assert!(matches!(result, Err(BodyError::Closed(_))), "{result:?}");
        assert_eq!(client.get(&uri).send().await?.text().await?, "good");
        assert_eq!((count.load(Ordering::SeqCst), client.connections()), (4, 1));
        Ok(())
    });
}

#[test]
fn a_complete_response_counts_although_the_server_wants_no_more_of_the_request() {
    let server = Scripted::start(|_, stream| {
        let Some(mut peer) = Peer::greet(stream, &[]) else { return };
        while let Some(stream) = peer.request() {
            // NO_ERROR (RFC 9113 §8.1).
            peer.send([ok(stream, b"enough"), reset(stream, 0)].concat());
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        for _ in 0..5 {
            let body = Body::produce(async |writer| {
                loop {
                    writer.write(vec![b'x'; 10_000]).await?;
                }
            });
            assert_eq!(client.post(&uri).body(body).send().await?.text().await?, "enough");
        }
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

#[test]
fn a_body_of_another_length_than_announced_is_an_error() {
    let server = Scripted::start(|_, stream| {
        let Some(mut peer) = Peer::greet(stream, &[]) else { return };
        let mut count = 0;
        while let Some(stream) = peer.request() {
            count += 1;
            // `content-length: 5`, as a literal with the name of the static table.
            let head = [&[0x88, 0x0f, 0x0d, 1][..], b"5"].concat();
            let body: &[u8] = match count {
                1 => b"four",
                2 => b"sixsix",
                _ => b"fives",
            };
            peer.send([frame(HEADERS, END_HEADERS, stream, &head), frame(DATA, END_STREAM, stream, body)].concat());
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        for _ in 0..2 {
            let result = match client.get(&uri).send().await {
                Ok(response) => response.text().await,
                Err(error) => Err(error),
            };
            assert!(result.is_err(), "{result:?}");
        }
        assert_eq!(client.get(&uri).send().await?.text().await?, "fives");
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

#[test]
fn a_body_waits_for_the_windows_of_the_server() {
    let server = Scripted::start(|_, stream| {
        // No window at all, and frames of 16 KiB.
        let Some(mut peer) = Peer::greet(stream, &setting(4, 0)) else { return };
        // The second request knows of the settings.
        let Some(first) = peer.request() else { return };
        peer.send([frame(WINDOW_UPDATE, 0, first, &10_u32.to_be_bytes()), ok(first, b"")].concat());
        let Some(stream) = peer.request() else { return };
        let mut received = 0;
        while received < 100_000 {
            // Piece by piece, each after the one before.
            peer.send(frame(WINDOW_UPDATE, 0, stream, &3000_u32.to_be_bytes()));
            peer.send(frame(WINDOW_UPDATE, 0, 0, &3000_u32.to_be_bytes()));
            let mut piece = 0;
            while piece < 3000 && received < 100_000 {
                let Some(frame) = peer.next(DATA) else { return };
                piece += frame.length;
                received += frame.length;
                assert!(piece <= 3000, "more than the window");
            }
        }
        peer.send(ok(stream, received.to_string().as_bytes()));
        while peer.receive().is_some() {}
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        client.get(&uri).send().await?.text().await?;
        let response = client.post(&uri).body(vec![b'x'; 100_000]).send().await?;
        assert_eq!(response.text().await?, "100000");
        Ok(())
    });
}

#[test]
fn a_server_that_permits_one_stream_gets_one_at_a_time() {
    let server = Scripted::start(|_, stream| {
        let Some(mut peer) = Peer::greet(stream, &setting(3, 1)) else { return };
        let mut open = Vec::new();
        loop {
            let Some(frame) = peer.receive() else { return };
            if frame.kind == HEADERS {
                open.push(frame.stream);
            }
            // Requests from before the client knew of the limit are refused.
            while open.len() > 1 {
                peer.send(reset(open.pop().unwrap_or_default(), 7));
            }
            if let Some(stream) = open.pop() {
                peer.send(ok(stream, b"alone"));
            }
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        assert_eq!(client.get(&uri).send().await?.text().await?, "alone");
        let tasks: Vec<_> = (0..30)
            .map(|_| {
                let (client, uri) = (client.clone(), uri.clone());
                task::spawn(async move { client.get(&uri).send().await?.text().await })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await??, "alone");
        }
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

#[test]
fn a_server_that_permits_more_later_gets_the_waiting_requests() {
    let server = Scripted::start(|_, stream| {
        let Some(mut peer) = Peer::greet(stream, &setting(3, 1)) else { return };
        let Some(first) = peer.request() else { return };
        peer.send(ok(first, b"first"));
        let Some(held) = peer.request() else { return };
        // The others wait for this one, until the limit changes.
        peer.send(frame(SETTINGS, 0, 0, &setting(3, 10)));
        for _ in 0..3 {
            let Some(stream) = peer.request() else { return };
            peer.send(ok(stream, b"more"));
        }
        peer.send(ok(held, b"held"));
        while peer.receive().is_some() {}
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        assert_eq!(client.get(&uri).send().await?.text().await?, "first");
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (client, uri) = (client.clone(), uri.clone());
                task::spawn(async move { client.get(&uri).send().await?.text().await })
            })
            .collect();
        let mut texts = Vec::new();
        for task in tasks {
            texts.push(task.await??);
        }
        assert_eq!(texts, ["held", "more", "more", "more"]);
        Ok(())
    });
}

#[test]
fn a_server_that_wants_http1_gets_it() {
    let server = Scripted::start(|_, stream| {
        let mut first = [0; 24];
        if stream.read_exact(&mut first).is_err() {
            return;
        }
        if first.starts_with(b"PRI") {
            let Some(mut peer) = stream.write_all(&frame(SETTINGS, 0, 0, &[])).ok().map(|()| Peer(stream)) else {
                return;
            };
            if let Some(stream) = peer.request() {
                peer.send(reset(stream, 13));
            }
            // It leaves, so that the other connection is served; but not with a reset, which bytes that it has not read cause.
            let _ = peer.0.shutdown(Shutdown::Write);
            while peer.0.read(&mut [0; 1000]).is_ok_and(|count| count > 0) {}
            return;
        }
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold");
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        let response = client.post(&uri).body("tides").send().await?;
        assert_eq!((response.version(), response.text().await?), (http::Version::HTTP_11, "old".to_owned()));
        Ok(())
    });
}

#[test]
fn a_connection_that_breaks_fails_possibly_processed_requests() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = Scripted::start(move |_, stream| {
        let Some(mut peer) = Peer::greet(stream, &[]) else { return };
        if let Some(stream) = peer.request() {
            peer.send(ok(stream, b"first"));
        }
        if peer.request().is_some() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        assert_eq!(client.get(&uri).send().await?.text().await?, "first");
        // A POST may have been processed, a GET may be sent again.
        client.post(&uri).body("tides").send().await.expect_err("the connection ends");
        assert_eq!(client.get(&uri).send().await?.text().await?, "first");
        assert_eq!(client.get(&uri).send().await?.text().await?, "first");
        assert_eq!(count.load(Ordering::SeqCst), 2);
        Ok(())
    });
}

#[test]
fn a_server_without_http2_is_an_error_by_prior_knowledge() {
    let server = Scripted::start(|_, stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        client.get(&uri).send().await.expect_err("the server does not speak HTTP/2");
        while client.connections() > 0 {
            task::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    });
}

#[test]
fn floods_end_the_connection() {
    let server = Scripted::start(|_, stream| {
        let Some(mut peer) = Peer::greet(stream, &[]) else { return };
        let Some(_) = peer.request() else { return };
        // PING without end.
        let pings = frame(6, 0, 0, &[0; 8]).repeat(100);
        while peer.0.write_all(&pings).is_ok() {}
    });
    let uri = server.uri("/");
    run(async move {
        let mut limits = ClientLimits::default();
        limits.retries_max = 0;
        let client = Client::builder().limits(limits).http2_prior_knowledge(true).build();
        client.get(&uri).send().await.expect_err("it is a flood");
        while client.connections() > 0 {
            task::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    });
}

#[test]
fn a_cancelled_upload_is_a_reset_with_cancel() {
    let (sender, codes) = std::sync::mpsc::channel();
    let server = Scripted::start(move |_, stream| {
        let Some(mut peer) = Peer::greet(stream, &[]) else { return };
        let Some(first) = peer.request() else { return };
        while let Some(frame) = peer.receive() {
            match frame.kind {
                RST_STREAM => sender.send((frame.stream == first, frame.flags)).expect("the test waits"),
                HEADERS => peer.send(ok(frame.stream, b"alive")),
                _ => {}
            }
        }
    });
    let uri = server.uri("/");
    run(async move {
        let client = client();
        let body = Body::produce(async |writer| {
            writer.write("a part").await?;
            task::sleep(Duration::from_secs(600)).await;
            Ok(())
        });
        let upload = client.post(&uri).body(body).send();
        assert!(task::timeout(Duration::from_millis(20), upload).await.is_err());
        assert_eq!(client.get(&uri).send().await?.text().await?, "alive");
        Ok(())
    });
    assert_eq!(codes.recv_timeout(Duration::from_secs(120)), Ok((true, 0)));
}

#[test]
fn a_response_that_comes_before_the_server_resets_the_connection_is_received() {
    // Whether the client finds the reset while it sends, receives or does neither differs from round to round.
    for backend in backends() {
        let server = Scripted::start(|_, stream| {
            // The kernel drops bytes that Nagle's algorithm holds back.
            stream.set_nodelay(true).expect("a socket");
            let Some(mut peer) = Peer::greet(stream, &[]) else { return };
            let Some(stream) = peer.request() else { return };
            // `:status: 413` as a literal with the name of the static table.
            let head = frame(HEADERS, END_HEADERS, stream, b"\x08\x03413");
            peer.send([head, frame(DATA, END_STREAM, stream, b"much")].concat());
        });
        let uri = server.uri("/");
        run_on(backend, async move {
            for round in 0..20 {
                let body = Body::produce(async |writer| {
                    for _ in 0..100 {
                        writer.write(vec![b'x'; 10_000]).await?;
                    }
                    Ok(())
                });
                let response = client().post(&uri).body(body).send().await;
                let response = response.map_err(|error| format!("{backend:?}, round {round}: {error}"))?;
                assert_eq!(response.status(), 413);
                assert_eq!(response.text().await?, "much");
            }
            Ok(())
        });
    }
}
