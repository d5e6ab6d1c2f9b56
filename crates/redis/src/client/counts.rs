//! `ClientCounts` and `SubscriberCounts`: numbers of a client for metrics.

use crate::client::error_kind::ErrorKind;

/// Numbers of a client. Those of all its connections are added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCounts {
    /// Commands that the client has taken. A transaction is one.
    pub commands: u64,
    /// Commands that failed as [`ClientError::NotSent`](crate::ClientError::NotSent).
    pub not_sent: u64,
    /// Commands that failed as [`ClientError::MaybeExecuted`](crate::ClientError::MaybeExecuted).
    pub maybe_executed: u64,
    /// Connections that were ready for commands.
    pub connections: u64,
    /// Those that followed another one to the same server.
    pub reconnects: u64,
    /// Commands that were sent to another server, or again, after a redirect.
    pub redirects: u64,
    /// Commands that wait to be sent, or for their replies, at present.
    pub pending_commands: u64,
    /// Bytes of those commands.
    pub pending_bytes: u64,
    errors: [u64; ErrorKind::ALL.len()],
}

/// Numbers of a subscriber.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberCounts {
    /// Messages that have come.
    pub messages: u64,
    /// Points at which messages may be missing.
    pub gaps: u64,
    /// How often the server has acknowledged all names.
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
    pub const fn errors(&self, kind: ErrorKind) -> u64 {
        self.errors[kind as usize]
    }

    /// All numbers with names.
    ///
    /// ```
    /// use tidegate::metrics::{Format, Kind, MetricsText};
    /// use tidegate::redis::ClientCounts;
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
    /// let text = text.finish();
    /// assert!(text.contains("redis_client_errors_total{kind=\"read_only\"} 0\n"));
    /// ```
    pub fn metrics(&self) -> impl Iterator<Item = ClientMetric> + use<> {
        let plain = [
            ("redis_client_commands", "Commands that the client has taken.", true, self.commands),
            ("redis_client_connections", "Connections that were ready for commands.", true, self.connections),
            ("redis_client_reconnects", "Connections that followed a lost one.", true, self.reconnects),
            ("redis_client_redirects", "Commands that were sent again after a redirect.", true, self.redirects),
            ("redis_client_pending_commands", "Commands without a reply.", false, self.pending_commands),
            ("redis_client_pending_bytes", "Bytes of commands without a reply.", false, self.pending_bytes),
        ];
        let failures = [("not_sent", self.not_sent), ("maybe_executed", self.maybe_executed)];
        let errors = ErrorKind::ALL.map(|kind| (kind.name(), self.errors(kind)));
        let plain =
            plain.map(|(name, help, is_counter, value)| ClientMetric { name, help, is_counter, label: None, value });
        let labelled = move |name, help, label| {
            move |(of, value)| ClientMetric { name, help, is_counter: true, label: Some((label, of)), value }
        };
        let failures =
            failures.map(labelled("redis_client_failures", "Commands without a reply that came.", "outcome"));
        let errors = errors.map(labelled("redis_client_errors", "Errors that servers have sent.", "kind"));
        plain.into_iter().chain(failures).chain(errors)
    }

    pub(crate) fn add_error(&mut self, kind: ErrorKind) {
        self.errors[kind as usize] += 1;
    }

    /// A command without a reply.
    pub(crate) fn add_failure(&mut self, is_sent: bool) {
        if is_sent {
            self.maybe_executed += 1;
        } else {
            self.not_sent += 1;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let Self { commands, not_sent, maybe_executed, connections, reconnects, redirects, .. } = other;
        self.commands += commands;
        self.not_sent += not_sent;
        self.maybe_executed += maybe_executed;
        self.connections += connections;
        self.reconnects += reconnects;
        self.redirects += redirects;
        self.pending_commands += other.pending_commands;
        self.pending_bytes += other.pending_bytes;
        self.errors.iter_mut().zip(other.errors).for_each(|(sum, more)| *sum += more);
    }
}
