//! The access log of the program: its format, and its destination, which is a stream of its own.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Deserializer, de};
use tidegate::http::{AccessLog, LineLog, LogFormat, LogTemplate};

use crate::log;

/// The format of the access log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum AccessLogFormat {
    /// No access log.
    #[default]
    Off,
    /// One that has a name.
    Named(LogFormat),
    /// One of the user's own.
    Template(LogTemplate),
}

impl AccessLogFormat {
    /// The middleware that writes the lines, if there are any.
    pub(crate) fn access_log(&self, lines: &LineLog) -> Option<AccessLog> {
        let log = match self {
            Self::Off => return None,
            Self::Named(format) => AccessLog::new(*format),
            Self::Template(template) => AccessLog::template(template),
        };
        Some(log.to(lines))
    }
}

impl FromStr for AccessLogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "off" => Self::Off,
            "common" => Self::Named(LogFormat::Common),
            "combined" => Self::Named(LogFormat::Combined),
            "json" => Self::Named(LogFormat::Json),
            "opentelemetry" => Self::Named(LogFormat::OpenTelemetry),
            _ if text.contains(['{', '}']) => Self::Template(text.parse().map_err(|error| format!("{error}"))?),
            _ => {
                return Err(format!(
                    "`{text}` is no format of the access log: it is off, common, combined, json, opentelemetry, or a text \
                     with fields such as {{client.ip}}"
                ));
            }
        })
    }
}

impl<'de> Deserialize<'de> for AccessLogFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The flags of the access log's destination.
#[derive(Debug, Clone, Args)]
pub(crate) struct AccessLogOptions {
    /// Write the access log to stderr, stdout or FILE, which SIGUSR1 and SIGHUP open again; each line is of its format as
    /// a whole. A FILE has no other lines, and neither has stdout: the start-up lines and counts go to stderr then
    #[arg(long, visible_alias = "access-log-file", value_name = "FILE", default_value = "stderr")]
    access_log_to: PathBuf,
    /// While no process reads the log: drop lines of the access log and count them, or block all connections until
    /// there is room. Other lines are always dropped
    #[arg(long, value_name = "MODE", value_enum, default_value = "drop")]
    access_log_full: WhenFull,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WhenFull {
    Drop,
    Block,
}

/// Where lines of the access log go.
#[derive(Debug, Clone)]
pub(crate) struct AccessLines {
    lines: LineLog,
    /// The file, if it is one.
    path: Option<PathBuf>,
}

impl AccessLogOptions {
    /// Opens the destination.
    pub(crate) fn open(&self) -> Result<AccessLines, String> {
        let failed = |error: io::Error| format!("--access-log-to {}: {error}", self.access_log_to.display());
        let (lines, path) = match self.access_log_to.to_str() {
            Some("stderr") => (log::standard_error().clone(), None),
            Some("stdout") => {
                log::leave_stdout_to_access_log();
                (log::standard_output().clone(), None)
            }
            _ => {
                let file = open(&self.access_log_to).map_err(failed)?;
                (LineLog::new("access", file), Some(self.access_log_to.clone()))
            }
        };
        let lines = AccessLines { lines: lines.wait_when_full(self.access_log_full == WhenFull::Block), path };
        if self.access_log_to.as_os_str() != "stderr" {
            let _ = ACCESS.set(lines.clone());
        }
        Ok(lines)
    }
}

impl AccessLines {
    pub(crate) fn lines(&self) -> &LineLog {
        &self.lines
    }

    /// Opens the file again, which may have been renamed, and logs the outcome in one line.
    pub(crate) fn reopen(&self) {
        let Some(path) = &self.path else { return };
        match open(path) {
            Ok(file) => {
                self.lines.replace_output(file);
                tracing::info!(subsystem = "log", path = %path.display(), "access log opened again");
            }
            Err(error) => {
                let path = path.display();
                tracing::error!(subsystem = "log", %path, %error, "access log not opened again; the old file stays in use");
            }
        }
    }
}

/// Opens the file of the access log again, if it has one.
pub(crate) fn reopen() {
    ACCESS.get().iter().for_each(|access| access.reopen());
}

/// The lines of the access log, unless it shares standard error.
pub(crate) fn lines() -> Option<&'static LineLog> {
    ACCESS.get().map(AccessLines::lines)
}

/// The file of an access log has addresses of clients, so not all users may read it.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

/// The access log, unless it shares standard error.
static ACCESS: OnceLock<AccessLines> = OnceLock::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_has_a_name_or_fields() {
        let parse = |text: &str| text.parse::<AccessLogFormat>();
        assert_eq!(parse("off"), Ok(AccessLogFormat::Off));
        assert_eq!(parse("json"), Ok(AccessLogFormat::Named(LogFormat::Json)));
        assert!(matches!(parse("{client.ip} {end}"), Ok(AccessLogFormat::Template(_))));
        assert!(parse("jsn").unwrap_err().contains("common, combined, json"));
        assert!(parse("{client.pi}").unwrap_err().contains("did you mean {client.ip}?"));
    }
}
