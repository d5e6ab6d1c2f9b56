//! A process that the experiment starts: a server, the load, a probe, or a build.
//!
//! None of them outlives the experiment, and the experiment waits for none without a bound: a signal ends the waiting, and
//! whatever is dropped is ended. Each leads a process group of its own, so that the compilers below cargo, and the program
//! below valgrind, end with it.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::load::{CpuTime, cpu_time_of};

/// Whether somebody wants the experiment to end.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Is set by SIGTERM, Ctrl-C, and the end of the terminal.
    ///
    /// # Errors
    /// If the system does not tell of signals.
    pub(crate) fn at_signals() -> io::Result<Self> {
        let stop = Self::default();
        // Under nohup the end of the terminal is to be ignored.
        let hangup = (!ignores_hangup()).then_some(SIGHUP);
        for signal in [SIGTERM, SIGINT].into_iter().chain(hangup) {
            signal_hook::flag::register(signal, stop.0.clone())?;
        }
        Ok(stop)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    /// If the experiment is to end.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.is_set() { Err(STOPPED.into()) } else { Ok(()) }
    }
}

fn ignores_hangup() -> bool {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}

/// A process that is ended when this is dropped.
pub(crate) struct Child(process::Child);

impl Child {
    /// Starts it, on `core` if one is given.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(command: &mut Command, core: Option<usize>) -> Result<Self, String> {
        let child = on_core(core, || command.process_group(0).spawn());
        let name = command.get_program().display();
        child.map(Self).map_err(|error| format!("cannot run '{name}': {error}"))
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// If it cannot be waited for, or `stop` is set before: then it ends now.
    pub(crate) fn wait(&mut self, stop: &Stop) -> Result<ExitStatus, String> {
        loop {
            if let Some(status) = self.0.try_wait().map_err(|error| format!("cannot wait for a process: {error}"))? {
                return Ok(status);
            }
            stop.check()?;
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits until it has ended, and gives what it has written to its standard output and errors, as far as they are piped.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub(crate) fn output(mut self, stop: &Stop) -> Result<(ExitStatus, [String; 2]), String> {
        let streams = [self.0.stdout.take().map(collect), self.0.stderr.take().map(collect)];
        let status = self.wait(stop)?;
        // What cannot be read was not said.
        Ok((status, streams.map(|stream| stream.and_then(|stream| stream.join().ok()).unwrap_or_default())))
    }

    pub(crate) fn take_output(&mut self) -> Option<process::ChildStdout> {
        self.0.stdout.take()
    }

    /// The CPU time that it has used so far, if the system tells.
    pub(crate) fn cpu_time(&self) -> Option<CpuTime> {
        cpu_time_of(&self.0.id().to_string())
    }

    fn end(&mut self, patience: Duration) {
        for signal in [Signal::TERM, Signal::KILL] {
            let deadline = Instant::now() + patience;
            // Its number is nobody else's for as long as it was not waited for.
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            // If it has ended by itself, that is as well.
            let _ = kill_process_group(Pid::from_child(&self.0), signal);
            while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(LOOK_AGAIN);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end(END_PATIENCE);
    }
}

/// Reads a stream to its end, beside what else is done.
fn collect(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is all there is.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Does something that starts a process, which then stays on `core`.
fn on_core<T>(core: Option<usize>, start: impl FnOnce() -> T) -> T {
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

const STOPPED: &str = "ended by a signal, before everything was measured";

/// How often a process is looked at, and whether there was a signal.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long a process may take to end before it is killed, and then to be gone.
const END_PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        Child::start(&mut command, None).expect("there is a shell")
    }

    /// The process that the script names in its first line.
    fn first_line(child: &mut Child) -> String {
        let (mut output, mut line) = (child.take_output().expect("it is piped"), Vec::new());
        let mut byte = [0];
        while output.read(&mut byte).is_ok_and(|count| count == 1) && byte != *b"\n" {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("a number")
    }

    fn is_there(process: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // One that has ended, and that nobody has waited for, is gone as far as we are concerned.
        !stat.is_empty() && !stat.contains(") Z ")
    }

    #[test]
    fn what_does_not_heed_a_signal_is_killed_in_bounded_time() {
        let mut child = shell("trap '' TERM; echo $$; while :; do sleep 60; done");
        let number = first_line(&mut child);
        assert!(is_there(&number));
        child.end(Duration::from_millis(100));
        assert!(!is_there(&number));
    }

    #[test]
    fn what_a_process_has_started_ends_with_it() {
        let mut child = shell("sleep 600 & echo $!; wait");
        let below = first_line(&mut child);
        assert!(is_there(&below));
        drop(child);
        let deadline = Instant::now() + Duration::from_secs(30);
        while is_there(&below) && Instant::now() < deadline {
            thread::sleep(LOOK_AGAIN);
        }
        assert!(!is_there(&below));
    }

    #[test]
    fn nothing_is_waited_for_once_the_experiment_is_to_end() {
        let stop = Stop::default();
        stop.0.store(true, Ordering::Relaxed);
        assert_eq!(shell("sleep 600").output(&stop).unwrap_err(), STOPPED);
        // What has ended is not lost by that.
        let (status, [output, _]) = shell("echo done").output(&Stop::default()).expect("it ends");
        assert!(status.success() && output == "done\n");
    }

    #[test]
    fn cpu_time_of_a_process_that_is_gone_is_missing() {
        let mut child = shell("exit 0");
        assert!(child.wait(&Stop::default()).expect("it ends").success());
        assert!(child.cpu_time().is_none());
    }
}
