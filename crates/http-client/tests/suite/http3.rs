//! Requests over HTTP/3: on epoll, on io_uring and in the simulated network.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tidegate::http::client::{ClientError, ClientLimits, Http3Config, Response};
use tidegate::http::{self, Body, Client, Request, Router, Server};
use tidegate::http1::{Fields, Status};
use tidegate::http3::ErrorCode;
use tidegate::quic::TransportLimits;
use tidegate::{Backend, ServerHandle, task};

use crate::http3_stage::{Answer, DATA, SETTINGS, Stage, configs, frame, headers, response};
use crate::support::{Any, backends, run_on};

type Seen = Rc<RefCell<Vec<String>>>;

fn router(seen: &Seen) -> Router {
    let (of_read, of_endless) = (seen.clone(), seen.clone());
    Router::new()
        .get("/", |request: Request| format!("{:?} {}", request.version(), request.host()))
        .get("/port", |request: Request| request.peer().ip().expect("an address").port().to_string())
        .get("/large", || vec![b'x'; 3_000_000])
        .post("/slow", async || {
            task::sleep(Duration::from_secs(30)).await;
            "slow"
        })
        .get("/slow", async || {
            task::sleep(Duration::from_secs(30)).await;
            "slow"
        })
        .get("/trailers", || {
            http::Response::new().body(Body::produce(async |writer| {
                writer.write(b"ebb".to_vec()).await?;
                let mut trailers = Fields::new();
                trailers.push("Checksum", "7")?;
                Ok(writer.trailers(trailers)?)
            }))
        })
        .get("/cut", || {
            http::Response::new().body(Body::produce(async |writer| {
                writer.write(b"ebb".to_vec()).await?;
                Err("the function fails".into())
            }))
        })
        .get("/endless", move || {
            let seen = of_endless.clone();
            http::Response::new().body(Body::produce(async move |writer| {
                loop {
                    if let Err(error) = writer.write(vec![b'z'; 10_000]).await {
                        seen.borrow_mut().push("given up".into());
                        return Err(error);
                    }
                }
            }))
        })
        .post("/echo", async |request: Request| -> Body { request.into_body() })
        .post("/read", async move |mut request: Request| {
            while let Some(piece) = request.body_mut().next().await {
                let text = piece.map_or_else(|error| format!("then {error}"), |piece| format!("{} bytes", piece.len()));
                of_read.borrow_mut().push(text);
            }
        })
}

/// Bytes in pieces, as a body without a length.
fn pieces(length: usize) -> Body {
    Body::produce(async move |writer| {
        for _ in 0..length / 10_000 {
            writer.write(vec![b'y'; 10_000]).await?;
        }
        Ok(())
    })
}

#[test]
fn requests_have_their_responses() {
    Stage::each(|stage| {
        let address = stage.serve(TransportLimits::default(), router(&Seen::default()));
        let client = stage.client();
        stage.task(async move {
            let uri = |path: &str| format!("https://{address}{path}");
            let page = client.get(uri("/")).send().await.expect("a response");
            assert_eq!(page.version(), ::http::Version::HTTP_3);
            assert_eq!(page.text().await.expect("text"), format!("HTTP/3.0 {address}"));
            assert_eq!(client.get(uri("/nothing")).send().await.expect("a response").status(), 404);
            let head = client.head(uri("/large")).send().await.expect("a response");
            assert_eq!(head.header_str("content-length"), Some("3000000"));
            assert_eq!(head.bytes().await.expect("no body").len(), 0);
            let large = client.get(uri("/large")).send().await.expect("a response");
            assert_eq!(large.bytes().await.expect("a body").len(), 3_000_000);
            for body in [Body::from(vec![b'y'; 1_000_000]), pieces(1_000_000)] {
                let echo = client.post(uri("/echo")).body(body).send().await.expect("a response");
                assert!(echo.bytes().await.expect("a body") == vec![b'y'; 1_000_000]);
            }
            let mut trailers = client.get(uri("/trailers")).send().await.expect("a response");
            while trailers.body_mut().next().await.transpose().expect("a piece").is_some() {}
            let fields = trailers.body_mut().trailers().expect("trailers");
            assert_eq!(fields.iter().next(), Some((&b"checksum"[..], &b"7"[..])));
        });
    });
}

/// Both sides have dynamic QPACK tables.
#[test]
fn heads_with_tables_are_the_same() {
    Stage::each(|stage| {
        let router = Router::new().post("/tide/{number}", async |mut request: Request| {
            let fields = request.header_str("x-tide").unwrap_or_default().to_owned();
            let body = request.body_mut().collect(10_000).await.expect("a body").len();
            http::Response::text(format!("{fields} {body}")).header("X-Tide", &fields).expect("a field")
        });
        let table = |limits: &mut tidegate::http3::Limits, blocked| {
            (limits.qpack_table_bytes_max, limits.qpack_encoder_bytes_max) = (512, 512);
            limits.qpack_blocked_streams_max = blocked;
        };
        let mut of_server = http::Limits::default();
        (of_server.qpack_table_bytes_max, of_server.qpack_encoder_bytes_max) = (512, 512);
        of_server.qpack_blocked_streams_max = 8;
        let address = stage.serve_with(http::Config::new().limits(of_server), TransportLimits::default(), router);
        let mut config = Http3Config::default();
        table(&mut config.limits, 8);
        let client = stage.client_with(config, ClientLimits::default());
        stage.task(async move {
            let ask = |number: usize| {
                let client = client.clone();
                task::spawn(async move {
                    let fields = format!("a value that comes again and again {}", number % 5);
                    let request = client.post(format!("https://{address}/tide/{number}")).header("x-tide", &fields[..]);
                    let body = Body::from(vec![b'y'; 3_000 * (number % 3)]);
                    let response = request.body(body).send().await.expect("a response");
                    assert_eq!(response.header_str("x-tide"), Some(&fields[..]));
                    assert_eq!(response.text().await.expect("text"), format!("{fields} {}", 3_000 * (number % 3)));
                })
            };
            for round in 0..10 {
                for asking in (0..20).map(|number| ask(20 * round + number)).collect::<Vec<_>>() {
                    asking.await.expect("a result");
                }
            }
            assert_eq!(client.connections(), 1, "it has no error");
        });
    });
}

#[test]
fn requests_at_once_share_a_connection_and_wait_for_streams() {
    Stage::each(|stage| {
        let limits = TransportLimits { bidirectional_max: 4, ..TransportLimits::default() };
        let address = stage.serve(limits, router(&Seen::default()));
        let client = stage.client();
        let ports = stage.task(async move {
            let ask = |_| {
                let client = client.clone();
                task::spawn(async move {
                    let response = client.get(format!("https://{address}/port")).send().await.expect("a response");
                    response.text().await.expect("text")
                })
            };
            let mut ports = Vec::new();
            for asking in (0..60).map(ask).collect::<Vec<_>>() {
                ports.push(asking.await.expect("a result"));
            }
            assert_eq!(client.connections(), 1);
            ports
        });
        assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    });
}

#[test]
fn a_response_that_is_given_up_is_cancelled_at_the_server() {
    Stage::each(|stage| {
        let seen = Seen::default();
        let address = stage.serve(TransportLimits::default(), router(&seen));
        let client = stage.client();
        let keeps = client.clone();
        stage.task(async move {
            let mut response = keeps.get(format!("https://{address}/endless")).send().await.expect("a response");
            assert!(response.body_mut().next().await.is_some());
        });
        let is_over = seen.clone();
        stage.run_until(|| !is_over.borrow().is_empty());
        let page = stage.task(async move { client.get(format!("https://{address}/")).send().await.map(drop) });
        assert!(page.is_ok(), "the connection goes on");
    });
}

#[test]
fn an_upload_that_is_given_up_never_looks_complete() {
    Stage::each(|stage| {
        let seen = Seen::default();
        let address = stage.serve(TransportLimits::default(), router(&seen));
        let client = stage.client();
        let is_read = seen.clone();
        stage.task(async move {
            let body = Body::produce(async move |writer| {
                writer.write(b"ebb".to_vec()).await?;
                // A reset that comes with the head leaves no request.
                while is_read.borrow().is_empty() {
                    task::sleep(Duration::from_millis(1)).await;
                }
                Err("the source is gone".into())
            });
            let sent = client.post(format!("https://{address}/read")).body(body).send().await;
            assert!(matches!(sent, Err(ClientError::RequestBody(_))), "{sent:?}");
        });
        let is_over = seen.clone();
        stage.run_until(|| is_over.borrow().len() == 2);
        assert!(seen.borrow()[0] == "3 bytes" && seen.borrow()[1].starts_with("then "), "{seen:?}");
    });
}

/// The body of the first response of a scripted server, or the error.
fn first(stage: &mut Stage, script: impl Fn(usize, usize) -> Answer + 'static) -> Result<String, ClientError> {
    let address = stage.serve_script(script);
    let client = stage.client();
    stage.task(async move { client.get(format!("https://{address}/")).send().await?.text().await })
}

#[test]
fn a_body_has_its_declared_length() {
    let head = |length| headers(&[(":status", "200"), ("content-length", length)]);
    let bodies = [
        // The end of the stream alone, too few bytes, too many.
        head("9"),
        [head("9"), frame(DATA, b"ebb")].concat(),
        [head("2"), frame(DATA, b"ebb")].concat(),
        [head("3"), frame(DATA, b"ebb"), frame(DATA, b"f")].concat(),
    ];
    Stage::each(|stage| {
        for body in bodies.clone() {
            let received = first(stage, move |_, _| Answer::Whole(body.clone()));
            assert!(received.is_err(), "{received:?}");
        }
        let whole = [head("3"), frame(DATA, b"ebb")].concat();
        assert_eq!(first(stage, move |_, _| Answer::Whole(whole.clone())).expect("a body"), "ebb");
    });
}

#[test]
fn malformed_responses_are_errors_of_their_requests() {
    let responses = [
        Vec::new(),
        headers(&[]),
        headers(&[("x", "y")]),
        headers(&[(":status", "20")]),
        headers(&[(":status", "200"), (":status", "200")]),
        headers(&[(":status", "200"), ("Upper", "case")]),
        headers(&[(":status", "200"), ("connection", "close")]),
        headers(&[(":status", "200"), ("transfer-encoding", "chunked")]),
        headers(&[(":status", "103")]),
        frame(DATA, b"ebb"),
        // A section that QPACK cannot decode, and frames that no request stream has.
        frame(1, &[9, 0, 0x80]),
        [response("ebb"), frame(4, b"")].concat(),
        [response("ebb"), frame(5, b"")].concat(),
    ];
    Stage::each(|stage| {
        for wire in responses.clone() {
            let sent = wire.clone();
            let received = first(stage, move |_, _| Answer::Whole(sent.clone()));
            assert!(received.is_err(), "{wire:?}: {received:?}");
        }
    });
}

#[test]
fn a_response_that_is_reset_is_no_whole_one() {
    Stage::each(|stage| {
        let code = ErrorCode::INTERNAL_ERROR.0;
        let received = first(stage, move |_, _| Answer::Reset(response("ebb"), code));
        assert!(matches!(received, Err(ClientError::Closed(_))), "{received:?}");
    });
}

#[test]
fn a_function_that_fails_cuts_its_response() {
    Stage::each(|stage| {
        let address = stage.serve(TransportLimits::default(), router(&Seen::default()));
        let client = stage.client();
        let text = stage.task(async move { client.get(format!("https://{address}/cut")).send().await?.text().await });
        assert!(matches!(&text, Err(ClientError::Body(_) | ClientError::Closed(_))), "{text:?}");
    });
}

#[test]
fn a_rejected_request_is_sent_again_whatever_its_method_is() {
    Stage::each(|stage| {
        let address = stage.serve_script(|_, request| match request {
            0 => Answer::Reset(Vec::new(), ErrorCode::REQUEST_REJECTED.0),
            _ => Answer::Whole(response("second")),
        });
        let client = stage.client();
        let text = stage.task(async move {
            let response = client.post(format!("https://{address}/")).body("ebb").send().await?;
            assert_eq!(client.connections(), 1, "on the same connection");
            response.text().await
        });
        assert_eq!(text.expect("a response"), "second");
        for code in [ErrorCode::INTERNAL_ERROR, ErrorCode::REQUEST_CANCELLED] {
            let refused = first(stage, move |_, _| Answer::Reset(Vec::new(), code.0));
            assert!(refused.is_err(), "it may have been processed");
        }
    });
}

#[test]
fn a_request_that_goaway_does_not_permit_is_sent_again_on_another_connection() {
    Stage::each(|stage| {
        let address = stage.serve_script(|connection, request| match (connection, request) {
            (0, 0) => Answer::Whole(response("first")),
            // The stream has the number 4.
            (0, _) => Answer::GoAway(4),
            _ => Answer::Whole(response("other")),
        });
        let client = stage.client();
        let texts = stage.task(async move {
            let ask = async || -> Result<String, ClientError> {
                client.post(format!("https://{address}/")).body("ebb").send().await?.text().await
            };
            (ask().await, ask().await)
        });
        assert_eq!((texts.0.expect("a response").as_str(), texts.1.expect("a response").as_str()), ("first", "other"));
    });
}

#[test]
fn a_request_that_goaway_permits_has_its_response() {
    Stage::each(|stage| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let noted = seen.clone();
        let address = stage.serve_script(move |connection, request| {
            noted.borrow_mut().push((connection, request));
            match (connection, request) {
                (0, 0) => Answer::Part(headers(&[(":status", "200")])),
                (0, _) => Answer::GoAway(4),
                _ => Answer::Whole(response("other")),
            }
        });
        let client = stage.client();
        let (own, second) = (client.clone(), format!("https://{address}/"));
        let mut open = stage.task(async move { own.get(format!("https://{address}/")).send().await.expect("a head") });
        let text = stage.task(async move { client.get(second).send().await.expect("a head").text().await });
        assert_eq!(text.expect("a body"), "other");
        assert_eq!(*seen.borrow(), [(0, 0), (0, 1), (1, 0)]);
        // The first one still waits for its body.
        let waits =
            stage.task(async move { task::timeout(Duration::from_millis(10), open.body_mut().next()).await.is_err() });
        assert!(waits);
    });
}

#[test]
fn a_server_that_breaks_the_protocol_loses_the_connection() {
    Stage::each(|stage| {
        // GOAWAY with a number that no request has, a second SETTINGS, a frame of a request.
        for control in [frame(7, &[1]), frame(4, b""), frame(DATA, b"")] {
            let received = first(stage, move |_, _| Answer::Control(control.clone()));
            assert!(matches!(received, Err(ClientError::Closed(_))), "{received:?}");
        }
    });
}

#[test]
fn no_server_and_a_wrong_certificate_are_errors_at_once() {
    Stage::each(|stage| {
        let address = stage.serve(TransportLimits::default(), router(&Seen::default()));
        let client = stage.client();
        let mut nowhere = address;
        nowhere.set_port(9);
        let errors: (Result<Response, _>, Result<Response, _>) = stage.task(async move {
            let refused = client.get(format!("https://{nowhere}/")).send().await;
            let other_name = client.get(format!("https://localhost:{}/", address.port())).at(address);
            (refused, other_name.send().await)
        });
        assert!(matches!(errors.0, Err(ClientError::Connect(_))), "{errors:?}");
        let error = errors.1.expect_err("another name").to_string();
        assert!(error.contains("certificate"), "{error}");
    });
}

#[test]
fn a_server_that_vanishes_is_noticed_and_a_slow_one_is_waited_for() {
    let mut stage = Stage::network();
    let address = stage.serve(TransportLimits::default(), router(&Seen::default()));
    let mut limits = ClientLimits::default();
    // The PINGs keep the connection.
    limits.idle_timeout = Duration::from_secs(12);
    let client = stage.client_with(Http3Config::default(), limits);
    let own = client.clone();
    let slow = stage.task(async move { own.get(format!("https://{address}/slow")).send().await?.text().await });
    assert_eq!(slow.expect("a response"), "slow");
    let mut asking = stage.with(1, |event_loop| {
        event_loop.spawn(async move { client.get(format!("https://{address}/slow")).send().await.map(drop) })
    });
    stage.run_for(Duration::from_secs(1));
    stage.partition();
    stage.run_until(|| asking.is_finished());
    let result = stage.task(async move { (&mut asking).await.expect("a result") });
    assert!(
        matches!(result, Err(ClientError::Closed(_) | ClientError::Timeout(_) | ClientError::Connect(_))),
        "{result:?}"
    );
}

#[test]
fn a_client_sends_as_many_requests_at_once_as_it_may() {
    let mut stage = Stage::network();
    let came = Rc::new(Cell::new(0));
    let router = Router::new().get("/", async move || {
        came.set(came.get() + 1);
        // None has its response before all of them are here.
        while came.get() < 150 {
            task::sleep(Duration::from_millis(1)).await;
        }
        "all"
    });
    let limits = TransportLimits { bidirectional_max: 200, ..TransportLimits::default() };
    let address = stage.serve(limits, router);
    let client = stage.client();
    stage.task(async move {
        let ask = |_| {
            let sent = client.get(format!("https://{address}/")).send();
            task::spawn(async move { sent.await?.text().await })
        };
        for asking in (0..150).map(ask).collect::<Vec<_>>() {
            assert_eq!(asking.await.expect("a result").expect("a response"), "all");
        }
        assert_eq!(client.connections(), 1);
    });
}

#[test]
fn goaway_wakes_a_request_that_waits_for_a_stream() {
    let mut stage = Stage::network();
    let limits = TransportLimits { bidirectional_max: 1, ..TransportLimits::default() };
    let address = stage.serve_script_with(limits, |connection, _| match connection {
        // The first request is permitted, and has no response.
        0 => Answer::GoAway(4),
        _ => Answer::Whole(response("other")),
    });
    let client = stage.client();
    let text = stage.task(async move {
        let ask = || {
            let sent = client.get(format!("https://{address}/")).send();
            task::spawn(async move { sent.await?.text().await })
        };
        let (_first, second) = (ask(), ask());
        let begun = task::now();
        let text = second.await.expect("a result");
        // Once the time for a head is up, the first one would make room.
        assert!(task::now() - begun < Duration::from_secs(5));
        text
    });
    assert_eq!(text.expect("a response"), "other");
}

#[test]
fn the_limits_of_the_client_say_when_a_server_is_gone() {
    let mut stage = Stage::network();
    let address = stage.serve(TransportLimits::default(), router(&Seen::default()));
    let mut limits = ClientLimits::default();
    (limits.ping_interval, limits.ping_timeout) = (Some(Duration::from_secs(1)), Duration::from_secs(3));
    let client = stage.client_with(Http3Config::default(), limits);
    let mut asking = stage.with(1, |event_loop| {
        event_loop.spawn(async move {
            // The first one shows that the connection is there.
            client.get(format!("https://{address}/")).send().await.expect("a response").text().await.expect("text");
            client.post(format!("https://{address}/slow")).send().await.map(drop)
        })
    });
    stage.run_for(Duration::from_secs(1));
    stage.partition();
    // It is not gone before the time for an answer has passed.
    stage.run_for(Duration::from_secs(2));
    assert!(!asking.is_finished());
    stage.run_for(Duration::from_secs(4));
    assert!(asking.is_finished());
    assert!(stage.task(async move { (&mut asking).await.expect("a result") }).is_err());
}

#[test]
#[should_panic(expected = "ping_interval")]
fn pings_have_an_interval() {
    let mut limits = ClientLimits::default();
    limits.ping_interval = Some(Duration::ZERO);
    let _ = Stage::epoll().client_with(Http3Config::default(), limits);
}

#[test]
fn limits_of_quic_permit_the_streams_that_each_server_opens() {
    let mut stage = Stage::epoll();
    let mut config = Http3Config::default();
    config.transport.unidirectional_max = 2;
    let client = stage.client_with(config, ClientLimits::default());
    let refused = stage.task(async move { client.get("https://127.0.0.1:1/").send().await.map(drop) });
    assert!(matches!(refused, Err(ClientError::NoHttp3)), "{refused:?}");
}

/// A server over TCP, and over UDP if it `has_http3`, whose responses have this `Alt-Svc` in place of the usual one.
fn serve(has_http3: bool, alt_svc: Option<String>) -> (ServerHandle, Client, String) {
    let (server_tls, client_tls) = configs();
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).tls(server_tls);
    let server = if has_http3 { server.http3().expect("QUIC") } else { server };
    let router = move || {
        let alt_svc = alt_svc.clone();
        Router::new().get("/", move || match &alt_svc {
            Some(value) => http::Response::text("tide").header("Alt-Svc", value).expect("a field"),
            None => http::Response::text("tide"),
        })
    };
    let server = server.start(router).expect("it starts");
    let client =
        Client::builder().tls(client_tls).limits(with_head_start(has_http3)).http3(Http3Config::default()).build();
    let uri = format!("https://{}/", server.address());
    (server, client, uri)
}

/// The limits of a client. Where a server has HTTP/3, QUIC has no rival until it fails, however busy the machine is.
fn with_head_start(has_http3: bool) -> ClientLimits {
    let mut limits = ClientLimits::default();
    if has_http3 {
        limits.http3_head_start = Duration::from_secs(600);
    }
    limits
}

async fn version(client: &Client, uri: &str) -> Result<::http::Version, Any> {
    let response = client.get(uri).send().await?;
    let version = response.version();
    assert_eq!(response.text().await?, "tide");
    Ok(version)
}

#[test]
fn alt_svc_moves_requests_to_http3() {
    for backend in backends() {
        let (server, client, uri) = serve(true, None);
        run_on(backend, async move {
            assert_eq!(version(&client, &uri).await?, ::http::Version::HTTP_2);
            for _ in 0..3 {
                assert_eq!(version(&client, &uri).await?, ::http::Version::HTTP_3);
            }
            Ok(())
        });
        server.drain(Duration::ZERO);
    }
}

#[test]
fn requests_go_by_tcp_where_udp_is_blocked_or_no_server_has_the_port() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    // Nothing has the second port, and the last values are no HTTP/3 at this host.
    let values = [format!("h3=\":{port}\""), "h3=\":9\"".into(), "clear".into(), "h3=\"sea.example:1\"".into()];
    for value in values {
        let (server, client, uri) = serve(false, Some(value));
        run_on(Backend::Epoll, async move {
            for _ in 0..3 {
                assert_eq!(version(&client, &uri).await?, ::http::Version::HTTP_2);
            }
            Ok(())
        });
        server.drain(Duration::ZERO);
    }
    // The race began once, and QUIC rests since.
    silent.set_nonblocking(true).expect("a socket");
    let mut first = [0; 2000];
    assert!(silent.recv(&mut first).expect("an Initial") >= 1200);
}

#[test]
fn an_alternative_that_does_not_answer_its_first_request_rests() {
    let mut stage = Stage::epoll();
    let tried = Rc::new(Cell::new(0));
    let noted = tried.clone();
    let alternative = stage.serve_script(move |_, _| {
        noted.set(noted.get() + 1);
        // A second SETTINGS ends the connection.
        Answer::Control(frame(SETTINGS, b""))
    });
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).tls(stage.tcp_tls.clone());
    let alt_svc = format!("h3=\":{}\"", alternative.port());
    let router = move || {
        let alt_svc = alt_svc.clone();
        Router::new()
            .get("/", move || http::Response::text("tide").header("Alt-Svc", alt_svc.clone()).expect("a field"))
    };
    let server = server.start(router).expect("it starts");
    let uri = format!("https://{}/", server.address());
    let client = Client::builder().tls(stage.client_tls.clone()).http3(Http3Config::default()).build();
    stage.task(async move {
        for _ in 0..4 {
            assert_eq!(version(&client, &uri).await.expect("a response"), ::http::Version::HTTP_2);
        }
    });
    assert!(tried.get() <= 1, "{tried:?}");
    server.drain(Duration::ZERO);
}

#[test]
fn a_request_that_an_alternative_does_not_serve_is_sent_again_by_tcp() {
    for backend in backends() {
        let (server_tls, client_tls) = configs();
        let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).tls(server_tls).http3().expect("QUIC");
        let misdirected = Arc::new(AtomicUsize::new(0));
        let noted = misdirected.clone();
        let router = move || {
            let noted = noted.clone();
            Router::new().post("/", move |request: Request| {
                let is_misdirected = request.version() == ::http::Version::HTTP_3;
                noted.fetch_add(is_misdirected.into(), Relaxed);
                let status = if is_misdirected { Status::MISDIRECTED_REQUEST } else { Status::OK };
                http::Response::with(status).body("tide")
            })
        };
        let server = server.start(router).expect("it starts");
        let client =
            Client::builder().tls(client_tls).limits(with_head_start(true)).http3(Http3Config::default()).build();
        let uri = format!("https://{}/", server.address());
        run_on(backend, async move {
            for _ in 0..4 {
                let response = client.post(&uri).body("ebb").send().await?;
                assert_eq!((response.version(), response.status().as_u16()), (::http::Version::HTTP_2, 200));
                assert_eq!(response.text().await?, "tide");
            }
            Ok(())
        });
        assert_eq!(misdirected.load(Relaxed), 1, "the alternative rests");
        server.drain(Duration::ZERO);
    }
}
