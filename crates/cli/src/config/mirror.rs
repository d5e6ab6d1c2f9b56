//! The key `mirror`: copies of a share of the requests for another upstream.

use std::time::Duration;

use tidegate::http::proxy::{Mirror, Upstreams};

use super::keys::{Key, Keys, Kind};
use super::mistakes::Located;

/// Copies of a share of the requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MirrorRule {
    pub(crate) upstream: Located<String>,
    percent: f64,
    body_bytes: Option<u32>,
    requests: Option<u32>,
    timeout: Option<Duration>,
}

impl Default for MirrorRule {
    fn default() -> Self {
        Self { upstream: Located::default(), percent: 100.0, body_bytes: None, requests: None, timeout: None }
    }
}

impl Keys for MirrorRule {
    const TITLE: &'static str = "mirror";
    const TEXT: &'static str = "Copies of a share of the requests, with the same changes. Their responses are dropped, and no \
         client waits for them.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "upstream",
            Kind::Text,
            "Send copies to the `[[upstream]]` of this name.",
            |to, value, reader| to.upstream = reader.located(value),
        )
        .required()
        .known_as(&["to", "service"]),
        Key::<Self>::new(
            "percent",
            Kind::Percent,
            "The share of the requests, kept exactly by each loop; `0.5` is every two hundredth.",
            |to, value, reader| to.percent = reader.percent(value),
        )
        .default("100")
        .known_as(&["share", "weight"]),
        Key::<Self>::new(
            "body-bytes",
            Kind::Integer { min: 0, max: 64 * 1024 * 1024 },
            "The longest body of a request that is copied; it is kept in memory until it was sent.",
            |to, value, reader| to.body_bytes = Some(reader.count(value)),
        )
        .default("65536"),
        Key::<Self>::new(
            "requests",
            Kind::Integer { min: 1, max: 1_000_000 },
            "Copies in progress on each loop; further ones are left out.",
            |to, value, reader| to.requests = Some(reader.count(value)),
        )
        .default("64"),
        Key::<Self>::new(
            "timeout",
            Kind::Seconds { min: 1, max: 3_600 },
            "How long a copy may be in progress.",
            |to, value, reader| to.timeout = Some(reader.seconds(value)),
        )
        .default("30"),
    ];
}

impl MirrorRule {
    /// The copies for these servers.
    pub(crate) fn mirror(&self, upstreams: &Upstreams) -> Mirror {
        let mut mirror = Mirror::new(upstreams).percent(self.percent);
        if let Some(bytes) = self.body_bytes {
            mirror = mirror.body_bytes_max(bytes as usize);
        }
        if let Some(count) = self.requests {
            mirror = mirror.in_progress_max(count);
        }
        match self.timeout {
            Some(timeout) => mirror.timeout(timeout),
            None => mirror,
        }
    }
}
