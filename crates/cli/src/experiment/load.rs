//! The load of the experiment: runs `tidegate load` in its own process, and parses its JSON.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::child::{Child, StopFlag};

/// The results of a load. Latencies are in microseconds.
pub(crate) struct Load {
    pub(crate) requests: f64,
    pub(crate) seconds: f64,
    pub(crate) bytes_read: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) latency: SampleStats,
    pub(crate) thread_rate: SampleStats,
    /// The complete JSON.
    pub(crate) all: Value,
}

/// Mean, deviation and maximum of a sample.
pub(crate) struct SampleStats {
    pub(crate) mean: f64,
    pub(crate) stdev: f64,
    pub(crate) max: f64,
    pub(crate) within_stdev: f64,
}

impl Load {
    /// Loads the server at `url`, from one thread on `core`.
    ///
    /// # Errors
    /// If the load had errors, or `stop` is set before.
    pub(crate) fn run(
        url: &str,
        connections: u32,
        depth: u32,
        duration: Duration,
        core: Option<usize>,
        stop: &StopFlag,
    ) -> Result<Self, String> {
        // The running program, even if cargo has replaced its file since.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("tidegate").args(["load", "--threads", "1", "--timeout", "20s", "--json", "-"]);
        command.args(["--connections", &connections.to_string(), "--pipeline", &depth.to_string()]);
        for field in FIELDS {
            command.args(["--header", field]);
        }
        command.args(["--duration", &format!("{}ms", duration.as_millis()), url]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (status, [text, why]) = Child::start(&mut command, core)?.output(stop)?;
        if !status.success() {
            let errors = serde_json::from_str(&text).map(|all: Value| all["errors"].to_string()).unwrap_or_default();
            return Err(format!("the load had errors: {} {errors}", why.trim()));
        }
        Self::from_json(&text).ok_or_else(|| format!("the output of the load cannot be parsed: {text}"))
    }

    fn from_json(text: &str) -> Option<Self> {
        let all: Value = serde_json::from_str(text).ok()?;
        let number = |name: &str| all[name].as_f64();
        Some(Self {
            requests: number("requests")?,
            seconds: number("seconds")?,
            bytes_read: number("bytes_read")?,
            requests_per_second: number("requests_per_second")?,
            latency: SampleStats::from_json(&all["latency"])?,
            thread_rate: SampleStats::from_json(&all["thread_rate"])?,
            all,
        })
    }
}

impl SampleStats {
    fn from_json(value: &Value) -> Option<Self> {
        let number = |name: &str| value[name].as_f64();
        Some(Self {
            mean: number("mean")?,
            stdev: number("stdev")?,
            max: number("max")?,
            within_stdev: number("within_stdev")?,
        })
    }
}

/// The header fields of the requests in Netty's experiment.
const FIELDS: [&str; 3] = [
    "Host: localhost",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Connection: keep-alive",
];
