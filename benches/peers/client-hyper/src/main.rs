//! A load by the client of hyper-util: GET requests for a URL on a number of connections, for a number of seconds, on one thread.
//!
//! ```text
//! client-hyper URL CONNECTIONS SECONDS
//! ```
//!
//! Prints `requests N`. A response other than 200, or an error, is a panic.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("URL CONNECTIONS SECONDS");
    let (url, connections, seconds) = (next(), next(), next());
    let connections: usize = connections.parse().expect("a number of connections");
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse().expect("a number of seconds"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let requests: u64 = local.block_on(&runtime, async move {
        let url: hyper::Uri = url.parse().expect("a URL");
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client: Client<_, Empty<Bytes>> =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(connections).build(connector);
        let asking: Vec<_> = (0..connections)
            .map(|_| {
                let (client, url) = (client.clone(), url.clone());
                tokio::task::spawn_local(async move {
                    let mut requests = 0;
                    while Instant::now() < until {
                        let response = client.get(url.clone()).await.expect("a response");
                        assert_eq!(response.status(), 200);
                        response.into_body().collect().await.expect("a body");
                        requests += 1;
                    }
                    requests
                })
            })
            .collect();
        let mut sum = 0;
        for task in asking {
            sum += task.await.expect("no panic");
        }
        sum
    });
    println!("requests {requests}");
}
