//! The service on Tidegate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tidegate::http::{Json, Middleware, Path, Request, Response, Router, Server, State, StatusCode};
use tidegate::{ServerHandle, StartError};

#[derive(Clone, Default)]
struct Counters(Arc<Mutex<HashMap<String, u64>>>);

#[derive(Deserialize)]
struct Add {
    by: u64,
}

#[derive(Serialize)]
struct Total {
    total: u64,
}

fn hello(Path(name): Path<String>) -> String {
    format!("Hello, {name}!")
}

fn add(State(counters): State<Counters>, Path(name): Path<String>, Json(Add { by }): Json<Add>) -> Json<Total> {
    let mut counters = counters.0.lock().unwrap_or_else(PoisonError::into_inner);
    let total = counters.entry(name).or_default();
    *total = total.saturating_add(by);
    Json(Total { total: *total })
}

/// Refuses requests without the token.
struct Authorized;

impl Middleware for Authorized {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        match request.header_str("Authorization") {
            Some("Bearer harbour") => Ok(()),
            _ => Err(Response::status(StatusCode::UNAUTHORIZED)),
        }
    }
}

/// The routes of a loop. All loops share the counters.
fn router(counters: Counters) -> Router {
    let writes = Router::with_state(counters).post("/{name}", add).with(Authorized);
    Router::new().get("/hello/{name}", hello).nest("/counters", writes)
}

pub(crate) fn start(address: &str) -> Result<ServerHandle, StartError> {
    let counters = Counters::default();
    Server::bind(address)?.start(move || router(counters.clone()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate::http::{Client, Config};
    use tidegate_testkit::network::Network;

    use super::*;

    /// Runs a client against the routes, each on a host of its own of a simulated network.
    fn talk<F: Future<Output = ()> + 'static>(client: impl FnOnce(Client, String) -> F) {
        let network = Network::new(1);
        let connections = Config::new().connections(router(Counters::default()));
        let server = network.host("10.0.0.1").node();
        let address = server.listen(80, tidegate::Limits::default(), move |_| connections()).expect("the port is free");
        let client = client(Client::new(), format!("http://{address}"));
        network.run_task(Duration::from_secs(60), network.host("10.0.0.2").node().spawn(client));
    }

    #[test]
    fn a_counter_is_increased() {
        talk(async |client, url| {
            let add = client.post(format!("{url}/counters/ships")).header("Authorization", "Bearer harbour");
            let response = add.json(&serde_json::json!({ "by": 2 })).send().await.unwrap();
            assert_eq!(response.text().await.unwrap(), r#"{"total":2}"#);
        });
    }
}
