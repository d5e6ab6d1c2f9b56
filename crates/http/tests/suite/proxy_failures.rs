//! A proxy whose upstreams refuse connections, end, or have no room, on a simulated network: its clients see a failure only
//! where no upstream could have answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tidegate::http::proxy::{Proxy, UpstreamLimits, Upstreams, UpstreamsBuilder};
use tidegate::http::{Client, Config, Method, Router};
use tidegate::metrics::{Format, MetricsText};
use tidegate::task::Task;
use tidegate::{Address, Limits, task};
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
