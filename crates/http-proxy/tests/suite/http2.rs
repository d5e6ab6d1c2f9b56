//! A proxy between versions: HTTP/1.1 and HTTP/2 clients and upstreams.

use std::future::Future;
use std::io::{Read, Write};
use std::time::Duration;

use tidegate::http::proxy::{Proxy, UpstreamUrl, Upstreams};
use tidegate::http::{Body, Client, Request, Response, Router, Server};
use tidegate::http1::Fields;
use tidegate::{Backend, EventLoop, ServerHandle, task};

type Any = Box<dyn std::error::Error>;

fn run<T: 'static>(future: impl Future<Output = Result<T, Any>> + 'static) -> T {
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let limited = async { task::timeout(Duration::from_secs(120), future).await? };
    event_loop.block_on(limited).expect("the loop runs").expect("the task succeeds")
}

/// A request as an upstream has seen it.
fn seen(request: &Request) -> String {
    let field = |name| request.header_str(name).unwrap_or("none").to_owned();
    let [via, te, host] = ["via", "te", "host"].map(field);
    format!("{:?} {} via {via}, te {te}, host {host}", request.version(), request.target())
}

fn with_trailers() -> Body {
    Body::produce(async |writer| {
        writer.write("tides").await?;
        let mut fields = Fields::new();
        fields.push("tide", "high")?;
        Ok(writer.trailers(fields)?)
    })
}

fn upstream() -> ServerHandle {
    let router = || {
        Router::new()
            .get("/seen", |request: Request| seen(&request))
            .post("/names", |request: Request| {
                let names = request.headers().filter(|(name, _)| name.contains('_') || name.contains('.'));
                let names = names.map(|(name, value)| format!("{name}={}", value.escape_ascii()));
                let response = Response::text(names.collect::<Vec<_>>().join(" "));
                ODD_NAMES.iter().try_fold(response, |response, name| response.header(name, "1")).expect("valid names")
            })
            .post("/echo", async |request: Request| Response::new().body(request.into_body()))
            .get("/trailers", || Response::new().body(with_trailers()))
            .get("/trailers-and-length", || Response::new().body(with_trailers().with_length(5)))
            .get("/slow", async || {
                task::sleep(Duration::from_millis(10)).await;
                "slow"
            })
            .get("/broken", || {
                Response::new().body(Body::produce(async |writer| {
                    writer.write("a part").await?;
                    Err("it fails within its body".into())
                }))
            })
    };
    Server::bind("127.0.0.1:0").expect("a port").loops(1).start(router).expect("it starts")
}

fn proxy(url: &str) -> ServerHandle {
    let url: UpstreamUrl = url.parse().expect("a URL");
    let upstreams = Upstreams::builder().server(url).build().expect("upstreams");
    let router = move || Router::new().fallback(Proxy::new(&upstreams).via("gate"));
    Server::bind("127.0.0.1:0").expect("a port").loops(1).start(router).expect("it starts")
}

/// Runs `act` with each version of the client and of the upstream: with the client, the proxy's URI, and both versions.
fn each(act: impl AsyncFn(Client, String, [&'static str; 2]) -> Result<(), Any> + Clone + 'static) {
    for (scheme, above) in [("http", "HTTP/1.1"), ("h2c", "HTTP/2.0")] {
        for (is_http2, below) in [(false, "1.1"), (true, "2")] {
            let upstream = upstream();
            let proxy = proxy(&format!("{scheme}://{}", upstream.address()));
            let (uri, act) = (format!("http://{}", proxy.address()), act.clone());
            run(async move {
                let client = Client::builder().http2_prior_knowledge(is_http2).build();
                act(client, uri, [below, above]).await
            });
            proxy.drain(Duration::ZERO);
            upstream.drain(Duration::ZERO);
        }
    }
}

#[test]
fn a_request_is_translated_between_versions() {
    each(async |client, uri, [below, above]| {
        let text = client.get(format!("{uri}/seen?a=b")).send().await?.text().await?;
        let host = uri.strip_prefix("http://").unwrap_or_default();
        assert_eq!(text, format!("{above} /seen?a=b via {below} gate, te none, host {host}"));
        Ok(())
    });
}

/// Names that a server which passes fields on in environment variables reads as those of a connection, and one of another.
const ODD_NAMES: [&str; 8] = [
    "transfer_encoding",
    "content_length",
    "keep_alive",
    "proxy_connection",
    "transfer.encoding",
    "content.length",
    "x_other",
    "x_forwarded",
];

#[test]
fn names_that_some_servers_read_as_those_of_a_connection_are_not_passed_on() {
    each(async |client, uri, _| {
        let mut request = client.post(format!("{uri}/names")).body("tides");
        for name in ODD_NAMES.into_iter().chain(["x_forwarded_for", "x_forwarded.host", "x_real_ip"]) {
            request = request.header(name, "1");
        }
        let response = request.send().await?;
        for name in ODD_NAMES {
            let is_passed_on = matches!(name, "x_other" | "x_forwarded");
            assert_eq!(response.header(name).is_some(), is_passed_on, "{name}");
        }
        assert_eq!(response.text().await?, "x_other=1 x_forwarded=1");
        Ok(())
    });
}

#[test]
fn bodies_and_trailers_go_both_ways() {
    each(async |client, uri, v| {
        eprintln!("{v:?} whole");
        let whole = client.post(format!("{uri}/echo")).body(vec![b'x'; 300_000]).send().await?;
        eprintln!("{v:?} whole head");
        assert_eq!(whole.bytes().await?.len(), 300_000);
        eprintln!("{v:?} pieces");
        let pieces = Body::produce(async |writer| {
            for _ in 0..50 {
                writer.write(vec![b'y'; 20_000]).await?;
            }
            Ok(())
        });
        let echoed = client.post(format!("{uri}/echo")).body(pieces).send().await?;
        eprintln!("{v:?} head");
        assert_eq!(echoed.bytes().await?.len(), 1_000_000);
        eprintln!("{v:?} trailers");
        let mut response = client.get(format!("{uri}/trailers")).send().await?;
        while response.body_mut().next().await.transpose()?.is_some() {}
        let trailers = response.body().trailers().expect("trailers").iter().next();
        assert_eq!(trailers, Some((&b"tide"[..], &b"high"[..])));
        // HTTP/1.1 has trailers behind chunks alone.
        let mut response = client.get(format!("{uri}/trailers-and-length")).send().await?;
        assert_eq!(response.content_length(), Some(5));
        while response.body_mut().next().await.transpose()?.is_some() {}
        let trailers = response.body().trailers().and_then(|trailers| trailers.iter().next());
        let expected = (v == ["2", "HTTP/2.0"]).then_some((&b"tide"[..], &b"high"[..]));
        assert_eq!(trailers, expected, "{v:?}");
        Ok(())
    });
}

#[test]
fn a_response_that_breaks_off_does_not_look_complete() {
    each(async |client, uri, versions| {
        for _ in 0..10 {
            // A reset may overtake the head.
            let text = match client.get(format!("{uri}/broken")).send().await {
                Ok(response) if response.status().as_u16() == 502 => continue,
                Ok(response) => response.text().await,
                Err(error) => Err(error),
            };
            assert!(text.is_err(), "{versions:?}: {text:?}");
        }
        assert_eq!(client.get(format!("{uri}/slow")).send().await?.text().await?, "slow");
        Ok(())
    });
}

#[test]
fn many_requests_at_once_are_answered() {
    each(async |client, uri, _| {
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let (client, uri) = (client.clone(), format!("{uri}/slow"));
                task::spawn(async move { client.get(&uri).send().await?.text().await })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await??, "slow");
        }
        Ok(())
    });
}

#[test]
fn a_client_that_leaves_frees_its_stream() {
    each(async |client, uri, _| {
        for _ in 0..20 {
            let slow = client.get(format!("{uri}/slow")).send();
            drop(task::timeout(Duration::from_millis(2), slow).await);
        }
        assert_eq!(client.get(format!("{uri}/slow")).send().await?.text().await?, "slow");
        Ok(())
    });
}

#[test]
fn an_upstream_that_speaks_no_http2_is_a_bad_gateway() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let proxy = proxy(&format!("h2c://{address}"));
    let uri = format!("http://{}/", proxy.address());
    run(async move {
        // Not idempotent: it is sent once.
        let response = Client::new().post(&uri).body("tides").send().await?;
        assert_eq!(response.status().as_u16(), 502);
        Ok(())
    });
    proxy.drain(Duration::ZERO);
    server.join().expect("the server is good");
}
