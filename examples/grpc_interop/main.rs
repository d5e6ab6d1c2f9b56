//! The server of the gRPC interoperability cases: `grpc.testing.TestService` by tonic on our loops.
//!
//! ```text
//! cargo run --example grpc_interop                                       # checks itself, and ends
//! cargo run --example grpc_interop -- 127.0.0.1:10000                    # serves
//! cargo run --example grpc_interop -- 127.0.0.1:10000 chain.pem key.pem  # serves over TLS
//! interop/grpc_interop.py                                                # runs the client of grpc-go against it
//! ```

#![forbid(unsafe_code)]

mod echo;
mod messages;
mod service;

use std::error::Error;
use std::time::Duration;

use echo::Echo;
use messages::{SimpleRequest, SimpleResponse};
use service::{Load, LoadReports, TestService};
use tidegate::ServerHandle;
use tidegate::http::Server;
use tidegate::tls::{Certificates, Provider, ServerConfig};
use tidegate::tower::{self, grpc};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic::{Request, client};
use tonic_prost::ProstCodec;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match *arguments {
        [] => check(),
        [address] => wait(&start(address, None)?),
        [address, chain, key] => {
            let provider = Provider::aws_lc_rs();
            let certificates = Certificates::from_files(&provider, [(chain, key)])?;
            wait(&start(address, Some(ServerConfig::builder(&provider, certificates).build()?))?)
        }
        _ => Err("usage: grpc_interop [ADDRESS [CHAIN KEY]]".into()),
    }
}

fn start(address: &str, tls: Option<ServerConfig>) -> Result<ServerHandle, Box<dyn Error>> {
    let load = Load::default();
    let routes = Routes::new(TestService(load.clone())).add_service(LoadReports(load)).prepare();
    let mut server = Server::bind(address)?.limits(grpc::limits()).loops(1);
    if let Some(tls) = tls {
        server = server.tls(tls);
    }
    Ok(server.serve(tower::function(grpc::Deadlines::new(Echo(routes))))?)
}

fn wait(server: &ServerHandle) -> Result<(), Box<dyn Error>> {
    println!("listening on {}", server.address());
    server.wait();
    Ok(())
}

/// Makes one call.
fn check() -> Result<(), Box<dyn Error>> {
    let server = start("127.0.0.1:0", None)?;
    let url = format!("http://{}", server.address());
    // The client needs a runtime; the server has none but its loop.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bytes = runtime.block_on(async {
        let mut client = client::Grpc::new(Endpoint::from_shared(url)?.connect().await?);
        client.ready().await?;
        let request = Request::new(SimpleRequest { response_size: 1000, ..SimpleRequest::default() });
        let path = PathAndQuery::from_static("/grpc.testing.TestService/UnaryCall");
        let response: SimpleResponse = client.unary(request, path, ProstCodec::default()).await?.into_inner();
        Ok::<_, Box<dyn Error>>(response.payload.map_or(0, |payload| payload.body.len()))
    })?;
    if bytes != 1000 {
        return Err(format!("a payload of {bytes} bytes").into());
    }
    println!("a payload of {bytes} bytes, as the client asked for");
    server.drain(Duration::from_secs(1));
    Ok(())
}

#[test]
fn it_checks_itself() {
    check().expect("the call has its response");
}
