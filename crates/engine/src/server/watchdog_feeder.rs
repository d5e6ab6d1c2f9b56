//! `WatchdogFeeder`: notifies the watchdog of a service manager as long as the loops of a server get on.

use std::time::{Duration, Instant};

use super::handle::ServerHandle;
use super::service_manager::ServiceManager;

/// Notifies the watchdog of a [`ServiceManager`] twice in each interval, as long as the loops of a server get on. A
/// [`Supervisor`](crate::Supervisor) has one; a program that waits for its servers by itself calls [`feed`](Self::feed)
/// whenever [`wait_max`](Self::wait_max) is over.
///
/// A loop that hangs is no failure at first: but if it still hangs when the interval is over, the manager ends the
/// process, and starts another.
#[derive(Debug)]
pub struct WatchdogFeeder {
    /// Half of the interval.
    every: Option<Duration>,
    next: Instant,
}

impl WatchdogFeeder {
    /// A feeder that notifies at its first [`feed`](Self::feed). Without a watchdog it does nothing.
    #[must_use]
    pub fn new(manager: &ServiceManager) -> Self {
        Self { every: manager.watchdog_interval().map(|interval| interval / 2), next: Instant::now() }
    }

    /// How long the caller may wait until the next [`feed`](Self::feed): `usual`, or less.
    #[must_use]
    pub fn wait_max(&self, usual: Duration) -> Duration {
        self.every.map_or(usual, |every| usual.min(every / 2).max(Duration::from_millis(1)))
    }

    /// Notifies the watchdog, if it is time and the loops of the server get on.
    pub fn feed(&mut self, manager: &ServiceManager, server: &ServerHandle) {
        let Some(every) = self.every else { return };
        let now = Instant::now();
        // A loop hangs if a turn has lasted longer than a second, and still lasts.
        if now < self.next || server.counts().iter().any(|counts| counts.is_stalled) {
            return;
        }
        self.next = now + every;
        manager.feed_watchdog();
    }
}
