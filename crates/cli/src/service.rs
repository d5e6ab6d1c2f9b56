//! `Service`: notifications to a service manager such as systemd (`sd_notify(3)`), and its watchdog.
//!
//! The manager names a socket in `NOTIFY_SOCKET`, and the interval of its watchdog in `WATCHDOG_USEC`. It is notified
//! when the server listens, when it drains, and twice in each interval that the loops get on. A loop that hangs is no
//! failure at first: but if it still hangs when the interval is over, the manager ends the process, and starts another.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use tidegate::ServerHandle;

/// The service manager, if there is one.
pub(crate) struct Service {
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Watchdog>,
}

/// The watchdog of the service manager.
struct Watchdog {
    /// Half of its interval.
    every: Duration,
    next: Instant,
}

impl Service {
    /// The service manager that the environment names. One that cannot be reached is reported in the log, and not used.
    pub(crate) fn of_environment() -> Self {
        let manager = env::var_os("NOTIFY_SOCKET").and_then(|name| match connect(name.as_bytes()) {
            Ok(manager) => Some(manager),
            Err(error) => {
                tracing::warn!(subsystem = "service", %error, "NOTIFY_SOCKET cannot be used; nothing is notified");
                None
            }
        });
        let is_ours = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let interval = env::var("WATCHDOG_USEC").ok().filter(|_| is_ours).and_then(|text| text.parse().ok());
        let watchdog = interval
            .filter(|&micros: &u64| micros > 0 && manager.is_some())
            .map(|micros| Watchdog { every: Duration::from_micros(micros / 2), next: Instant::now() });
        Self { manager, watchdog }
    }

    /// The server listens.
    pub(crate) fn ready(&self, server: &ServerHandle) {
        self.notify(&format!("READY=1\nSTATUS=listening on {} with {} loops", server.address(), server.loops()));
    }

    /// The server drains.
    pub(crate) fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=draining");
    }

    /// How long the caller may wait until the next [`check`](Self::check).
    pub(crate) fn wait_max(&self, usual: Duration) -> Duration {
        self.watchdog.as_ref().map_or(usual, |watchdog| usual.min(watchdog.every / 2).max(Duration::from_millis(1)))
    }

    /// Notifies the watchdog, if it is time and the loops get on.
    pub(crate) fn check(&mut self, server: &ServerHandle) {
        let Some(watchdog) = &mut self.watchdog else { return };
        let now = Instant::now();
        // A loop hangs if a turn has lasted longer than a second, and still lasts.
        if now < watchdog.next || server.counts().iter().any(|counts| counts.is_stalled) {
            return;
        }
        watchdog.next = now + watchdog.every;
        self.notify("WATCHDOG=1");
    }

    fn notify(&self, text: &str) {
        if let Some((socket, manager)) = &self.manager {
            // The manager may be gone; no other receiver exists for that report.
            let _ = socket.send_to_addr(text.as_bytes(), manager);
        }
    }
}

/// A socket of our own, and the address of the manager: a path, or `@` and a name in the abstract namespace.
fn connect(name: &[u8]) -> io::Result<(UnixDatagram, SocketAddr)> {
    let manager = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, manager))
}
