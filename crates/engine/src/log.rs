//! The lines that a loop logs: one for each connection that does not close in good order, and a bound on their rate.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tidegate_codec::Blame;
use tidegate_sys::memory;

use crate::close_reason::CloseReason;
use crate::limits::{ACCEPT_LINE_PAUSE, LOG_LINES_PER_SECOND_MAX};
use crate::loop_core::catch_and_log;

/// Logs a loop's lines, a bounded number in a second, and counts the rest: many misbehaving peers must not flood the
/// log. The user's subscriber writes the lines; if it panics, as on a full disk, the loop goes on.
#[derive(Debug)]
pub(crate) struct Log {
    second: Instant,
    lines: u32,
    suppressed: u64,
    /// When an accept failure was last logged.
    accept_failed: Option<Instant>,
}

impl Log {
    pub(crate) fn new(now: Instant) -> Self {
        Self { second: now, lines: 0, suppressed: 0, accept_failed: None }
    }

    /// Logs why a connection was closed, unless it closed in good order.
    pub(crate) fn closed(&mut self, now: Instant, peer: &dyn Display, reason: &CloseReason) {
        let Some(blame) = reason.blame() else { return };
        if !self.allows_line(now) {
            return;
        }
        catch_and_log(|| match blame {
            Blame::Caller | Blame::System => tracing::error!(%peer, cause = %reason, "connection closed"),
            Blame::Limit => tracing::warn!(%peer, cause = %reason, "connection closed"),
            Blame::Peer => tracing::info!(%peer, cause = %reason, "connection closed"),
        });
    }

    /// Logs that accepting failed, at most once per [`ACCEPT_LINE_PAUSE`]: while descriptors are used up, it fails
    /// again and again.
    pub(crate) fn accept_failed(&mut self, now: Instant, error: &std::io::Error) {
        let is_due = self.accept_failed.is_none_or(|last| now.saturating_duration_since(last) >= ACCEPT_LINE_PAUSE);
        if is_due && self.allows_line(now) {
            self.accept_failed = Some(now);
            let advice = if memory::is_out_of_descriptors(error) {
                "; raise the limit of descriptors, as with ulimit -n, or allow fewer connections"
            } else {
                ""
            };
            catch_and_log(|| tracing::error!(%error, "accepting failed; it pauses for a moment and goes on{advice}"));
        }
    }

    /// Logs a slow turn that has ended.
    pub(crate) fn slow_turn(&mut self, now: Instant, took: Duration) {
        if self.allows_line(now) {
            let ms = took.as_millis();
            catch_and_log(|| tracing::warn!("a turn took {ms} ms: a handler or a task kept the loop for itself"));
        }
    }

    /// Logs that a task panicked. If it served a connection, a line of its own reports why that was closed.
    pub(crate) fn task_panicked(&mut self, now: Instant) {
        if self.allows_line(now) {
            catch_and_log(|| tracing::error!("a task panicked"));
        }
    }

    /// Logs that waiting failed. The loop retries at once.
    pub(crate) fn wait_failed(&mut self, now: Instant, error: &std::io::Error) {
        if self.allows_line(now) {
            catch_and_log(|| tracing::warn!(%error, "waiting failed; it is tried again"));
        }
    }

    /// Logs a warning about the loop itself.
    pub(crate) fn warn(&mut self, now: Instant, text: &str) {
        if self.allows_line(now) {
            catch_and_log(|| tracing::warn!("{text}"));
        }
    }

    fn allows_line(&mut self, now: Instant) -> bool {
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
