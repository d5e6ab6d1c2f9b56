//! Many requests on a simulated network with faults: each response is that of its own request, or an error.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::http::client::{ClientError, ClientLimits};
use tidegate::http::{Body, Client, Config, Request, Response, Router};
use tidegate::{Address, Limits, task};
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::{Random, replay, seeds};

fn router() -> Router {
    let number = |request: &Request| request.parameter("number").unwrap_or_default().into_owned();
    Router::new()
        .get("/now/{number}", move |request: Request| number(&request))
        .get("/later/{number}", async move |request: Request| {
            task::sleep(Duration::from_millis(3)).await;
            number(&request)
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
        .get("/closed/{number}", move |request: Request| Response::text(number(&request)).close())
        .post("/passed", async |request: Request| Response::new().body(request.into_body()))
}

/// One request; whether its response came.
async fn ask(client: &Client, address: &Address, kind: usize, number: usize) -> Result<(), ClientError> {
    let target = ["now", "later", "pieces", "closed"].get(kind).map(|name| format!("/{name}/{number}"));
    let text = match target {
        Some(target) => client.get(format!("http://{address}{target}")).send().await?.text().await?,
        None if kind == 4 => {
            let body = Body::produce(async move |writer| {
                for digit in number.to_string().bytes() {
                    writer.write(vec![digit]).await?;
                    task::sleep(Duration::from_millis(1)).await;
                }
                Ok(())
            });
            client.post(format!("http://{address}/passed")).body(body).send().await?.text().await?
        }
        None => {
            // It is given up in the middle.
            let request = client.get(format!("http://{address}/pieces/{number}")).send();
            drop(task::timeout(Duration::from_millis(2), request).await);
            return Ok(());
        }
    };
    assert_eq!(text, number.to_string(), "the response to another request");
    Ok(())
}

/// Sends requests of all kinds at once. Returns how many failed.
fn run(seed: u64, faults: FaultRates, is_http2: bool) -> usize {
    let network = Network::new(seed);
    network.set_faults(faults);
    let server = network.host("10.0.0.1").node();
    let connections = Config::new().connections(router());
    let address = server.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let node = network.host("10.0.0.2").node();
    let mut random = Random::new(seed);
    let kinds: Vec<_> = (0..REQUESTS).map(|_| random.below(6)).collect();
    let failed = Rc::new(Cell::new(0));
    let count = failed.clone();
    let asking = node.spawn(async move {
        let mut limits = ClientLimits::default();
        limits.connections_per_origin_max = 3;
        let client = Client::builder().limits(limits).http2_prior_knowledge(is_http2).build();
        let ask = |(number, kind)| {
            let (client, address) = (client.clone(), address.clone());
            task::spawn(async move { ask(&client, &address, kind, 1000 + number).await })
        };
        let tasks: Vec<_> = kinds.into_iter().enumerate().map(ask).collect();
        for task in tasks {
            let result = task.await.expect("no task panics");
            count.set(count.get() + usize::from(result.is_err()));
        }
        assert!(client.connections() <= if is_http2 { 1 } else { 3 });
        client.close_idle();
        assert_eq!(client.connections(), 0, "every place is free again");
    });
    network.run_task(Duration::from_secs(600), asking);
    assert!(network.run_until(Duration::from_secs(300), || network.open_endpoints() <= 1), "a connection is left");
    failed.get()
}

#[test]
fn each_response_is_that_of_its_request_under_faults_that_a_stream_survives() {
    for seed in seeds(20) {
        for is_http2 in [false, true] {
            assert_eq!(run(seed, FaultRates::benign(), is_http2), 0, "{}", replay(seed));
        }
    }
}

#[test]
fn no_response_is_that_of_another_request_when_connections_break() {
    for is_http2 in [false, true] {
        let faults = || FaultRates::benign().with(NetworkFault::Reset, 30);
        let failed: usize = seeds(20).map(|seed| run(seed, faults(), is_http2)).sum();
        assert!(failed < 20 * REQUESTS, "no request succeeds");
    }
}

const REQUESTS: usize = 60;
