//! `Tls`: the TLS 1.3 pipeline. Its raw peer is a client of rustls' own, with buffers.
//!
//! The certificate has an Ed25519 key, and no session is resumed, so the messages of all handshakes have the same
//! length: a seed decides everything about a play except the bytes of its records.

use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate::tls::rustls::client::Resumption;
use tidegate::tls::rustls::pki_types::CertificateDer;
use tidegate::tls::rustls::pki_types::pem::PemObject;
use tidegate::tls::rustls::{self, ClientConnection, RootCertStore};
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate_codec::framing::Raw;
use tidegate_codec::{Over, Pipeline};

use super::transport::{MakeTransport, Transport};
use super::{Stack, as_they_are};

pub(crate) struct Tls;

impl Stack for Tls {
    type Codec = Over<tidegate::tls::Tls, Raw>;
    type With<C: Pipeline> = Over<tidegate::tls::Tls, C>;

    const NAME: &'static str = "tls";
    const FILTERED: bool = true;
    const TRANSPORT: Option<MakeTransport> = Some(|| Box::new(Buffered::new()));

    fn server() -> Self::Codec {
        Self::server_with(Raw)
    }

    fn client() -> Self::Codec {
        Self::client_with(Raw)
    }

    fn server_with<C: Pipeline>(codec: C) -> Self::With<C> {
        static CONFIG: OnceLock<ServerConfig> = OnceLock::new();
        let config = CONFIG.get_or_init(|| {
            let provider = Provider::ring();
            let certificates = Certificates::from_pem(&provider, CHAIN, KEY).expect("a certificate");
            let config = ServerConfig::builder(&provider, certificates).handshake_timeout(LONG);
            config.build().expect("a configuration")
        });
        Over::new(config.accept(), codec)
    }

    fn client_with<C: Pipeline>(codec: C) -> Self::With<C> {
        // One configuration for all would resume sessions.
        let config = ClientConfig::builder(&Provider::ring(), roots()).expect("a root");
        let config = config.handshake_timeout(LONG).build().expect("a configuration");
        Over::new(config.connect(NAME).expect("a name"), codec)
    }

    fn map<C: Pipeline, D: Pipeline>(from: Self::With<C>, to: impl FnOnce(C) -> D) -> Self::With<D> {
        from.map(to)
    }

    fn wire_bytes(plain: usize) -> usize {
        plain
    }

    /// The type and the version of a record.
    fn handshake_start() -> Vec<u8> {
        vec![22, 3]
    }

    fn broken_handshake() -> Option<Vec<u8>> {
        Some(b"GET / HTTP/1.1\r\n\r\n".to_vec())
    }

    as_they_are!();
}

/// A client of rustls, in the manner of a program with blocking sockets.
struct Buffered(ClientConnection);

impl Buffered {
    fn new() -> Self {
        static CONFIG: OnceLock<Arc<rustls::ClientConfig>> = OnceLock::new();
        let config = CONFIG.get_or_init(|| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider);
            let config = config.with_safe_default_protocol_versions().expect("versions");
            let mut config = config.with_root_certificates(roots()).with_no_client_auth();
            config.resumption = Resumption::disabled();
            Arc::new(config)
        });
        let name = NAME.try_into().expect("a name");
        let mut connection = ClientConnection::new(config.clone(), name).expect("a configuration");
        connection.set_buffer_limit(None);
        Self(connection)
    }
}

impl Transport for Buffered {
    fn outgoing(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut wire).expect("memory takes bytes");
        }
        wire
    }

    fn write(&mut self, plain: &[u8]) {
        self.0.writer().write_all(plain).expect("the buffer has no limit");
    }

    fn receive(&mut self, mut wire: &[u8]) -> Result<Vec<u8>, String> {
        let mut plain = Vec::new();
        while !wire.is_empty() {
            self.0.read_tls(&mut wire).expect("memory has bytes");
            let state = self.0.process_new_packets().map_err(|error| error.to_string())?;
            let before = plain.len();
            plain.resize(before + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[before..]).expect("so many bytes");
        }
        Ok(plain)
    }

    fn close(&mut self) {
        self.0.send_close_notify();
    }

    /// The tickets belong to the handshake: the scenario sends the later bytes.
    fn is_established(&self) -> bool {
        !self.0.is_handshaking() && self.0.tls13_tickets_received() >= TICKETS
    }
}

fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CHAIN).expect("a certificate")).expect("a root");
    roots
}

/// It is valid until 2126.
const CHAIN: &[u8] = include_bytes!("ed25519.pem");
const KEY: &[u8] = include_bytes!("ed25519.key");
const NAME: &str = "tide.test";

/// A server sends so many.
const TICKETS: u32 = 2;

/// Longer than any scenario: scenarios test the engine's deadlines, not these.
const LONG: Duration = Duration::from_secs(100_000);
