//! A load by reqwest: GET requests for a URL on a number of connections, for a number of seconds, on one thread.
//!
//! ```text
//! client-reqwest URL CONNECTIONS SECONDS
//! ```
//!
//! Prints `requests N`. A response other than 200, or an error, is a panic.

use std::time::{Duration, Instant};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("URL CONNECTIONS SECONDS");
    let (url, connections, seconds) = (next(), next(), next());
    let connections: usize = connections.parse().expect("a number of connections");
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse().expect("a number of seconds"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let requests: u64 = local.block_on(&runtime, async move {
        let client =
            reqwest::Client::builder().no_proxy().pool_max_idle_per_host(connections).build().expect("a client");
        let url: reqwest::Url = url.parse().expect("a URL");
        let asking: Vec<_> = (0..connections)
            .map(|_| {
                let (client, url) = (client.clone(), url.clone());
                tokio::task::spawn_local(async move {
                    let mut requests = 0;
                    while Instant::now() < until {
                        let response = client.get(url.clone()).send().await.expect("a response");
                        assert_eq!(response.status(), 200);
                        response.bytes().await.expect("a body");
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
