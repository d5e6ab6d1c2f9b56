//! The flags of the administrative server, and the server while it runs.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Args;
use tidegate::Address;
use tidegate::admin::{Admin, AdminError, AdminHandle};
use tidegate::metrics::HttpMetrics;

use crate::log;
use crate::telemetry;

/// The flags of the administrative server.
#[derive(Debug, Args)]
pub(crate) struct AdminOptions {
    /// Serve /metrics (Prometheus and OpenMetrics), /health, /ready and /dashboard at ADDRESS, and nowhere else. It
    /// asks for no password, so ADDRESS has to be a loopback address or a Unix socket, except with --admin-open
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<Address>,
    /// Let --admin be an address that other machines may reach: any of them can read the figures, and close connections
    #[arg(long, requires = "admin")]
    admin_open: bool,
    /// Name at which --admin responds besides IP addresses and localhost, may be repeated: the name that browsers and
    /// scrapers use
    #[arg(long, value_name = "NAME", requires = "admin")]
    admin_host: Vec<String>,
    /// Let POST /reload of --admin read the configuration again, as SIGHUP does; its response has the mistakes
    #[arg(long, requires = "admin")]
    admin_reload: bool,
}

impl AdminOptions {
    /// Counts requests, if there is an administrative server that shows them.
    pub(crate) fn metrics(&self) -> Option<HttpMetrics> {
        self.admin.as_ref().map(|_| HttpMetrics::new())
    }

    /// Whether it reads configurations again.
    pub(crate) fn allows_reload(&self) -> bool {
        self.admin_reload
    }
}

/// The administrative server while it runs, if there is one. A clone is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningAdmin(Arc<Mutex<Option<AdminHandle>>>);

impl RunningAdmin {
    /// Starts the administrative server, if the flags ask for one.
    pub(crate) fn start(
        &self,
        options: &AdminOptions,
        admin: Admin,
        metrics: Option<&HttpMetrics>,
        extend: impl FnOnce(Admin) -> Admin,
    ) -> Result<(), Box<dyn Error>> {
        let Some(address) = &options.admin else { return Ok(()) };
        let mut admin = options.admin_host.iter().fold(admin, |admin, name| admin.host(name));
        admin = admin.metrics(log::write_metrics).metrics(telemetry::write_metrics);
        if let Some(metrics) = metrics {
            admin = admin.requests(metrics);
        }
        if options.admin_open {
            admin = admin.allow_remote();
        }
        let started = match extend(admin).start(address) {
            Ok(started) => started,
            Err(AdminError::Remote(address)) => {
                return Err(format!(
                    "--admin {address}: other machines may reach this address, and no password is asked for: \
                     use a loopback address, such as 127.0.0.1, or allow it with --admin-open"
                )
                .into());
            }
            Err(error) => return Err(format!("--admin {address}: {error}").into()),
        };
        *self.lock() = Some(started);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<AdminHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints where it is.
    pub(crate) fn announce(&self) {
        if let Some(admin) = &*self.lock() {
            let address = admin.address();
            let scheme = if address.ip().is_some() { "http://" } else { "" };
            log::announce(&format!("tidegate: admin at {scheme}{address} (/metrics, /health, /ready, /dashboard)"));
        }
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        let ended = self.lock().take();
        drop(ended);
    }
}
