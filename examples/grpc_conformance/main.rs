//! The server that `connectconformance` tests: a gRPC service by tonic on our loops.
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

use messages::{ServerCompatRequest, ServerCompatResponse, TlsCreds};
use prost::Message;
use service::Conformance;
use tidegate::ServerHandle;
use tidegate::http::Server;
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::rustls::pki_types::CertificateDer;
use tidegate::tls::rustls::pki_types::pem::PemObject;
use tidegate::tls::{Certificates, ClientCertificates, Provider, ServerConfig};
use tidegate::tower::{self, grpc};

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).is_none() {
        return check();
    }
    let mut length = [0; 4];
    io::stdin().read_exact(&mut length)?;
    let mut request = vec![0; u32::from_be_bytes(length) as usize];
    io::stdin().read_exact(&mut request)?;
    let request = ServerCompatRequest::decode(&*request)?;
    let server = start(&request)?;
    let response = response(&server, request)?.encode_to_vec();
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
    let mut server = Server::bind("127.0.0.1:0")?.limits(grpc::limits()).loops(1);
    if request.use_tls {
        server = server.tls(tls(request)?);
    }
    Ok(server.serve(tower::function(service))?)
}

/// The certificate that the runner has made, and, if clients need one, theirs as the only one that is trusted.
fn tls(request: &ServerCompatRequest) -> Result<ServerConfig, Box<dyn Error>> {
    let TlsCreds { cert, key } = request.server_creds.as_ref().ok_or("the runner sends no certificate")?;
    let provider = Provider::aws_lc_rs();
    let mut server = ServerConfig::builder(&provider, Certificates::from_pem(&provider, cert, key)?);
    if !request.client_tls_cert.is_empty() {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&request.client_tls_cert) {
            roots.add(certificate?)?;
        }
        server = server.client_certificates(ClientCertificates::Required(roots.into()));
    }
    Ok(server.build()?)
}

fn response(server: &ServerHandle, request: ServerCompatRequest) -> Result<ServerCompatResponse, Box<dyn Error>> {
    let address = server.address().ip().ok_or("the server has an IP address")?;
    let pem_cert = request.server_creds.map_or_else(Vec::new, |credentials| credentials.cert);
    Ok(ServerCompatResponse { host: address.ip().to_string(), port: address.port().into(), pem_cert })
}

/// Starts as the runner would have it, and ends.
fn check() -> Result<(), Box<dyn Error>> {
    let request = ServerCompatRequest::default();
    let server = start(&request)?;
    let ServerCompatResponse { host, port, .. } = response(&server, request)?;
    println!("the service of connectconformance would be at {host}:{port}");
    server.drain(Duration::from_secs(1));
    Ok(())
}

#[test]
fn it_checks_itself() {
    check().expect("it starts");
}
