//! PING between a client and a server of the layer, on a simulated network whose link fails without a word.

use std::time::Duration;

use tidegate::http::client::{ClientError, ClientLimits};
use tidegate::http::{Client, Config, Limits, Router};
use tidegate::{Limits as EngineLimits, task};
use tidegate_testkit::network::Network;

fn router() -> Router {
    Router::new().get("/now", || "now").get("/after/{seconds}", async |request: tidegate::http::Request| {
        let seconds = request.parameter("seconds").and_then(|text| text.parse().ok()).unwrap_or(0);
        task::sleep(Duration::from_secs(seconds)).await;
        "late"
    })
}

/// Sends a request to a server that takes `seconds` to answer, and cuts the link after two, if `breaks`. Returns the
/// result of the request, its time, and how many connections the server has a minute later.
fn run(seconds: u64, pings: [bool; 2], breaks: bool) -> (Result<String, ClientError>, Duration, u64) {
    let network = Network::new(1);
    let interval = |pings: bool| pings.then_some(Duration::from_secs(5));
    let (server, client) = (network.host("10.0.0.1"), network.host("10.0.0.2"));
    let (serving, asking) = (server.node(), client.node());
    let mut limits = Limits::default();
    limits.request_timeout = Duration::from_secs(1_000);
    (limits.ping_interval, limits.ping_timeout) = (interval(pings[0]), Duration::from_secs(5));
    let connections = Config::new().limits(limits).connections(router());
    let address = serving.listen(80, EngineLimits::default(), move |_| connections()).expect("the port is free");
    let task = asking.spawn(async move {
        let mut limits = ClientLimits::default();
        limits.head_timeout = Duration::from_secs(400);
        // A GET would be sent again, and wait for a connection.
        limits.retries_max = 0;
        (limits.ping_interval, limits.ping_timeout) = (interval(pings[1]), Duration::from_secs(5));
        let client = Client::builder().limits(limits).http2_prior_knowledge(true).build();
        client.get(format!("http://{address}/now")).send().await?.text().await?;
        client.get(format!("http://{address}/after/{seconds}")).send().await?.text().await
    });
    network.run_for(Duration::from_secs(2));
    if breaks {
        network.partition(&server, &client);
    }
    let result = network.run_task(Duration::from_secs(600), task);
    let elapsed = network.elapsed();
    network.run_for(Duration::from_secs(60));
    (result, elapsed, serving.counts().connections)
}

#[test]
fn a_request_whose_server_vanished_fails_after_a_ping_without_an_answer() {
    let (result, elapsed, _) = run(300, [false, true], true);
    assert!(result.is_err(), "{result:?}");
    assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
}

#[test]
fn a_server_forgets_a_client_that_vanished() {
    let (_, _, left) = run(300, [true, true], true);
    assert_eq!(left, 0);
}

#[test]
fn a_slow_response_arrives_with_pings_of_either_side() {
    for pings in [[true, false], [false, true], [true, true], [false, false]] {
        let (result, elapsed, _) = run(300, pings, false);
        assert_eq!(result.expect("a response"), "late", "{pings:?}");
        assert!(elapsed >= Duration::from_secs(300));
    }
}

#[test]
fn without_pings_a_request_waits_for_its_deadline() {
    let (result, elapsed, _) = run(300, [false, false], true);
    assert!(result.is_err());
    assert!(elapsed >= Duration::from_secs(400), "{elapsed:?}");
}
