//! A server of the experiment: starts it pinned to a core, parses its start-up line, and ends it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::child::{Child, StopFlag};
use tidegate_load::CpuTime;

/// A running server. It ends when this is dropped.
pub(crate) struct RunningServer {
    child: Child,
    url: String,
    backend: Option<String>,
}

impl RunningServer {
    /// Starts `program` with one event loop, and waits for its start-up line.
    ///
    /// # Errors
    /// If the program cannot be started, or prints no start-up line in time, or `stop` is set before.
    pub(crate) fn start(program: &Path, backend: &str, core: Option<usize>, stop: &StopFlag) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(["serve", "--loops", "1", "--listen", "127.0.0.1:0", "--quiet", "--backend", backend]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Child::start(&mut command, core)?;
        let output = child.take_output();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            // After a read error the line is empty, and does not parse as an address.
            let _ = output.map(|output| BufReader::new(output).read_line(&mut line));
            sender.send(line)
        });
        let deadline = Instant::now() + START_PATIENCE;
        let line = loop {
            stop.check()?;
            match receiver.recv_timeout(LOOP_CHECK_INTERVAL) {
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                line => break line.unwrap_or_default(),
            }
        };
        let (address, backend) =
            parse(&line).ok_or_else(|| format!("'{}' does not say where it listens", program.display()))?;
        Ok(Self { child, url: format!("http://{address}/plaintext"), backend: backend.map(Into::into) })
    }

    /// The URL to request.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The backend that the server reports: with `auto` only the server knows it.
    pub(crate) fn backend(&self) -> Option<&str> {
        self.backend.as_deref()
    }

    /// The CPU time of the server so far, if the kernel provides it.
    pub(crate) fn cpu_time(&self) -> Option<CpuTime> {
        self.child.cpu_time()
    }
}

/// Parses the start-up line for address and backend: `tidegate: listening on http://ADDRESS (BACKEND, 1 loop)`.
fn parse(line: &str) -> Option<(&str, Option<&str>)> {
    let (_, rest) = line.split_once("http://")?;
    let (address, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let backend = rest.trim_start().strip_prefix('(').and_then(|rest| rest.split([',', ')']).next());
    (!address.is_empty()).then_some((address, backend.filter(|name| !name.is_empty())))
}

/// How long a server may take to print its start-up line.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How often the wait checks the stop flag.
const LOOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_up_line_is_parsed_for_address_and_backend() {
        let line = "tidegate: listening on http://127.0.0.1:4321 (epoll, 1 loop)\n";
        assert_eq!(parse(line), Some(("127.0.0.1:4321", Some("epoll"))));
        assert_eq!(parse("listening on http://127.0.0.1:4321\n"), Some(("127.0.0.1:4321", None)));
        assert_eq!(parse("tidegate: address in use\n"), None);
        assert_eq!(parse(""), None);
    }
}
