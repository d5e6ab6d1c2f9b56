//! A server as the resolver knows it: its measured time, its failures, its cookies.

use std::time::{Duration, Instant};

use super::config::ResolverServer;
use crate::name::Name;

#[derive(Debug)]
pub(super) struct Upstream {
    /// Only records of names within it are believed.
    pub(super) bailiwick: Name,
    pub(super) use_streams: bool,
    pub(super) pads_queries: bool,
    smoothed: Option<Duration>,
    variation: Duration,
    /// Attempts in a row without an answer.
    pub(super) timeouts: u32,
    down_until: Option<Instant>,
    /// When a request to it failed last.
    failed_at: Option<Instant>,
    pub(super) has_edns: bool,
    /// Whether it has answered with an OPT record.
    pub(super) knows_edns: bool,
    /// Whether it repeats a name in the cases of the query.
    pub(super) keeps_case: bool,
    pub(super) client_cookie: [u8; 8],
    pub(super) server_cookie: Vec<u8>,
}

impl Upstream {
    pub(super) fn new(server: ResolverServer, client_cookie: [u8; 8]) -> Self {
        Self {
            bailiwick: server.bailiwick,
            use_streams: server.use_streams,
            pads_queries: server.pads_queries,
            smoothed: None,
            variation: Duration::ZERO,
            timeouts: 0,
            down_until: None,
            failed_at: None,
            has_edns: true,
            knows_edns: false,
            keeps_case: true,
            client_cookie,
            server_cookie: Vec::new(),
        }
    }

    /// RFC 6298 §2.
    pub(super) fn on_answer(&mut self, time: Duration) {
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(time), time / 2),
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(time)) / 4;
                self.smoothed = Some((smoothed * 7 + time) / 8);
            }
        }
        self.timeouts = 0;
        self.down_until = None;
    }

    /// An attempt had no answer. After three in a row the server is avoided, for one second at first and at most a minute.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts >= DOWN_AFTER {
            let seconds = 1_u64 << (self.timeouts - DOWN_AFTER).min(6);
            self.down_until = Some(now + Duration::from_secs(seconds.min(60)));
        }
    }

    /// Notes a failed request. Returns whether it was sent after the failure before: requests that share a connection fail with
    /// it together.
    pub(super) fn is_new_failure(&mut self, sent: Instant, now: Instant) -> bool {
        self.failed_at.replace(now).is_none_or(|before| sent >= before)
    }

    pub(super) fn is_down(&self, now: Instant) -> bool {
        self.down_until.is_some_and(|until| now < until)
    }

    /// The time to wait for an answer before another server is tried.
    pub(super) fn patience(&self, timeout_max: Duration) -> Duration {
        let measured = self.smoothed.map_or(PATIENCE, |smoothed| smoothed + self.variation * 4);
        measured.clamp(PATIENCE_MIN, timeout_max.max(PATIENCE_MIN))
    }

    /// The order in which servers are tried: up before down, then by time; one without a time comes early, so that its
    /// time becomes known.
    pub(super) fn rank(&self, now: Instant) -> (bool, u32, Duration) {
        (self.is_down(now), self.timeouts, self.smoothed.unwrap_or(Duration::ZERO))
    }

    /// A server that is not chosen is measured again one day: its time fades.
    pub(super) fn fade(&mut self) {
        self.smoothed = self.smoothed.map(|smoothed| smoothed.mul_f64(0.99));
    }
}

const DOWN_AFTER: u32 = 3;
const PATIENCE: Duration = Duration::from_millis(400);
const PATIENCE_MIN: Duration = Duration::from_millis(50);
