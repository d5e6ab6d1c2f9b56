//! `ClientLimits`, and the configuration that the connections of a client share.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::Backoff;

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

/// The configuration that the connections of a client share.
#[derive(Debug, Clone)]
pub(crate) struct ClientConfig {
    pub(crate) target: tidegate_engine::Client,
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
}

const TIMEOUT: Duration = Duration::from_secs(5);
const DELAY_MIN: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// A longer reply arrives in pieces, which a client does not join.
const REPLY_BYTES_MAX: usize = 64 << 20;
