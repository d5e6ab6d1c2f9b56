//! One line for each cause of death, and a bound on how many of them.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tidegate_codec::Blame;
use tidegate_sys::memory;

use crate::close_reason::CloseReason;
use crate::limits::{ACCEPT_LINE_PAUSE, LOG_LINES_PER_SECOND_MAX};
use crate::loop_core::catch_and_log;

/// Writes a loop's lines, so many in a second; the rest is counted, so that a flood of bad peers is not a flood of
/// log lines as well. Where a line goes is the user's choice, and if that fails, as on a full disk, the loop goes on.
#[derive(Debug)]
pub(crate) struct Log {
    second: Instant,
    lines: u32,
    suppressed: u64,
    /// When it was last said that accepting fails.
    accept_failed: Option<Instant>,
}

impl Log {
    pub(crate) fn new(now: Instant) -> Self {
        Self { second: now, lines: 0, suppressed: 0, accept_failed: None }
    }

    /// Says why a connection was closed, unless everything was in order.
    pub(crate) fn closed(&mut self, now: Instant, peer: &dyn Display, reason: &CloseReason) {
        let Some(blame) = reason.blame() else { return };
        if !self.admits(now) {
            return;
        }
        catch_and_log(|| match blame {
            Blame::Caller | Blame::System => tracing::error!(%peer, cause = %reason, "connection closed"),
            Blame::Limit => tracing::warn!(%peer, cause = %reason, "connection closed"),
            Blame::Peer => tracing::info!(%peer, cause = %reason, "connection closed"),
        });
    }

    /// Says that accepting failed. Where descriptors are used up it fails again and again: that is said now and then.
    pub(crate) fn accept_failed(&mut self, now: Instant, error: &std::io::Error) {
        let is_news = self.accept_failed.is_none_or(|said| now.saturating_duration_since(said) >= ACCEPT_LINE_PAUSE);
        if is_news && self.admits(now) {
            self.accept_failed = Some(now);
            let advice = if memory::is_out_of_descriptors(error) {
                "; raise the limit of descriptors, as with ulimit -n, or allow fewer connections"
            } else {
                ""
            };
            catch_and_log(|| tracing::error!(%error, "accepting failed; it pauses for a moment and goes on{advice}"));
        }
    }

    /// Says that a turn took long, now that it has ended.
    pub(crate) fn slow_turn(&mut self, now: Instant, took: Duration) {
        if self.admits(now) {
            let ms = took.as_millis();
            catch_and_log(|| tracing::warn!("a turn took {ms} ms: a handler or a task kept the loop for itself"));
        }
    }

    /// Says that a task panicked: if it served a connection, why that was closed is said apart.
    pub(crate) fn task_panicked(&mut self, now: Instant) {
        if self.admits(now) {
            catch_and_log(|| tracing::error!("a task panicked"));
        }
    }

    /// Says that waiting failed, which is tried again at once.
    pub(crate) fn wait_failed(&mut self, now: Instant, error: &std::io::Error) {
        if self.admits(now) {
            catch_and_log(|| tracing::warn!(%error, "waiting failed; it is tried again"));
        }
    }

    /// Says something about the loop itself.
    pub(crate) fn warn(&mut self, now: Instant, what: &str) {
        if self.admits(now) {
            catch_and_log(|| tracing::warn!("{what}"));
        }
    }

    fn admits(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            if self.suppressed > 0 {
                catch_and_log(|| tracing::warn!(lines = self.suppressed, "further lines were left out"));
            }
            *self = Self { accept_failed: self.accept_failed, ..Self::new(now) };
        }
        self.lines += 1;
        let admitted = self.lines <= LOG_LINES_PER_SECOND_MAX;
        self.suppressed += u64::from(!admitted);
        admitted
    }
}
