//! The lines that a loop logs: one for each connection that does not close in good order, and a bound on their rate.
//! Connections that close in their handshake share lines.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tidegate_codec::Blame;
use tidegate_sys::memory;

use crate::admission::Refusal;
use crate::close_reason::CloseReason;
use crate::limits::{ACCEPT_LINE_PAUSE, HANDSHAKE_LINE_PAUSE, LOG_LINES_PER_SECOND_MAX};
use crate::unwind::catch_and_log;

/// Logs a loop's lines, a bounded number in a second, and counts the rest: many misbehaving peers must not flood the
/// log. The user's subscriber writes the lines; if it panics, as on a full disk, the loop goes on.
#[derive(Debug)]
pub(crate) struct Log {
    second: Instant,
    lines: u32,
    suppressed: u64,
    /// When an accept failure was last logged.
    accept_failed: Option<Instant>,
    /// When a connection was last logged that closed before its handshake was complete, and how many have closed so
    /// since.
    handshake_failed: Option<Instant>,
    handshakes_failed: u64,
    /// The same for handshakes that this server cannot complete.
    handshake_unable: Option<Instant>,
    handshakes_unable: u64,
}

impl Log {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            second: now,
            lines: 0,
            suppressed: 0,
            accept_failed: None,
            handshake_failed: None,
            handshakes_failed: 0,
            handshake_unable: None,
            handshakes_unable: 0,
        }
    }

    /// Logs why a connection was closed, unless it closed in good order.
    pub(crate) fn closed(&mut self, now: Instant, peer: &dyn Display, reason: &CloseReason) {
        let Some(blame) = reason.blame() else { return };
        if !self.allows_line(now) {
            return;
        }
        catch_and_log(|| match blame {
            Blame::Caller | Blame::System => {
                tracing::error!(subsystem = "connection", %peer, %reason, "connection closed");
            }
            Blame::Limit => tracing::warn!(subsystem = "connection", %peer, %reason, "connection closed"),
            Blame::Peer => tracing::info!(subsystem = "connection", %peer, %reason, "connection closed"),
        });
    }

    /// The same for a connection whose handshake was not complete. If the peer is to blame, it logs at most one line per
    /// [`HANDSHAKE_LINE_PAUSE`], with the number of those that were not logged: port scanners and crowds of clients that
    /// leave are no news. So it does for a server that cannot complete handshakes, as before its first certificate: all
    /// lines have the same reason.
    pub(crate) fn closed_in_handshake(&mut self, now: Instant, peer: &dyn Display, reason: &CloseReason) {
        match reason.blame() {
            Some(Blame::Peer | Blame::Limit) => {}
            Some(Blame::Caller) => return self.unable_to_shake_hands(now, peer, reason),
            _ => return self.closed(now, peer, reason),
        }
        let is_due = self.handshake_failed.is_none_or(|at| now.saturating_duration_since(at) >= HANDSHAKE_LINE_PAUSE);
        if is_due && self.allows_line(now) {
            self.handshake_failed = Some(now);
            let others = std::mem::take(&mut self.handshakes_failed);
            catch_and_log(|| {
                tracing::info!(subsystem = "connection", %peer, %reason, others, "connection closed in its handshake");
            });
        } else {
            self.handshakes_failed += 1;
        }
    }

    fn unable_to_shake_hands(&mut self, now: Instant, peer: &dyn Display, reason: &CloseReason) {
        let is_due = self.handshake_unable.is_none_or(|at| now.saturating_duration_since(at) >= HANDSHAKE_LINE_PAUSE);
        if is_due && self.allows_line(now) {
            self.handshake_unable = Some(now);
            let others = std::mem::take(&mut self.handshakes_unable);
            catch_and_log(|| {
                tracing::warn!(subsystem = "connection", %peer, %reason, others, "no handshake can be completed");
            });
        } else {
            self.handshakes_unable += 1;
        }
    }

    /// Logs that accepting failed, at most once per [`ACCEPT_LINE_PAUSE`]: while descriptors are used up, it fails
    /// again and again.
    pub(crate) fn accept_failed(&mut self, now: Instant, error: &std::io::Error) {
        let is_due = self.accept_failed.is_none_or(|last| now.saturating_duration_since(last) >= ACCEPT_LINE_PAUSE);
        if is_due && self.allows_line(now) {
            self.accept_failed = Some(now);
            let advice = memory::is_out_of_descriptors(error)
                .then_some("raise the limit of descriptors (ulimit -n), or allow fewer connections");
            catch_and_log(|| tracing::error!(subsystem = "listener", %error, advice, "accept failed; retrying"));
        }
    }

    /// Logs that a connection was refused.
    pub(crate) fn refused(&mut self, now: Instant, peer: &dyn Display, reason: Refusal) {
        if self.allows_line(now) {
            catch_and_log(|| tracing::info!(subsystem = "listener", %peer, %reason, "connection refused"));
        }
    }

    /// Logs a slow turn that has ended, with a call that it made: the longest one and its time, or the last one.
    pub(crate) fn slow_turn(&mut self, now: Instant, took: Duration, call: Option<(String, Option<Duration>)>) {
        if self.allows_line(now) {
            let busy_ms = took.as_millis() as u64;
            let reason = "a handler or a task did not yield";
            let (longest, last) = match call {
                Some((name, Some(took))) => (Some((name, took.as_millis() as u64)), None),
                Some((name, None)) => (None, Some(name)),
                None => (None, None),
            };
            let (longest_call, longest_call_ms) = longest.unzip();
            let (longest_call, last_call) = (longest_call.as_deref(), last.as_deref());
            catch_and_log(|| {
                tracing::warn!(
                    subsystem = "loop",
                    busy_ms,
                    longest_call,
                    longest_call_ms,
                    last_call,
                    reason,
                    "slow turn"
                );
            });
        }
    }

    /// Logs that a task panicked. If it served a connection, a line of its own reports why that was closed.
    pub(crate) fn task_panicked(&mut self, now: Instant) {
        if self.allows_line(now) {
            catch_and_log(|| tracing::error!(subsystem = "task", "task panicked"));
        }
    }

    /// Logs that the protocol of a datagram socket panicked.
    pub(crate) fn endpoint_panicked(&mut self, now: Instant) {
        if self.allows_line(now) {
            catch_and_log(|| tracing::error!(subsystem = "endpoint", "endpoint panicked"));
        }
    }

    /// Logs that waiting failed. The loop retries at once.
    pub(crate) fn wait_failed(&mut self, now: Instant, error: &std::io::Error) {
        if self.allows_line(now) {
            catch_and_log(|| tracing::warn!(subsystem = "loop", %error, "wait failed; retrying"));
        }
    }

    /// Logs that the memory budget is used up and that there is no connection left to shed.
    pub(crate) fn out_of_memory(&mut self, now: Instant) {
        if self.allows_line(now) {
            let reason = "the memory budget is used up and no connection is left to shed";
            catch_and_log(|| tracing::warn!(subsystem = "memory", reason, "receives paused"));
        }
    }

    fn allows_line(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            if self.suppressed > 0 {
                catch_and_log(|| tracing::warn!(subsystem = "log", lines = self.suppressed, "lines suppressed"));
            }
            (self.second, self.lines, self.suppressed) = (now, 0, 0);
        }
        self.lines += 1;
        let admitted = self.lines <= LOG_LINES_PER_SECOND_MAX;
        self.suppressed += u64::from(!admitted);
        admitted
    }
}
