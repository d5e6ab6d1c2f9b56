//! Makes TLS 1.3 connections to a server, one after the other on each of some threads, and prints how many: a load of
//! handshakes, full or resumed. Each connection makes one request, so that a full handshake includes its tickets.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CipherSuite, ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore, Stream};

type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str = "usage: handshakes full|resumed x25519|x25519mlkem768 ROOT.pem PORT THREADS SECONDS";
const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

struct Options {
    resumed: bool,
    group: NamedGroup,
    root: CertificateDer<'static>,
    server: SocketAddr,
    seconds: Duration,
}

fn config(options: &Options) -> Result<ClientConfig, Failure> {
    let mut provider = aws_lc_rs::default_provider();
    // The same for every server, whatever either of them prefers.
    provider.kx_groups.retain(|group| group.name() == options.group);
    provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_256_GCM_SHA384);
    let mut roots = RootCertStore::empty();
    roots.add(options.root.clone())?;
    let config = ClientConfig::builder_with_provider(Arc::new(provider));
    let config = config.with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    if !options.resumed {
        config.resumption = Resumption::disabled();
    }
    Ok(config)
}

/// One connection: whether its handshake was resumed.
fn connect(server: SocketAddr, config: &Arc<ClientConfig>) -> Result<bool, Failure> {
    let mut socket = TcpStream::connect(server)?;
    socket.set_nodelay(true)?;
    let mut tls = ClientConnection::new(config.clone(), "localhost".try_into()?)?;
    let mut response = Vec::new();
    Stream::new(&mut tls, &mut socket).write_all(REQUEST)?;
    Stream::new(&mut tls, &mut socket).read_to_end(&mut response)?;
    if !response.starts_with(b"HTTP/1.1 200 ") {
        return Err(format!("answered {:?}", String::from_utf8_lossy(&response)).into());
    }
    tls.send_close_notify();
    // The server may have closed, which is the end that it should have.
    let _ = tls.write_tls(&mut socket);
    let _ = socket.shutdown(Shutdown::Both);
    Ok(tls.handshake_kind() == Some(HandshakeKind::Resumed))
}

/// The connections of a thread.
fn run(options: &Options, start: Instant) -> Result<usize, Failure> {
    let config = Arc::new(config(options)?);
    if options.resumed {
        // The first has no ticket.
        connect(options.server, &config)?;
    }
    let mut count = 0;
    while start.elapsed() < options.seconds {
        if connect(options.server, &config)? != options.resumed {
            return Err("a full handshake instead of a resumed one, or the other way around".into());
        }
        count += 1;
    }
    Ok(count)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [kind, group, root, port, threads, seconds] = &arguments[..] else { return Err(USAGE.into()) };
    let options = Options {
        resumed: match &kind[..] {
            "full" => false,
            "resumed" => true,
            _ => return Err(USAGE.into()),
        },
        group: match &group[..] {
            "x25519" => NamedGroup::X25519,
            "x25519mlkem768" => NamedGroup::X25519MLKEM768,
            _ => return Err(USAGE.into()),
        },
        root: CertificateDer::from_pem_file(root)?,
        server: (Ipv4Addr::LOCALHOST, port.parse()?).into(),
        seconds: Duration::from_secs_f64(seconds.parse()?),
    };
    let (count, start) = (AtomicUsize::new(0), Instant::now());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.parse()?)
            .map(|_: usize| scope.spawn(|| run(&options, start).map(|own| count.fetch_add(own, Ordering::Relaxed))))
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok::<(), Failure>(())
    })?;
    println!("{}", count.into_inner());
    Ok(())
}
