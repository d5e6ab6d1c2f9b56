//! A gRPC server by tonic, without hyper and h2 in between.
//!
//! ```text
//! cargo run --example grpc                                 # checks itself, and ends
//! cargo run --release --example grpc -- 127.0.0.1:50051    # serves
//! grpcurl -plaintext -d '{"name": "Brest"}' 127.0.0.1:50051 tides.v1.Tides/Next
//! ```

#![forbid(unsafe_code)]

mod service;

use std::error::Error;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use service::tides::tides_client::TidesClient;
use service::tides::{Harbour, Level, ListRequest};
use tidegate::tower::grpc;
use tonic::transport::Endpoint;

fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1).as_deref())
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
