//! The client over HTTP/2: against our server, in clear and over TLS.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use tidegate::http::client::{ClientError, ClientLimits};
use tidegate::http::{Body, Client, Request, Response, Router, Server};
use tidegate::http1::Fields;
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::{ServerHandle, task};

use crate::support::{Served, run};

fn router() -> Router {
    Router::new()
        .get("/version", |request: Request| format!("{:?}", request.version()))
        .get("/slow/{number}", async |request: Request| {
            task::sleep(Duration::from_millis(5)).await;
            request.path().to_owned()
        })
        .get("/never", async || {
            task::sleep(Duration::from_secs(600)).await;
            "late"
        })
        .get("/long", || {
            Response::new().body(Body::produce(async |writer| {
                for _ in 0..64 {
                    writer.write(vec![b'x'; 64 * 1024]).await?;
                }
                Ok(())
            }))
        })
        .post("/echo", async |request: Request| Response::new().body(request.into_body()))
        .post("/length", async |mut request: Request| {
            let mut length = 0;
            while let Some(piece) = request.body_mut().next().await {
                length += piece.map_or(0, |piece| piece.len());
            }
            length.to_string()
        })
        .post("/refuse", || Response::text("no body, please").with_status(StatusCode::PAYLOAD_TOO_LARGE))
}

fn client(change: impl FnOnce(&mut ClientLimits)) -> Client {
    let mut limits = ClientLimits::default();
    change(&mut limits);
    Client::builder().limits(limits).http2_prior_knowledge(true).build()
}

#[test]
fn all_requests_to_an_origin_share_a_connection() {
    let server = Served::start(router);
    let uri = server.uri("");
    run(async move {
        let client = client(|_| {});
        assert_eq!(client.get(format!("{uri}/version")).send().await?.text().await?, "HTTP/2.0");
        let most = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (0..300)
            .map(|number| {
                let (client, uri, most) = (client.clone(), uri.clone(), most.clone());
                task::spawn(async move {
                    let response = client.get(format!("{uri}/slow/{number}")).send().await?;
                    most.set(most.get().max(client.connections()));
                    assert_eq!(response.version(), http::Version::HTTP_2);
                    assert_eq!(response.text().await?, format!("/slow/{number}"));
                    Ok::<_, ClientError>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        // The server permits 128 at a time, and the others have waited.
        assert_eq!(most.get(), 1);
        assert_eq!((client.connections(), client.idle_connections()), (1, 1));
        Ok(())
    });
}

#[test]
fn requests_at_once_make_one_connection_also_at_the_beginning() {
    let server = Served::start(router);
    let uri = server.uri("/slow/1");
    run(async move {
        let client = client(|_| {});
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (client, uri) = (client.clone(), uri.clone());
                task::spawn(async move {
                    let response = client.get(&uri).send().await?;
                    assert_eq!(client.connections(), 1);
                    response.text().await
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await??, "/slow/1");
        }
        Ok(())
    });
}

#[test]
fn requests_beyond_the_limit_wait_in_their_order() {
    let server = Served::start(router);
    let uri = server.uri("/slow");
    run(async move {
        let client = client(|limits| limits.streams_per_connection_max = 2);
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..12 {
            let (client, uri, order) = (client.clone(), uri.clone(), order.clone());
            tasks.push(task::spawn(async move {
                let response = client.get(format!("{uri}/{number}")).send().await?;
                order.borrow_mut().push(number);
                response.text().await
            }));
        }
        for task in tasks {
            task.await??;
        }
        let order = order.borrow();
        assert!(order.iter().enumerate().all(|(at, number)| at.abs_diff(*number) <= 1), "{order:?}");
        Ok(())
    });
}

#[test]
fn bodies_stream_both_ways_at_once() {
    let server = Served::start(router);
    let uri = server.uri("");
    run(async move {
        let client = client(|_| {});
        // The echo is read while more is sent: neither side keeps all of it.
        let body = Body::produce(async |writer| {
            for number in 0..200_u32 {
                writer.write(number.to_be_bytes().repeat(4096)).await?;
            }
            Ok(())
        });
        let mut response = client.post(format!("{uri}/echo")).body(body).send().await?;
        let (mut length, mut last) = (0, 0);
        while let Some(piece) = response.body_mut().next().await.transpose()? {
            length += piece.len();
            last = piece.last().copied().unwrap_or(last);
        }
        assert_eq!((length, last), (200 * 16 * 1024, 199));
        let whole = client.post(format!("{uri}/length")).body(vec![0; 3_000_000]).send().await?;
        assert_eq!(whole.text().await?, "3000000");
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

/// A server reads no more of a body before its response is read, and keeps less than all of it.
#[test]
fn a_whole_body_is_sent_while_its_response_is_read() {
    let server = Served::start(router);
    let uri = server.uri("/echo");
    run(async move {
        let client = client(|_| {});
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
fn trailers_come_behind_the_body() {
    let router = || {
        Router::new().get("/", || {
            Response::new().body(Body::produce(async |writer| {
                writer.write("tides").await?;
                let mut fields = Fields::new();
                fields.push("tide", "high")?;
                Ok(writer.trailers(fields)?)
            }))
        })
    };
    let server = Served::start(router);
    let uri = server.uri("/");
    run(async move {
        let mut response = client(|_| {}).get(&uri).send().await?;
        let body = response.body_mut();
        assert_eq!(&*body.next().await.expect("a piece")?, b"tides");
        assert!(body.next().await.is_none());
        let trailers = body.trailers().expect("trailers").iter().next();
        assert_eq!(trailers, Some((&b"tide"[..], &b"high"[..])));
        Ok(())
    });
}

#[test]
fn a_cancelled_request_resets_its_stream_and_no_other() {
    let server = Served::start(router);
    let uri = server.uri("");
    run(async move {
        let client = client(|_| {});
        let long = client.get(format!("{uri}/long")).send().await?;
        for _ in 0..50 {
            // A request that is dropped while it waits for its head, and a response that is dropped within its body.
            let never = client.get(format!("{uri}/never")).send();
            assert!(task::timeout(Duration::from_millis(2), never).await.is_err());
            drop(client.get(format!("{uri}/long")).send().await?);
        }
        assert_eq!(long.bytes().await?.len(), 64 * 64 * 1024);
        assert_eq!(client.get(format!("{uri}/version")).send().await?.text().await?, "HTTP/2.0");
        assert_eq!((client.connections(), client.idle_connections()), (1, 1));
        Ok(())
    });
}

#[test]
fn cancelled_requests_free_their_places() {
    let server = Served::start(router);
    let uri = server.uri("");
    run(async move {
        let client = client(|limits| limits.streams_per_connection_max = 1);
        for _ in 0..20 {
            let never = client.get(format!("{uri}/never")).send();
            assert!(task::timeout(Duration::from_millis(1), never).await.is_err());
            assert_eq!(client.get(format!("{uri}/version")).send().await?.text().await?, "HTTP/2.0");
        }
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

#[test]
fn a_response_that_refuses_the_body_comes_before_its_end() {
    let server = Served::start(router);
    let uri = server.uri("");
    run(async move {
        let client = client(|_| {});
        for _ in 0..5 {
            let body = Body::produce(async |writer| {
                loop {
                    writer.write(vec![b'x'; 64 * 1024]).await?;
                }
            });
            let response = client.post(format!("{uri}/refuse")).body(body).send().await?;
            assert_eq!(response.status().as_u16(), 413);
            assert_eq!(response.text().await?, "no body, please");
        }
        let head = client.head(format!("{uri}/version")).send().await?;
        assert_eq!((head.status().as_u16(), head.text().await?), (200, String::new()));
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

#[test]
fn a_response_that_nothing_reads_stops_no_other() {
    let server = Served::start(router);
    let uri = server.uri("");
    run(async move {
        let client = client(|_| {});
        let mut unread = Vec::new();
        for _ in 0..30 {
            unread.push(client.get(format!("{uri}/long")).send().await?);
        }
        for number in 0..50 {
            let path = format!("/slow/{number}");
            assert_eq!(client.get(format!("{uri}{path}")).send().await?.text().await?, path);
        }
        for response in unread {
            assert_eq!(response.bytes().await?.len(), 64 * 64 * 1024);
        }
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

#[test]
fn a_server_that_drains_takes_its_connection_with_it() {
    let server = Served::start(router);
    let uri = server.uri("/version");
    run(async move {
        let client = client(|_| {});
        assert_eq!(client.get(&uri).send().await?.text().await?, "HTTP/2.0");
        drop(server);
        while client.connections() > 0 {
            task::sleep(Duration::from_millis(5)).await;
        }
        assert!(client.get(&uri).send().await.expect_err("the server is gone").is_connect());
        Ok(())
    });
}

#[test]
fn an_idle_connection_has_a_deadline() {
    let server = Served::start(router);
    let uri = server.uri("/version");
    run(async move {
        let client = client(|limits| limits.idle_timeout = Duration::from_millis(20));
        for _ in 0..3 {
            assert_eq!(client.get(&uri).send().await?.text().await?, "HTTP/2.0");
            while client.connections() > 0 {
                task::sleep(Duration::from_millis(5)).await;
            }
        }
        assert_eq!(client.get(&uri).send().await?.text().await?, "HTTP/2.0");
        client.close_idle();
        assert_eq!(client.connections(), 0);
        Ok(())
    });
}

#[test]
fn an_idle_connection_makes_room_for_another_origin() {
    let (one, other) = (Served::start(router), Served::start(router));
    let uris = [one.uri("/slow/1"), other.uri("/slow/2")];
    run(async move {
        let client = client(|limits| limits.connections_max = 1);
        for _ in 0..2 {
            for (uri, path) in uris.iter().zip(["/slow/1", "/slow/2"]) {
                assert_eq!(client.get(uri).send().await?.text().await?, path);
                assert_eq!((client.connections(), client.idle_connections()), (1, 1));
            }
        }
        // Both wait, and each gets the place in its turn.
        let tasks: Vec<_> = (0..10)
            .map(|number| {
                let (client, uri) = (client.clone(), uris[number % 2].clone());
                task::spawn(async move { client.get(&uri).send().await?.text().await })
            })
            .collect();
        for (number, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await??, ["/slow/1", "/slow/2"][number % 2]);
        }
        Ok(())
    });
}

#[test]
fn a_head_that_does_not_come_has_a_deadline() {
    let server = Served::start(router);
    let uri = server.uri("");
    run(async move {
        let client = client(|limits| limits.head_timeout = Duration::from_millis(30));
        let error = client.get(format!("{uri}/never")).send().await.expect_err("there is no response");
        assert!(matches!(error, ClientError::Closed(_) | ClientError::Timeout(_)), "{error}");
        let patient = client.get(format!("{uri}/version")).head_timeout(PATIENCE);
        assert_eq!(patient.send().await?.text().await?, "HTTP/2.0");
        assert_eq!(client.connections(), 1);
        Ok(())
    });
}

/// No request takes so long, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with TLS, and the configuration of clients that trust it. `protocols` are those of its ALPN, unless it has the
/// usual ones.
fn secure(protocols: Option<&[&str]>) -> (ServerHandle, ClientConfig) {
    let provider = Provider::ring();
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let certificates =
        Certificates::from_pem(&provider, key.cert.pem().as_bytes(), key.signing_key.serialize_pem().as_bytes());
    let tls = ServerConfig::builder(&provider, certificates.expect("a certificate"));
    let tls = match protocols {
        None => tls,
        Some(protocols) => tls.alpn(protocols.iter().copied()),
    };
    let tls = tls.build().expect("a configuration");
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).tls(tls).start(router).expect("it starts");
    let trusting = ClientConfig::dangerous_builder_without_verification(&provider).build().expect("a configuration");
    (server, trusting)
}

#[test]
fn a_server_chooses_the_version_by_alpn() {
    for (protocols, offers, expected) in
        [(None, true, "HTTP/2.0"), (None, false, "HTTP/1.1"), (Some(&["http/1.1"][..]), true, "HTTP/1.1")]
    {
        let (server, tls) = secure(protocols);
        let uri = format!("https://localhost:{}", server.address().ip().expect("an address").port());
        run(async move {
            let client = Client::builder().tls(tls).http2(offers).build();
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let (client, uri) = (client.clone(), format!("{uri}/version"));
                    task::spawn(async move { client.get(&uri).send().await?.text().await })
                })
                .collect();
            for task in tasks {
                assert_eq!(task.await??, expected, "{protocols:?}");
            }
            let long = client.get(format!("{uri}/long")).send().await?;
            assert_eq!(long.bytes().await?.len(), 64 * 64 * 1024);
            assert!(expected == "HTTP/1.1" || client.connections() == 1, "{protocols:?}");
            Ok(())
        });
        server.drain(Duration::ZERO);
    }
}
