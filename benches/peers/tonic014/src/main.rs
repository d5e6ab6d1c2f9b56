//! The service of `examples/grpc`, its source and its messages, by tonic's server: hyper and h2 on one tokio thread.

#[path = "../../../../examples/grpc/service.rs"]
mod service;

use std::{env, error};

use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

fn main() -> Result<(), Box<dyn error::Error>> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        println!("listening on {}", listener.local_addr()?);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        Server::builder().add_routes(service::routes().await?).serve_with_incoming(incoming).await?;
        Ok(())
    })
}
