//! Certificates for tests, a server and a client with the test as the wire between them, and their messages.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::error::Error;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::{RootCertStore, SupportedProtocolVersion};
use tidegate::codec::Pipeline;
use tidegate::framing::{Payload, Raw};
use tidegate::{Channel, Over, Slice, task};
use tidegate_testkit::Embedded;
use tidegate_tls::{Certificates, ClientBuilder, ClientConfig, Provider, ServerBuilder, ServerConfig, Tls};

/// A chain as PEM text, its key, and its first certificate.
pub(crate) struct Identity {
    pub(crate) chain: String,
    pub(crate) key: String,
    pub(crate) first: CertificateDer<'static>,
}

impl Identity {
    /// A certificate for [`NAME`] that vouches for itself.
    pub(crate) fn self_signed() -> Self {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let key = made.signing_key.serialize_pem();
        Self { chain: made.cert.pem(), key, first: made.cert.der().clone() }
    }

    pub(crate) fn certificates(&self, provider: &Provider) -> Certificates {
        Certificates::from_pem(provider, self.chain.as_bytes(), self.key.as_bytes()).unwrap()
    }
}

/// An authority that signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) roots: RootCertStore,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "authority");
        let certificate = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        Self { issuer: Issuer::new(params, key), roots }
    }

    /// A certificate for [`NAME`], unless `change` changes that.
    pub(crate) fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { chain: certificate.pem(), key: key.serialize_pem(), first: certificate.der().clone() }
    }
}

pub(crate) fn providers() -> [Provider; 2] {
    [Provider::aws_lc_rs(), Provider::ring()]
}

pub(crate) const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// Configurations of both roles, where the client trusts the server's certificate.
pub(crate) fn configurations(
    provider: &Provider,
    server: impl FnOnce(ServerBuilder) -> ServerBuilder,
    client: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (ServerConfig, ClientConfig) {
    let identity = Identity::self_signed();
    let mut roots = RootCertStore::empty();
    roots.add(identity.first.clone()).unwrap();
    let server = server(ServerConfig::builder(provider, identity.certificates(provider)));
    let client = client(ClientConfig::builder(provider, roots).unwrap());
    (server.build().unwrap(), client.build().unwrap())
}

/// ring has no long keys for key exchange, so its handshakes are short.
pub(crate) fn usual() -> (ServerConfig, ClientConfig) {
    configurations(&Provider::ring(), |server| server, |client| client)
}

/// A decimal number and a line feed get as many bytes.
pub(crate) async fn serve<P: Pipeline<In = Slice, Out = Payload>>(
    mut channel: Channel<P>,
) -> Result<(), Box<dyn Error>> {
    let mut wanted = 0_u64;
    while let Some(request) = channel.recv().await? {
        for byte in request.iter() {
            match byte {
                b'0'..=b'9' => wanted = wanted.saturating_mul(10).saturating_add(u64::from(byte - b'0')),
                b'\n' => send(&mut channel, std::mem::take(&mut wanted)).await?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Sends so many bytes of [`WATER`], as fast as the peer reads them.
async fn send<P: Pipeline<Out = Payload>>(channel: &mut Channel<P>, mut left: u64) -> Result<(), Box<dyn Error>> {
    while left > 0 {
        let count = left.min(WATER.len() as u64);
        channel.ready().await?;
        channel.send(WATER[..count as usize].into())?;
        left -= count;
    }
    Ok(())
}

/// Downloads so many bytes and compares them.
pub(crate) async fn download<P>(channel: &mut Channel<P>, bytes: usize) -> Result<(), Box<dyn Error>>
where
    P: Pipeline<In = Slice, Out = Payload>,
{
    channel.send(format!("{bytes}\n").into())?;
    let mut received = 0;
    while received < bytes {
        let piece = channel.recv().await?.ok_or("the server has ended")?;
        for part in piece.chunks(WATER.len()) {
            let at = received % WATER.len();
            let (first, second) = part.split_at(part.len().min(WATER.len() - at));
            if first != &WATER[at..][..first.len()] || second != &WATER[..second.len()] {
                return Err(format!("other bytes than expected from {received} on").into());
            }
            received += part.len();
        }
    }
    if received == bytes { Ok(()) } else { Err(format!("{received} bytes instead of {bytes}").into()) }
}

/// A server and a client, each on a loop of its own, with the test as the wire between them.
pub(crate) struct Pair {
    pub(crate) server: Embedded<Infallible>,
    pub(crate) client: Embedded<Infallible>,
    /// How many downloads are complete.
    pub(crate) done: Rc<Cell<usize>>,
    pub(crate) failure: Rc<RefCell<Option<String>>>,
    /// The client's handshake parameters after the first download.
    pub(crate) agreed: Rc<RefCell<Option<Agreed>>>,
}

/// The agreed parameters of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) version: Option<rustls::ProtocolVersion>,
    pub(crate) is_resumed: bool,
    pub(crate) peer_certificate: Option<Vec<u8>>,
}

impl Agreed {
    pub(crate) fn of(tls: &Tls) -> Self {
        Self {
            alpn: tls.alpn().map(<[u8]>::to_vec),
            version: tls.version(),
            is_resumed: tls.is_resumed(),
            peer_certificate: tls.peer_certificates().map(|chain| chain[0].to_vec()),
        }
    }
}

impl Pair {
    /// The client downloads so many bytes each time, and waits for a second after each.
    pub(crate) fn new((server, client): &(ServerConfig, ClientConfig), sizes: &'static [usize]) -> Self {
        Self::with_name(server, client, NAME, sizes)
    }

    pub(crate) fn with_name(server: &ServerConfig, client: &ClientConfig, name: &str, sizes: &'static [usize]) -> Self {
        let (done, failure, agreed) = (
            Rc::<Cell<usize>>::default(),
            Rc::<RefCell<Option<String>>>::default(),
            Rc::<RefCell<Option<Agreed>>>::default(),
        );
        let (counter, reason, report) = (done.clone(), Rc::clone(&failure), Rc::clone(&agreed));
        let downloads = async move |mut channel: Channel<Over<Tls, Raw>>| {
            for size in sizes {
                if let Err(error) = download(&mut channel, *size).await {
                    *reason.borrow_mut() = Some(error.to_string());
                    return Ok(());
                }
                *report.borrow_mut() = Some(channel.with_codec(|codec| Agreed::of(codec.filter()))?);
                counter.set(counter.get() + 1);
                task::sleep(Duration::from_secs(1)).await;
            }
            channel.close().await
        };
        Self {
            server: Embedded::serving(Over::new(server.accept(), Raw), serve),
            client: Embedded::serving(Over::new(client.connect(name).unwrap(), Raw), downloads),
            done,
            failure,
            agreed,
        }
    }

    /// Carries bytes, in pieces of at most `piece`, until none are left.
    pub(crate) fn exchange(&mut self, piece: usize) {
        loop {
            let (to_client, to_server) = (self.server.take_written(), self.client.take_written());
            if to_client.is_empty() && to_server.is_empty() {
                return;
            }
            to_client.chunks(piece).for_each(|piece| self.client.receive(piece));
            to_server.chunks(piece).for_each(|piece| self.server.receive(piece));
        }
    }

    /// A second passes for the client.
    pub(crate) fn advance(&mut self) {
        self.client.advance(Duration::from_secs(1));
    }

    /// How many bytes either side has copied.
    pub(crate) fn copied(&self) -> [u64; 2] {
        let copied = |pipe: &Embedded<Infallible>| pipe.pool().ledger().copied_bytes();
        [copied(&self.server), copied(&self.client)].map(|bytes| bytes.expect("tests have debug assertions"))
    }

    /// How many bytes of memory either side uses.
    pub(crate) fn used(&self) -> [usize; 2] {
        [&self.server, &self.client].map(|pipe| pipe.pool().ledger().used())
    }

    /// The client's handshake parameters after the first download, which must have succeeded.
    pub(crate) fn agreed(&self) -> Agreed {
        self.agreed.borrow().clone().unwrap_or_else(|| panic!("no download: {:?}", self.failure))
    }
}

/// A client of rustls' own, with buffers, that the test drives against a server on a loop.
pub(crate) struct Foreign {
    pub(crate) tls: rustls::ClientConnection,
    pub(crate) server: Embedded<Infallible>,
}

impl Foreign {
    pub(crate) fn new(server: &ServerConfig, config: rustls::ClientConfig) -> Self {
        Self::try_new(server, config).unwrap()
    }

    /// The same, or why the handshake failed.
    pub(crate) fn try_new(server: &ServerConfig, config: rustls::ClientConfig) -> Result<Self, rustls::Error> {
        let tls = rustls::ClientConnection::new(config.into(), NAME.try_into().unwrap()).unwrap();
        let mut foreign = Self { tls, server: Embedded::serving(Over::new(server.accept(), Raw), serve) };
        foreign.exchange()?;
        Ok(foreign)
    }

    /// Carries bytes until none are left.
    pub(crate) fn exchange(&mut self) -> Result<(), rustls::Error> {
        loop {
            let mut sent = Vec::new();
            while self.tls.wants_write() {
                self.tls.write_tls(&mut sent).unwrap();
            }
            self.server.receive(&sent);
            let written = self.server.take_written();
            if sent.is_empty() && written.is_empty() {
                return Ok(());
            }
            let mut rest = &written[..];
            while !rest.is_empty() {
                self.tls.read_tls(&mut rest).unwrap();
                self.tls.process_new_packets()?;
            }
        }
    }

    /// Requests so many bytes, and returns the received bytes.
    pub(crate) fn request(&mut self, bytes: usize) -> Result<Vec<u8>, rustls::Error> {
        self.tls.writer().write_all(format!("{bytes}\n").as_bytes()).unwrap();
        self.exchange()?;
        let mut received = vec![0; bytes];
        self.tls.reader().read_exact(&mut received).unwrap();
        Ok(received)
    }
}

/// A configuration of rustls' own that trusts every server.
pub(crate) fn foreign_config(version: &'static SupportedProtocolVersion) -> rustls::ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let verifier = std::sync::Arc::new(support_verifier::Any(provider.clone()));
    rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth()
}

mod support_verifier {
    use std::sync::Arc;

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::CryptoProvider;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};

    /// Accepts every certificate and every signature.
    #[derive(Debug)]
    pub(super) struct Any(pub(super) Arc<CryptoProvider>);

    impl ServerCertVerifier for Any {
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
}

/// The length of the first record, if it is complete.
pub(crate) fn record_bytes(wire: &[u8]) -> Option<usize> {
    let [_, _, _, high, low] = wire.first_chunk::<5>()?;
    let bytes = 5 + usize::from(u16::from_be_bytes([*high, *low]));
    (bytes <= wire.len()).then_some(bytes)
}

/// The name of the server.
pub(crate) const NAME: &str = "tide.test";

/// The downloaded bytes, repeated: no two records of them are alike.
pub(crate) static WATER: [u8; WATER_BYTES] = {
    let (mut water, mut index, mut state) = ([0; WATER_BYTES], 0, 1_u32);
    while index < WATER_BYTES {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        water[index] = (state >> 24) as u8;
        index += 1;
    }
    water
};

const WATER_BYTES: usize = 64 * 1024;
