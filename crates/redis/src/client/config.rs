//! `ClientLimits`, and the configuration that the connections of a client share.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Backoff, ConnectError};

use crate::client::cache::ReplyCache;
use crate::limits::ProtocolLimits;

/// How much waits for a server. A command that exceeds a bound fails at once with
/// [`Failure::QueueFull`](crate::Failure::QueueFull).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Commands that wait to be sent, or for their replies; 65,536 unless set. It stops a server that does not answer from
    /// making its clients fill their memory.
    pub commands_max: usize,
    /// Bytes of those commands; 64 MiB unless set. A longer command is taken if no other waits.
    pub bytes_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { commands_max: 65_536, bytes_max: 64 << 20 }
    }
}

/// Several servers, and how the client finds them.
#[derive(Debug, Clone)]
pub(crate) enum ServerSource {
    /// Some servers of a cluster, which know the others.
    Cluster(Vec<Box<str>>),
    /// Sentinels, and the name of a master.
    Sentinel(Vec<Box<str>>, Box<str>),
}

/// What a connection is for, which its beginning ensures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionPurpose {
    /// Whatever the server is.
    Any,
    /// A master.
    Master,
    /// A server of a cluster that answers as a replica.
    ClusterReplica,
}

/// The configuration that the connections of a client share.
#[derive(Debug, Clone)]
pub(crate) struct ClientConfig {
    pub(crate) target: tidegate_engine::Client,
    /// If there are several servers, this replaces `target`.
    pub(crate) source: Option<ServerSource>,
    pub(crate) purpose: ConnectionPurpose,
    pub(crate) reads_replicas: bool,
    pub(crate) sentinel_user: Option<Box<str>>,
    pub(crate) sentinel_password: Option<Box<[u8]>>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) password: Option<Box<[u8]>>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) database: u32,
    pub(crate) speaks_resp3: bool,
    pub(crate) timeout: Duration,
    /// The silence before a probe; each kind of connection has its own default.
    pub(crate) ping_after: Option<Duration>,
    /// Values of keys, if the main connection tracks them.
    pub(crate) cache: Option<Arc<ReplyCache>>,
    pub(crate) backoff: Backoff,
    pub(crate) limits: ClientLimits,
    pub(crate) protocol_limits: ProtocolLimits,
}

impl ClientConfig {
    pub(crate) fn new(target: tidegate_engine::Client) -> Self {
        Self {
            target,
            source: None,
            purpose: ConnectionPurpose::Any,
            reads_replicas: false,
            sentinel_user: None,
            sentinel_password: None,
            user: None,
            password: None,
            name: None,
            database: 0,
            speaks_resp3: true,
            timeout: TIMEOUT,
            ping_after: None,
            cache: None,
            backoff: Backoff::new(DELAY_MIN, DELAY_MAX),
            limits: ClientLimits::default(),
            protocol_limits: ProtocolLimits { whole_bytes_max: REPLY_BYTES_MAX, ..ProtocolLimits::default() },
        }
    }

    /// The same for one of several servers.
    ///
    /// # Errors
    /// The address is none.
    pub(crate) fn for_server(&self, address: &str, purpose: ConnectionPurpose) -> Result<Self, ConnectError> {
        let target = tidegate_engine::Client::to(address)?.connect_timeout(self.timeout);
        Ok(Self { target, purpose, source: None, cache: None, ..self.clone() })
    }

    /// The same for a sentinel.
    pub(crate) fn for_sentinel(&self, address: &str) -> Result<Self, ConnectError> {
        let (user, password) = (self.sentinel_user.clone(), self.sentinel_password.clone());
        Ok(Self { user, password, database: 0, ..self.for_server(address, ConnectionPurpose::Any)? })
    }
}

const TIMEOUT: Duration = Duration::from_secs(5);
const DELAY_MIN: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// A longer reply arrives in pieces, which a client does not join.
const REPLY_BYTES_MAX: usize = 64 << 20;
