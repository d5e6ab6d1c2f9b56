//! Folders that end with their test, servers under test, and waiting for a state.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::ServerHandle;
use tidegate::acme::{Acme, AcmeBuilder, AcmeLimits, AcmeStatus, FolderStore};
use tidegate::http::{Router, Server};
use tidegate::tls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tidegate::tls::rustls::crypto::CryptoProvider;
use tidegate::tls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tidegate::tls::rustls::{self, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use tidegate::tls::{Provider, ServerConfig};

use crate::authority::Authority;

/// A folder of the test's own, removed at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("tidegate-acme-{}-{number}", std::process::id())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn store(&self) -> FolderStore {
        FolderStore::open(&self.0).expect("a folder")
    }

    /// The files whose names begin so.
    pub(crate) fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten();
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let begins = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
        paths.filter(begins).collect()
    }

    /// Waits until a failure is kept: its file comes behind the status that has it.
    pub(crate) fn until_failures(&self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.files("failures").is_empty() {
            assert!(Instant::now() < deadline, "no failure is kept");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a failure is kept, and removes it.
    pub(crate) fn forget_failures(&self) {
        self.until_failures();
        self.files("failures").iter().for_each(|path| std::fs::remove_file(path).expect("a file"));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Limits without waits.
pub(crate) fn limits() -> AcmeLimits {
    let mut limits = AcmeLimits::default();
    let short = Duration::from_millis(2);
    [limits.poll_min, limits.poll_max, limits.renewal_info_min] = [short; 3];
    [limits.retry_min, limits.retry_max] = [short; 2];
    limits
}

/// The settings of a certificate for `a.test` and `b.test`.
pub(crate) fn builder(authority: &Authority, folder: &Folder) -> AcmeBuilder {
    let provider = Provider::aws_lc_rs();
    let builder = Acme::builder(&provider, authority.client(), &authority.directory(), folder.store());
    builder.names(["b.test", "a.test"]).limits(limits())
}

/// A server that drains when it is dropped.
pub(crate) struct Running(pub(crate) ServerHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

impl Running {
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address().ip().expect("TCP")
    }
}

/// Serves HTTPS with the certificates, and has the authority validate names there.
pub(crate) fn serve(acme: &Acme, authority: &Authority) -> Running {
    let tls = ServerConfig::builder(&Provider::aws_lc_rs(), acme.certificates()).alpn(["http/1.1"]).build();
    let server = Server::bind("127.0.0.1:0").expect("a port").tls(tls.expect("a configuration")).loops(1);
    let server = Running(server.start(|| Router::new().get("/", || "secret")).expect("a server"));
    authority.lock().target = Some(server.address());
    server
}

/// Serves HTTP, and has the authority validate names there.
pub(crate) fn serve_http(acme: &Acme, authority: &Authority) -> Running {
    let http01 = acme.http01();
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1);
    let router = move || Router::new().get("/", || "plain").with(http01.clone());
    let server = Running(server.start(router).expect("a server"));
    authority.lock().target = Some(server.address());
    server
}

/// Waits until the status is as expected.
pub(crate) fn wait_for(acme: &Acme, is_expected: impl Fn(&AcmeStatus) -> bool) -> AcmeStatus {
    let (mut last, deadline) = (None, Instant::now() + Duration::from_secs(120));
    loop {
        let status = acme.status();
        // A test that hangs shows why.
        if status.last_error != last {
            println!("{status:?}");
            last.clone_from(&status.last_error);
        }
        if is_expected(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "waited in vain: {status:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until an attempt failed, and returns why.
pub(crate) fn wait_for_failure(acme: &Acme) -> String {
    let status = wait_for(acme, |status| status.failed > 0);
    status.last_error.expect("a reason").into()
}

/// The certificates that a client gets which requests `name` and offers these protocols.
pub(crate) fn presented(server: &Running, name: &str, protocols: &[&str]) -> Result<Vec<Vec<u8>>, String> {
    let mut config = accepting_any();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut tls = ClientConnection::new(config.into(), name).expect("a configuration");
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).map_err(|error| error.to_string())?;
    }
    Ok(tls.peer_certificates().expect("a chain").iter().map(|certificate| certificate.to_vec()).collect())
}

/// A configuration of clients that accept any certificate.
pub(crate) fn accepting_any() -> rustls::ClientConfig {
    let provider = Provider::aws_lc_rs().crypto().clone();
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().expect("versions").dangerous();
    builder.with_custom_certificate_verifier(Arc::new(AcceptingAny(provider))).with_no_client_auth()
}

#[derive(Debug)]
struct AcceptingAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptingAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
