//! Injects one bug after the other and runs the contract of drivers, which has to detect each on every driver that can
//! have it. Without a bug the contract has to pass, also on an io_uring with injected faults
//! (`crates/sys/src/uring/faulty_kernel.rs`), with several seeds: a failing seed is the value of `TIDEGATE_RING_FAULTS`.
//!
//! `crates/buffer/src/injected.rs` lists the bugs. They are in a separate build, in `target/injected`; with no bug
//! selected, that build has to pass. A run that hangs counts as detected.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::command::{Failure, cargo, ending_with_us};
use crate::sample::{fresh_seed, sample};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Bugs to inject [default: all]
    bugs: Vec<String>,
    /// Inject only so many of them, chosen by the seed, and play only one seed of a disturbed io_uring
    #[arg(long)]
    sample: Option<usize>,
    /// Seed of the sample [default: a random one, printed]
    #[arg(long)]
    seed: Option<u64>,
}

impl Options {
    /// All bugs.
    pub(crate) fn all() -> Self {
        Self { bugs: Vec::new(), sample: None, seed: None }
    }
}

/// A run of the contract.
struct Run<'a> {
    bug: Option<&'a str>,
    backend: &'static str,
    ring_faults: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let known = known_bugs()?;
    let here = OF_COMPLETIONS.iter().chain(WITH_RING_FAULTS).map(|bug| (*bug).to_owned());
    if let Some(unknown) = options.bugs.iter().cloned().chain(here).find(|bug| !known.contains(bug)) {
        return Err(Failure(format!("there is no bug {unknown}: crates/buffer/src/injected.rs lists them")));
    }
    let bugs = if options.bugs.is_empty() { known } else { options.bugs.clone() };
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let (bugs, ring_seeds) = match options.sample {
        Some(count) => {
            println!("repeat with: cargo xtask injected --sample {count} --seed {seed}");
            (sample(bugs, count, seed), vec![1 + seed % RING_SEEDS])
        }
        None => (bugs, (1..=RING_SEEDS).chain(FAILED_RING_SEEDS).collect()),
    };
    let executable = build()?;
    let mut wrong = Vec::new();
    let bugs = bugs.iter().map(|bug| Some(bug.as_str()));
    for run in [None].into_iter().chain(bugs).flat_map(runs) {
        if first_failure(&executable, &run).is_none() != run.bug.is_none() {
            wrong.push(run.name());
        }
    }
    wrong.extend(disturbed(&executable, ring_seeds));
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("the contract gave the wrong verdict: {}", wrong.join("; "))))
}

/// Runs without a bug on an io_uring with injected faults; returns those that failed. They mostly wait, so several run
/// at a time. The faults take real time, and a busy machine may be too slow: a seed that failed runs again alone.
fn disturbed(executable: &str, seeds: Vec<u64>) -> Vec<String> {
    let run = |seed| Run { bug: None, backend: "uring", ring_faults: Some(seed) };
    let (left, failed) = (Mutex::new(seeds.into_iter()), Mutex::new(Vec::new()));
    let next = || left.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    if let (Some(_), Ok(mut failed)) = (first_failure(executable, &run(seed)), failed.lock()) {
                        failed.push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default().into_iter().map(run);
    failed.filter(|run| first_failure(executable, run).is_some()).map(|run| run.name()).collect()
}

impl Run<'_> {
    fn name(&self) -> String {
        let bug = self.bug.unwrap_or("no bug");
        let faults = self.ring_faults.map(|seed| format!(", TIDEGATE_RING_FAULTS={seed}")).unwrap_or_default();
        format!("{bug} on {}{faults}", self.backend)
    }
}

/// The runs of a bug: on each driver that can have it.
fn runs(bug: Option<&str>) -> Vec<Run<'_>> {
    let is_in = |list: &[&str]| bug.is_some_and(|bug| list.contains(&bug));
    if is_in(OF_COMPLETIONS) {
        let ring_faults = is_in(WITH_RING_FAULTS).then_some(1);
        return vec![Run { bug, backend: "uring", ring_faults }];
    }
    // The simulated network turns its loops itself, so no wake-up can be lost.
    let backends = ["epoll", "uring", "simulator"].into_iter();
    let backends = backends.filter(|backend| (bug, *backend) != (Some("LostWakeUp"), "simulator"));
    backends.map(|backend| Run { bug, backend, ring_faults: None }).collect()
}

/// The names in `Bug::ALL`.
fn known_bugs() -> Result<Vec<String>, Failure> {
    let path = "crates/buffer/src/injected.rs";
    let source = fs::read_to_string(path).map_err(|error| Failure(format!("{path}: {error}")))?;
    let list = source.split_once("pub const ALL:").and_then(|(_, rest)| rest.split_once("];"));
    let (list, _) = list.ok_or_else(|| Failure(format!("{path} has no list ALL")))?;
    let names = list.split("Self::").skip(1);
    Ok(names.map(|rest| rest.chars().take_while(|letter| letter.is_alphanumeric()).collect()).collect())
}

/// Builds the tests and returns the path of their executable.
fn build() -> Result<String, Failure> {
    let build =
        cargo("test --no-run --package tidegate-engine --test contract --target-dir target/injected".split(' '));
    let build = build.arg("--message-format=json-render-diagnostics").env("RUSTFLAGS", "--cfg tidegate_injected");
    let messages = build.output()?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = messages.filter_map(|message| Some(message.get("executable")?.as_str()?.to_owned())).next_back();
    executable.ok_or_else(|| Failure("cargo has built no executable".into()))
}

/// The first failed test, or the exit status if no test failed by name, or none if all pass.
fn first_failure(executable: &str, run: &Run<'_>) -> Option<String> {
    let begun = Instant::now();
    let mut command = ending_with_us(executable);
    command.args([&format!("{}::", run.backend), "--test-threads=2"]).env("RUST_BACKTRACE", "0");
    if let Some(bug) = run.bug {
        command.env("TIDEGATE_INJECTED", bug);
    }
    if let Some(seed) = run.ring_faults {
        command.env("TIDEGATE_RING_FAULTS", seed.to_string());
    }
    let failure = watch(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()));
    let verdict = failure.as_deref().unwrap_or("all pass");
    println!("{:5.1} s  {:40}  {verdict}", begun.elapsed().as_secs_f64(), run.name());
    failure
}

/// Runs a test program until a test fails, it ends, or it hangs.
fn watch(command: &mut Command) -> Option<String> {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Some(error.to_string()),
    };
    let output = child.stdout.take().map(BufReader::new);
    let (sender, lines) = channel();
    let reader = thread::spawn(move || {
        output.into_iter().flat_map(BufRead::lines).map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    let deadline = Instant::now() + PATIENCE;
    let mut failed = None;
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            failed = Some(name.to_owned());
            break;
        }
    }
    if failed.is_some() || Instant::now() >= deadline {
        drop(child.kill());
    }
    let status = child.wait();
    drop(reader.join());
    failed.or_else(|| match status {
        Ok(status) if status.success() => None,
        Ok(status) => Some(status.to_string()),
        Err(error) => Some(error.to_string()),
    })
}

/// Bugs that only a completion driver can have.
const OF_COMPLETIONS: &[&str] = &[
    "SendDoneAtSubmit",
    "HeaderReusedEarly",
    "CancelDoneAtSubmit",
    "ClosedDuringOperation",
    "StaleEventAccepted",
    "StarvedReceiveLost",
    "BufferLeaked",
    "DirectReceiveReordered",
];

/// Those that show only if the kernel returns an error, or has no buffer.
const WITH_RING_FAULTS: &[&str] = &["StaleEventAccepted", "StarvedReceiveLost"];

/// Seeds of an io_uring with injected faults: half a minute each.
const RING_SEEDS: u64 = 10;

/// Seeds that have failed. With 18 the kernel delays the end of a receive while it fills all buffers of the ring in each turn.
const FAILED_RING_SEEDS: [u64; 2] = [0, 18];

const AT_A_TIME: usize = 4;

/// No run takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(300);
