//! A server of the experiment, on a core of its own, from its start to its end.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::load::{CpuTime, cpu_time_of};

/// A server that serves. It is ended when this is dropped.
pub(crate) struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    /// Starts `program` with one event loop, and waits until it says where it listens.
    ///
    /// # Errors
    /// If it cannot be started, or does not say so.
    pub(crate) fn start(program: &Path, transport: &str, core: Option<usize>) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(["serve", "--loops", "1", "--listen", "127.0.0.1:0", "--quiet", "--transport", transport]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let name = program.display();
        let mut child = on_core(core, || command.spawn()).map_err(|error| format!("cannot run '{name}': {error}"))?;
        let output = child.stdout.take();
        let mut serving = Self { child, url: String::new() };
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            // What cannot be read is no address either.
            let _ = output.map(|output| BufReader::new(output).read_line(&mut line));
            tell.send(line)
        });
        let line = told.recv_timeout(START_PATIENCE).unwrap_or_default();
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_ascii_whitespace().next());
        let address = address.ok_or_else(|| format!("'{name}' does not say where it listens"))?;
        serving.url = format!("http://{address}/plaintext");
        Ok(serving)
    }

    /// What is asked for.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The CPU time that it has used so far.
    pub(crate) fn cpu_time(&self) -> CpuTime {
        cpu_time_of(&self.child.id().to_string())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(process) = Pid::from_raw(self.child.id() as i32) {
            // If it has ended by itself, that is as well.
            let _ = kill_process(process, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Does something that starts a process, which then stays on `core`.
pub(crate) fn on_core<T>(core: Option<usize>, start: impl FnOnce() -> T) -> T {
    let before = core.and_then(|core| {
        let before = sched_getaffinity(None).ok()?;
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only).ok()?;
        Some(before)
    });
    let started = start();
    if let Some(before) = before {
        // It was allowed a moment ago.
        let _ = sched_setaffinity(None, &before);
    }
    started
}

/// How long a server may take to listen.
const START_PATIENCE: Duration = Duration::from_secs(10);
