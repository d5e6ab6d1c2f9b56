//! HTTPS records (RFC 9460), from a DNS server of the test: which endpoint a request goes to, and in which version.

use std::cell::RefCell;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::dns::server::{ClientQuery, DnsServer, QueryHandler, Reply, Responder};
use tidegate::dns::{CacheConfig, NameServer, Question, RecordType, ResolverConfig, SharedCache, StubResolver, Zone};
use tidegate::http::client::{ClientLimits, Http3Config, Resolve, Resolving};
use tidegate::http::{Client, Request, Router, Server};
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{self, Certificates, Provider};
use tidegate::{Backend, ServerHandle, task};
use tidegate_engine::{HttpsEndpoint, HttpsEndpoints, ResolvingHttps};

use crate::support::{Any, backends, run_on};

const ORIGIN: &str = "tide.example";
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);
/// No server has it: only a record leads to one.
const PORT: u16 = 4;

/// The certificate of the origin alone, and the configuration of clients that trust it.
fn configs() -> (tls::ServerConfig, tls::ClientConfig) {
    let provider = Provider::of_features().expect("cryptography");
    let made = rcgen::generate_simple_self_signed([ORIGIN.to_owned()]).expect("a certificate");
    let key = made.signing_key.serialize_pem();
    let certificates = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), key.as_bytes()).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let server = tls::ServerConfig::builder(&provider, certificates).build().expect("valid");
    (server, tls::ClientConfig::builder(&provider, roots).expect("roots").build().expect("valid"))
}

/// A zone; the server of it has no answer to a question for HTTPS records if it `is_slow`.
struct Records {
    zone: Zone,
    is_slow: bool,
    /// Questions for HTTPS records.
    asked: Arc<AtomicUsize>,
    names: Arc<Mutex<Vec<Question>>>,
}

/// Answers from the records.
struct FromRecords(Arc<Records>);

impl QueryHandler for FromRecords {
    fn query(&self, query: &ClientQuery<'_>) -> Reply {
        self.0.names.lock().expect("no panic").push(query.question.clone());
        if query.question.record_type == RecordType::HTTPS {
            self.0.asked.fetch_add(1, SeqCst);
            if self.0.is_slow {
                return Reply::later(pending());
            }
        }
        Responder::answer(&self.0.zone, query.question).into()
    }
}

/// A server of the origin, with HTTP/3 or without it, and a DNS server with the records that `make` writes for its port.
struct World {
    server: ServerHandle,
    dns: ServerHandle,
    client_tls: tls::ClientConfig,
    port: u16,
    records: Arc<Records>,
}

thread_local! {
    /// The records of the zone of this thread's tests are slow.
    static IS_SLOW: RefCell<bool> = const { RefCell::new(false) };
}

impl World {
    fn new(has_http3: bool, make: impl Fn(u16) -> String) -> Self {
        let (server_tls, client_tls) = configs();
        let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).tls(server_tls);
        let server = if has_http3 { server.http3().expect("QUIC") } else { server };
        let answer = |request: Request| format!("{:?} {}", request.version(), request.host());
        let server = server.start(move || Router::new().get("/", answer)).expect("it starts");
        let port = server.address().ip().expect("an IP address").port();
        let text = format!("$ORIGIN example.\n$TTL 60\n@ SOA ns root 1 2 3 4 60\ntide A 127.0.0.1\n{}", make(port));
        let zone = Zone::parse(&text, None).expect("a zone");
        let (is_slow, asked, names) = (IS_SLOW.with_borrow(|slow| *slow), Arc::default(), Arc::default());
        let records = Arc::new(Records { zone, is_slow, asked, names });
        let handler = records.clone();
        let dns =
            DnsServer::bind("127.0.0.1:0").expect("an address").loops(1).start(move |_| FromRecords(handler.clone()));
        Self { server, dns: dns.expect("it starts"), client_tls, port, records }
    }

    /// Sends two requests, one after the other, to the origin at a port: their versions as the server sees them.
    fn versions(&self, backend: Backend, scheme: &str, port: u16, asks: bool) -> Result<[String; 2], String> {
        let address = self.dns.address().ip().expect("an IP address");
        let (tls, uri) = (self.client_tls.clone(), format!("{scheme}://{ORIGIN}:{port}/"));
        let result = Arc::new(Mutex::new(None));
        let (kept, is_slow) = (result.clone(), self.records.is_slow);
        run_on(backend, async move {
            let cache = SharedCache::new(CacheConfig::default());
            let resolver = StubResolver::new(vec![NameServer::at(address)], ResolverConfig::default(), cache);
            let client = Client::builder().tls(tls).http3(Http3Config::default()).https_records(asks);
            let mut limits = ClientLimits::default();
            if !is_slow {
                // A busy machine may take longer than the defaults.
                (limits.https_records_wait, limits.http3_head_start) = (LONG, LONG);
            }
            let client = client.limits(limits).resolver(resolver).build();
            let both = async {
                let mut versions = [String::new(), String::new()];
                for version in &mut versions {
                    let text = client.get(&uri).send().await?.text().await?;
                    let (seen, host) = text.split_once(' ').expect("two words");
                    assert_eq!(host, format!("{ORIGIN}:{port}"));
                    *version = seen.to_owned();
                }
                Ok::<_, Any>(versions)
            };
            *kept.lock().expect("no panic") = Some(both.await.map_err(|error| error.to_string()));
            Ok(())
        });
        let result = result.lock().expect("no panic").take();
        result.expect("the client has run")
    }

    fn end(self) {
        self.server.drain(Duration::ZERO);
        self.dns.drain(Duration::ZERO);
    }
}

fn both(version: &str) -> Result<[String; 2], String> {
    Ok([version.to_owned(), version.to_owned()])
}

/// A server of the origin with HTTP/2 and HTTP/1.1, for clients whose resolver is a function.
struct Scene {
    server: ServerHandle,
    client_tls: tls::ClientConfig,
    port: u16,
}

impl Scene {
    fn new() -> Self {
        let World { server, dns, client_tls, port, .. } = World::new(false, |_| String::new());
        dns.drain(Duration::ZERO);
        Self { server, client_tls, port }
    }

    fn client(&self, limits: ClientLimits, https: impl Fn(usize) -> ResolvingHttps + Send + Sync + 'static) -> Client {
        let client = Client::builder().tls(self.client_tls.clone()).http3(Http3Config::default()).limits(limits);
        client.resolver(ByFunction(Arc::default(), Box::new(https))).build()
    }

    fn uri(&self) -> String {
        format!("https://{ORIGIN}:{}/", self.port)
    }

    fn end(self) {
        self.server.drain(Duration::ZERO);
    }
}

/// Each host is this one. A function has the HTTPS records; it gets the number of the question.
struct ByFunction(Arc<AtomicUsize>, Box<dyn Fn(usize) -> ResolvingHttps + Send + Sync>);

impl Resolve for ByFunction {
    fn resolve(&self, _: &str, port: u16) -> Resolving {
        Box::pin(async move { Ok(vec![([127, 0, 0, 1], port).into()]) })
    }

    fn resolve_https(&self, _: &str, _: u16) -> ResolvingHttps {
        self.1(self.0.fetch_add(1, SeqCst))
    }
}

fn endpoint(port: u16, alpn: &[&str]) -> HttpsEndpoints {
    let alpn = alpn.iter().map(|protocol| protocol.as_bytes().into()).collect();
    let endpoints = vec![HttpsEndpoint { host: ORIGIN.into(), port, alpn }];
    HttpsEndpoints { endpoints, ttl: Some(Duration::ZERO) }
}

#[test]
fn requests_to_one_origin_share_a_lookup_and_wait_for_it_once() {
    for backend in backends() {
        for is_answered in [true, false] {
            let scene = Scene::new();
            let asked = Arc::new(AtomicUsize::new(0));
            let counted = asked.clone();
            let mut limits = ClientLimits::default();
            limits.resolve_timeout = LONG;
            if is_answered {
                limits.https_records_wait = LONG;
            }
            let client = scene.client(limits, move |_| {
                counted.fetch_add(1, SeqCst);
                Box::pin(async move {
                    match is_answered {
                        true => task::sleep(Duration::from_millis(20)).await,
                        false => pending().await,
                    }
                    Ok(HttpsEndpoints::default())
                })
            });
            let uri = scene.uri();
            run_on(backend, async move {
                let requests: Vec<_> = (0..50).map(|_| task::spawn(client.get(&uri).send())).collect();
                for request in requests {
                    request.await??.text().await?;
                }
                client.get(&uri).send().await?.text().await?;
                Ok(())
            });
            assert_eq!(asked.load(SeqCst), 1);
            scene.end();
        }
    }
}

#[test]
fn a_refresh_delays_no_request_and_leaves_the_endpoint_meanwhile() {
    let scene = Scene::new();
    let port = scene.port;
    let mut limits = ClientLimits::default();
    (limits.resolve_timeout, limits.https_records_wait) = (LONG, LONG);
    let client = scene.client(limits, move |number| {
        Box::pin(async move {
            match number {
                0 => Ok(endpoint(port, &["h2"])),
                _ => pending().await,
            }
        })
    });
    run_on(Backend::Epoll, async move {
        let uri = format!("https://{ORIGIN}:{PORT}/");
        client.get(&uri).send().await?.text().await?;
        // The least time of an answer.
        task::sleep(Duration::from_secs(5)).await;
        client.get(&uri).send().await?.text().await?;
        Ok(())
    });
    scene.end();
}

#[test]
fn an_endpoint_that_never_answers_leaves_the_origin() {
    for backend in backends() {
        let scene = Scene::new();
        // The system takes connections to it, and no byte is ever answered.
        let hole = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = hole.local_addr().expect("an address").port();
        let mut limits = ClientLimits::default();
        (limits.https_records_wait, limits.connect_timeout) = (LONG, LONG);
        let client = scene.client(limits, move |_| Box::pin(async move { Ok(endpoint(port, &["h2"])) }));
        let uri = scene.uri();
        run_on(backend, async move {
            let text = client.get(&uri).send().await?.text().await?;
            assert!(text.starts_with("HTTP/2.0"), "{text}");
            Ok(())
        });
        scene.end();
    }
}

#[test]
fn a_request_that_needs_http1_leaves_an_endpoint_without_it_to_others() {
    let scene = Scene::new();
    let port = scene.port;
    let mut limits = ClientLimits::default();
    limits.https_records_wait = LONG;
    let client = scene.client(limits, move |_| Box::pin(async move { Ok(endpoint(port, &["h2"])) }));
    run_on(Backend::Epoll, async move {
        let uri = format!("https://{ORIGIN}:{PORT}/");
        // The origin itself has no server.
        assert!(client.get(&uri).upgrade("shout").send().await.is_err());
        let text = client.get(&uri).send().await?.text().await?;
        assert!(text.starts_with("HTTP/2.0"), "{text}");
        Ok(())
    });
    scene.end();
}

#[test]
fn the_first_request_goes_by_quic_to_the_host_and_the_port_of_a_record() {
    for backend in backends() {
        let world = World::new(true, |port| {
            format!("_4._https.tide HTTPS 1 far.example. alpn=h2,h3 port={port}\nfar A 127.0.0.1\n")
        });
        assert_eq!(world.versions(backend, "https", PORT, true), both("HTTP/3.0"));
        assert!(world.records.asked.load(SeqCst) > 0);
        let names = world.records.names.lock().expect("no panic").clone();
        assert!(names.iter().any(|asked| asked.name == "far.example".parse().expect("a name")), "{names:?}");
        world.end();
    }
}

#[test]
fn a_record_without_h3_leads_tcp_to_its_endpoint() {
    let world = World::new(false, |port| format!("_4._https.tide HTTPS 1 far alpn=h2 port={port}\nfar A 127.0.0.1\n"));
    assert_eq!(world.versions(Backend::Epoll, "https", PORT, true), both("HTTP/2.0"));
    world.end();
}

#[test]
fn the_first_endpoint_with_a_known_version_counts() {
    let world = World::new(true, |port| {
        format!(
            "_4._https.tide HTTPS 3 far alpn=h3 port=5\n_4._https.tide HTTPS 2 far alpn=h3 port={port}\n\
             _4._https.tide HTTPS 1 far alpn=new no-default-alpn port=6\nfar A 127.0.0.1\n"
        )
    });
    assert_eq!(world.versions(Backend::Epoll, "https", PORT, true), both("HTTP/3.0"));
    world.end();
}

#[test]
fn aliases_lead_to_an_endpoint_and_loops_of_them_to_the_origin() {
    let world = World::new(true, |port| {
        format!("_4._https.tide HTTPS 0 one\none HTTPS 0 two\ntwo HTTPS 1 . alpn=h3 port={port}\ntwo A 127.0.0.1\n")
    });
    assert_eq!(world.versions(Backend::Epoll, "https", PORT, true), both("HTTP/3.0"));
    world.end();
    let world =
        World::new(false, |port| format!("_{port}._https.tide HTTPS 0 one\none HTTPS 0 two\ntwo HTTPS 0 one\n"));
    assert_eq!(world.versions(Backend::Epoll, "https", world.port, true), both("HTTP/2.0"));
    world.end();
}

#[test]
fn an_endpoint_that_cannot_be_reached_leaves_the_origin() {
    // No server has those ports, and no address the last host.
    for record in ["1 . alpn=h2,h3 port=5", "1 far alpn=h2 port=5", "1 none alpn=h3,h2", "0 none"] {
        let world = World::new(false, |port| format!("_{port}._https.tide HTTPS {record}\nfar A 127.0.0.1\n"));
        assert_eq!(world.versions(Backend::Epoll, "https", world.port, true), both("HTTP/2.0"), "{record}");
        world.end();
    }
}

#[test]
fn a_record_that_is_slow_delays_no_request() {
    IS_SLOW.set(true);
    for backend in backends() {
        let world = World::new(false, |_| String::new());
        assert_eq!(world.versions(backend, "https", world.port, true), both("HTTP/2.0"));
        assert!(world.records.asked.load(SeqCst) > 0);
        world.end();
    }
}

#[test]
fn a_client_that_does_not_want_records_asks_for_none_and_http_has_none() {
    let world = World::new(false, |port| format!("_{port}._https.tide HTTPS 1 . alpn=h3 port={port}\n"));
    assert_eq!(world.versions(Backend::Epoll, "https", world.port, false), both("HTTP/2.0"));
    // The server speaks TLS alone: the request is not changed to `https`.
    assert!(world.versions(Backend::Epoll, "http", world.port, true).is_err());
    assert_eq!(world.records.asked.load(SeqCst), 0);
    world.end();
}
