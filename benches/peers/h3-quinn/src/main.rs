//! h3 on quinn on tokio, on one thread: HTTP/3 with a certificate, at the paths that Tidegate has.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{env, error};

use bytes::Bytes;
use h3::server::RequestResolver;
use http::{HeaderValue, Response, StatusCode, header};
use mimalloc::MiMalloc;
use quinn::crypto::rustls::QuicServerConfig;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The length of the body at a path.
fn length_of(path: &str) -> Option<usize> {
    if path == "/plaintext" { Some(PLAINTEXT.len()) } else { path.strip_prefix("/bytes/")?.parse().ok() }
}

async fn respond(request: RequestResolver<h3_quinn::Connection, Bytes>) -> Result<(), Box<dyn error::Error>> {
    let (request, mut stream) = request.resolve_request().await?;
    let length = length_of(request.uri().path());
    let mut response = Response::new(());
    *response.status_mut() = if length.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let headers = response.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("h3"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::DATE, HeaderValue::from_static("Thu, 01 Jan 2026 00:00:00 GMT"));
    let mut left = length.unwrap_or(0);
    headers.insert(header::CONTENT_LENGTH, left.into());
    // To the end: otherwise it stops the stream, which clients may take for a failure.
    while stream.recv_data().await?.is_some() {}
    stream.send_response(response).await?;
    if left == PLAINTEXT.len() {
        stream.send_data(Bytes::from_static(PLAINTEXT)).await?;
        left = 0;
    }
    while left > 0 {
        let piece = &FILLER[..left.min(FILLER.len())];
        stream.send_data(Bytes::from_static(piece)).await?;
        left -= piece.len();
    }
    Ok(stream.finish().await?)
}

async fn connection(incoming: quinn::Incoming) -> Result<(), Box<dyn error::Error>> {
    let quic = h3_quinn::Connection::new(incoming.await?);
    let mut connection = h3::server::builder().send_grease(false).build(quic).await?;
    while let Some(request) = connection.accept().await? {
        tokio::task::spawn_local(async move { drop(respond(request).await) });
    }
    Ok(())
}

async fn serve(address: SocketAddr, config: quinn::ServerConfig) -> Result<(), Box<dyn error::Error>> {
    let endpoint = quinn::Endpoint::server(config, address)?;
    println!("listening on {}", endpoint.local_addr()?);
    while let Some(incoming) = endpoint.accept().await {
        // An error of a connection is the peer's: it is not reported.
        tokio::task::spawn_local(async move { drop(connection(incoming).await) });
    }
    Ok(())
}

/// quinn as it is by default, with the number of streams and the idle timeout that Tidegate has.
fn config(chain: &str, key: &str) -> Result<quinn::ServerConfig, Box<dyn error::Error>> {
    let chain = CertificateDer::pem_file_iter(chain)?.collect::<Result<_, _>>()?;
    let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let tls = tls.with_protocol_versions(&[&rustls::version::TLS13])?.with_no_client_auth();
    let mut tls = tls.with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    tls.ticketer = aws_lc_rs::Ticketer::new()?;
    tls.alpn_protocols = vec![b"h3".into()];
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let mut transport = quinn::TransportConfig::default();
    transport.max_concurrent_bidi_streams(100_u32.into());
    transport.max_idle_timeout(Some(Duration::from_secs(60).try_into()?));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [address, chain, key] = &arguments[..] else { return Err("usage: h3-quinn-peer ADDRESS CHAIN.pem KEY.pem".into()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = serve(address.parse()?, config(chain, key)?);
    tokio::task::LocalSet::new().block_on(&runtime, served)
}

const PLAINTEXT: &[u8] = b"Hello, World!";

static FILLER: [u8; 64 * 1024] = [b'x'; 64 * 1024];
