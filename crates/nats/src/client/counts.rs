//! `ClientCounts` and `SubscriberCounts`: numbers of a client for metrics.

use crate::client::server_error::ServerErrorKind;

/// Numbers of a client. Those of all its connections are added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCounts {
    /// Messages that the client has sent.
    pub published: u64,
    /// Messages that have come, for subscribers and as replies.
    pub received: u64,
    /// Requests that the client has taken.
    pub requests: u64,
    /// Requests that nothing answers: the status 503.
    pub no_responders: u64,
    /// Requests and flushes that failed for another reason.
    pub failed_requests: u64,
    /// Messages that were taken and could not be sent, because the next server accepts shorter ones only.
    pub dropped: u64,
    /// Connections that were ready.
    pub connections: u64,
    /// Those that followed another one.
    pub reconnects: u64,
    /// Servers that announced to shut down.
    pub lame_ducks: u64,
    /// Subscriptions at present.
    pub subscriptions: u64,
    /// Operations that wait to be sent at present.
    pub pending_operations: u64,
    /// Bytes of those operations.
    pub pending_bytes: u64,
    /// Requests without a reply at present.
    pub pending_requests: u64,
    errors: [u64; ServerErrorKind::ALL.len()],
}

/// Numbers of a subscriber.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberCounts {
    /// Messages that have come.
    pub messages: u64,
    /// Messages that were lost because the application did not take them in time.
    pub lost: u64,
    /// Points at which messages may be missing.
    pub gaps: u64,
    /// How often the server has acknowledged all subscriptions.
    pub connections: u64,
    /// Events that wait for the application at present.
    pub pending_events: u64,
    /// Bytes of those events.
    pub pending_bytes: u64,
}

/// A number with its name, for a text of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientMetric {
    /// The name, without `_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Whether it only grows.
    pub is_counter: bool,
    /// The name and the value of its label. Metrics of one name come one after another.
    pub label: Option<(&'static str, &'static str)>,
    /// The number.
    pub value: u64,
}

impl ClientCounts {
    /// Errors of this kind that servers have sent.
    #[must_use]
    pub const fn errors(&self, kind: ServerErrorKind) -> u64 {
        self.errors[kind as usize]
    }

    /// All numbers with names.
    ///
    /// ```
    /// use tidegate::metrics::{Format, Kind, MetricsText};
    /// use tidegate::nats::ClientCounts;
    ///
    /// let mut text = MetricsText::new(Format::Prometheus);
    /// let mut last = "";
    /// for metric in ClientCounts::default().metrics() {
    ///     if metric.name != last {
    ///         let kind = if metric.is_counter { Kind::Counter } else { Kind::Gauge };
    ///         text.family(metric.name, kind, metric.help);
    ///     }
    ///     last = metric.name;
    ///     text.sample(metric.label.as_slice(), metric.value);
    /// }
    /// assert!(text.finish().contains("nats_client_errors_total{kind=\"slow_consumer\"} 0\n"));
    /// ```
    pub fn metrics(&self) -> impl Iterator<Item = ClientMetric> + use<> {
        let plain = [
            ("nats_client_published", "Messages that were sent.", true, self.published),
            ("nats_client_received", "Messages that have come.", true, self.received),
            ("nats_client_requests", "Requests that the client has taken.", true, self.requests),
            ("nats_client_no_responders", "Requests that nothing answers.", true, self.no_responders),
            ("nats_client_failed_requests", "Requests without a reply that came.", true, self.failed_requests),
            ("nats_client_dropped", "Messages that the server does not accept.", true, self.dropped),
            ("nats_client_connections", "Connections that were ready.", true, self.connections),
            ("nats_client_reconnects", "Connections that followed a lost one.", true, self.reconnects),
            ("nats_client_lame_ducks", "Servers that announced to shut down.", true, self.lame_ducks),
            ("nats_client_subscriptions", "Subscriptions.", false, self.subscriptions),
            ("nats_client_pending_operations", "Operations that wait to be sent.", false, self.pending_operations),
            ("nats_client_pending_bytes", "Bytes of operations that wait.", false, self.pending_bytes),
            ("nats_client_pending_requests", "Requests without a reply.", false, self.pending_requests),
        ];
        let plain =
            plain.map(|(name, help, is_counter, value)| ClientMetric { name, help, is_counter, label: None, value });
        let errors = ServerErrorKind::ALL.map(|kind| ClientMetric {
            name: "nats_client_errors",
            help: "Errors that servers have sent.",
            is_counter: true,
            label: Some(("kind", kind.name())),
            value: self.errors(kind),
        });
        plain.into_iter().chain(errors)
    }

    pub(crate) const fn add_error(&mut self, kind: ServerErrorKind) {
        self.errors[kind as usize] += 1;
    }
}
