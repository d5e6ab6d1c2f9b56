//! `Broker`: the subscriptions of a server's connections, on all loops.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::info::{ConnectInfo, ServerInfo};
use crate::limits::ProtocolLimits;
use crate::outgoing::OutgoingMessage;
use crate::server::outbox::Outbox;
use crate::server::trie::SubjectTrie;

/// Configuration that the connections of a broker share. Each bound is for one connection.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// The name of the server in INFO.
    pub server_name: String,
    /// The user and the password that a client must have; none unless set.
    pub password: Option<(String, String)>,
    /// The token that a client must have; none unless set.
    pub token: Option<String>,
    /// The servers that INFO names, for clients to go on with.
    pub connect_urls: Vec<String>,
    /// The bounds of operations. Give the same to [`ServerCodec::new`](crate::ServerCodec::new).
    pub limits: ProtocolLimits,
    /// Subscriptions; 65,536 unless set. It stops a client from filling memory with filters.
    pub subscriptions_max: usize,
    /// Tokens of a filter; 64 unless set. It stops a filter whose levels use up memory and stack.
    pub filter_tokens_max: usize,
    /// Bytes of messages that wait for a client; 8 MiB unless set. A client with more is a slow consumer: it gets an error,
    /// and is disconnected.
    pub pending_bytes_max: usize,
    /// How long a connection is silent before it is probed by a PING; 2 minutes unless set.
    pub ping_after: Duration,
    /// How many PINGs may have no PONG; 2 unless set. One more ends the connection.
    pub pings_max: u32,
    /// How long a client has for CONNECT if it must authenticate itself; 2 s unless set.
    pub authentication_timeout: Duration,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            server_name: "tidegate".to_owned(),
            password: None,
            token: None,
            connect_urls: Vec::new(),
            limits: ProtocolLimits::default(),
            subscriptions_max: 65_536,
            filter_tokens_max: 64,
            pending_bytes_max: 8 << 20,
            ping_after: Duration::from_secs(120),
            pings_max: 2,
            authentication_timeout: Duration::from_secs(2),
        }
    }
}

/// Numbers of a broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerCounts {
    /// Connections that were opened.
    pub connections: u64,
    /// Messages that clients have published.
    pub received: u64,
    /// Messages for subscriptions.
    pub delivered: u64,
    /// Clients that were disconnected because they read too slowly.
    pub slow_consumers: u64,
    /// Clients that were refused.
    pub refused: u64,
    /// Subscriptions at present.
    pub subscriptions: u64,
}

/// A broker for core NATS. Clones are the same broker, and may be used on any thread.
///
/// It has subjects with wildcards, queue groups, headers, requests without responders, and slow consumers. It has no JetStream,
/// no accounts, and no cluster: it is the peer of tests, and a small server for applications that embed one.
///
/// ```
/// use tidegate::Server;
/// use tidegate::nats::{Broker, BrokerConfig, Handler, ServerCodec};
///
/// let config = BrokerConfig { token: Some("ebb".to_owned()), ..BrokerConfig::default() };
/// let broker = Broker::new(config);
/// let of_server = broker.clone();
/// let server = Server::bind("127.0.0.1:0")?.loops(1).start(move || (ServerCodec::default(), Handler::new(&of_server)))?;
/// broker.publish("tides.brest", "ebb");
/// server.drain(std::time::Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Broker {
    pub(super) shared: Arc<BrokerShared>,
}

#[derive(Debug)]
pub(super) struct BrokerShared {
    pub(super) config: BrokerConfig,
    server_id: String,
    trie: Mutex<SubjectTrie<SubscriptionKey, BrokerSubscription>>,
    is_lame_duck: AtomicBool,
    pub(super) connections: AtomicU64,
    pub(super) received: AtomicU64,
    delivered: AtomicU64,
    slow_consumers: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Chooses the members of queue groups in turn.
    turn: AtomicU64,
}

/// The number of a connection, and the ID that its client has chosen.
pub(super) type SubscriptionKey = (u64, Bytes);

/// A subscription, as the trie has it.
#[derive(Debug, Clone)]
pub(super) struct BrokerSubscription {
    pub(super) outbox: Arc<Outbox>,
    pub(super) queue_group: Option<Bytes>,
    pub(super) knows_headers: bool,
    /// Messages that it has had, and how many it may have; 0 for any number.
    pub(super) delivered: Arc<AtomicU64>,
    pub(super) max: Arc<AtomicU64>,
}

/// A message on its way through the broker.
pub(super) struct RoutedMessage<'a> {
    pub(super) subject: &'a [u8],
    pub(super) reply: Option<&'a [u8]>,
    /// The bytes of the header block at the start of `body`.
    pub(super) headers: usize,
    /// Headers, payload and CR LF.
    pub(super) body: Bytes,
}

/// The connection that a message comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Publisher {
    pub(super) connection: u64,
    /// Its own subscriptions get the message.
    pub(super) echoes: bool,
}

impl Broker {
    /// A broker without a subscription.
    #[must_use]
    pub fn new(config: BrokerConfig) -> Self {
        let half = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u64);
        let shared = BrokerShared {
            config,
            server_id: format!("{:016X}{:016X}", half(), half()),
            trie: Mutex::default(),
            is_lame_duck: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            received: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            slow_consumers: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            turn: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Publishes a message of the application itself. Returns how many subscriptions get it.
    pub fn publish(&self, subject: impl Into<Bytes>, payload: impl Into<Bytes>) -> usize {
        self.send(&OutgoingMessage::new(subject, payload))
    }

    /// As [`publish`](Self::publish), with headers and a subject for replies. A message that the protocol cannot express
    /// reaches nothing.
    pub fn send(&self, message: &OutgoingMessage) -> usize {
        if message.check(&self.shared.config.limits).is_err() {
            return 0;
        }
        let block = message.headers.as_ref().map_or(&b""[..], |headers| headers.as_bytes());
        let body = [block, &message.payload, b"\r\n"].concat().into();
        let reply = message.reply.as_deref();
        let routed = RoutedMessage { subject: &message.subject, reply, headers: block.len(), body };
        self.shared.route(&routed, Publisher { connection: 0, echoes: true })
    }

    /// From now on new connections, and those that exist once the server drains, learn from INFO that they should move.
    pub fn begin_lame_duck_mode(&self) {
        self.shared.is_lame_duck.store(true, Ordering::Relaxed);
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn counts(&self) -> BrokerCounts {
        let shared = &self.shared;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        BrokerCounts {
            connections: count(&shared.connections),
            received: count(&shared.received),
            delivered: count(&shared.delivered),
            slow_consumers: count(&shared.slow_consumers),
            refused: count(&shared.refused),
            subscriptions: shared.trie().len() as u64,
        }
    }
}

impl Default for Broker {
    fn default() -> Self {
        Self::new(BrokerConfig::default())
    }
}

impl BrokerShared {
    pub(super) fn info(&self, client_id: u64, is_draining: bool) -> ServerInfo {
        let config = &self.config;
        ServerInfo {
            server_id: self.server_id.clone(),
            server_name: config.server_name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            proto: 1,
            headers: true,
            max_payload: config.limits.payload_bytes_max as u64,
            auth_required: self.demands_authentication(),
            ldm: is_draining || self.is_lame_duck.load(Ordering::Relaxed),
            client_id,
            connect_urls: config.connect_urls.clone(),
            ..ServerInfo::default()
        }
    }

    pub(super) const fn demands_authentication(&self) -> bool {
        self.config.password.is_some() || self.config.token.is_some()
    }

    pub(super) fn accepts(&self, connect: &ConnectInfo) -> bool {
        let has = |given: &Option<String>, right: &str| given.as_ref().is_some_and(|given| is_equal(given, right));
        let by_password = self
            .config
            .password
            .as_ref()
            .map(|(user, password)| has(&connect.user, user) & has(&connect.pass, password));
        let by_token = self.config.token.as_ref().map(|token| has(&connect.auth_token, token));
        !self.demands_authentication() || by_password == Some(true) || by_token == Some(true)
    }

    pub(super) fn subscribe(&self, filter: &[u8], key: SubscriptionKey, subscription: BrokerSubscription) {
        self.trie().insert(filter, key, subscription);
    }

    pub(super) fn unsubscribe(&self, filter: &[u8], key: &SubscriptionKey) {
        self.trie().remove(filter, key);
    }

    /// Gives a message to the subscriptions that its subject reaches. Returns how many there are.
    pub(super) fn route(&self, message: &RoutedMessage<'_>, from: Publisher) -> usize {
        let mut receivers = Vec::new();
        let mut groups: BTreeMap<Bytes, Vec<(SubscriptionKey, BrokerSubscription)>> = BTreeMap::new();
        self.trie().matches(message.subject, &mut |key, subscription| {
            if key.0 == from.connection && !from.echoes {
                return;
            }
            let receiver = (key.clone(), subscription.clone());
            match &subscription.queue_group {
                Some(group) => groups.entry(group.clone()).or_default().push(receiver),
                None => receivers.push(receiver),
            }
        });
        let mut count = receivers.iter().filter(|(key, receiver)| self.deliver(message, &key.1, receiver)).count();
        for mut members in groups.into_values() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % members.len() as u64;
            members.rotate_left(turn as usize);
            // Those in turn may have had all their messages, or be about to leave.
            count += usize::from(members.iter().any(|(key, member)| self.deliver(message, &key.1, member)));
        }
        self.delivered.fetch_add(count as u64, Ordering::Relaxed);
        count
    }

    /// Answers a request that nothing subscribes to.
    pub(super) fn no_responders(&self, reply: &[u8], connection: u64) {
        let mut receivers = Vec::new();
        self.trie().matches(reply, &mut |key, subscription| {
            if key.0 == connection {
                receivers.push((key.clone(), subscription.clone()));
            }
        });
        let body = Bytes::from_static(b"NATS/1.0 503\r\n\r\n\r\n");
        let message = RoutedMessage { subject: reply, reply: None, headers: body.len() - 2, body };
        for (key, receiver) in &receivers {
            self.deliver(&message, &key.1, receiver);
        }
    }

    /// Puts a message into the outbox of a subscription, unless it has had all that it may have, or its connection ends.
    fn deliver(&self, message: &RoutedMessage<'_>, sid: &[u8], to: &BrokerSubscription) -> bool {
        if !to.outbox.is_open() {
            return false;
        }
        let (delivered, max) = (to.delivered.fetch_add(1, Ordering::Relaxed) + 1, to.max.load(Ordering::Relaxed));
        if max > 0 && delivered > max {
            return false;
        }
        if delivered == max {
            to.outbox.subscription_ended();
        }
        let has_headers = message.headers > 0 && to.knows_headers;
        let body = if has_headers { message.body.clone() } else { message.body.slice(message.headers..) };
        let mut line = Vec::with_capacity(message.subject.len() + sid.len() + 64);
        line.extend_from_slice(if has_headers { b"HMSG " } else { b"MSG " });
        for part in [message.subject, sid].into_iter().chain(message.reply) {
            line.extend_from_slice(part);
            line.push(b' ');
        }
        if has_headers {
            line.extend_from_slice(itoa::Buffer::new().format(message.headers).as_bytes());
            line.push(b' ');
        }
        line.extend_from_slice(itoa::Buffer::new().format(body.len() - 2).as_bytes());
        line.extend_from_slice(b"\r\n");
        if !to.outbox.push((line.into(), body)) {
            self.slow_consumers.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    fn trie(&self) -> MutexGuard<'_, SubjectTrie<SubscriptionKey, BrokerSubscription>> {
        self.trie.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// It takes the same time wherever the first wrong byte is.
fn is_equal(given: &str, right: &str) -> bool {
    let differences = right.bytes().zip(given.bytes()).fold(0, |all, (right, given)| all | (right ^ given));
    right.len() == given.len() && std::hint::black_box(differences) == 0
}
