//! A gRPC server by tonic, without hyper and h2 in between.
//!
//! ```text
//! cargo run --example grpc                                 # checks itself, and ends
//! cargo run --release --example grpc -- 127.0.0.1:50051    # serves
//! cargo run --release --example grpc -- 127.0.0.1:50051 chain.pem key.pem    # serves over TLS, until a signal
//! grpcurl -plaintext -d '{"name": "Brest"}' 127.0.0.1:50051 tides.v1.Tides/Next
//! ```

#![forbid(unsafe_code)]

mod service;

use std::error::Error;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use service::tides::tides_client::TidesClient;
use service::tides::{Harbour, Level, ListRequest};
use tidegate::http::Server;
use tidegate::tower::{self, grpc};
use tonic::transport::Endpoint;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [address, chain, key] => serve_tls(address, chain, key),
        _ => run(arguments.first().map(String::as_str)),
    }
}

/// Serves over TLS until a signal, with the address of each client.
fn serve_tls(address: &str, chain: &str, key: &str) -> Result<(), Box<dyn Error>> {
    let routes = tokio::runtime::Builder::new_current_thread().build()?.block_on(service::routes())?;
    let calls = tower::function(grpc::Deadlines::new(routes)).with_peer();
    let server = Server::bind(address)?.limits(grpc::limits()).tls_files(chain, key)?.serve(calls)?;
    println!("listening on {}", server.address());
    server.run_until_signal(Duration::from_secs(25))?;
    Ok(())
}

/// Serves at an address, or checks itself without one.
fn run(given: Option<&str>) -> Result<(), Box<dyn Error>> {
    // The client of the check needs a runtime; the server has none but its loops.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let routes = runtime.block_on(service::routes())?;
    let server = grpc::serve(given.unwrap_or("127.0.0.1:0"), routes)?;
    if given.is_none() {
        runtime.block_on(check(format!("http://{}", server.address())))?;
        server.drain(Duration::from_secs(1));
        return Ok(());
    }
    println!("listening on {}", server.address());
    server.wait();
    Ok(())
}

/// Calls each function once.
async fn check(url: String) -> Result<(), Box<dyn Error>> {
    let mut client = TidesClient::new(Endpoint::from_shared(url)?.connect().await?);
    let next = client.next(Harbour { name: "Brest".to_owned() }).await?.into_inner();
    println!("the next tide at {}: {} metres", next.harbour, next.level);
    let tides = client.list(ListRequest { harbour: "Brest".to_owned(), count: 5 }).await?.into_inner();
    println!("{} more", tides.count().await);
    let levels = || stream::iter([1.0, 2.0, 1.5]).map(|metres| Level { metres });
    let summary = client.measure(levels()).await?.into_inner();
    println!("{} levels, {} metres on average", summary.count, summary.mean);
    let mut watched = client.watch(levels()).await?.into_inner();
    while let Some(tide) = watched.message().await? {
        println!("{} metres, {}", tide.level, if tide.rises { "rising" } else { "falling" });
    }
    Ok(())
}

#[test]
fn it_checks_itself() {
    run(None).expect("every call has its response");
}
