//! The server that `connectconformance` tests: a service of gRPC by tonic on our loops.
//!
//! ```text
//! cargo run --example grpc_conformance                                      # checks itself, and ends
//! connectconformance --conf interop/grpc_conformance.yaml --mode server -- \
//!     target/debug/examples/grpc_conformance serve                          # `interop/grpc_conformance.py` runs this
//! ```

#![forbid(unsafe_code)]

mod messages;
mod service;

use std::error::Error;
use std::io::{self, Read, Write};
use std::time::Duration;

use messages::{ServerCompatRequest, ServerCompatResponse};
use prost::Message;
use service::Conformance;
use tidegate::ServerHandle;
use tidegate::http::Server;
use tidegate::tower::{self, grpc};

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_none() {
        return check();
    }
    let mut length = [0; 4];
    io::stdin().read_exact(&mut length)?;
    let mut request = vec![0; u32::from_be_bytes(length) as usize];
    io::stdin().read_exact(&mut request)?;
    let server = start(&ServerCompatRequest::decode(&*request)?)?;
    let response = response(&server)?.encode_to_vec();
    let mut output = io::stdout();
    output.write_all(&(response.len() as u32).to_be_bytes())?;
    output.write_all(&response)?;
    output.flush()?;
    server.wait();
    Ok(())
}

fn start(request: &ServerCompatRequest) -> Result<ServerHandle, Box<dyn Error>> {
    let message_bytes_max = usize::try_from(request.message_receive_limit).ok().filter(|limit| *limit > 0);
    let service = grpc::Deadlines::new(Conformance { message_bytes_max });
    Ok(Server::bind("127.0.0.1:0")?.limits(grpc::limits()).loops(1).serve(tower::function(service))?)
}

fn response(server: &ServerHandle) -> Result<ServerCompatResponse, Box<dyn Error>> {
    let address = server.address().ip().ok_or("the server has an IP address")?;
    Ok(ServerCompatResponse { host: address.ip().to_string(), port: address.port().into() })
}

/// Starts as the runner would have it, and ends.
fn check() -> Result<(), Box<dyn Error>> {
    let server = start(&ServerCompatRequest::default())?;
    let ServerCompatResponse { host, port } = response(&server)?;
    println!("the service of connectconformance would be at {host}:{port}");
    server.drain(Duration::from_secs(1));
    Ok(())
}

#[test]
fn it_checks_itself() {
    check().expect("it starts");
}
