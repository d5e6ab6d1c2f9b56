//! Names of upstreams, on a simulated network: the test decides a resolver's answers and their times.

use std::cell::Cell;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::engine::{ResolvedServer, ResolvedServers, ResolvingServers};
use tidegate::http::client::{ClientLimits, Resolve, Resolving};
use tidegate::http::proxy::{HealthCheck, Proxy, Upstreams, UpstreamsBuilder, UpstreamsError};
use tidegate::http::{Client, Config, Router};
use tidegate::{Address, Limits, task};
use tidegate_testkit::network::{Network, SimNode};

/// The answer of a test's resolver.
#[derive(Debug, Clone)]
enum Answer {
    Never,
    Error,
    Addresses(Vec<IpAddr>),
    /// With their time.
    Servers(Vec<ResolvedServer>, Duration),
    /// The same, after a part of the lookup has failed.
    Partial(Vec<ResolvedServer>, Duration),
}

/// Answers by the host, after a while.
#[derive(Debug, Clone, Default)]
struct Names {
    answers: Arc<Mutex<Vec<(String, Answer)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Names {
    fn set(&self, host: &str, answer: Answer) {
        let mut answers = self.answers.lock().unwrap();
        answers.retain(|(other, _)| other != host);
        answers.push((host.to_owned(), answer));
    }

    fn asked(&self, host: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == host).count()
    }
}

impl Resolve for Names {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        self.asked.lock().unwrap().push(host.to_owned());
        let answers = self.answers.lock().unwrap();
        let answer = answers.iter().find(|(known, _)| known == host).map(|(_, answer)| answer.clone());
        Box::pin(async move {
            task::sleep(Duration::from_millis(20)).await;
            match answer.expect("the host is known") {
                Answer::Never => pending().await,
                Answer::Error => Err(io::ErrorKind::NotFound.into()),
                Answer::Addresses(ips) => Ok(ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()),
                Answer::Servers(..) | Answer::Partial(..) => panic!("it is looked up with its time"),
            }
        })
    }

    fn resolve_servers(&self, host: &str, port: u16) -> ResolvingServers {
        let answer =
            self.answers.lock().unwrap().iter().find(|(known, _)| known == host).map(|(_, answer)| answer.clone());
        let is_partial = matches!(answer, Some(Answer::Partial(..)));
        let Some(Answer::Servers(servers, ttl) | Answer::Partial(servers, ttl)) = answer else {
            let resolving = self.resolve(host, port);
            return Box::pin(async move {
                let servers = resolving.await?.into_iter().map(ResolvedServer::from).collect();
                Ok(ResolvedServers { servers, ..ResolvedServers::default() })
            });
        };
        self.asked.lock().unwrap().push(host.to_owned());
        Box::pin(async move {
            task::sleep(Duration::from_millis(20)).await;
            Ok(ResolvedServers { servers, ttl: Some(ttl), is_partial })
        })
    }

    fn resolve_service(&self, service: &str) -> ResolvingServers {
        self.resolve_servers(service, 0)
    }
}

/// A server of a service.
fn server(address: &str, priority: u16, weight: u16) -> ResolvedServer {
    ResolvedServer { address: address.parse().expect("an address"), priority, weight }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// An upstream, and how many requests it has got.
fn upstream(network: &Network, host: &str) -> (SimNode, Rc<Cell<u32>>) {
    let node = network.host(host).node();
    let requests = Rc::new(Cell::new(0));
    let noted = requests.clone();
    let router = Router::new().fallback(move || {
        noted.set(noted.get() + 1);
        "a response"
    });
    let connections = Config::new().connections(router);
    node.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    (node, requests)
}

/// A proxy of these upstreams, which it maintains.
fn gateway(network: &Network, upstreams: &Upstreams) -> (SimNode, Address) {
    let node = network.host("10.0.0.1").node();
    let connections = Config::new().connections(Router::new().fallback(Proxy::new(upstreams)));
    let address = node.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    drop(node.spawn(upstreams.maintain()));
    (node, address)
}

fn set_of(urls: &[&str], names: &Names) -> UpstreamsBuilder {
    let builder = Upstreams::builder().resolver(names.clone()).resolve_interval(Duration::from_secs(10));
    urls.iter().fold(builder, |builder, url| builder.server(url.parse().expect("a URL")))
}

/// The status of the response to a GET.
fn ask(network: &Network, client: &SimNode, proxy: &Address) -> u16 {
    let url = format!("http://{proxy}/");
    let asking = client.spawn(async move {
        let client = Client::builder().limits(ClientLimits::default()).build();
        client.get(&url).send().await.map(|response| response.status().as_u16())
    });
    network.run_task(Duration::from_secs(60), asking).expect("a response")
}

#[test]
fn a_name_that_is_never_resolved_holds_up_neither_checks_nor_other_names() {
    let network = Network::new(1);
    let names = Names::default();
    names.set("slow.test", Answer::Never);
    names.set("good.test", Answer::Addresses(vec![ip("10.0.1.2")]));
    let (_first, checked) = upstream(&network, "10.0.1.1");
    let (_second, checked_by_name) = upstream(&network, "10.0.1.2");
    let mut check = HealthCheck::default();
    check.interval = Duration::from_secs(1);
    let urls = ["http://10.0.1.1", "http://slow.test", "http://good.test"];
    let upstreams = set_of(&urls, &names).health_check(check).build().expect("all is set");
    let (_gateway, _) = gateway(&network, &upstreams);
    network.run_for(Duration::from_secs(60));
    assert_eq!(upstreams.len(), 2);
    assert!(checked.get() >= 30, "{} checks in a minute", checked.get());
    assert!(checked_by_name.get() >= 30, "{} checks in a minute", checked_by_name.get());
    assert!(names.asked("good.test") >= 4, "{} lookups in a minute", names.asked("good.test"));
    assert_eq!(names.asked("slow.test"), 1, "a name has one lookup at a time");
}

#[test]
fn upstreams_with_the_longest_intervals_are_resolved_and_checked_once() {
    let network = Network::new(1);
    let names = Names::default();
    names.set("app.test", Answer::Addresses(vec![ip("10.0.1.2")]));
    let (_upstream, requests) = upstream(&network, "10.0.1.2");
    let mut check = HealthCheck::default();
    check.interval = Duration::MAX;
    let upstreams = set_of(&["http://app.test", "http://10.0.1.2"], &names).resolve_interval(Duration::MAX);
    let upstreams = upstreams.health_check(check).build().expect("all is set");
    let (_gateway, proxy) = gateway(&network, &upstreams);
    network.run_for(Duration::from_secs(60));
    assert_eq!((upstreams.len(), requests.get()), (2, 1), "a server with a name has no address yet as checks begin");
    assert_eq!(names.asked("app.test"), 1);
    let client = network.host("10.0.0.2").node();
    assert_eq!(ask(&network, &client, &proxy), 200);
}

#[test]
fn of_a_thousand_addresses_some_are_used() {
    let network = Network::new(2);
    let names = Names::default();
    let thousand = (0..1_000_u32).map(|number| IpAddr::from([10, 1, (number >> 8) as u8, number as u8]));
    names.set("many.test", Answer::Addresses(thousand.chain([ip("10.0.1.1")]).collect()));
    let (_upstream, requests) = upstream(&network, "10.0.1.1");
    let upstreams = set_of(&["http://many.test"], &names).build().expect("all is set");
    let (_gateway, proxy) = gateway(&network, &upstreams);
    network.run_for(Duration::from_secs(60));
    assert_eq!(upstreams.len(), 64);
    assert!(names.asked("many.test") >= 4);
    let client = network.host("10.0.0.2").node();
    // Most of the addresses refuse, and the others are tried until the retries are used up.
    let statuses = (0..100).map(|_| ask(&network, &client, &proxy)).collect::<Vec<_>>();
    assert!(statuses.iter().all(|status| matches!(status, 200 | 502)), "{statuses:?}");
    assert!(statuses.contains(&200) && requests.get() > 0, "{statuses:?}");
}

#[test]
fn a_name_without_an_address_gets_one_later() {
    let network = Network::new(3);
    let names = Names::default();
    names.set("new.test", Answer::Addresses(Vec::new()));
    let (_upstream, requests) = upstream(&network, "10.0.1.1");
    let upstreams = set_of(&["http://new.test"], &names).build().expect("all is set");
    let (_gateway, proxy) = gateway(&network, &upstreams);
    let client = network.host("10.0.0.2").node();
    network.run_for(Duration::from_secs(1));
    assert_eq!(ask(&network, &client, &proxy), 503);
    names.set("new.test", Answer::Addresses(vec![ip("10.0.1.1")]));
    network.run_for(Duration::from_secs(11));
    assert_eq!(ask(&network, &client, &proxy), 200);
    // An error leaves the address as it is, and the absence of addresses removes it.
    names.set("new.test", Answer::Error);
    network.run_for(Duration::from_secs(30));
    assert_eq!((ask(&network, &client, &proxy), requests.get()), (200, 2));
    names.set("new.test", Answer::Addresses(Vec::new()));
    network.run_for(Duration::from_secs(11));
    assert_eq!(ask(&network, &client, &proxy), 503);
}

#[test]
fn a_name_that_leads_back_to_the_proxy_is_a_loop() {
    let network = Network::new(4);
    let names = Names::default();
    names.set("self.test", Answer::Addresses(vec![ip("10.0.0.1")]));
    let upstreams = set_of(&["http://self.test"], &names).build().expect("all is set");
    let (gateway, proxy) = gateway(&network, &upstreams);
    let client = network.host("10.0.0.2").node();
    network.run_for(Duration::from_secs(1));
    assert_eq!(ask(&network, &client, &proxy), 508);
    assert_eq!(gateway.counts().accepted, 2, "the request comes back once");
}

#[test]
fn upkeep_ends_with_its_set_while_a_name_is_not_resolved() {
    let network = Network::new(5);
    let names = Names::default();
    names.set("slow.test", Answer::Never);
    let upstreams = set_of(&["http://slow.test"], &names).build().expect("all is set");
    let node = network.host("10.0.0.1").node();
    let upkeep = node.spawn(upstreams.maintain());
    network.run_for(Duration::from_secs(5));
    assert_eq!(names.asked("slow.test"), 1);
    drop(upstreams);
    network.run_task(Duration::from_secs(2), upkeep);
}

#[test]
fn a_name_in_two_spellings_leaves_an_address_that_it_has_no_more() {
    let network = Network::new(7);
    let names = Names::default();
    names.set("a.test", Answer::Addresses(vec![ip("10.0.1.1")]));
    let (_old, old) = upstream(&network, "10.0.1.1");
    let (_new, new) = upstream(&network, "10.0.1.2");
    let upstreams = set_of(&["http://a.test", "http://a.test:80"], &names).build().expect("all is set");
    let (_gateway, proxy) = gateway(&network, &upstreams);
    let client = network.host("10.0.0.9").node();
    network.run_for(Duration::from_secs(1));
    assert_eq!((ask(&network, &client, &proxy), old.get()), (200, 1));
    names.set("a.test", Answer::Addresses(vec![ip("10.0.1.2")]));
    network.run_for(Duration::from_secs(30));
    for _ in 0..4 {
        assert_eq!(ask(&network, &client, &proxy), 200);
    }
    assert_eq!((upstreams.len(), old.get(), new.get()), (1, 1, 4));
}

#[test]
fn resolving_waits_for_all_names() {
    let network = Network::new(6);
    let names = Names::default();
    let hosts = (0..20).map(|number| format!("a{number}.test")).collect::<Vec<_>>();
    for (number, host) in hosts.iter().enumerate() {
        names.set(host, Answer::Addresses(vec![IpAddr::from([10, 0, 2, number as u8])]));
    }
    let urls = hosts.iter().map(|host| format!("http://{host}")).collect::<Vec<_>>();
    let upstreams = set_of(&urls.iter().map(String::as_str).collect::<Vec<_>>(), &names).build().expect("all is set");
    assert!(upstreams.is_empty(), "the resolver is asked on a loop");
    let node = network.host("10.0.0.1").node();
    let resolving = node.spawn({
        let upstreams = upstreams.clone();
        async move { upstreams.resolve().await }
    });
    network.run_task(Duration::from_secs(2), resolving);
    assert_eq!(upstreams.len(), 20);
}

#[test]
fn an_address_that_refuses_connections_has_its_name_resolved_again() {
    let network = Network::new(1);
    let names = Names::default();
    names.set("app.test", Answer::Addresses(vec![ip("10.0.1.1")]));
    let (old, _) = upstream(&network, "10.0.1.1");
    let upstreams = set_of(&["http://app.test"], &names).resolve_interval(Duration::from_secs(3_600));
    let upstreams = upstreams.build().expect("all is set");
    let (_gateway, proxy) = gateway(&network, &upstreams);
    network.run_for(Duration::from_secs(5));
    let client = network.host("10.0.0.2").node();
    assert_eq!(ask(&network, &client, &proxy), 200);
    assert_eq!(names.asked("app.test"), 1);
    // It moves.
    names.set("app.test", Answer::Addresses(vec![ip("10.0.1.2")]));
    let (new, _) = upstream(&network, "10.0.1.2");
    old.drain(Duration::ZERO);
    network.run_for(Duration::from_secs(5));
    assert_eq!(names.asked("app.test"), 1, "nothing has shown it");
    let began = network.elapsed();
    while ask(&network, &client, &proxy) != 200 {
        assert!(network.elapsed() - began < Duration::from_secs(2), "it is found again");
        network.run_for(Duration::from_millis(50));
    }
    // One that stays away is looked up once a second at most.
    new.drain(Duration::ZERO);
    network.run_for(Duration::from_secs(1));
    let (asked, began) = (names.asked("app.test"), network.elapsed());
    while network.elapsed() - began < Duration::from_secs(10) {
        assert_ne!(ask(&network, &client, &proxy), 200);
        network.run_for(Duration::from_millis(50));
    }
    let asked = names.asked("app.test") - asked;
    assert!((5..=11).contains(&asked), "{asked} times in 10 seconds");
}

#[test]
fn a_name_is_resolved_again_when_its_time_is_over_within_bounds() {
    // The time of the answer, and how often it is asked for within a minute.
    for (ttl, least, most) in [(0, 30, 61), (3, 16, 21), (3_600, 5, 8)] {
        let network = Network::new(ttl);
        let names = Names::default();
        names.set("app.test", Answer::Servers(vec![server("10.0.1.1:80", 0, 1)], Duration::from_secs(ttl)));
        let upstreams = set_of(&["http://app.test"], &names).build().expect("all is set");
        let (_gateway, _) = gateway(&network, &upstreams);
        network.run_for(Duration::from_secs(60));
        let asked = names.asked("app.test");
        assert!((least..=most).contains(&asked), "{asked} times in a minute, with {ttl} s");
    }
}

#[test]
fn an_upstream_that_moves_gets_requests_at_its_other_address_and_the_old_one_ends_its_own() {
    let network = Network::new(8);
    let names = Names::default();
    let at = |address: &str| Answer::Servers(vec![server(address, 0, 1)], Duration::from_secs(2));
    names.set("app.test", at("10.0.1.1:80"));
    let slow = network.host("10.0.1.1").node();
    let router = Router::new().fallback(async || {
        task::sleep(Duration::from_secs(20)).await;
        "late"
    });
    let connections = Config::new().connections(router);
    slow.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let (_new, requests) = upstream(&network, "10.0.1.2");
    let upstreams = set_of(&["http://app.test"], &names).build().expect("all is set");
    let (_gateway, proxy) = gateway(&network, &upstreams);
    network.run_for(Duration::from_secs(1));
    let client = network.host("10.0.0.2").node();
    let url = format!("http://{proxy}/");
    let late = client.spawn(async move {
        let response = Client::new().get(&url).send().await?;
        response.text().await
    });
    network.run_for(Duration::from_secs(1));
    names.set("app.test", at("10.0.1.2:80"));
    network.run_for(Duration::from_secs(4));
    assert_eq!((ask(&network, &client, &proxy), requests.get()), (200, 1));
    // A failed lookup leaves it there.
    names.set("app.test", Answer::Error);
    network.run_for(Duration::from_secs(60));
    assert_eq!((ask(&network, &client, &proxy), requests.get()), (200, 2));
    assert_eq!(network.run_task(Duration::from_secs(60), late).expect("a response"), "late");
}

#[test]
fn a_service_has_ports_and_weights_and_a_priority_serves_while_it_is_available() {
    let network = Network::new(9);
    let names = Names::default();
    let hosts = ["10.0.1.1", "10.0.1.2", "10.0.1.3"];
    let mut nodes: Vec<_> = hosts.iter().map(|host| upstream(&network, host)).collect();
    let records = || vec![server("10.0.1.3:80", 20, 1), server("10.0.1.1:80", 10, 300), server("10.0.1.2:80", 10, 100)];
    names.set("_http._tcp.app.test", Answer::Servers(records(), Duration::from_secs(5)));
    let upstreams = set_of(&["srv://_http._tcp.app.test"], &names).build().expect("all is set");
    let (_gateway, proxy) = gateway(&network, &upstreams);
    let client = network.host("10.0.0.2").node();
    network.run_for(Duration::from_secs(1));
    (0..40).for_each(|_| assert_eq!(ask(&network, &client, &proxy), 200));
    let requests =
        |nodes: &[(SimNode, Rc<Cell<u32>>)]| nodes.iter().map(|(_, requests)| requests.get()).collect::<Vec<_>>();
    assert_eq!(requests(&nodes), [30, 10, 0]);
    // Those of the first priority leave.
    for (node, _) in &nodes[..2] {
        node.drain(Duration::ZERO);
    }
    network.run_for(Duration::from_secs(1));
    let statuses: Vec<u16> = (0..20).map(|_| ask(&network, &client, &proxy)).collect();
    assert!(requests(&nodes)[2] >= 10, "{:?} {statuses:?}", requests(&nodes));
    // Weights change, with the same servers.
    let before = requests(&nodes)[2];
    names.set("_http._tcp.app.test", Answer::Servers(vec![server("10.0.1.3:80", 0, 65_535)], Duration::from_secs(5)));
    network.run_for(Duration::from_secs(6));
    assert_eq!((upstreams.len(), ask(&network, &client, &proxy)), (1, 200));
    assert_eq!(requests(&nodes)[2], before + 1);
    nodes.clear();
}

#[test]
fn a_plain_server_beside_a_service_gets_requests_whatever_the_priorities_of_the_service() {
    let network = Network::new(11);
    let names = Names::default();
    let nodes: Vec<_> = ["10.0.1.1", "10.0.1.2", "10.0.1.3"].iter().map(|host| upstream(&network, host)).collect();
    let records = vec![server("10.0.1.1:80", 10, 1), server("10.0.1.2:80", 20, 1)];
    names.set("_http._tcp.app.test", Answer::Servers(records, Duration::from_secs(5)));
    let set = set_of(&["srv://_http._tcp.app.test", "http://10.0.1.3"], &names).build().expect("all is set");
    let (_gateway, proxy) = gateway(&network, &set);
    let client = network.host("10.0.0.2").node();
    network.run_for(Duration::from_secs(1));
    (0..20).for_each(|_| assert_eq!(ask(&network, &client, &proxy), 200));
    let requests: Vec<u32> = nodes.iter().map(|(_, requests)| requests.get()).collect();
    assert_eq!(requests, [10, 0, 10]);
}

#[test]
fn the_part_of_a_lookup_that_failed_keeps_its_servers() {
    let network = Network::new(12);
    let names = Names::default();
    let ttl = Duration::from_secs(2);
    names.set("app.test", Answer::Servers(vec![server("[2001:db8::1]:80", 0, 1), server("10.0.1.1:80", 0, 1)], ttl));
    names.set("_s._tcp.app.test", Answer::Servers(vec![server("10.0.2.1:80", 0, 1), server("10.0.2.2:80", 0, 1)], ttl));
    let upstreams = set_of(&["http://app.test", "srv://_s._tcp.app.test"], &names).build().expect("all is set");
    let (_gateway, _) = gateway(&network, &upstreams);
    network.run_for(Duration::from_secs(1));
    assert_eq!(upstreams.len(), 4);
    // The address of the family that was answered is another one; one target of the service is unknown.
    names.set("app.test", Answer::Partial(vec![server("10.0.1.9:80", 0, 1)], ttl));
    names.set("_s._tcp.app.test", Answer::Partial(vec![server("10.0.2.1:80", 0, 1)], ttl));
    network.run_for(Duration::from_secs(10));
    assert_eq!(upstreams.len(), 4);
    names.set("app.test", Answer::Servers(vec![server("10.0.1.9:80", 0, 1)], ttl));
    names.set("_s._tcp.app.test", Answer::Servers(vec![server("10.0.2.1:80", 0, 1)], ttl));
    network.run_for(Duration::from_secs(10));
    assert_eq!(upstreams.len(), 2);
}

#[test]
fn a_handle_changes_the_servers_while_requests_go_on() {
    let network = Network::new(10);
    let names = Names::default();
    names.set("app.test", Answer::Addresses(vec![ip("10.0.1.3")]));
    let slow = network.host("10.0.1.1").node();
    let router = Router::new().fallback(async || {
        task::sleep(Duration::from_secs(5)).await;
        "late"
    });
    let connections = Config::new().connections(router);
    slow.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let (_second, second) = upstream(&network, "10.0.1.2");
    let (_third, third) = upstream(&network, "10.0.1.3");
    let upstreams = set_of(&["http://10.0.1.1"], &names).build().expect("all is set");
    let handle = upstreams.handle();
    let (_gateway, proxy) = gateway(&network, &upstreams);
    let client = network.host("10.0.0.2").node();
    let url = format!("http://{proxy}/");
    let late = client.spawn(async move { Client::new().get(&url).send().await?.text().await });
    network.run_for(Duration::from_secs(1));
    let parse = |url: &str| url.parse::<tidegate::http::proxy::UpstreamUrl>().expect("a URL");
    handle.add(parse("http://10.0.1.2"), 1).expect("it may");
    assert!(handle.remove(&parse("http://10.0.1.1:80")));
    assert!(!handle.remove(&parse("http://10.0.1.1:80")), "it has left");
    assert_eq!((upstreams.len(), ask(&network, &client, &proxy), second.get()), (1, 200, 1));
    assert_eq!(network.run_task(Duration::from_secs(60), late).expect("a response"), "late");
    // A name has an address within a second.
    handle.set([(parse("http://app.test"), 1)]).expect("it may");
    network.run_for(Duration::from_secs(1));
    assert_eq!((upstreams.len(), ask(&network, &client, &proxy), third.get()), (1, 200, 1));
    // The same URL with another weight is one server.
    handle.add(parse("http://app.test:80"), 7).expect("it may");
    assert_eq!(handle.servers(), [(parse("http://app.test"), 7)]);
    handle.set([]).expect("it may");
    assert_eq!(ask(&network, &client, &proxy), 503);
}

#[test]
fn a_handle_refuses_servers_that_a_set_may_not_have_and_changes_nothing() {
    let parse = |url: &str| url.parse::<tidegate::http::proxy::UpstreamUrl>().expect("a URL");
    let upstreams = Upstreams::new(["http://10.0.0.1"]).expect("all is set");
    let handle = upstreams.handle();
    for (url, weight, error) in [
        ("http://10.0.0.2", 0, UpstreamsError::Weight),
        ("http://10.0.0.2", 1_001, UpstreamsError::Weight),
        ("https://10.0.0.2", 1, UpstreamsError::NoTls),
        ("srv://_http._tcp.app.test", 1, UpstreamsError::Service),
    ] {
        assert_eq!(handle.add(parse(url), weight), Err(error.clone()), "{url}");
        assert_eq!(handle.set([(parse("http://10.0.0.3"), 1), (parse(url), weight)]), Err(error), "{url}");
    }
    let many = (0..5_000_u32).map(|number| {
        let [_, _, high, low] = number.to_be_bytes();
        (parse(&format!("http://10.1.{high}.{low}")), 1)
    });
    assert_eq!(handle.set(many), Err(UpstreamsError::TooMany));
    assert_eq!(handle.servers(), [(parse("http://10.0.0.1"), 1)]);
    let service = Upstreams::new(["srv://_http._tcp.app.test"]).expect_err("the system has no SRV records");
    assert!(service.to_string().contains("tidegate::dns"), "{service}");
}
