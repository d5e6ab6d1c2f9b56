//! A proxy between clients and upstreams on a simulated network, with its faults: each request is answered once, by a
//! response of its own, in the order of the requests. Some clients pipeline them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate::http::proxy::{Balance, Proxy, Upstreams};
use tidegate::http::{Body, Config, IntoResponse, Request, Response, Router};
use tidegate::http1::client::{self, Incoming};
use tidegate::http1::{Method, Request as Asked, StreamedRequest};
use tidegate::{Address, Channel, Client, Limits, http1, task};
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::{Random, replay, seeds};

/// How often each POST has reached an upstream, by its number.
type Received = Rc<RefCell<HashMap<String, u32>>>;

/// The router of an upstream: functions of all kinds, each of which answers with the number of the request.
fn upstream(received: &Received) -> Router {
    let number = |request: &Request| request.header_str("number").unwrap_or_default().to_owned();
    let (noted, noted_too) = (received.clone(), received.clone());
    Router::new()
        .get("/now", move |request: Request| number(&request))
        .get("/later", async move |request: Request| {
            let text = number(&request);
            task::sleep(Duration::from_millis(text.len() as u64 % 7)).await;
            text
        })
        .get("/pieces", move |request: Request| {
            let text = number(&request);
            Response::new().body(Body::produce(async move |writer| {
                for digit in text.bytes() {
                    writer.write(vec![digit]).await?;
                    task::sleep(Duration::from_millis(1)).await;
                }
                Ok(())
            }))
        })
        .get("/large", move |request: Request| {
            let text = number(&request);
            let mut large = vec![b'.'; LARGE - text.len()];
            large.extend_from_slice(text.as_bytes());
            large
        })
        .get("/nothing", || tidegate::http::StatusCode::NO_CONTENT)
        .get("/last", move |request: Request| number(&request).into_response().close())
        .post("/passed", async move |request: Request| {
            *noted.borrow_mut().entry(number(&request)).or_default() += 1;
            Response::new().body(request.into_body())
        })
        .post("/unread", async move |request: Request| {
            let number = number(&request);
            *noted_too.borrow_mut().entry(number.clone()).or_default() += 1;
            number
        })
}

const LARGE: usize = 200_000;

/// The kinds of requests.
const KINDS: [(&str, Method); 10] = [
    ("/now", Method::Get),
    ("/later", Method::Get),
    ("/pieces", Method::Get),
    ("/large", Method::Get),
    ("/nothing", Method::Get),
    ("/now", Method::Head),
    ("/passed", Method::Post),
    ("/unread", Method::Post),
    ("/passed", Method::Post),
    // The upstream closes the connection behind it.
    ("/last", Method::Get),
];

/// Checks a response. Returns whether it is that of the upstream.
async fn check(channel: &mut Channel<http1::Client>, kind: usize, number: &str) -> Result<bool, Box<dyn Error>> {
    let (mut body, mut status) = (Vec::new(), 0);
    loop {
        match channel.recv().await?.ok_or("the connection ended before the response")? {
            Incoming::Head(head) => {
                status = head.status().code();
                if !head.has_body() {
                    break;
                }
            }
            Incoming::Data(data) => body.extend_from_slice(&data),
            Incoming::End => break,
            Incoming::Interim(_) | Incoming::Trailers(_) => {}
        }
    }
    match (status, kind) {
        (200, 5) | (204, 4) => assert!(body.is_empty()),
        (200, 3) => assert!(body.len() == LARGE && body.ends_with(number.as_bytes()), "{number}"),
        (200, 0..=9) => assert_eq!(String::from_utf8_lossy(&body), number),
        (502..=504, _) => return Ok(false),
        other => panic!("{other:?} for {number}"),
    }
    Ok(true)
}

/// Sends requests in pipelines, and checks each response. Some pipelines have a POST at their end, which has to wait.
async fn talk_ahead(
    address: Address,
    seed: u64,
    answered: Rc<Cell<u32>>,
    failed: Rc<Cell<u32>>,
) -> Result<(), Box<dyn Error>> {
    let mut random = Random::new(seed);
    let config = client::Limits { pipeline_max: 32, ..client::Limits::default() };
    let config = Arc::new(client::Config::new(config).host("sea")?);
    let mut channel = Client::at(address).connect(http1::Client::new(config)).await?;
    let mut sent = 0;
    while sent < REQUESTS {
        let depth = (1 + random.below(32) as u32).min(REQUESTS - sent);
        let mut pipeline = Vec::new();
        for turn in 0..depth {
            let is_last = turn + 1 == depth;
            let kind =
                if is_last && random.below(3) == 0 { 7 } else { [0, 1, 2, 3, 4, 5, 9, 0, 0, 1][random.below(10)] };
            let number = format!("{seed:x}-{sent}");
            let (target, method) = KINDS[kind];
            let request = Asked::new(method, target)?.field("Number", &number)?;
            channel.send(if kind == 7 { request.body("unread").into() } else { request.into() })?;
            if random.below(4) == 0 {
                task::sleep(Duration::from_millis(random.below(4) as u64)).await;
            }
            pipeline.push((kind, number));
            sent += 1;
        }
        for (kind, number) in pipeline {
            if !check(&mut channel, kind, &number).await? {
                failed.set(failed.get() + 1);
            }
            answered.set(answered.get() + 1);
        }
    }
    Ok(())
}

/// Sends requests of all kinds one after the other, and checks each response. An error is the end of the connection.
async fn talk(
    address: Address,
    seed: u64,
    answered: Rc<Cell<u32>>,
    failed: Rc<Cell<u32>>,
) -> Result<(), Box<dyn Error>> {
    let mut random = Random::new(seed);
    let config = Arc::new(client::Config::new(client::Limits::default()).host("sea")?);
    let mut channel = Client::at(address).connect(http1::Client::new(config)).await?;
    for turn in 0..REQUESTS {
        let number = format!("{seed:x}-{turn}");
        let kind = random.below(KINDS.len());
        let (target, method) = KINDS[kind];
        let field = ("Number", number.clone());
        match kind {
            // Piece by piece, with a length or without one.
            6 | 8 => {
                let mut head = StreamedRequest::new(method, target)?.field(field.0, &field.1)?;
                if kind == 6 {
                    head = head.length(number.len() as u64);
                }
                channel.send(head.into())?;
                for byte in number.bytes() {
                    channel.ready().await?;
                    channel.send(client::Outgoing::Data(vec![byte].into()))?;
                    task::sleep(Duration::from_millis(random.below(2) as u64)).await;
                }
                channel.send(client::Outgoing::End)?;
            }
            7 => channel.send(Asked::new(method, target)?.field(field.0, &field.1)?.body("unread").into()).map(drop)?,
            _ => channel.send(Asked::new(method, target)?.field(field.0, &field.1)?.into()).map(drop)?,
        }
        if !check(&mut channel, kind, &number).await? {
            failed.set(failed.get() + 1);
        }
        answered.set(answered.get() + 1);
    }
    Ok(())
}

const REQUESTS: u32 = 20;
const CLIENTS: u32 = 6;

/// The outcome of all requests.
struct Outcome {
    answered: u32,
    failed: u32,
}

/// With `may_break` connections may end, and requests fail.
fn run(seed: u64, faults: FaultRates, drains: bool, may_break: bool) -> Outcome {
    let asked = run_with(seed, faults.clone(), (drains, may_break), talk);
    let pipelined = run_with(seed, faults, (drains, may_break), talk_ahead);
    Outcome { answered: asked.answered + pipelined.answered, failed: asked.failed + pipelined.failed }
}

fn run_with<F: Future<Output = Result<(), Box<dyn Error>>> + 'static>(
    seed: u64,
    faults: FaultRates,
    (drains, may_break): (bool, bool),
    talk: impl Fn(Address, u64, Rc<Cell<u32>>, Rc<Cell<u32>>) -> F,
) -> Outcome {
    let network = Network::new(seed);
    network.set_faults(faults);
    let received = Received::default();
    let mut urls = Vec::new();
    for number in 1..=3 {
        let host = network.host(&format!("10.0.1.{number}")).node();
        let connections = Config::new().connections(upstream(&received));
        host.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
        let scheme = if (seed / 3).is_multiple_of(2) { "http" } else { "h2c" };
        urls.push((format!("{scheme}://10.0.1.{number}"), host));
    }
    let mut upstreams = Upstreams::builder();
    for (url, _) in &urls {
        upstreams = upstreams.server(url.parse().expect("a URL"));
    }
    let balance = [Balance::RoundRobin, Balance::LeastConnections, Balance::ConsistentHash][seed as usize % 3];
    let upstreams = upstreams.balance(balance).build().expect("all is set");
    let gateway = network.host("10.0.0.1").node();
    let connections = Config::new().connections(Router::new().fallback(Proxy::new(&upstreams)));
    let address = gateway.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let asking = network.host("10.0.0.2").node();
    let (answered, failed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let talks: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let seed = seed ^ u64::from(number) << 32;
            asking.spawn(talk(address.clone(), seed, answered.clone(), failed.clone()))
        })
        .collect();
    if drains {
        network.run_for(Duration::from_millis(30));
        gateway.drain(Duration::from_secs(20));
        assert!(network.run_until(Duration::from_secs(30), || gateway.is_drained()), "{}", replay(seed));
    }
    for talk in talks {
        if let Err(error) = network.run_task(Duration::from_secs(600), talk) {
            assert!(may_break, "{error}; {}", replay(seed));
        }
    }
    for (number, times) in &*received.borrow() {
        assert!(*times == 1, "POST {number} has reached upstreams {times} times; {}", replay(seed));
    }
    Outcome { answered: answered.get(), failed: failed.get() }
}

#[test]
fn each_response_is_that_of_its_request_under_faults_that_a_stream_survives() {
    for seed in seeds(30) {
        let outcome = run(seed, FaultRates::benign(), false, false);
        assert_eq!((outcome.answered, outcome.failed), (2 * CLIENTS * REQUESTS, 0), "{}", replay(seed));
    }
}

#[test]
fn no_response_is_that_of_another_request_when_connections_break() {
    let mut all = Outcome { answered: 0, failed: 0 };
    for seed in seeds(40) {
        let faults = FaultRates::benign().with(NetworkFault::Reset, 60).with(NetworkFault::Refused, 10);
        let outcome = run(seed, faults, false, true);
        all = Outcome { answered: all.answered + outcome.answered, failed: all.failed + outcome.failed };
    }
    assert!(all.answered > all.failed, "{} answered, {} of them by the proxy", all.answered, all.failed);
}

#[test]
fn a_drain_answers_the_requests_in_progress() {
    for seed in seeds(20) {
        let outcome = run(seed, FaultRates::none(), true, true);
        assert_eq!(outcome.failed, 0, "{}", replay(seed));
    }
}
