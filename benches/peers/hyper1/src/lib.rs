//! hyper 1 on one thread: HTTP/1.1 with pipelined responses flushed together; HTTPS with a certificate; HTTP/2 by ALPN, or
//! in clear by prior knowledge.

use std::net::SocketAddr;
use std::sync::Arc;
use std::{env, error};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let mut response = match request.uri().path() {
        "/plaintext" => Response::new(Full::new(Bytes::from_static(b"Hello, World!"))),
        "/echo" => Response::new(Full::new(request.into_body().collect().await?.to_bytes())),
        "/sum" => Response::new(Full::new(sum(request.into_body()).await?.into())),
        path => match filler(path) {
            Some(bytes) => Response::new(Full::new(Bytes::from_static(bytes))),
            None => {
                let mut missing = Response::new(Full::default());
                *missing.status_mut() = StatusCode::NOT_FOUND;
                missing
            }
        },
    };
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("hyper"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// The body of `/bytes/N`.
fn filler(path: &str) -> Option<&'static [u8]> {
    FILLER.get(..path.strip_prefix("/bytes/")?.parse().ok()?)
}

/// The length of a body and its CRC-32, in Tidegate's format.
async fn sum(mut body: Incoming) -> Result<String, hyper::Error> {
    let (mut length, mut remainder) = (0, crc32fast::Hasher::new());
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            length += data.len();
            remainder.update(data);
        }
    }
    Ok(format!("{length} {:08x}\n", remainder.finalize()))
}

/// The protocol of the connections.
enum Protocol {
    Http1,
    /// HTTP/2 in clear.
    Http2,
    /// HTTP/2 or HTTP/1.1, by ALPN.
    Tls(TlsAcceptor),
}

async fn serve(address: SocketAddr, protocol: Protocol) -> Result<(), Box<dyn error::Error>> {
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        // An error of a connection is the peer's: it is not reported.
        match &protocol {
            Protocol::Http1 => tokio::spawn(http1_connection(socket)),
            Protocol::Http2 => tokio::spawn(http2_connection(socket)),
            Protocol::Tls(tls) => {
                let accepted = tls.accept(socket);
                tokio::spawn(async move {
                    let Ok(stream) = accepted.await else { return };
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        http2_connection(stream).await;
                    } else {
                        http1_connection(stream).await;
                    }
                })
            }
        };
    }
}

async fn http1_connection(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let connection =
        http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(stream), service_fn(respond));
    drop(connection.await);
}

async fn http2_connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let builder = http2::Builder::new(TokioExecutor::new());
    drop(builder.serve_connection(TokioIo::new(stream), service_fn(respond)).await);
}

/// tokio-rustls as it is by default, with the cryptography of AWS-LC, as Tidegate's feature `tls` has it.
fn acceptor(chain: &str, key: &str) -> Result<TlsAcceptor, Box<dyn error::Error>> {
    let chain = CertificateDer::pem_file_iter(chain)?.collect::<Result<_, _>>()?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions()?.with_no_client_auth();
    let mut config = config.with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    // Resumption by tickets, as Tidegate and nginx have it; by default rustls remembers 256 sessions.
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    config.alpn_protocols = vec![b"h2".into(), b"http/1.1".into()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The whole program except its allocator, which each binary chooses.
///
/// # Errors
///
/// If there is no address to listen on, it is in use, or a certificate or key cannot be used.
pub fn run() -> Result<(), Box<dyn error::Error>> {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().ok_or("usage: hyper1 ADDRESS [http2 | CHAIN.pem KEY.pem]")?.parse()?;
    let protocol = match (arguments.next(), arguments.next()) {
        (None, _) => Protocol::Http1,
        (Some(chain), Some(key)) => Protocol::Tls(acceptor(&chain, &key)?),
        (Some(_), None) => Protocol::Http2,
    };
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(serve(address, protocol))
}

static FILLER: [u8; 64 * 1024] = [b'x'; 64 * 1024];
