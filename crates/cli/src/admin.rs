//! The flags of the administrative server, and the server while it runs.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use tidegate::admin::{Admin, AdminError, AdminHandle};
use tidegate::metrics::HttpMetrics;
use tidegate::{Address, ServerHandle};

use crate::log;

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
}

impl AdminOptions {
    /// Counts requests, if there is an administrative server that shows them.
    pub(crate) fn metrics(&self) -> Option<HttpMetrics> {
        self.admin.as_ref().map(|_| HttpMetrics::new())
    }

    /// Starts the administrative server of a running server, if there is one.
    pub(crate) fn start(
        &self,
        server: &ServerHandle,
        metrics: Option<&HttpMetrics>,
        has_takeover: bool,
    ) -> Result<RunningAdmin, Box<dyn Error>> {
        self.start_with(server, metrics, has_takeover, |admin| admin)
    }

    /// The same with further metrics.
    pub(crate) fn start_with(
        &self,
        server: &ServerHandle,
        metrics: Option<&HttpMetrics>,
        has_takeover: bool,
        extend: impl FnOnce(Admin) -> Admin,
    ) -> Result<RunningAdmin, Box<dyn Error>> {
        let Some(address) = &self.admin else { return Ok(RunningAdmin::default()) };
        let mut admin = self.admin_host.iter().fold(Admin::new(server), |admin, name| admin.host(name));
        admin = admin.metrics(log::write_metrics);
        if let Some(metrics) = metrics {
            admin = admin.requests(metrics);
        }
        if self.admin_open {
            admin = admin.allow_remote();
        }
        if has_takeover {
            admin = admin.share_address();
        }
        match extend(admin).start(address) {
            Ok(admin) => Ok(RunningAdmin(Arc::new(Mutex::new(Some(admin))))),
            Err(AdminError::Remote(address)) => Err(format!(
                "--admin {address}: other machines may reach this address, and no password is asked for: \
                 use a loopback address, such as 127.0.0.1, or allow it with --admin-open"
            )
            .into()),
            Err(error) => Err(format!("--admin {address}: {error}").into()),
        }
    }
}

/// The administrative server while it runs, if there is one. A clone is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningAdmin(Arc<Mutex<Option<AdminHandle>>>);

impl RunningAdmin {
    /// Prints where it is.
    pub(crate) fn announce(&self) {
        if let Some(admin) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let address = admin.address();
            let scheme = if address.ip().is_some() { "http://" } else { "" };
            log::announce(&format!("tidegate: admin at {scheme}{address} (/metrics, /health, /ready, /dashboard)"));
        }
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(ended);
    }
}
