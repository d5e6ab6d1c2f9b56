//! Tally: a custom binary protocol, from the codec to a running server and its client.
//!
//! Clients add to counters and read them. `protocol.rs` has the codecs, one for each side; `service.rs` the handler and
//! its test without a network; `client.rs` the client; this file is the server, and the command.
//!
//! ```text
//! cargo run --example tally                                  # checks itself, prints the results and exits
//! cargo run --example tally -- 127.0.0.1:7001                # serves until it is killed
//! cargo run --example tally -- 127.0.0.1:7001 add boat 5     # adds five boats
//! cargo run --example tally -- 127.0.0.1:7001 ask boat       # how many boats?
//! ```

#![forbid(unsafe_code)]

mod client;
mod protocol;
mod service;

use std::error::Error;
use std::time::Duration;

use tidegate::{Address, Backend, EventLoop, Server, ServerHandle};

use crate::client::Counters;
use crate::protocol::ServerSide;
use crate::service::{Service, Tallies};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => check(),
        [address] => {
            let server = start(address)?;
            println!("listening on {}", server.address());
            server.wait();
            Ok(())
        }
        [address, "add", name, amount] => {
            let (address, name, amount) = (address.to_string(), name.to_string(), amount.parse()?);
            let added = async move { Counters::connect(&address).await?.add(&name, amount).await };
            EventLoop::on(Backend::Auto)?.block_on(added)?.map(|total| println!("{total}"))
        }
        [address, "ask", name] => {
            let (address, name) = (address.to_string(), name.to_string());
            let asked = async move { Counters::connect(&address).await?.ask(&name).await };
            EventLoop::on(Backend::Auto)?.block_on(asked)?.map(|total| println!("{total}"))
        }
        _ => Err("usage: tally [ADDRESS [add NAME AMOUNT | ask NAME]]".into()),
    }
}

/// The counters belong to one loop, whose connections share them without a lock. With more loops each would have its
/// own counters.
fn start(address: &str) -> Result<ServerHandle, tidegate::StartError> {
    Server::bind(address)?.loops(1).start_each(|_| {
        let tallies = Tallies::default();
        move |_: &Address| (ServerSide::new(), Service::new(tallies.clone()))
    })
}

/// Starts a server, and checks it with a client.
fn check() -> Result<(), Box<dyn Error>> {
    let server = start("127.0.0.1:0")?;
    let address = server.address().to_string();
    let talk = async move {
        let mut counters = Counters::connect(&address).await?;
        println!("add 5 boats: {}", counters.add("boat", 5).await?);
        println!("add 2 more: {}", counters.add("boat", 2).await?);
        let (boats, gulls) = (counters.ask("boat").await?, counters.ask("gull").await?);
        println!("boats: {boats}, gulls: {gulls}");
        assert_eq!((boats, gulls), (7, 0));
        let refused = counters.ask("").await.expect_err("a name has at least one byte");
        println!("no name: {refused}");
        Ok::<_, Box<dyn Error>>(())
    };
    EventLoop::on(Backend::Auto)?.block_on(talk)??;
    server.drain(Duration::from_secs(1));
    println!("the server has drained");
    Ok(())
}
