//! A proxy whose upstreams refuse connections, end, or have no room, on a simulated network: its clients see a failure only
//! where no upstream could have answered. The deadlines of pipelined requests are here as well: time is virtual.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tidegate::framing::Raw;
use tidegate::http::proxy::{Proxy, UpstreamLimits, Upstreams, UpstreamsBuilder};
use tidegate::http::{Client, Config, Method, Router};
use tidegate::metrics::{Format, MetricsText};
use tidegate::task::Task;
use tidegate::{Address, Channel, Limits, task};
use tidegate_testkit::network::{Network, SimNode};

const PATIENCE: Duration = Duration::from_secs(600);

/// An upstream that answers after a while; a request for `/never` has no response.
fn upstream(network: &Network, host: &str) -> SimNode {
    let node = network.host(host).node();
    let router = Router::new().route(&Method::GET, "/never", async || std::future::pending::<&str>().await).fallback(
        async || {
            task::sleep(Duration::from_millis(20)).await;
            "a response"
        },
    );
    let connections = Config::new().connections(router);
    node.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    node
}

fn set_of(urls: &[&str]) -> UpstreamsBuilder {
    urls.iter().fold(Upstreams::builder(), |builder, url| builder.server(url.parse().expect("a URL")))
}

fn gateway(network: &Network, upstreams: UpstreamsBuilder) -> (SimNode, Address) {
    gateway_of(network, &upstreams.build().expect("all is set"))
}

fn gateway_of(network: &Network, upstreams: &Upstreams) -> (SimNode, Address) {
    let node = network.host("10.0.0.1").node();
    let connections = Config::new().connections(Router::new().fallback(Proxy::new(upstreams)));
    let address = node.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    (node, address)
}

/// A request on a connection of its own; the status of its response.
fn ask(node: &SimNode, proxy: &Address, method: Method, path: &str) -> Task<u16> {
    let url = format!("http://{proxy}{path}");
    node.spawn(async move {
        let client = Client::new();
        client.request(method, &url).send().await.expect("a response").status().as_u16()
    })
}

fn statuses(network: &Network, asked: Vec<Task<u16>>) -> Vec<u16> {
    let mut statuses: Vec<_> = asked.into_iter().map(|task| network.run_task(PATIENCE, task)).collect();
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

#[test]
fn upstreams_that_refuse_connections_cost_no_request_whatever_its_method_is() {
    for scheme in ["http", "h2c"] {
        for dead in [1, 3] {
            let network = Network::new(dead);
            let _upstream = upstream(&network, "10.0.1.1");
            let urls: Vec<_> = (1..=dead + 1).map(|number| format!("{scheme}://10.0.1.{number}")).collect();
            // No other host listens.
            let _others: Vec<_> =
                (2..=dead + 1).map(|number| network.host(&format!("10.0.1.{number}")).node()).collect();
            let urls: Vec<_> = urls.iter().map(String::as_str).collect();
            let (_gateway, proxy) = gateway(&network, set_of(&urls));
            let client = network.host("10.0.0.2").node();
            let asked = (0..100).map(|_| ask(&client, &proxy, Method::POST, "/")).collect();
            assert_eq!(statuses(&network, asked), [200], "{scheme}, {dead} dead, at once");
            for number in 0..60 {
                let asked = ask(&client, &proxy, Method::POST, "/");
                assert_eq!(network.run_task(PATIENCE, asked), 200, "{scheme}, {dead} dead, {number}");
            }
        }
    }
}

#[test]
fn a_request_fails_if_no_upstream_can_be_connected_to() {
    let network = Network::new(1);
    let _hosts = ["10.0.1.1", "10.0.1.2"].map(|host| network.host(host).node());
    let upstreams = set_of(&["http://10.0.1.1", "http://10.0.1.2"]).build().expect("all is set");
    let (_gateway, proxy) = gateway_of(&network, &upstreams);
    let client = network.host("10.0.0.2").node();
    let asked = (0..30).map(|_| ask(&client, &proxy, Method::GET, "/")).collect();
    assert_eq!(statuses(&network, asked), [502]);
    let mut text = MetricsText::new(Format::Prometheus);
    Upstreams::write_metrics(&[("app", &upstreams)], &mut text);
    let text = text.finish();
    for number in 1..=2 {
        // Each request has tried both.
        let labels = format!("{{group=\"app\",upstream=\"http://10.0.1.{number}:80\",reason=\"connect\"}}");
        assert!(text.contains(&format!("tidegate_upstream_failures_total{labels} 30\n")), "{text}");
        let labels = format!("{{group=\"app\",upstream=\"http://10.0.1.{number}:80\"}}");
        assert!(text.contains(&format!("tidegate_upstream_requests{labels} 0\n")), "{text}");
    }
}

#[test]
fn an_upstream_that_dies_costs_no_request_that_may_be_sent_twice() {
    for (seed, scheme) in ["http", "h2c"].into_iter().enumerate() {
        let network = Network::new(seed as u64);
        let nodes = ["10.0.1.1", "10.0.1.2"].map(|host| upstream(&network, host));
        let urls = [format!("{scheme}://10.0.1.1"), format!("{scheme}://10.0.1.2")];
        let (_gateway, proxy) = gateway(&network, set_of(&[&urls[0], &urls[1]]));
        let client = network.host("10.0.0.2").node();
        let (failed, answered, is_over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let talks: Vec<_> = (0..64)
            .map(|_| {
                let (url, failed, answered) = (format!("http://{proxy}/"), failed.clone(), answered.clone());
                let is_over = is_over.clone();
                client.spawn(async move {
                    let client = Client::new();
                    while !is_over.get() {
                        let status = client.get(&url).send().await.expect("a response").status();
                        let count = if status == 200 { &answered } else { &failed };
                        count.set(count.get() + 1);
                    }
                })
            })
            .collect();
        network.run_for(Duration::from_secs(1));
        // Its connections are reset, with some 32 requests in progress.
        nodes[0].drain(Duration::ZERO);
        assert!(network.run_until(Duration::from_millis(10), || nodes[0].is_drained()), "{scheme}");
        let before = answered.get();
        network.run_for(Duration::from_secs(1));
        is_over.set(true);
        talks.into_iter().for_each(|talk| network.run_task(PATIENCE, talk));
        assert!(before > 1_000 && answered.get() > before + 1_000, "{scheme}");
        assert_eq!(failed.get(), 0, "{scheme}");
    }
}

#[test]
fn a_client_that_reads_nothing_leaves_room_for_others() {
    let network = Network::new(1);
    let _upstream = upstream(&network, "10.0.1.1");
    let mut limits = UpstreamLimits::default();
    (limits.requests_max, limits.requests_per_address_max) = (10, 4);
    let (_gateway, proxy) = gateway(&network, set_of(&["http://10.0.1.1"]).limits(limits));
    let (greedy, other) = (network.host("10.0.0.2").node(), network.host("10.0.0.3").node());
    let done = Rc::new(RefCell::new(Vec::new()));
    let asked: Vec<_> = (0..30)
        .map(|_| {
            let (asking, done) = (ask(&greedy, &proxy, Method::GET, "/never"), done.clone());
            greedy.spawn(async move {
                let status = asking.await.expect("it is not cancelled");
                done.borrow_mut().push(status);
            })
        })
        .collect();
    network.run_for(Duration::from_secs(1));
    for _ in 0..20 {
        assert_eq!(network.run_task(PATIENCE, ask(&other, &proxy, Method::GET, "/")), 200);
    }
    assert!(done.borrow().is_empty(), "all of them wait");
    // Four are in progress. The others wait for `queue_timeout`.
    network.run_for(Duration::from_secs(6));
    assert_eq!(*done.borrow(), [503; 26]);
    drop(asked);
}

#[test]
fn requests_wait_for_room_in_their_order() {
    let network = Network::new(1);
    let _upstream = upstream(&network, "10.0.1.1");
    let mut limits = UpstreamLimits::default();
    (limits.requests_max, limits.queued_requests_max) = (2, 40);
    let (_gateway, proxy) = gateway(&network, set_of(&["http://10.0.1.1"]).limits(limits));
    let client = network.host("10.0.0.2").node();
    let asked = (0..42).map(|_| ask(&client, &proxy, Method::POST, "/")).collect();
    assert_eq!(statuses(&network, asked), [200]);
    // One more than may wait.
    let asked: Vec<_> = (0..43).map(|_| ask(&client, &proxy, Method::POST, "/")).collect();
    let asked: Vec<_> = asked.into_iter().map(|task| network.run_task(PATIENCE, task)).collect();
    assert_eq!(asked.iter().filter(|status| **status == 503).count(), 1);
}

#[test]
fn requests_that_wait_for_room_go_to_a_server_that_is_added() {
    let network = Network::new(1);
    let _nodes = ["10.0.1.1", "10.0.1.2"].map(|host| upstream(&network, host));
    let mut limits = UpstreamLimits::default();
    limits.requests_max = 1;
    limits.queue_timeout = Duration::from_secs(500);
    let upstreams = set_of(&["http://10.0.1.1"]).limits(limits).build().expect("all is set");
    let handle = upstreams.handle();
    let (_gateway, proxy) = gateway_of(&network, &upstreams);
    let client = network.host("10.0.0.2").node();
    let _busy = ask(&client, &proxy, Method::GET, "/never");
    network.run_for(Duration::from_secs(1));
    let asked = (0..3).map(|_| ask(&client, &proxy, Method::GET, "/")).collect();
    network.run_for(Duration::from_secs(1));
    handle.add("http://10.0.1.2".parse().expect("a URL"), 1).expect("a server");
    let before = network.now();
    assert_eq!(statuses(&network, asked), [200]);
    assert!(network.now() - before < Duration::from_secs(10), "they were woken");
}

/// Milliseconds to wait, and bytes to send then.
type Step = (u64, &'static str);

const WARM: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwarm";

/// A proxy of two upstreams in turn. Each answers its first request at once, and its second one with these steps. A
/// client sends two requests, and then two in a pipeline; the function returns its responses and their times.
fn received_of_a_pipeline(
    limits: tidegate::http::Limits,
    response_timeout: Duration,
    steps: [&'static [Step]; 2],
    end: &'static str,
) -> (String, Duration) {
    let network = Network::new(1);
    let hosts = ["10.0.1.1", "10.0.1.2"];
    let _upstreams: Vec<_> = hosts
        .iter()
        .zip(steps)
        .map(|(host, steps)| {
            let node = network.host(host).node();
            node.serve(80, Limits::default(), || Raw, move |channel| play(channel, steps)).expect("the port is free");
            node
        })
        .collect();
    let upstreams = set_of(&["http://10.0.1.1", "http://10.0.1.2"]).build().expect("all is set");
    let router = Router::new().fallback(Proxy::new(&upstreams).response_timeout(response_timeout));
    let connections = Config::new().limits(limits).connections(router);
    let gateway = network.host("10.0.0.1").node();
    let proxy = gateway.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let client = network.host("10.0.0.2").node();
    let talk = client.spawn(async move {
        let mut channel = tidegate::Client::at(proxy).connect(Raw).await.expect("it listens");
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for _ in hosts {
            channel.send(get.into()).expect("there is room");
            let response = until(&mut channel, "warm").await.expect("a response");
            assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        }
        let begun = task::now();
        channel.send(get.repeat(2).into()).expect("there is room");
        let received = until(&mut channel, end).await.expect("the responses");
        (received, task::now() - begun)
    });
    network.run_task(PATIENCE, talk)
}

async fn play(mut channel: Channel<Raw>, steps: &'static [Step]) -> Result<(), Box<dyn std::error::Error>> {
    until(&mut channel, "\r\n\r\n").await?;
    channel.send(WARM.into())?;
    until(&mut channel, "\r\n\r\n").await?;
    for (milliseconds, bytes) in steps {
        task::sleep(Duration::from_millis(*milliseconds)).await;
        channel.send((*bytes).into())?;
    }
    while channel.recv().await?.is_some() {}
    Ok(())
}

/// Receives up to these bytes, which end a piece.
async fn until(channel: &mut Channel<Raw>, end: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut received = String::new();
    while !received.ends_with(end) {
        let piece = channel.recv().await?.ok_or_else(|| format!("it ended after {received}"))?;
        received.push_str(std::str::from_utf8(&piece)?);
    }
    Ok(received)
}

const EARLY: &str = "HTTP/1.1 103 Early Hints\r\nLink: <2>\r\n\r\n";

/// The places of texts in a response, each of which has to come after those before it.
fn assert_in_order(received: &str, texts: &[&str]) {
    let mut rest = received;
    for text in texts {
        rest = rest.split_once(text).unwrap_or_else(|| panic!("no {text:?} in its place: {received}")).1;
    }
}

#[test]
fn a_request_that_stalls_after_an_early_interim_response_has_its_deadline() {
    let mut limits = tidegate::http::Limits::default();
    limits.request_timeout = Duration::from_millis(300);
    // The first response comes after the interim response to the second request.
    let steps: [&[Step]; 2] = [&[(100, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none")], &[(0, EARLY)]];
    let (received, elapsed) = received_of_a_pipeline(limits, Duration::from_secs(60), steps, "Unavailable\n");
    assert_in_order(&received, &["HTTP/1.1 200 ", "one", "HTTP/1.1 103 ", "HTTP/1.1 503 "]);
    assert!((300..1_000).contains(&elapsed.as_millis()), "{elapsed:?}");
}

#[test]
fn a_response_is_not_late_while_its_interim_response_waits_for_its_turn() {
    let timeout = Duration::from_millis(300);
    let first: &[Step] = &[(60, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"), (600, "0\r\n\r\n")];
    let second: &[Step] = &[(0, EARLY), (30, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo")];
    let limits = tidegate::http::Limits::default();
    let (received, elapsed) = received_of_a_pipeline(limits, timeout, [first, second], "two");
    assert_in_order(&received, &["HTTP/1.1 200 ", "x\r\n0\r\n\r\n", "HTTP/1.1 103 ", "HTTP/1.1 200 ", "two"]);
    assert!(elapsed > timeout * 2, "{elapsed:?}");
}
