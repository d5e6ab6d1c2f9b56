//! Metrics and access log of requests that a proxy passes on, on a simulated network.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::framing::Raw;
use tidegate::http::proxy::{Proxy, UpstreamLimits, Upstreams, UpstreamsBuilder};
use tidegate::http::{AccessLog, Body, Client, Config, LineLog, LogFormat, Method, Router};
use tidegate::metrics::{Format, MetricsText};
use tidegate::{Address, Limits, task};
use tidegate_testkit::network::{Network, SimNode};

use crate::support::prometheus::{self, Samples};

const PATIENCE: Duration = Duration::from_secs(600);

/// A gateway with a JSON log, and a client.
struct Scene {
    network: Network,
    upstreams: Upstreams,
    proxy: Address,
    client: SimNode,
    log: LineLog,
    written: Written,
    _nodes: Vec<SimNode>,
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Scene {
    /// A gateway with one upstream at 10.0.1.1, and others at addresses where no server listens.
    fn new(others: &[&str], options: impl FnOnce(UpstreamsBuilder) -> UpstreamsBuilder) -> Self {
        let network = Network::new(7);
        let upstream = network.host("10.0.1.1").node();
        let router = Router::new()
            .route(&Method::GET, "/never", async || std::future::pending::<&str>().await)
            .get("/pieces", || {
                Body::produce(async |writer| {
                    for _ in 0..100 {
                        writer.write("0123456789").await?;
                        task::sleep(Duration::from_secs(1)).await;
                    }
                    Ok(())
                })
            })
            .post("/sum", |body: Vec<u8>| body.len().to_string())
            .fallback(async || {
                task::sleep(Duration::from_millis(20)).await;
                "a response"
            });
        let connections = Config::new().connections(router);
        upstream.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
        // Its response ends too early.
        let broken = |mut channel: tidegate::Channel<Raw>| async move {
            let _ = channel.recv().await;
            let _ = channel.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n0123456789".into());
            task::sleep(Duration::from_millis(10)).await;
            Ok::<_, io::Error>(())
        };
        upstream.serve(81, Limits::default(), || Raw, broken).expect("the port is free");
        let mut nodes = vec![upstream];
        let builder = Upstreams::builder().server("http://10.0.1.1".parse().expect("a URL"));
        let builder = others.iter().fold(builder, |builder, host| {
            nodes.push(network.host(host).node());
            builder.server(format!("http://{host}").parse().expect("a URL"))
        });
        let upstreams = options(builder).build().expect("all is set");
        let written = Written::default();
        let log = LineLog::new("test", written.clone());
        let broken = Upstreams::new(["http://10.0.1.1:81"]).expect("an upstream");
        let router = Router::new().get("/broken", Proxy::new(&broken)).fallback(Proxy::new(&upstreams));
        let connections = Config::new().connections(router.with(AccessLog::new(LogFormat::Json).to(&log)));
        let gateway = network.host("10.0.0.1").node();
        let proxy = gateway.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
        nodes.push(gateway);
        let client = network.host("10.0.0.2").node();
        Self { network, upstreams, proxy, client, log, written, _nodes: nodes }
    }

    /// Sends a request, and waits for its response for so long. The status, if there was one.
    fn ask(&self, path: &str, patience: Duration) -> task::Task<Option<u16>> {
        let url = format!("http://{}{path}", self.proxy);
        self.client.spawn(async move {
            let client = Client::new();
            let response = task::timeout(patience, client.get(&url).send()).await.ok()?.ok()?;
            let status = response.status().as_u16();
            let mut body = response.into_body();
            let _ = task::timeout(patience, async { while let Some(Ok(_)) = body.next().await {} }).await;
            Some(status)
        })
    }

    fn samples(&self) -> Samples {
        let mut text = MetricsText::new(Format::Prometheus);
        Upstreams::write_metrics(&[("app", &self.upstreams)], &mut text);
        prometheus::read(&text.finish())
    }

    fn lines(&self) -> Vec<serde_json::Value> {
        assert!(self.log.flush(Duration::from_secs(86_400)));
        let text = String::from_utf8(self.written.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }
}

const ONE: &str = "group=\"app\",upstream=\"http://10.0.1.1:80\"";
const OTHER: &str = "group=\"app\",upstream=\"http://10.0.1.2:80\"";

#[test]
fn attempts_retries_and_times_of_each_upstream_are_counted_in_a_valid_text() {
    let scene = Scene::new(&["10.0.1.2"], |builder| builder);
    for _ in 0..20 {
        let asked = scene.ask("/", PATIENCE);
        assert_eq!(scene.network.run_task(PATIENCE, asked), Some(200));
    }
    let samples = scene.samples();
    let of = |name: &str, labels: &str| samples[&format!("tidegate_upstream_{name}{{{labels}}}")];
    let failed = of("attempts_total", OTHER);
    assert!((1.0..=10.0).contains(&failed), "{failed}: it is ejected after some");
    assert_eq!(of("attempts_total", ONE), 20.0);
    assert_eq!(of("retries_total", ONE), failed, "each failure is followed by another attempt");
    assert_eq!(of("ejections_total", OTHER), 1.0);
    assert_eq!(of("state", &format!("{OTHER},state=\"ejected\"")), 1.0);
    assert_eq!(of("state", &format!("{ONE},state=\"up\"")), 1.0);
    assert_eq!((of("head_seconds_count", ONE), of("whole_seconds_count", ONE)), (20.0, 20.0));
    assert!((0.4..1.0).contains(&of("head_seconds_sum", ONE)), "20 ms each");
    assert_eq!(of("head_seconds_count", OTHER), 0.0);
    assert!(of("connections", &format!("{ONE},kind=\"idle\"")) >= 1.0, "{samples:?}");
    assert_eq!(of("requests", ONE), 0.0);
    let lines = scene.lines();
    let retried: Vec<_> = lines.iter().filter(|line| line["retries"] == 1).collect();
    assert_eq!(retried.len(), failed as usize);
    for line in &lines {
        assert_eq!((&line["upstream"], &line["upstream_status"]), (&"http://10.0.1.1:80".into(), &200.into()));
        let times = ["upstream_head_us", "upstream_whole_us"].map(|name| line[name].as_u64().expect("a time"));
        assert!(times[0] >= 20_000 && times[1] >= times[0], "{line}");
        assert_eq!((line["bytes"].as_u64(), line["received"].as_u64()), (Some(10), Some(0)), "{line}");
        assert!(line["end"].is_null(), "{line}");
    }
}

#[test]
fn a_client_that_leaves_leaves_no_request_in_progress_and_its_lines_say_so() {
    let scene = Scene::new(&[], |builder| builder);
    let asked: Vec<_> = (0..5).map(|_| scene.ask("/never", Duration::from_secs(2))).collect();
    scene.network.run_for(Duration::from_secs(1));
    let requests = format!("tidegate_upstream_requests{{{ONE}}}");
    assert_eq!(scene.samples()[&requests], 5.0);
    for task in asked {
        assert_eq!(scene.network.run_task(PATIENCE, task), None);
    }
    let within = scene.ask("/pieces", Duration::from_secs(5));
    assert_eq!(scene.network.run_task(PATIENCE, within), Some(200));
    scene.network.run_for(Duration::from_secs(5));
    assert_eq!(scene.samples()[&requests], 0.0);
    let lines = scene.lines();
    assert_eq!(lines.len(), 6, "{lines:?}");
    for line in &lines {
        assert_eq!((&line["upstream"], &line["end"]), (&"http://10.0.1.1:80".into(), &"client_left".into()), "{line}");
    }
    assert!(lines[..5].iter().all(|line| line["status"] == 499 && line["bytes"] == 0), "{lines:?}");
    let bytes = lines[5]["bytes"].as_u64().unwrap();
    assert!(lines[5]["status"] == 200 && (50..=70).contains(&bytes) && bytes.is_multiple_of(10), "{}", lines[5]);
}

#[test]
fn the_end_of_each_exchange_has_its_cause() {
    let scene = Scene::new(&[], |builder| {
        let mut limits = UpstreamLimits::default();
        limits.requests_max = 1;
        limits.requests_per_address_max = 1;
        limits.queued_requests_max = 1;
        limits.queue_timeout = Duration::from_secs(1);
        limits.response_timeout = Duration::from_secs(5);
        builder.limits(limits)
    });
    let broken = scene.ask("/broken", PATIENCE);
    scene.network.run_task(PATIENCE, broken);
    // The first is late, the second waits in vain, and the third finds the queue full.
    let asked: Vec<_> = (0..3)
        .map(|_| {
            let asked = scene.ask("/never", PATIENCE);
            scene.network.run_for(Duration::from_millis(100));
            asked
        })
        .collect();
    assert_eq!(scene.samples()["tidegate_upstream_queue{group=\"app\"}"], 1.0);
    let statuses: Vec<_> = asked.into_iter().map(|task| scene.network.run_task(PATIENCE, task)).collect();
    assert_eq!(statuses, [Some(504), Some(503), Some(503)]);
    // One waits, and finds room.
    let asked = [scene.ask("/", PATIENCE), scene.ask("/", PATIENCE)];
    asked.into_iter().for_each(|task| assert_eq!(scene.network.run_task(PATIENCE, task), Some(200)));
    let samples = scene.samples();
    for (name, expected) in [
        ("queue{group=\"app\"}", 0.0),
        ("queue_refused_total{group=\"app\",reason=\"full\"}", 1.0),
        ("queue_refused_total{group=\"app\",reason=\"timeout\"}", 1.0),
        ("queue_seconds_count{group=\"app\"}", 1.0),
    ] {
        assert_eq!(samples[&format!("tidegate_upstream_{name}")], expected, "{name}");
    }
    let lines = scene.lines();
    let mut ends: Vec<_> = lines.iter().map(|line| line["end"].as_str().unwrap_or("done").to_owned()).collect();
    ends.sort_unstable();
    assert_eq!(ends, ["done", "done", "shed", "shed", "timeout", "upstream_failed"]);
    let broken = lines.iter().find(|line| line["end"] == "upstream_failed").unwrap();
    assert_eq!((broken["status"].as_u64(), broken["bytes"].as_u64()), (Some(200), Some(10)), "{broken}");
    assert!(broken["upstream_error"].as_str().is_some_and(|error| !error.is_empty()), "{broken}");
}

#[test]
fn the_bytes_of_a_body_that_is_passed_on_are_those_that_came() {
    let scene = Scene::new(&[], |builder| builder);
    let proxy = scene.proxy.clone();
    let asked = scene.client.spawn(async move {
        let mut channel = tidegate::Client::at(proxy).connect(Raw).await.expect("it listens");
        let head = "POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        channel.send(format!("{head}5\r\nhello\r\n3\r\nsea\r\n0\r\n\r\n").into()).expect("there is room");
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\n8") {
            response.extend_from_slice(&channel.recv().await.expect("a response").expect("all of it"));
        }
    });
    scene.network.run_task(PATIENCE, asked);
    let lines = scene.lines();
    assert_eq!((lines[0]["received"].as_u64(), lines[0]["bytes"].as_u64()), (Some(8), Some(1)), "{}", lines[0]);
}
