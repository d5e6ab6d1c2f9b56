//! `ClientConfig`: the shared configuration of a client's TLS connections.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, KeyLog, RootCertStore, SignatureScheme, SupportedProtocolVersion};

use crate::certificates::{certificates, certified, read};
use crate::error::ConfigError;
use crate::filter::Tls;
use crate::listed::ListedVerifier;
use crate::provider::{Placement, Provider};
use crate::server::{HANDSHAKE_TIMEOUT, check_protocols};

/// The configuration of the client's side. A clone is another handle of the same configuration; sessions are resumed
/// between connections that share it.
#[derive(Clone)]
pub struct ClientConfig {
    tls: Arc<rustls::ClientConfig>,
    handshake_timeout: Duration,
    placement: Placement,
}

/// Builds a [`ClientConfig`]. The client verifies the server's certificate and its name.
///
/// | setting | default | effect |
/// |---|---|---|
/// | [`handshake_timeout`](Self::handshake_timeout) | 10 s | a server that does not finish its handshake |
/// | [`alpn`](Self::alpn) | none | |
/// | [`identity_from_files`](Self::identity_from_files) | none | |
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct ClientBuilder {
    provider: Provider,
    verifier: Arc<dyn ServerCertVerifier>,
    identity: Option<Arc<rustls::sign::CertifiedKey>>,
    alpn: Vec<Vec<u8>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    record_bytes_max: Option<usize>,
    key_log: Option<Arc<dyn KeyLog>>,
    handshake_timeout: Duration,
}

impl ClientConfig {
    /// Begins a configuration that trusts servers which these roots vouch for.
    ///
    /// # Errors
    /// [`ConfigError::NoRoots`].
    pub fn builder(provider: &Provider, roots: RootCertStore) -> Result<ClientBuilder, ConfigError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.crypto().clone());
        let verifier = verifier.build().map_err(|_| ConfigError::NoRoots)?;
        Ok(ClientBuilder::new(provider, verifier))
    }

    /// Begins a configuration that trusts the servers which the system trusts: its root certificates are read now. The
    /// environment names others in `SSL_CERT_FILE`, a file, and `SSL_CERT_DIR`, folders. Roots that cannot be used are
    /// left out, and one line is logged.
    ///
    /// # Errors
    /// [`ConfigError::NoRoots`] if none can be used.
    #[cfg(feature = "platform-roots")]
    pub fn builder_with_platform_roots(provider: &Provider) -> Result<ClientBuilder, ConfigError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (_, ignored) = roots.add_parsable_certificates(found.certs);
        if ignored > 0 || !found.errors.is_empty() {
            let error = found.errors.first().map(tracing::field::display);
            tracing::warn!(subsystem = "tls", ignored, error, "some of the system's root certificates cannot be used");
        }
        Self::builder(provider, roots)
    }

    /// Begins a configuration that trusts the servers which Mozilla trusts. Its root certificates are a part of the
    /// program, as of the version of the crate `webpki-roots`.
    ///
    /// # Errors
    /// The error of rustls.
    #[cfg(feature = "webpki-roots")]
    pub fn builder_with_webpki_roots(provider: &Provider) -> Result<ClientBuilder, ConfigError> {
        Self::builder(provider, webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect())
    }

    /// Begins a configuration that trusts servers which the certificates in a PEM file vouch for, and servers whose own
    /// certificate is in the file. `openssl req -x509` makes such a certificate, which says that it is an authority.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificate that can be a root.
    pub fn builder_with_root_file(provider: &Provider, path: &Path) -> Result<ClientBuilder, ConfigError> {
        let mut roots = RootCertStore::empty();
        let listed = certificates(path, &read(path)?)?;
        for certificate in &listed {
            roots.add(certificate.clone()).map_err(|_| ConfigError::Certificate(path.to_owned()))?;
        }
        let builder = Self::builder(provider, roots)?;
        Ok(ClientBuilder { verifier: Arc::new(ListedVerifier::new(builder.verifier, listed)), ..builder })
    }

    /// Begins a configuration with a verification of the caller's.
    pub fn builder_with_verifier(provider: &Provider, verifier: Arc<dyn ServerCertVerifier>) -> ClientBuilder {
        ClientBuilder::new(provider, verifier)
    }

    /// Begins a configuration that trusts **every** server. Anyone between the client and the server can read and
    /// change their messages: for tests with certificates that no authority has issued, and for nothing else.
    pub fn dangerous_builder_without_verification(provider: &Provider) -> ClientBuilder {
        ClientBuilder::new(provider, Arc::new(NoVerification(provider.crypto().clone())))
    }

    /// The filter of one connection to a server whose certificate has to have this name: a DNS name, or an IP address.
    ///
    /// # Errors
    /// The name is neither.
    pub fn connect(&self, name: &str) -> Result<Tls, ConfigError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| ConfigError::ServerName)?;
        Ok(Tls::client(self, name)?)
    }

    /// The same configuration, offering these protocols instead, the preferred one first (ALPN, RFC 7301).
    ///
    /// # Errors
    /// [`ConfigError::ProtocolName`].
    pub fn with_alpn<P: Into<Vec<u8>>>(&self, protocols: impl IntoIterator<Item = P>) -> Result<Self, ConfigError> {
        let protocols: Vec<_> = protocols.into_iter().map(Into::into).collect();
        check_protocols(&protocols)?;
        let mut tls = rustls::ClientConfig::clone(&self.tls);
        tls.alpn_protocols = protocols;
        Ok(Self { tls: Arc::new(tls), ..self.clone() })
    }

    /// The protocols that the client offers.
    pub fn alpn(&self) -> impl Iterator<Item = &[u8]> {
        self.tls.alpn_protocols.iter().map(Vec::as_slice)
    }

    /// The configuration for rustls: for a protocol that carries the handshake itself, such as QUIC (RFC 9001).
    #[must_use]
    pub fn tls(&self) -> &Arc<rustls::ClientConfig> {
        &self.tls
    }

    /// How long a handshake may take.
    #[must_use]
    pub fn handshake_timeout(&self) -> Duration {
        self.handshake_timeout
    }

    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }
}

impl ClientBuilder {
    fn new(provider: &Provider, verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self {
            provider: provider.clone(),
            verifier,
            identity: None,
            alpn: Vec::new(),
            versions: rustls::DEFAULT_VERSIONS.to_vec(),
            record_bytes_max: None,
            key_log: None,
            handshake_timeout: HANDSHAKE_TIMEOUT,
        }
    }

    /// The protocols that the client offers, the preferred one first (ALPN, RFC 7301).
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// The certificate that the client presents if a server requests one, as PEM files: a chain, and its private key.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub fn identity_from_files(mut self, chain: &Path, key: &Path) -> Result<Self, ConfigError> {
        self.identity = Some(certified(&self.provider, (chain, &read(chain)?), (key, &read(key)?))?);
        Ok(self)
    }

    /// The same as PEM text.
    ///
    /// # Errors
    /// As for [`identity_from_files`](Self::identity_from_files); the path is `certificate` or `key`.
    pub fn identity_from_pem(mut self, chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        let (chain, key) = ((Path::new("certificate"), chain), (Path::new("key"), key));
        self.identity = Some(certified(&self.provider, chain, key)?);
        Ok(self)
    }

    /// The TLS versions; both by default.
    pub fn versions(mut self, versions: &[&'static SupportedProtocolVersion]) -> Self {
        self.versions = versions.to_vec();
        self
    }

    /// How many bytes a record that we send has at most, with its header; 32 to 16,389. By default they are as long as
    /// TLS allows, where that pays.
    pub fn record_bytes_max(mut self, bytes_max: usize) -> Self {
        self.record_bytes_max = Some(bytes_max);
        self
    }

    /// Logs the secrets of each connection, so that Wireshark can decrypt a capture. `Arc::new(rustls::KeyLogFile::new())`
    /// appends them to the file that the environment names in `SSLKEYLOGFILE`. By default nothing logs them.
    pub fn key_log(mut self, log: Arc<dyn KeyLog>) -> Self {
        self.key_log = Some(log);
        self
    }

    /// How long a handshake may take.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// # Errors
    /// [`ConfigError::ProtocolName`], or the error of rustls.
    pub fn build(self) -> Result<ClientConfig, ConfigError> {
        check_protocols(&self.alpn)?;
        let builder = rustls::ClientConfig::builder_with_provider(self.provider.crypto().clone());
        let builder = builder.with_protocol_versions(&self.versions)?;
        // "Dangerous" is every verifier that rustls did not make itself.
        let builder = builder.dangerous().with_custom_certificate_verifier(self.verifier);
        let mut tls = match self.identity {
            Some(identity) => {
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(identity)))
            }
            None => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = self.alpn;
        tls.resumption = Resumption::in_memory_sessions(SERVERS_MAX);
        tls.max_fragment_size = self.record_bytes_max;
        if let Some(log) = self.key_log {
            tls.key_log = log;
        }
        Ok(ClientConfig {
            tls: Arc::new(tls),
            handshake_timeout: self.handshake_timeout,
            placement: self.provider.placement(),
        })
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig").field("alpn", &self.tls.alpn_protocols).finish_non_exhaustive()
    }
}

/// Accepts every certificate; the signatures of the handshake are verified.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Servers whose sessions a client remembers for resumption.
const SERVERS_MAX: usize = 256;
