//! `ClientLimits`, and the configuration that the connections of a client share.

use std::time::Duration;

use tidegate_buffer::WaterMarks;
use tidegate_engine::{Backoff, ConnectError, Limits};

use crate::client::credentials::Credentials;
use crate::limits::ProtocolLimits;

/// How much of a client waits. A call that exceeds a bound fails at once with
/// [`Failure::QueueFull`](crate::Failure::QueueFull).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Operations that wait to be sent; 65,536 unless set. It stops a server that is away from making its clients fill
    /// their memory.
    pub operations_max: usize,
    /// Bytes of those operations; 64 MiB unless set. A longer one is taken if no other waits.
    pub bytes_max: usize,
    /// Requests without a reply; 65,536 unless set. It stops a service that does not answer.
    pub requests_max: usize,
    /// Subscriptions; 1,048,576 unless set. It stops an application that forgets to end them.
    pub subscriptions_max: usize,
    /// Messages that wait for the application in one [`Subscriber`](crate::Subscriber); 65,536 unless set. Later ones are
    /// lost, and a [`Gap`](crate::SubscriberEvent::Gap) says so.
    pub subscriber_messages_max: usize,
    /// Bytes of those messages; 64 MiB unless set.
    pub subscriber_bytes_max: usize,
    /// Servers that the client remembers; 1,024 unless set. It stops a server that names others without end.
    pub servers_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            operations_max: 65_536,
            bytes_max: 64 << 20,
            requests_max: 65_536,
            subscriptions_max: 1 << 20,
            subscriber_messages_max: 65_536,
            subscriber_bytes_max: 64 << 20,
            servers_max: 1024,
        }
    }
}

/// The configuration that the connections of a client share.
#[derive(Debug, Clone)]
pub(crate) struct ClientConfig {
    pub(crate) name: Option<String>,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) echoes: bool,
    pub(crate) uses_discovered: bool,
    pub(crate) timeout: Duration,
    pub(crate) ping_after: Duration,
    pub(crate) lame_duck_delay: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) limits: ClientLimits,
    pub(crate) protocol_limits: ProtocolLimits,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            name: None,
            credentials: None,
            echoes: true,
            uses_discovered: true,
            timeout: TIMEOUT,
            ping_after: PING_AFTER,
            lame_duck_delay: LAME_DUCK_DELAY,
            backoff: Backoff::new(DELAY_MIN, DELAY_MAX),
            limits: ClientLimits::default(),
            protocol_limits: ProtocolLimits::default(),
        }
    }
}

/// A target whose connections read while many bytes wait to be sent. Otherwise two sides that both send much would wait for each
/// other for ever. The connection bounds its queue.
pub(crate) fn reading_target(address: &str, timeout: Duration) -> Result<tidegate_engine::Client, ConnectError> {
    let limits = Limits { water: WaterMarks::new(WATER_HIGH, WATER_HIGH), ..Limits::default() };
    Ok(tidegate_engine::Client::to(address)?.limits(limits).connect_timeout(timeout))
}

/// More than any queue has.
const WATER_HIGH: u64 = 1 << 40;
const TIMEOUT: Duration = Duration::from_secs(5);
const PING_AFTER: Duration = Duration::from_secs(15);
/// nats-server keeps its connections for 10 s more (`lame_duck_grace_period`).
const LAME_DUCK_DELAY: Duration = Duration::from_secs(5);
const DELAY_MIN: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(5);
