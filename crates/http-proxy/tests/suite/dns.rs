//! A gateway whose upstreams are a service of our own DNS server, which moves.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::dns::server::{DnsServer, Responder, Response};
use tidegate::dns::{HostResolver, Name, NameServer, Question, Rdata, Record, RecordType, ResponseCode};
use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Client, Router, Server};
use tidegate::{Backend, EventLoop, ServerHandle};

/// One service, at a port that changes, for a second.
#[derive(Debug, Clone)]
struct MovingService {
    port: Arc<AtomicU16>,
    /// Every query from then on fails.
    fails: Arc<AtomicBool>,
    failures: Arc<AtomicUsize>,
}

impl Responder for MovingService {
    fn answer(&self, question: &Question) -> Response {
        if self.fails.load(Ordering::SeqCst) {
            self.failures.fetch_add(1, Ordering::SeqCst);
            return Response::of_code(ResponseCode::SERVFAIL);
        }
        let host: Name = "host.app.example".parse().expect("a name");
        let mut response = Response::of_code(ResponseCode::NOERROR);
        let data = match question.record_type {
            RecordType::SRV => Some(Rdata::srv(0, 1, self.port.load(Ordering::SeqCst), &host)),
            RecordType::A => Some(Rdata::a(Ipv4Addr::LOCALHOST)),
            _ => None,
        };
        response.answers.extend(data.map(|data| Record::new(question.name.clone(), 1, data)));
        response
    }
}

fn service(name: &'static str) -> ServerHandle {
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1);
    server.start(move || Router::new().fallback(move || name)).expect("it starts")
}

fn port(server: &ServerHandle) -> u16 {
    server.address().ip().expect("an IP address").port()
}

/// Asks until the response has this text.
fn until(gateway: &ServerHandle, text: &str) {
    let (url, end) = (format!("http://{}/", gateway.address()), Instant::now() + Duration::from_secs(120));
    loop {
        let url = url.clone();
        let asking = async move { Client::new().get(&url).send().await?.text().await };
        let response = EventLoop::on(Backend::Epoll).expect("a loop").block_on(asking).expect("it runs");
        if response.as_deref().is_ok_and(|response| response == text) {
            return;
        }
        assert!(Instant::now() < end, "{response:?} in the place of {text}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_upstream_follows_its_service_and_stays_where_it_was_without_a_server() {
    let (first, second) = (service("first"), service("second"));
    let at = Arc::new(AtomicU16::new(port(&first)));
    let (fails, failures) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let moving = MovingService { port: at.clone(), fails: fails.clone(), failures: failures.clone() };
    let dns = DnsServer::bind("127.0.0.1:0").expect("an address").loops(1);
    let dns = dns.start(move |_| moving.clone()).expect("it starts");
    let upstream = NameServer::at(dns.address().ip().expect("an IP address"));
    let resolver = HostResolver::of_files("/nonexistent/resolv.conf", "/nonexistent/hosts").servers(vec![upstream]);
    let upstreams = Upstreams::builder().server("srv://_http._tcp.app.example".parse().expect("a URL"));
    let upstreams = upstreams.resolver(resolver).build().expect("all is set");
    let _upkeep = upstreams.maintain_on_thread().expect("a thread");
    let of_proxy = upstreams.clone();
    let gateway = Server::bind("127.0.0.1:0").expect("an address").loops(1);
    let gateway = gateway.start(move || Router::new().fallback(Proxy::new(&of_proxy))).expect("it starts");
    until(&gateway, "first");
    at.store(port(&second), Ordering::SeqCst);
    until(&gateway, "second");
    assert_eq!(upstreams.len(), 1);
    // No lookup succeeds any more: the time of the last answer is over when one has failed, in both of its rounds.
    fails.store(true, Ordering::SeqCst);
    let end = Instant::now() + Duration::from_secs(120);
    while failures.load(Ordering::SeqCst) < 2 {
        assert!(Instant::now() < end, "there is no further lookup");
        thread::sleep(Duration::from_millis(5));
    }
    until(&gateway, "second");
    assert_eq!(upstreams.len(), 1);
    dns.drain(Duration::ZERO);
}
