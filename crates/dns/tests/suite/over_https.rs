//! Queries over HTTPS (RFC 8484): the routes of a server, and a resolver that asks it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use tidegate::http::client::{ClientLimits, Resolve, Resolving};
use tidegate::http::{
    self, Client, ContentType, DNS_PATH, IntoResponse, Response, Router, StatusCode, dns_router, name_server,
};
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientBuilder, ClientConfig, Provider, ServerConfig};
use tidegate::{Address, Over};
use tidegate_dns::server::{ClientQuery, DnsServer, LoopHandlers, QueryHandler, Reply, ServerLimits, ServerMetrics};
use tidegate_dns::{
    CacheConfig, ClientCodec, Header, LookupError, MessageView, MessageWriter, NameServer, Question, RecordType,
    ResolverConfig, ResponseCode, ServerCodec, SharedCache, StubResolver, Zone,
};
use tidegate_engine::{Admission, Backend, EventLoop, Listener, ServerHandle, task};

use crate::support::backends;

const ZONE: &str = "$ORIGIN tides.example.\n$TTL 60\n@ SOA ns root 1 2 3 4 30\nwww 50 A 192.0.2.1\nwww 40 A 192.0.2.2\n\
     alias 50 CNAME gone\n";
const MESSAGE: &str = "application/dns-message";

fn zone() -> Arc<Zone> {
    Arc::new(Zone::parse(ZONE, None).expect("it is valid"))
}

fn query(host: &str) -> Vec<u8> {
    let question = Question::new(host.parse().expect("a name"), RecordType::A);
    MessageWriter::new(Header::query(0)).question(&question).expect("it fits").finish().into_bytes().to_vec()
}

/// A server with HTTP without TLS, and the URI of its queries.
fn start<H: QueryHandler + 'static>(
    backend: Backend,
    server: DnsServer,
    make: impl Fn(usize) -> H + Send + Sync + 'static,
) -> (ServerHandle, String) {
    let server = server.loops(1).engine(|engine| engine.backend(backend));
    let handlers = server.handlers(make);
    let of_http = handlers.clone();
    let listener = Listener::bind("127.0.0.1:0").expect("an address");
    let http = http::Config::new().serve(listener, move || dns_router(&of_http));
    let server = server.listener(http).start_with(&handlers).expect("it starts");
    let uri = format!("http://{}{DNS_PATH}", server.listeners()[1].addresses()[0]);
    (server, uri)
}

fn on_a_loop<T: 'static>(test: impl Future<Output = T> + 'static) -> T {
    let mut event_loop = EventLoop::on(Backend::Epoll).expect("a loop");
    let result = event_loop.block_on(async move { task::timeout(Duration::from_secs(120), test).await });
    result.expect("the loop runs").expect("the test does not hang")
}

fn clients() -> [Client; 2] {
    [Client::new(), Client::builder().http2_prior_knowledge(true).build()]
}

#[test]
fn get_and_post_have_the_answer_with_its_time_in_both_versions() {
    for backend in backends() {
        let zone = zone();
        let metrics = ServerMetrics::new();
        let server = DnsServer::bind("127.0.0.1:0").expect("an address").metrics(&metrics);
        let (server, uri) = start(backend, server, move |_| zone.clone());
        on_a_loop(async move {
            for client in clients() {
                for (host, code, records, age) in [
                    ("www.tides.example", ResponseCode::NOERROR, 2, "max-age=40"),
                    ("none.tides.example", ResponseCode::NXDOMAIN, 0, "max-age=30"),
                    ("alias.tides.example", ResponseCode::NXDOMAIN, 1, "max-age=30"),
                    ("other.example", ResponseCode::REFUSED, 0, "max-age=0"),
                ] {
                    let query = query(host);
                    let get = client.get(format!("{uri}?x=1&dns={}", BASE64_URL_SAFE_NO_PAD.encode(&query)));
                    let post = client.post(&uri).header("Content-Type", "Application/DNS-Message; a=b").body(query);
                    for request in [get, post] {
                        let response = request.send().await.expect("a response");
                        assert_eq!(
                            (response.status().as_u16(), response.header_str("content-type")),
                            (200, Some(MESSAGE))
                        );
                        assert_eq!(response.header_str("cache-control"), Some(age), "{host}");
                        let message = response.bytes().await.expect("a body");
                        let view = MessageView::parse(&message).expect("a message");
                        assert_eq!((view.response_code(), view.answers().count()), (code, records), "{host}");
                        assert_eq!(view.header().id, 0);
                    }
                }
            }
        });
        assert_eq!(metrics.counts().https_queries, 16);
        server.drain(Duration::ZERO);
    }
}

#[test]
fn requests_without_a_query_have_the_status_of_their_mistake() {
    let (zone, metrics) = (zone(), ServerMetrics::new());
    let server = DnsServer::bind("127.0.0.1:0").expect("an address").metrics(&metrics);
    let (server, uri) = start(Backend::Epoll, server, move |_| zone.clone());
    on_a_loop(async move {
        let text = BASE64_URL_SAFE_NO_PAD.encode(query("www.tides.example"));
        let mut response = query("www.tides.example");
        response[2] |= 0x80;
        let mut two = query("www.tides.example");
        two[5] = 2;
        let long = vec![0; usize::from(u16::MAX) + 1];
        for client in clients() {
            let post = |body: &[u8]| client.post(&uri).header("Content-Type", MESSAGE).body(body.to_vec());
            for (request, status) in [
                (client.get(&uri), 400),
                (client.get(format!("{uri}?dns=")), 400),
                (client.get(format!("{uri}?dns={text}=")), 400),
                (client.get(format!("{uri}?dns=+/{text}")), 400),
                (client.get(format!("{uri}?ndns={text}")), 400),
                (post(b""), 400),
                (post(&[0; 11]), 400),
                (post(&response), 400),
                (post(&two), 400),
                (post(&[0xff; 512]), 400),
                (post(&long), 413),
                (client.post(&uri).body(query("www.tides.example")), 415),
                (client.post(&uri).header("Content-Type", "application/json").body("{}"), 415),
                (client.put(&uri).header("Content-Type", MESSAGE).body(query("www.tides.example")), 405),
                (client.get(uri.replace(DNS_PATH, "/")), 404),
            ] {
                let response = request.send().await.expect("a response");
                assert_eq!(response.status().as_u16(), status);
            }
        }
    });
    assert_eq!(metrics.counts().https_queries, 0);
    server.drain(Duration::ZERO);
}

/// Has no response to any query, until the query is given up.
struct Never(Arc<AtomicUsize>);

impl QueryHandler for Never {
    fn query(&self, _: &ClientQuery<'_>) -> Reply {
        self.0.fetch_add(1, Ordering::SeqCst);
        let left = OnDrop(self.0.clone());
        Reply::later(async move {
            let _left = left;
            std::future::pending().await
        })
    }
}

struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn queries_of_all_transports_share_their_limits_and_one_that_is_given_up_frees_its_place() {
    let waiting = Arc::new(AtomicUsize::new(0));
    let (counted, metrics) = (waiting.clone(), ServerMetrics::new());
    let limits = ServerLimits { in_flight_max: 2, ..ServerLimits::default() };
    let server = DnsServer::bind("127.0.0.1:0").expect("an address").limits(limits).metrics(&metrics);
    let (server, uri) = start(Backend::Epoll, server, move |_| Never(counted.clone()));
    let address = server.address().clone();
    on_a_loop(async move {
        let client = Client::new();
        let ask = {
            let (client, uri) = (client.clone(), uri.clone());
            move || client.post(&uri).header("Content-Type", MESSAGE).body(query("www.tides.example")).send()
        };
        let first = task::spawn(ask());
        let second = task::spawn(ask());
        let is = async |count: usize| {
            while waiting.load(Ordering::SeqCst) != count {
                task::sleep(Duration::from_millis(1)).await;
            }
        };
        is(2).await;
        // A third one gets no place, over HTTP as over TCP.
        let response = ask().await.expect("a response").bytes().await.expect("a body");
        assert_eq!(MessageView::parse(&response).expect("a message").response_code(), ResponseCode::SERVFAIL);
        let mut channel = tidegate_engine::Client::at(address).connect(ClientCodec::default()).await.expect("TCP");
        let question = Question::new("a.example".parse().expect("a name"), RecordType::A);
        let over_tcp = MessageWriter::new(Header::query(7)).question(&question).expect("it fits").finish();
        channel.send(over_tcp).expect("it is sent");
        let response = channel.recv().await.expect("a response").expect("a message");
        assert_eq!(response.view().response_code(), ResponseCode::SERVFAIL);
        first.cancel();
        second.cancel();
        is(0).await;
        let third = task::spawn(ask());
        is(1).await;
        third.cancel();
    });
    assert!(metrics.counts().overloaded >= 2);
    server.drain(Duration::ZERO);
}

#[test]
fn networks_without_access_have_no_connection_over_http_either() {
    let access = Admission { deny: vec!["127.0.0.0/8".parse().expect("a network")], ..Admission::default() };
    let zone = zone();
    let server = DnsServer::bind("127.0.0.1:0").expect("an address").access(access);
    let (server, uri) = start(Backend::Epoll, server, move |_| zone.clone());
    on_a_loop(async move {
        let request = Client::new().post(&uri).header("Content-Type", MESSAGE).body(query("www.tides.example"));
        assert!(request.send().await.is_err());
    });
    server.drain(Duration::ZERO);
}

/// The certificate of a server, and the configuration of clients that trust it.
fn tls() -> (ServerConfig, ClientConfig) {
    let provider = Provider::ring();
    let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).expect("a certificate");
    let key = made.signing_key.serialize_pem();
    let certificates = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), key.as_bytes());
    let server = ServerConfig::builder(&provider, certificates.expect("a certificate")).build();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let client = ClientConfig::builder(&provider, roots).and_then(ClientBuilder::build);
    (server.expect("a configuration"), client.expect("a configuration"))
}

/// Knows one address.
struct Fixed(Address);

impl Resolve for Fixed {
    fn resolve(&self, _: &str, _: u16) -> Resolving {
        let address = self.0.ip().expect("an IP address");
        Box::pin(async move { Ok(vec![address]) })
    }
}

fn resolver(server: NameServer) -> StubResolver {
    let config = ResolverConfig { lookup_timeout: Duration::from_secs(60), ..ResolverConfig::default() };
    StubResolver::new(vec![server], config, SharedCache::new(CacheConfig::default()))
}

#[test]
fn a_resolver_asks_over_https_and_one_listener_speaks_dot() {
    let (server_tls, client_tls) = tls();
    let (zone, metrics) = (zone(), ServerMetrics::new());
    let server = DnsServer::bind("127.0.0.1:0").expect("an address").loops(1).metrics(&metrics);
    let handlers: LoopHandlers<_> = server.handlers(move |_| zone.clone());
    let listener = || Listener::bind("127.0.0.1:0").expect("an address");
    let dot = server_tls.clone().with_alpn(["dot"]);
    let over_tls = handlers.serve(listener(), move || Over::new(dot.accept(), ServerCodec::default()));
    let of_https = handlers.clone();
    let over_https = http::Config::new().tls(server_tls).serve(listener(), move || dns_router(&of_https));
    let server = server.listener(over_tls).listener(over_https).start_with(&handlers).expect("it starts");
    let address = |number: usize| server.listeners()[number].addresses()[0].clone();
    let (tls_address, https_address) = (address(1), address(2));
    on_a_loop(async move {
        let expected: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let port = https_address.ip().expect("an IP address").port();
        let tls = client_tls.clone();
        let server = name_server(format!("https://dns.example:{port}{DNS_PATH}"), move || {
            let limits = ClientLimits::default();
            Client::builder().tls(tls.clone()).resolver(Fixed(https_address.clone())).limits(limits).build()
        });
        let of_https = resolver(server);
        assert_eq!(of_https.addresses("www.tides.example").await.expect("an answer"), expected);
        assert_eq!(of_https.counts().datagrams, 0);
        assert!(of_https.counts().stream_queries >= 2);
        // Several at once share the connection.
        let names: Vec<_> = (0..50).map(|number| format!("n{number}.tides.example")).collect();
        let lookups: Vec<_> = names
            .into_iter()
            .map(|name| {
                let resolver = of_https.clone();
                task::spawn(async move { resolver.lookup(&name.parse().expect("a name"), RecordType::A).await })
            })
            .collect();
        for lookup in lookups {
            let answer = lookup.await.expect("no panic").expect("an answer");
            assert_eq!(answer.response_code, ResponseCode::NXDOMAIN);
        }
        for (alpn, is_accepted) in [("dot", true), ("h2", false)] {
            let tls = client_tls.with_alpn([alpn]).expect("a configuration");
            let make = move || Ok(Over::new(tls.connect("dns.example")?, ClientCodec::default()));
            let of_tls = resolver(NameServer::over(tidegate_engine::Client::at(tls_address.clone()), make));
            let found = of_tls.addresses("www.tides.example").await;
            assert_eq!(found.is_ok(), is_accepted, "{alpn}: {found:?}");
        }
    });
    let counts = metrics.counts();
    // A query that was slow is sent twice.
    assert!(counts.https_queries >= 52 && counts.stream_queries >= 2 && counts.datagram_queries == 0, "{counts:?}");
    server.drain(Duration::ZERO);
}

#[test]
fn a_server_that_answers_requests_with_errors_is_a_failure_at_once() {
    let server = http::serve("127.0.0.1:0", || StatusCode::SERVICE_UNAVAILABLE).expect("it starts");
    let uri = format!("http://{}/", server.address());
    on_a_loop(async move {
        let of_https = resolver(name_server(uri, Client::new));
        assert_eq!(of_https.addresses("www.tides.example").await, Err(LookupError::Failed));
    });
    server.drain(Duration::ZERO);
}

/// The response to a query, without records.
fn empty_answer(query: &[u8]) -> Vec<u8> {
    let view = MessageView::parse(query).expect("a message");
    let question = view.question().expect("it has one").to_question();
    let writer = MessageWriter::new(view.header().response(ResponseCode::NOERROR)).question(&question);
    writer.expect("it fits").finish().into_bytes().to_vec()
}

#[test]
fn a_request_that_fails_is_a_failure_of_its_query_alone() {
    let failures = Arc::new(AtomicUsize::new(0));
    let server = http::Server::bind("127.0.0.1:0").expect("an address").loops(1).start(move || {
        let failures = failures.clone();
        let answer = move |query: Bytes| {
            let failures = failures.clone();
            async move {
                let answer = empty_answer(&query);
                let response = Response::new().content_type(ContentType::from_static(MESSAGE));
                if query.windows(3).any(|bytes| bytes == b"bad") {
                    failures.fetch_add(1, Ordering::SeqCst);
                    return StatusCode::TOO_MANY_REQUESTS.into_response();
                }
                // Both rounds of the other lookup fail while this one waits.
                while failures.load(Ordering::SeqCst) < 2 {
                    task::sleep(Duration::from_millis(1)).await;
                }
                response.body(answer)
            }
        };
        Router::new().post("/", answer)
    });
    let server = server.expect("it starts");
    let uri = format!("http://{}/", server.address());
    on_a_loop(async move {
        let resolver = resolver(name_server(uri, Client::new));
        let begin = |name: &'static str| {
            let resolver = resolver.clone();
            task::spawn(async move { resolver.lookup(&name.parse().expect("a name"), RecordType::A).await })
        };
        let good: Vec<_> = ["a.example", "b.example", "c.example"].map(begin).into();
        let bad = begin("bad.example");
        assert_eq!(bad.await.expect("no panic"), Err(LookupError::Failed));
        for lookup in good {
            let answer = lookup.await.expect("no panic").expect("an answer");
            assert_eq!(answer.response_code, ResponseCode::NOERROR);
        }
        assert!(resolver.lookup(&"d.example".parse().expect("a name"), RecordType::A).await.is_ok());
    });
    server.drain(Duration::ZERO);
}

#[test]
fn an_answer_of_another_media_type_or_from_another_place_is_none() {
    let server = http::Server::bind("127.0.0.1:0").expect("an address").loops(1).start(|| {
        let text = |query: Bytes| async move { Response::new().body(empty_answer(&query)) };
        let typed = |query: Bytes| async move {
            Response::new().content_type(ContentType::from_static(MESSAGE)).body(empty_answer(&query))
        };
        let away =
            || async { StatusCode::TEMPORARY_REDIRECT.into_response().header("Location", "/typed").expect("a field") };
        Router::new().post("/text", text).post("/typed", typed).post("/away", away)
    });
    let server = server.expect("it starts");
    for (path, is_answer) in [("typed", true), ("text", false), ("away", false)] {
        let uri = format!("http://{}/{path}", server.address());
        on_a_loop(async move {
            let resolver = resolver(name_server(uri, Client::new));
            let answer = resolver.lookup(&"a.example".parse().expect("a name"), RecordType::A).await;
            assert_eq!(answer.is_ok(), is_answer, "{path}: {answer:?}");
        });
    }
    server.drain(Duration::ZERO);
}

#[test]
fn a_server_that_answers_with_no_message_or_another_query_is_asked_as_often_as_one_that_fails() {
    // A part of a message, another ID, no response, another question.
    let faults: [fn(&mut Vec<u8>); 4] =
        [|answer| answer.truncate(13), |answer| answer[0] ^= 1, |answer| answer[2] ^= 0x80, |answer| answer[13] ^= 1];
    for (number, fault) in faults.into_iter().enumerate() {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let server = http::Server::bind("127.0.0.1:0").expect("an address").loops(1).start(move || {
            let requests = counted.clone();
            let answer = move |query: Bytes| {
                requests.fetch_add(1, Ordering::SeqCst);
                let mut answer = empty_answer(&query);
                fault(&mut answer);
                async move { Response::new().content_type(ContentType::from_static(MESSAGE)).body(answer) }
            };
            Router::new().post("/", answer)
        });
        let server = server.expect("it starts");
        let uri = format!("http://{}/", server.address());
        on_a_loop(async move {
            let resolver = resolver(name_server(uri, Client::new));
            let answer = resolver.lookup(&"a.example".parse().expect("a name"), RecordType::A).await;
            assert_eq!(answer, Err(LookupError::Failed));
        });
        server.drain(Duration::ZERO);
        assert_eq!(requests.load(Ordering::SeqCst), 2, "two rounds; fault {number}");
    }
}
