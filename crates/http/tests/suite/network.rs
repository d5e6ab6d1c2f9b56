//! Functions of all kinds on a simulated network, with its faults: each response is that of its own request.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate::http::{Body, BodyError, Config, Request, Response, Router};
use tidegate::http1::client::{self, Incoming};
use tidegate::http1::{Method, Request as Asked};
use tidegate::{Address, Client, Limits, http1, task};
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::{Random, replay, seeds};

/// Functions of all kinds, each of which answers with the number in its path.
fn router() -> Router {
    let number = |request: &Request| request.parameter("number").unwrap_or_default().into_owned();
    Router::new()
        .get("/now/{number}", move |request: Request| number(&request))
        .get("/soon/{number}", async move |request: Request| number(&request))
        .get("/later/{number}", async move |request: Request| {
            let text = number(&request);
            task::sleep(Duration::from_millis(text.parse::<u64>().unwrap_or(0) % 7)).await;
            text
        })
        .get("/pieces/{number}", move |request: Request| {
            let text = number(&request);
            Response::new().body(Body::produce(async move |writer| {
                for digit in text.bytes() {
                    writer.write(vec![digit]).await?;
                    task::sleep(Duration::from_millis(1)).await;
                }
                Ok(())
            }))
        })
        .post("/collected", |request: Request| Response::new().body(request.into_body()))
        .post("/passed", async |request: Request| Response::new().body(request.into_body()))
        .post("/read", async |mut request: Request| {
            request.body_mut().collect(1000).await.map(|body| body.to_vec()).map_err(|error: BodyError| error)
        })
        .post("/unread", async |request: Request| request.header_str("number").unwrap_or_default().to_owned())
}

/// A request whose response is the number.
fn asked(kind: usize, number: u32) -> Result<client::Outgoing, Box<dyn Error>> {
    let target = match kind {
        0..4 => format!("/{}/{number}", ["now", "soon", "later", "pieces"][kind]),
        _ => format!("/{}", ["collected", "passed", "read", "unread"][kind - 4]),
    };
    let request = Asked::new(if kind < 4 { Method::Get } else { Method::Post }, &target)?;
    let request = request.field("Number", number.to_string())?;
    Ok(if kind < 4 { request } else { request.body(number.to_string()) }.into())
}

/// Sends requests of all kinds, several at a time, and checks each response. Returns when the connection ends.
async fn talk(address: Address, seed: u64, answered: Rc<Cell<u32>>) -> Result<(), Box<dyn Error>> {
    let mut random = Random::new(seed);
    let config =
        Arc::new(client::Config::new(client::Limits { pipeline_max: 4, ..client::Limits::default() }).host("sea")?);
    let mut channel = Client::at(address).connect(http1::Client::new(config)).await?;
    let (mut sent, mut seen) = (0, 0);
    while seen < REQUESTS {
        let batch = 1 + random.below(4) as u32;
        while sent < REQUESTS && sent - seen < batch {
            channel.send(asked(random.below(8), sent)?)?;
            sent += 1;
        }
        let mut body = Vec::new();
        loop {
            match channel.recv().await?.ok_or("the connection ended before the response")? {
                Incoming::Head(head) => assert_eq!(head.status().code(), 200, "request {seen}"),
                Incoming::Data(data) => body.extend_from_slice(&data),
                Incoming::End => break,
                Incoming::Interim(_) | Incoming::Trailers(_) => {}
            }
        }
        assert_eq!(String::from_utf8_lossy(&body), seen.to_string());
        seen += 1;
        answered.set(answered.get() + 1);
    }
    Ok(())
}

const REQUESTS: u32 = 20;
const CLIENTS: u32 = 8;

/// Returns how many requests were answered. With `may_break` connections may end before that.
fn run(seed: u64, faults: FaultRates, drains: bool, may_break: bool) -> u32 {
    let network = Network::new(seed);
    network.set_faults(faults);
    let (server, clients) = (network.host("10.0.0.1"), network.host("10.0.0.2"));
    let (serving, asking) = (server.node(), clients.node());
    let connections = Config::new().connections(router());
    let address = serving.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let answered = Rc::new(Cell::new(0));
    let talks: Vec<_> = (0..CLIENTS)
        .map(|number| asking.spawn(talk(address.clone(), seed ^ u64::from(number) << 32, answered.clone())))
        .collect();
    if drains {
        network.run_for(Duration::from_millis(30));
        serving.drain(Duration::from_secs(5));
        assert!(network.run_until(Duration::from_secs(10), || serving.is_drained()), "the server does not drain");
    }
    for talk in talks {
        if let Err(error) = network.run_task(Duration::from_secs(300), talk) {
            assert!(may_break, "{error}; {}", replay(seed));
        }
    }
    assert!(network.run_until(Duration::from_secs(300), || network.open_endpoints() <= 1), "a connection is left");
    answered.get()
}

#[test]
fn each_response_is_that_of_its_request_under_faults_that_a_stream_survives() {
    for seed in seeds(30) {
        let answered = run(seed, FaultRates::benign(), false, false);
        assert_eq!(answered, CLIENTS * REQUESTS, "{}", replay(seed));
    }
}

#[test]
fn no_response_is_that_of_another_request_when_connections_break_or_the_server_drains() {
    let mut answered = 0;
    for seed in seeds(30) {
        let faults = FaultRates::benign().with(NetworkFault::Reset, 30);
        answered += run(seed, faults, seed % 2 == 1, true);
    }
    assert!(answered > 0);
}
