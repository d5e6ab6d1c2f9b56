//! A load by Tidegate's Redis client: GET on one connection, so many at a time, for a number of seconds, on one thread.
//!
//! ```text
//! client-tidegate ADDRESS COMMANDS_AT_A_TIME SECONDS
//! ```
//!
//! Prints `requests N`. A wrong reply is a panic.

use std::time::{Duration, Instant};

use tidegate::redis::Client;
use tidegate::{Backend, Bytes, EventLoop, task};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("ADDRESS COMMANDS_AT_A_TIME SECONDS");
    let (address, depth, seconds) = (next(), next(), next());
    let depth: usize = depth.parse().expect("a number of commands");
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse().expect("a number of seconds"));
    let load = async move {
        let client = Client::to(&address).expect("an address").start();
        client.cmd("SET").arg("key").arg(VALUE).await.expect("a reply");
        let asking: Vec<_> = (0..depth)
            .map(|_| {
                let client = client.clone();
                task::spawn(async move {
                    let mut requests = 0_u64;
                    while Instant::now() < until {
                        let value: Bytes = client.cmd("GET").arg("key").fetch().await.expect("a reply");
                        assert_eq!(value.len(), VALUE.len());
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
    };
    let requests = EventLoop::on(Backend::Auto).expect("a loop").block_on(load).expect("the loop runs");
    println!("requests {requests}");
}

const VALUE: &str = "0123456789abcdef";
