//! The gateway on a simulated network: no port, no waiting, and each run of a seed is the same.

use std::time::Duration;

use {{crate_name}}::settings::Settings;
use {{crate_name}}::{routers, upstreams};
use tidegate::http::{Client, Config, Request, Router, StatusCode};
use tidegate::{Address, Limits};
use tidegate_testkit::network::{FaultRates, Network, NetworkFault, SimNode};
use tidegate_testkit::seeds;

/// A network of a client, a gateway and two services.
struct Setting {
    network: Network,
    gateway: Address,
    client: SimNode,
    services: Vec<SimNode>,
}

impl Setting {
    fn new(seed: u64, settings: Settings) -> Self {
        let network = Network::new(seed);
        let services: Vec<_> = ["10.0.0.3", "10.0.0.4"]
            .into_iter()
            .map(|ip| {
                let node = network.host(ip).node();
                let answer = move |request: Request| format!("{ip} {}", request.target());
                let connections = Config::new().connections(Router::new().fallback(answer));
                node.listen(80, Limits::default(), move |_| connections())
                    .expect("the port is free");
                node
            })
            .collect();
        let settings = Settings {
            upstreams: vec!["http://10.0.0.3".into(), "http://10.0.0.4".into()],
            ..settings
        };
        let router = routers(
            &settings,
            &upstreams(&settings).expect("the settings are valid"),
        );
        let node = network.host("10.0.0.2").node();
        let connections = Config::new().connections(router());
        let gateway = node
            .listen(80, Limits::default(), move |_| connections())
            .expect("the port is free");
        let client = network.host("10.0.0.1").node();
        Self {
            network,
            gateway,
            client,
            services,
        }
    }

    /// Sends requests, one after another. Returns the status and the body of each.
    fn get(&self, count: usize) -> Vec<(StatusCode, String)> {
        let address = self.gateway.clone();
        let task = self.client.spawn(async move {
            let client = Client::new();
            let mut responses = Vec::new();
            for number in 0..count {
                let response = client
                    .get(format!("http://{address}/tides/{number}"))
                    .send()
                    .await
                    .expect("a response");
                assert_eq!(
                    response.header_str("X-Gateway").is_some(),
                    response.status() == StatusCode::OK
                );
                responses.push((response.status(), response.text().await.expect("a body")));
            }
            responses
        });
        self.network.run_task(Duration::from_secs(600), task)
    }
}

#[test]
fn requests_are_balanced_over_the_services() {
    let setting = Setting::new(1, Settings::default());
    let responses = setting.get(20);
    assert!(
        responses
            .iter()
            .all(|(status, _)| *status == StatusCode::OK),
        "{responses:?}"
    );
    assert!(responses[7].1.ends_with(" /tides/7"));
    for ip in ["10.0.0.3", "10.0.0.4"] {
        assert!(
            responses.iter().any(|(_, body)| body.starts_with(ip)),
            "{ip}: {responses:?}"
        );
    }
}

#[test]
fn a_service_that_ends_costs_no_request() {
    let setting = Setting::new(1, Settings::default());
    setting.get(4);
    setting.services[0].drain(Duration::ZERO);
    for (status, body) in setting.get(20) {
        assert!(
            status == StatusCode::OK && body.starts_with("10.0.0.4 "),
            "{status:?} {body}"
        );
    }
}

#[test]
fn a_client_above_its_rate_is_refused() {
    let setting = Setting::new(
        1,
        Settings {
            rate: 1,
            burst: 5,
            ..Settings::default()
        },
    );
    let statuses: Vec<_> = setting
        .get(10)
        .into_iter()
        .map(|(status, _)| status)
        .collect();
    assert!(
        statuses[..5].iter().all(|status| *status == StatusCode::OK),
        "{statuses:?}"
    );
    assert!(
        statuses.contains(&StatusCode::TOO_MANY_REQUESTS),
        "{statuses:?}"
    );
}

/// A response is that of its own request, whatever the network does.
#[test]
fn no_response_is_that_of_another_request_when_connections_break() {
    for seed in seeds(20) {
        let setting = Setting::new(
            seed,
            Settings {
                rate: 1_000_000,
                burst: 1_000_000,
                ..Settings::default()
            },
        );
        setting
            .network
            .set_faults(FaultRates::benign().with(NetworkFault::Reset, 20));
        let address = setting.gateway.clone();
        let task = setting.client.spawn(async move {
            let client = Client::new();
            for number in 0..50 {
                let Ok(response) = client
                    .get(format!("http://{address}/{number}"))
                    .send()
                    .await
                else {
                    continue;
                };
                let status = response.status();
                let Ok(body) = response.text().await else {
                    continue;
                };
                assert!(
                    status != StatusCode::OK || body.ends_with(&format!(" /{number}")),
                    "{number}: {body}"
                );
            }
        });
        setting.network.run_task(Duration::from_secs(600), task);
    }
}
