//! The settings of the program: a file in TOML. Each key has a default, and an unknown key is an error.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tidegate::admin::{Admin, AdminHandle};

/// The settings. `settings.toml` describes them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The address of the service.
    pub listen: String,
    /// The address of metrics, health and the live page. It has no password.
    pub admin: String,
    /// Whether other machines may reach that address, which an orchestrator's probes need. A firewall keeps the rest away.
    pub admin_open: bool,
    /// Open requests get so many seconds to end after SIGTERM.
    pub drain_seconds: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".into(),
            admin: "127.0.0.1:9090".into(),
            admin_open: false,
            drain_seconds: 25,
        }
    }
}

impl Settings {
    /// Reads a file, or returns the defaults without one.
    ///
    /// # Errors
    /// The file cannot be read, or has a mistake: the error names the line.
    pub fn read(file: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        let Some(file) = file else {
            return Ok(Self::default());
        };
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?)
    }

    /// Starts the administrative server at its address.
    ///
    /// # Errors
    /// The address is not valid or in use, or other machines reach it and `admin_open` is not set.
    pub fn start_admin(&self, admin: Admin) -> Result<AdminHandle, Box<dyn Error>> {
        let admin = if self.admin_open {
            admin.allow_remote()
        } else {
            admin
        };
        Ok(admin.start(&self.admin.parse()?)?)
    }

    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}
