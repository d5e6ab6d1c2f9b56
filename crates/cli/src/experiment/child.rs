//! A process that the experiment starts: a server, the load, a probe, or a build.
//!
//! No child outlives the experiment, and no wait for a child is unbounded: a signal ends the wait, and dropping a
//! [`Child`] ends the process. Each child leads its own process group, so that the compilers below cargo, and the
//! program below valgrind, end with it.

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

use tidegate_load::{CpuTime, cpu_time_of};

/// The stop flag of the experiment.
#[derive(Clone, Default)]
pub(crate) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// A flag that SIGTERM, Ctrl-C, and a hangup of the terminal set.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub(crate) fn at_signals() -> io::Result<Self> {
        let stop = Self::default();
        // Under nohup SIGHUP stays ignored.
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
    /// If the flag is set.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.is_set() { Err(STOPPED.into()) } else { Ok(()) }
    }
}

fn ignores_hangup() -> bool {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}

/// A process that ends when this is dropped.
pub(crate) struct Child(process::Child);

impl Child {
    /// Starts the process, pinned to `core` if one is given.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub(crate) fn start(command: &mut Command, core: Option<usize>) -> Result<Self, String> {
        let child = on_core(core, || command.process_group(0).spawn());
        let name = command.get_program().display();
        child.map(Self).map_err(|error| format!("cannot run '{name}': {error}"))
    }

    /// Waits until the process has exited.
    ///
    /// # Errors
    /// If `wait` fails, or `stop` is set before.
    pub(crate) fn wait(&mut self, stop: &StopFlag) -> Result<ExitStatus, String> {
        loop {
            if let Some(status) = self.0.try_wait().map_err(|error| format!("cannot wait for a process: {error}"))? {
                return Ok(status);
            }
            stop.check()?;
            thread::sleep(LOOP_CHECK_INTERVAL);
        }
    }

    /// Waits until the process has exited, and returns its standard output and error, as far as they are piped.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub(crate) fn output(mut self, stop: &StopFlag) -> Result<(ExitStatus, [String; 2]), String> {
        let streams = [self.0.stdout.take().map(collect), self.0.stderr.take().map(collect)];
        let status = self.wait(stop)?;
        // A stream that cannot be read counts as empty.
        Ok((status, streams.map(|stream| stream.and_then(|stream| stream.join().ok()).unwrap_or_default())))
    }

    pub(crate) fn take_output(&mut self) -> Option<process::ChildStdout> {
        self.0.stdout.take()
    }

    /// The CPU time of the process so far, if the kernel provides it.
    pub(crate) fn cpu_time(&self) -> Option<CpuTime> {
        cpu_time_of(&self.0.id().to_string())
    }

    fn end(&mut self, patience: Duration) {
        for signal in [Signal::TERM, Signal::KILL] {
            let deadline = Instant::now() + patience;
            // The process id stays reserved until the process was waited for, so the signal cannot hit another process.
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            // An error means that the process has exited by itself.
            let _ = kill_process_group(Pid::from_child(&self.0), signal);
            while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(LOOP_CHECK_INTERVAL);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end(END_PATIENCE);
    }
}

/// Reads a stream to its end, on its own thread.
fn collect(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // On an error, the bytes read before it are the result.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Runs `start` with the thread pinned to `core`. A process that `start` spawns inherits the pinning.
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
        // Restoring the previous mask cannot fail.
        let _ = sched_setaffinity(None, &before);
    }
    started
}

const STOPPED: &str = "ended by a signal, before everything was measured";

/// How often a wait checks the process and the stop flag.
const LOOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// How long a process may take to exit after SIGTERM, and again after SIGKILL.
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

    /// The first line of the script's output, which is a process id.
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
        // A zombie counts as exited.
        !stat.is_empty() && !stat.contains(") Z ")
    }

    #[test]
    fn a_child_that_ignores_sigterm_is_killed_in_bounded_time() {
        let mut child = shell("trap '' TERM; echo $$; while :; do sleep 60; done");
        let number = first_line(&mut child);
        assert!(is_there(&number));
        child.end(Duration::from_millis(100));
        assert!(!is_there(&number));
    }

    #[test]
    fn descendants_end_with_the_child() {
        let mut child = shell("sleep 600 & echo $!; wait");
        let below = first_line(&mut child);
        assert!(is_there(&below));
        drop(child);
        let deadline = Instant::now() + Duration::from_secs(30);
        while is_there(&below) && Instant::now() < deadline {
            thread::sleep(LOOP_CHECK_INTERVAL);
        }
        assert!(!is_there(&below));
    }

    #[test]
    fn a_wait_ends_once_the_stop_flag_is_set() {
        let stop = StopFlag::default();
        stop.0.store(true, Ordering::Relaxed);
        assert_eq!(shell("sleep 600").output(&stop).unwrap_err(), STOPPED);
        // Without the flag, the output of an exited child is returned.
        let (status, [output, _]) = shell("echo done").output(&StopFlag::default()).expect("it ends");
        assert!(status.success() && output == "done\n");
    }

    #[test]
    fn an_exited_process_has_no_cpu_time() {
        let mut child = shell("exit 0");
        assert!(child.wait(&StopFlag::default()).expect("it ends").success());
        assert!(child.cpu_time().is_none());
    }
}
