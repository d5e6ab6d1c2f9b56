//! `Sampler`: which requests are recorded.
//!
//! The sender of a request decides, and a share of the requests without a context is recorded. The decision of a client is
//! one bit that costs it nothing, so it counts up to a rate: beyond that the share decides, by numbers of this process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tidegate::http::{Request, TraceContext};
use tidegate::proxy_protocol::Networks;

use super::settings::TelemetrySettings;

/// Chooses requests, on all loops together.
pub(super) struct Sampler {
    /// Of the numbers of 56 bits, those below are in the share.
    threshold: u64,
    trusted: Networks,
    requested: RateWindow,
}

impl Sampler {
    pub(super) fn new(settings: &TelemetrySettings) -> Self {
        let trusted = settings.trusted.iter().flatten();
        Self {
            threshold: threshold(settings.percent),
            trusted: trusted.fold(Networks::default(), |all, one| all.and(one.addr(), one.prefix_len())),
            requested: RateWindow::new(settings.requested_per_second),
        }
    }

    /// Whether a request is recorded.
    pub(super) fn chooses(&self, request: &Request, trace: &TraceContext) -> bool {
        match trace.parent_bytes() {
            None => self.is_in_share(&trace.trace_bytes()[8..]),
            Some(_) if !trace.is_sampled() => false,
            Some(_) => {
                // The peer has chosen the trace's id. That of the span is ours.
                let peer = request.peer().ip().map(|peer| peer.ip());
                self.trusted.contains(peer) || self.requested.take() || self.is_in_share(&trace.span_bytes())
            }
        }
    }

    /// Whether the last seven bytes of an id are in the share (W3C Trace Context, level 2, §3.2.2.3).
    fn is_in_share(&self, id: &[u8]) -> bool {
        id.iter().skip(1).fold(0, |number, byte| number << 8 | u64::from(*byte)) < self.threshold
    }
}

fn threshold(percent: f64) -> u64 {
    (percent.clamp(0.0, 100.0) / 100.0 * IDS as f64) as u64
}

/// Events of one second, up to a number.
struct RateWindow {
    per_second: u32,
    began: Instant,
    /// The second in the upper half, the events of that second in the lower half.
    state: AtomicU64,
}

impl RateWindow {
    fn new(per_second: u32) -> Self {
        Self { per_second, began: Instant::now(), state: AtomicU64::new(0) }
    }

    fn take(&self) -> bool {
        self.take_at(self.began.elapsed().as_secs())
    }

    fn take_at(&self, second: u64) -> bool {
        let next = |state: u64| {
            let events = if state >> 32 == second { state & u64::from(u32::MAX) } else { 0 };
            (events < u64::from(self.per_second)).then_some(second << 32 | (events + 1))
        };
        self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// Ids of seven bytes.
const IDS: u64 = 1 << 56;

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(percent: f64) -> Sampler {
        Sampler::new(&TelemetrySettings { percent, ..TelemetrySettings::default() })
    }

    #[test]
    fn a_share_is_met_by_random_ids() {
        let count = |percent: f64| {
            let sampler = sampler(percent);
            (0..10_000).filter(|_| sampler.is_in_share(&TraceContext::begin().trace_bytes()[8..])).count()
        };
        assert_eq!((count(0.0), count(100.0)), (0, 10_000));
        // Six standard deviations of 10,000 draws are 300.
        let half = count(50.0);
        assert!((4_700..=5_300).contains(&half), "{half}");
    }

    #[test]
    fn a_share_counts_the_last_seven_bytes() {
        let sampler = sampler(50.0);
        assert!(sampler.is_in_share(&[0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]));
        assert!(!sampler.is_in_share(&[0, 0x80, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn a_rate_begins_anew_each_second() {
        let rate = RateWindow::new(2);
        let taken: Vec<_> = [0, 0, 0, 1, 1, 1, 5].into_iter().map(|second| rate.take_at(second)).collect();
        assert_eq!(taken, [true, true, false, true, true, false, true]);
        assert!(!RateWindow::new(0).take_at(0));
    }
}
