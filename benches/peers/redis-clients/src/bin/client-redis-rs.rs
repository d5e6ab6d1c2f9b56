//! A load by redis-rs: GET on one multiplexed connection, so many at a time, for a number of seconds, on one thread.
//!
//! ```text
//! client-redis-rs ADDRESS COMMANDS_AT_A_TIME SECONDS
//! ```
//!
//! Prints `requests N`. A wrong reply is a panic.

use std::time::{Duration, Instant};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("ADDRESS COMMANDS_AT_A_TIME SECONDS");
    let (address, depth, seconds) = (next(), next(), next());
    let depth: usize = depth.parse().expect("a number of commands");
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse().expect("a number of seconds"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let requests: u64 = local.block_on(&runtime, async move {
        let client = redis::Client::open(format!("redis://{address}/?protocol=resp3")).expect("an address");
        let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
        let () = redis::cmd("SET").arg("key").arg(VALUE).query_async(&mut connection).await.expect("a reply");
        let asking: Vec<_> = (0..depth)
            .map(|_| {
                let mut connection = connection.clone();
                tokio::task::spawn_local(async move {
                    let mut requests = 0;
                    while Instant::now() < until {
                        let value: Vec<u8> =
                            redis::cmd("GET").arg("key").query_async(&mut connection).await.expect("a reply");
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
    });
    println!("requests {requests}");
}

const VALUE: &str = "0123456789abcdef";
