//! `ServiceManager`: notifications to a service manager such as systemd (`sd_notify(3)`), and its watchdog.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::handle::ServerHandle;

/// The service manager that has started this process, if one waits for notifications: systemd with `Type=notify`, and
/// others that read a socket named in `NOTIFY_SOCKET`. Without one, all methods do nothing.
///
/// [`ServerHandle::run_until_signal`](crate::ServerHandle::run_until_signal) and [`Supervisor`](crate::Supervisor) notify
/// it by themselves. A program that waits in another way does it by hand:
///
/// ```
/// use tidegate::ServiceManager;
///
/// let manager = ServiceManager::of_environment();
/// manager.ready("listening on port 8080");
/// // ..
/// manager.stopping();
/// ```
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog_interval: Option<Duration>,
}

impl ServiceManager {
    /// The service manager that `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` describe. One that cannot be reached is
    /// reported in the log, and not used.
    #[must_use]
    pub fn of_environment() -> Self {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        let manager = match Self::at(name.as_bytes()) {
            Ok(manager) => manager,
            Err(error) => {
                tracing::warn!(subsystem = "service", %error, "NOTIFY_SOCKET cannot be used; nothing is notified");
                return Self::default();
            }
        };
        let is_ours = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let interval = env::var("WATCHDOG_USEC").ok().filter(|_| is_ours).and_then(|text| text.parse().ok());
        match interval {
            Some(micros) if micros > 0 => manager.with_watchdog(Duration::from_micros(micros)),
            _ => manager,
        }
    }

    /// The service manager at a socket: a path, or `@` and a name in the abstract namespace of Linux.
    ///
    /// # Errors
    /// The name cannot be that of a socket, or the system has no descriptor left.
    pub fn at(name: &[u8]) -> io::Result<Self> {
        let address = match name.strip_prefix(b"@") {
            Some(name) => of_abstract_name(name)?,
            None => SocketAddr::from_pathname(OsStr::from_bytes(name))?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Some((socket, address)), watchdog_interval: None })
    }

    /// With a watchdog, which ends the process unless it is notified within each interval.
    #[must_use]
    pub fn with_watchdog(self, interval: Duration) -> Self {
        Self { watchdog_interval: Some(interval), ..self }
    }

    /// Whether there is a service manager.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.socket.is_some()
    }

    /// The interval of the watchdog; `None` without one. Notify it twice in that time.
    #[must_use]
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog_interval.filter(|_| self.is_present())
    }

    /// `READY=1`: the service has started, or has read its configuration again. The status is for operators; a line break
    /// ends it.
    pub fn ready(&self, status: &str) {
        self.notify(&format!("READY=1\nSTATUS={}", status.lines().next().unwrap_or_default()));
    }

    /// `READY=1` with the address of a server, and its loops.
    pub fn listening(&self, server: &ServerHandle) {
        self.ready(&format!("listening on {} with {} loops", server.address(), server.loops()));
    }

    /// `RELOADING=1`: the service reads its configuration again, and calls [`ready`](Self::ready) afterwards.
    pub fn reloading(&self) {
        if self.is_present() {
            // systemd compares it with its own clock, for `Type=notify-reload`.
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
            self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        }
    }

    /// `STOPPING=1`: the service drains.
    pub fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=draining");
    }

    /// `WATCHDOG=1`: the service gets on.
    pub fn feed_watchdog(&self) {
        self.notify("WATCHDOG=1");
    }

    /// Any other state, one `NAME=value` a line, such as `STATUS=warming the cache` or `EXTEND_TIMEOUT_USEC=5000000`.
    pub fn notify(&self, state: &str) {
        if let Some((socket, manager)) = &self.socket {
            // The manager may be gone; no other receiver exists for that report.
            let _ = socket.send_to_addr(state.as_bytes(), manager);
        }
    }
}

#[cfg(target_os = "linux")]
fn of_abstract_name(name: &[u8]) -> io::Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn of_abstract_name(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::other("only Linux has sockets without a path"))
}
