//! `HealthCheck`: how upstreams are checked by requests of the proxy's own.

use std::time::Duration;

/// How upstreams are checked by requests of the proxy's own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthCheck {
    /// The path and query of the request, which is a GET; `/`.
    pub path: String,
    /// The host of the request; that of the upstream's URL unless set.
    pub host: Option<String>,
    /// How often an upstream is checked; 5 seconds.
    pub interval: Duration,
    /// How long a check may take, connecting included; 2 seconds.
    pub timeout: Duration,
    /// After how many failed checks in a row an upstream gets no requests; 3. A check succeeds with a status from 200 to
    /// 399.
    pub failures: u32,
    /// After how many checks in a row that succeed it gets requests again; 2.
    pub successes: u32,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            path: "/".into(),
            host: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            failures: 3,
            successes: 2,
        }
    }
}
