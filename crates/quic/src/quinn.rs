//! The types of quinn-proto that this crate uses, its configuration, and its errors as ours. No other file names quinn-proto,
//! so another state machine with the same interface, such as noq-proto, needs changes here alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
#[cfg(feature = "qlog")]
use quinn_proto::QlogConfig;
use quinn_proto::congestion::CubicConfig;
use quinn_proto::crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::{AeadKey, CryptoError, HandshakeTokenKey, HmacKey};
use quinn_proto::{
    AckFrequencyConfig, ConnectError, ConnectionError as MachineError, ConnectionIdGenerator, EcnCodepoint,
    EndpointConfig, IdleTimeout, InvalidCid, MtuDiscoveryConfig, RandomConnectionIdGenerator, SendDatagramError,
    TransportConfig,
};
pub(crate) use quinn_proto::{
    Connection as Machine, ConnectionHandle, ConnectionId, DatagramEvent, Dir, Endpoint as Machines, Event,
    FinishError, Incoming, ReadError, Side, StreamEvent, StreamId, Transmit as Sent, WriteError,
};
use tidegate_buffer::Ecn;
use tidegate_codec::{DatagramQueue, DatagramRefused, EndpointPlace, Handshake};
use tidegate_tls::SealingKey;
use tidegate_tls::rustls;
use tidegate_tls::rustls::pki_types::CertificateDer;

use crate::connection_ids::{LENGTH, mark, origin_of};
use crate::error::{ConfigError, ConnectionError};
use crate::generation::Generation;
use crate::limits::{ETHERNET_PAYLOAD_BYTES, STREAM_WINDOW_MAX, TransportLimits};
#[cfg(feature = "qlog")]
use crate::qlog::QlogFolder;

/// The configuration that all endpoints of a server or client share, with the keys of stateless resets and of tokens.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    endpoint: EndpointConfig,
    server: Option<quinn_proto::ServerConfig>,
    transport: Arc<TransportConfig>,
}

/// The configuration of a client's connections.
pub(crate) use quinn_proto::ClientConfig as Outgoing;

/// The configuration of a server's connections.
pub(crate) use quinn_proto::ServerConfig as OfServer;

/// The cryptography of a server.
pub(crate) type ServerCrypto = Arc<QuicServerConfig>;

/// The cryptography of a server with this TLS.
pub(crate) fn server_crypto(tls: Arc<rustls::ServerConfig>) -> Result<ServerCrypto, ConfigError> {
    Ok(Arc::new(QuicServerConfig::try_from(tls).map_err(|_| ConfigError::Tls)?))
}

impl Shared {
    /// The configuration of a server, or of an endpoint that only connects.
    pub(crate) fn new(
        limits: &TransportLimits,
        crypto: Option<ServerCrypto>,
        migrates: bool,
    ) -> Result<Self, ConfigError> {
        let mut endpoint = EndpointConfig::default();
        let payload_max = endpoint.max_udp_payload_size(limits.payload_bytes_max);
        payload_max.map_err(|_| ConfigError::Limit("payload_bytes_max"))?;
        endpoint.supported_versions(vec![VERSION]);
        let transport = Arc::new(transport(limits)?);
        let server = crypto.map(|crypto| {
            let mut server = quinn_proto::ServerConfig::with_crypto(crypto);
            server.transport_config(transport.clone());
            server.migration(migrates);
            // Incoming connections are decided on at once, so nothing waits there.
            server.max_incoming(limits.handshakes_max);
            server.incoming_buffer_size(INCOMING_BYTES).incoming_buffer_size_total(INCOMING_BYTES);
            server
        });
        Ok(Self { endpoint, server, transport })
    }

    /// The same with another cryptography.
    pub(crate) fn with_crypto(mut self, crypto: ServerCrypto) -> Self {
        self.server = self.server.map(|mut server| {
            server.crypto = crypto;
            server
        });
        self
    }

    /// The state machine of one endpoint, and the last connection id that it has chosen.
    pub(crate) fn machines(&self, own: EndpointPlace, generation: Option<&Arc<Generation>>) -> (Machines, LastId) {
        let (mut endpoint, mut server) = (self.endpoint.clone(), self.server.clone());
        if let Some([reset, token]) = generation.and_then(|generation| generation.keys()) {
            endpoint.reset_key(Arc::new(ResetKey(reset)));
            server.as_mut().map(|server| server.token_key(Arc::new(TokenKey(token))));
        }
        let (last, generation) = (LastId::default(), generation.cloned());
        let of_ids = last.clone();
        endpoint.cid_generator(move || {
            let (last, generation) = (of_ids.clone(), generation.clone());
            Box::new(Ids { own, generation, last, random: RandomConnectionIdGenerator::new(LENGTH) })
        });
        (Machines::new(Arc::new(endpoint), server.map(Arc::new), true, None), last)
    }

    /// The configuration of a connection that a client makes.
    pub(crate) fn outgoing(&self, tls: Arc<rustls::ClientConfig>, early_data: bool) -> Result<Outgoing, ConfigError> {
        let mut tls = tls;
        if early_data != tls.enable_early_data {
            Arc::make_mut(&mut tls).enable_early_data = early_data;
        }
        let tls = QuicClientConfig::try_from(tls).map_err(|_| ConfigError::Tls)?;
        let mut outgoing = Outgoing::new(Arc::new(tls));
        outgoing.transport_config(self.transport.clone()).version(VERSION);
        Ok(outgoing)
    }
}

#[cfg(feature = "qlog")]
impl Shared {
    /// The configuration of one connection of a server, with a file of its own.
    pub(crate) fn server_with_qlog(&self, limits: &TransportLimits, qlog: &QlogFolder) -> Option<Arc<OfServer>> {
        let mut server = self.server.clone()?;
        server.transport_config(Arc::new(transport_with_qlog(limits, qlog)?));
        Some(Arc::new(server))
    }
}

/// The configuration of one connection of a client, with a file of its own.
#[cfg(feature = "qlog")]
pub(crate) fn outgoing_with_qlog(outgoing: &Outgoing, limits: &TransportLimits, qlog: &QlogFolder) -> Option<Outgoing> {
    let mut outgoing = outgoing.clone();
    outgoing.transport_config(Arc::new(transport_with_qlog(limits, qlog)?));
    Some(outgoing)
}

#[cfg(feature = "qlog")]
fn transport_with_qlog(limits: &TransportLimits, qlog: &QlogFolder) -> Option<TransportConfig> {
    let mut transport = transport(limits).ok()?;
    let mut config = QlogConfig::default();
    config.writer(Box::new(qlog.next()?));
    transport.qlog_stream(config.into_stream());
    Some(transport)
}

fn transport(limits: &TransportLimits) -> Result<TransportConfig, ConfigError> {
    if limits.stream_window > STREAM_WINDOW_MAX {
        return Err(ConfigError::Limit("stream_window"));
    }
    let idle = limits.idle_timeout.map(IdleTimeout::try_from).transpose();
    let idle = idle.map_err(|_| ConfigError::Limit("idle_timeout"))?;
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(limits.bidirectional_max.min(limits.bidirectional_initial).into())
        .max_concurrent_uni_streams(limits.unidirectional_max.into())
        .max_idle_timeout(idle)
        .keep_alive_interval(limits.keep_alive)
        .receive_window(limits.receive_window.into())
        .stream_receive_window(limits.stream_window.into())
        .send_window(limits.send_window.into())
        .crypto_buffer_size(limits.crypto_bytes as usize)
        .datagram_receive_buffer_size(limits.datagram_receive_bytes.map(|_| datagrams_of_packet(limits)))
        .datagram_send_buffer_size(limits.datagram_send_bytes as usize)
        .congestion_controller_factory(Arc::new(CubicConfig::default()))
        .mtu_discovery_config(Some(path_search(limits)))
        .ack_frequency_config(Some(acks()));
    Ok(transport)
}

/// The search for the MTU of a path (RFC 8899). Beyond Ethernet it goes as far as this side receives.
fn path_search(limits: &TransportLimits) -> MtuDiscoveryConfig {
    let mut search = MtuDiscoveryConfig::default();
    if limits.payload_bytes_max > ETHERNET_PAYLOAD_BYTES {
        search.upper_bound(limits.payload_bytes_max);
    }
    search
}

/// The ACK frames that a peer is asked for, if it has the extension (draft-ietf-quic-ack-frequency). A sender pays for each
/// ACK; without the extension two packets have one.
fn acks() -> AckFrequencyConfig {
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(ACK_PACKETS_MAX.into());
    acks
}

/// Bytes that the datagrams of one packet take in the machine, however short they are. The connection takes them out at once,
/// and bounds and counts them.
fn datagrams_of_packet(limits: &TransportLimits) -> usize {
    usize::from(limits.payload_bytes_max) * (1 + DatagramQueue::ENTRY_BYTES)
}

/// The key of stateless resets (RFC 9000 §10.3.2).
struct ResetKey(SealingKey);

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        signature.copy_from_slice(&self.0.digest(data));
    }

    fn signature_len(&self) -> usize {
        self.0.digest(&[]).len()
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        if self.0.digest(data)[..] == *signature { Ok(()) } else { Err(CryptoError) }
    }
}

/// The key of tokens (RFC 9000 §8.1).
struct TokenKey(SealingKey);

impl HandshakeTokenKey for TokenKey {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        Box::new(TokenAead { key: self.0.clone(), salt: random_bytes.to_vec() })
    }
}

/// The key of one token.
struct TokenAead {
    key: SealingKey,
    salt: Vec<u8>,
}

impl TokenAead {
    fn salt(&self, additional_data: &[u8]) -> Vec<u8> {
        [&self.salt, additional_data].concat()
    }
}

impl AeadKey for TokenAead {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        *data = self.key.seal(&self.salt(additional_data), data).ok_or(CryptoError)?;
        Ok(())
    }

    fn open<'a>(&self, data: &'a mut [u8], additional_data: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let plain = self.key.open(&self.salt(additional_data), data).ok_or(CryptoError)?;
        let space = data.get_mut(..plain.len()).ok_or(CryptoError)?;
        space.copy_from_slice(&plain);
        Ok(space)
    }
}

/// The last connection id of an endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastId(Arc<AtomicU64>);

impl LastId {
    pub(crate) fn get(&self) -> ConnectionId {
        ConnectionId::new(&self.0.load(Relaxed).to_be_bytes())
    }

    fn set(&self, id: &[u8]) {
        self.0.store(id.try_into().map_or(0, u64::from_be_bytes), Relaxed);
    }
}

/// Chooses connection ids that say which endpoint chose them.
#[derive(Debug)]
struct Ids {
    own: EndpointPlace,
    /// That of a server.
    generation: Option<Arc<Generation>>,
    last: LastId,
    random: RandomConnectionIdGenerator,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = self.random.generate_cid();
        mark(self.own, &mut id);
        self.last.set(&id);
        id
    }

    /// Another endpoint, of this process or of another one, may have a connection with an id that it chose: no stateless
    /// reset may end that.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let may_reset = |chosen_by| match &self.generation {
            Some(generation) => generation.may_reset(chosen_by, self.own),
            None => chosen_by == self.own,
        };
        if origin_of(id).is_some_and(may_reset) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

impl From<MachineError> for ConnectionError {
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::VersionMismatch => Self::Version,
            MachineError::TransportError(error) => Self::Transport { code: error.code.into(), reason: error.reason },
            MachineError::ConnectionClosed(close) => Self::AbortedByPeer {
                code: close.error_code.into(),
                reason: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            MachineError::ApplicationClosed(close) => {
                Self::ClosedByPeer { code: close.error_code.into_inner(), reason: close.reason.to_vec() }
            }
            MachineError::Reset => Self::Reset,
            MachineError::TimedOut => Self::IdleTimeout,
            MachineError::LocallyClosed => Self::Closed,
            MachineError::CidsExhausted => Self::Full,
        }
    }
}

impl From<ConnectError> for ConnectionError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::CidsExhausted | ConnectError::EndpointStopping => Self::Full,
            ConnectError::UnsupportedVersion => Self::Version,
            ConnectError::InvalidServerName(_)
            | ConnectError::InvalidRemoteAddress(_)
            | ConnectError::NoDefaultClientConfig => Self::Address,
        }
    }
}

/// A code of an application. A larger number than QUIC has becomes the largest one.
pub(crate) fn code(number: u64) -> quinn_proto::VarInt {
    quinn_proto::VarInt::from_u64(number).unwrap_or(quinn_proto::VarInt::MAX)
}

/// The protocol that the handshake has agreed upon (ALPN).
pub(crate) fn protocol(machine: &Machine) -> Option<Vec<u8>> {
    machine.crypto_session().handshake_data()?.downcast::<HandshakeData>().ok()?.protocol
}

/// The outcome of the handshake.
pub(crate) fn handshake(machine: &Machine) -> Handshake {
    let session = machine.crypto_session();
    let data = session.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    let (protocol, server_name) = data.map_or((None, None), |data| (data.protocol, data.server_name));
    let chain = session.peer_identity().and_then(|identity| identity.downcast::<Vec<CertificateDer<'_>>>().ok());
    let peer_certificate = chain.and_then(|chain| chain.first().map(|own| own.to_vec()));
    Handshake { protocol, server_name, peer_certificate }
}

/// While the peer has half of the bidirectional streams open that it may open, it may open four times as many, up to
/// `streams_max`. Their number does not shrink: the machine keeps the records.
pub(crate) fn permit_streams(machine: &mut Machine, streams_max: u32) {
    let permitted = machine.max_concurrent_streams(Dir::Bi);
    if permitted < streams_max.into() && machine.streams().remote_open_streams(Dir::Bi) * 2 >= permitted {
        let permitted = (permitted * 4).clamp(1, streams_max.into());
        machine.set_max_concurrent_streams(Dir::Bi, (permitted as u32).into());
    }
}

/// The idle timeout that the peer has sent, once the handshake is complete. The machine has it, and does not show it, but it
/// writes the peer's transport parameters (RFC 9000 §18).
pub(crate) fn idle_timeout_of_peer(machine: &Machine) -> Option<Duration> {
    let mut bytes = Vec::new();
    machine.crypto_session().transport_parameters().ok()??.write(&mut bytes);
    let mut rest = &bytes[..];
    loop {
        let (id, length) = (read_integer(&mut rest)?, read_integer(&mut rest)?);
        let (mut value, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        if id == MAX_IDLE_TIMEOUT {
            return read_integer(&mut value).map(Duration::from_millis);
        }
        rest = after;
    }
}

/// Reads an integer of variable length (RFC 9000 §16).
fn read_integer(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let (integer, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    *bytes = rest;
    let value = integer.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (66 - 8 * integer.len())))
}

/// Ends a connection in the name of the application.
pub(crate) fn close(machine: &mut Machine, now: std::time::Instant, number: u64, reason: &'static str) {
    machine.close(now, code(number), Bytes::from_static(reason.as_bytes()));
}

/// Sends a datagram (RFC 9221). Returns whether older ones that wait were dropped for it.
pub(crate) fn send_datagram(machine: &mut Machine, datagram: Bytes) -> Result<bool, DatagramRefused> {
    let refused = |error| match error {
        SendDatagramError::TooLarge => DatagramRefused::TooLong,
        _ => DatagramRefused::Unsupported,
    };
    match machine.datagrams().send(datagram, false) {
        Err(SendDatagramError::Blocked(datagram)) => {
            machine.datagrams().send(datagram, true).map_err(refused)?;
            Ok(true)
        }
        sent => sent.map(|()| false).map_err(refused),
    }
}

/// Bytes of the datagrams that wait to be sent, of at most `send_bytes_max`, 32 more for each.
pub(crate) fn waiting_datagram_bytes(machine: &mut Machine, send_bytes_max: u32) -> usize {
    let empty = (send_bytes_max as usize).saturating_sub(DatagramQueue::ENTRY_BYTES);
    empty.saturating_sub(machine.datagrams().send_buffer_space())
}

/// How many bytes a datagram may have now.
pub(crate) fn datagram_bytes_max(machine: &mut Machine) -> Option<usize> {
    machine.datagrams().max_size()
}

/// The event that nothing is left of a connection.
pub(crate) fn drained() -> quinn_proto::EndpointEvent {
    quinn_proto::EndpointEvent::drained()
}

pub(crate) fn ecn_of(ecn: Ecn) -> Option<EcnCodepoint> {
    EcnCodepoint::from_bits(ecn.bits())
}

pub(crate) fn ecn(codepoint: Option<EcnCodepoint>) -> Ecn {
    codepoint.map_or(Ecn::NotCapable, |codepoint| Ecn::from_traffic_class(codepoint as u8))
}

/// Packets that a peer receives without an ACK at most. The first window of a connection has ten, and is acknowledged twice.
const ACK_PACKETS_MAX: u32 = 3;

/// The one version (RFC 9000).
const VERSION: u32 = 1;

/// A transport parameter (RFC 9000 §18.2).
const MAX_IDLE_TIMEOUT: u64 = 1;

/// Bytes of connections that are not decided on.
const INCOMING_BYTES: u64 = 64 * 1024;
