//! A load by the client: GET requests for a URL on a number of connections, for a number of seconds, on one loop.
//!
//! ```text
//! cargo run --example client_load                                             # against a server of its own
//! cargo run --release --example client_load -- http://127.0.0.1:8080/plaintext 64 5
//! ```
//!
//! Prints `requests N`. `benches/client.py` measures the cost of a request, beside other clients. For latencies, rates
//! and pipelines there is `tidegate load`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::{Duration, Instant};

use tidegate::http::client::ClientLimits;
use tidegate::http::{Client, Router, Server};
use tidegate::{Backend, EventLoop, task};

type Any = Box<dyn Error>;

/// Sends requests one after the other, and returns their number.
async fn ask(client: Client, url: String, until: Instant) -> Result<u64, Any> {
    let mut requests = 0;
    while task::now() < until {
        let response = client.get(&url).send().await?.error_for_status()?;
        response.bytes().await?;
        requests += 1;
    }
    Ok(requests)
}

fn load(url: &str, connections: usize, duration: Duration) -> Result<u64, Any> {
    EventLoop::on(Backend::Auto)?.block_on(async move {
        let mut limits = ClientLimits::default();
        limits.connections_max = connections;
        limits.connections_per_origin_max = connections;
        let (client, until) = (Client::builder().limits(limits).build(), Instant::now() + duration);
        let asking: Vec<_> =
            (0..connections).map(|_| task::spawn(ask(client.clone(), url.to_owned(), until))).collect();
        let mut requests = 0;
        for task in asking {
            requests += task.await??;
        }
        Ok(requests)
    })?
}

fn main() -> Result<(), Any> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let requests = match &arguments[..] {
        [] => {
            let server =
                Server::bind("127.0.0.1:0")?.loops(1).start(|| Router::new().get("/plaintext", || "Hello, World!"))?;
            load(&format!("http://{}/plaintext", server.address()), 4, Duration::from_millis(100))?
        }
        [url, connections, seconds] => load(url, connections.parse()?, Duration::try_from_secs_f64(seconds.parse()?)?)?,
        _ => return Err("client_load URL CONNECTIONS SECONDS".into()),
    };
    println!("requests {requests}");
    Ok(())
}
