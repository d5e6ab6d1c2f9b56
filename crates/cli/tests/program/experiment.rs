//! `tidegate experiment`, with three equal servers: its report, and that a signal leaves no process behind.

use std::fs;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::program::{VARIABLE, backend, ending_with_the_test, run, until};

#[test]
fn the_report_names_backend_and_origin_of_the_servers() {
    let arguments = [&EXPERIMENT[..], &["--rounds", "2", "--duration", "100ms"]].concat();
    let (code, output, errors) = run(&arguments);
    assert_eq!(code, Some(0), "{errors:?}");
    let text = output.join("\n");
    // The backend was `auto`.
    assert!(text.contains(&format!(", backend {}; rounds: 2, ", backend())), "{text}");
    assert!(text.contains("array: as it was given; linked: as it was given; ours: as it was given\n"), "{text}");
}

#[test]
fn a_signal_ends_the_experiment_and_its_children() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        // The test runner may ignore SIGHUP, and a child would inherit that.
        let mut command = ending_with_the_test("env");
        command.args(["--default-signal=HUP", OWN]).args(EXPERIMENT).args(["--duration", "10m"]);
        command.env(VARIABLE, backend()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut experiment = Experiment(command.spawn().expect("there is env"));
        let mut started = Vec::new();
        until("the server and the load", || {
            started = experiment.children();
            started.len() == 2
        });
        kill_process(Pid::from_child(&experiment.0), signal).expect("it is there");
        let mut status = None;
        until("the end of the experiment", || {
            status = experiment.0.try_wait().expect("it can be waited for");
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), Some(1), "{signal:?}");
        assert!(started.iter().all(|process| parent(process).is_none()), "a process is left after {signal:?}");
    }
}

/// Dropping it ends the experiment and its children.
struct Experiment(Child);

impl Experiment {
    /// The process ids of its children.
    fn children(&self) -> Vec<String> {
        let own = self.0.id().to_string();
        let all = fs::read_dir("/proc").expect("it is there").flatten();
        let names = all.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| parent(name).as_ref() == Some(&own)).collect()
    }
}

impl Drop for Experiment {
    fn drop(&mut self) {
        // SIGTERM first: the experiment then ends its children itself.
        for signal in [Signal::TERM, Signal::KILL] {
            if matches!(self.0.try_wait(), Ok(None)) {
                let _ = kill_process(Pid::from_child(&self.0), signal);
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
        let _ = self.0.wait();
    }
}

/// The parent of a process, if the process exists.
fn parent(process: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in parentheses, may contain any character; its state follows.
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(1).map(str::to_owned)
}

const OWN: &str = env!("CARGO_BIN_EXE_tidegate");

/// A light load, with given programs, so that nothing is built.
const EXPERIMENT: [&str; 11] =
    ["experiment", "--array", OWN, "--linked", OWN, "--ours", OWN, "--connections", "2", "--depth", "4"];
