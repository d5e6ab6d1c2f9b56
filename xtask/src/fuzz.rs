//! Fuzzing: each target for some seconds, from its corpus and from the inputs that earlier runs have found, which stay
//! in `target/fuzz/found`. Fails if a target crashes, hangs or exceeds its memory. A run with a seed does the same each
//! time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use clap::Args;

use crate::command::{Failure, Step, cargo};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seconds of each target
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// End a target after this many executions, if that is before its seconds are over [default: no such end]
    #[arg(long)]
    pub(crate) executions: Option<u64>,
    /// Seed of the random choices; such a run starts from the corpus alone, so that it can be repeated [default: another
    /// one each time, and the inputs that earlier runs have found]
    #[arg(long)]
    pub(crate) seed: Option<u32>,
    /// Targets that run at a time
    #[arg(long, default_value_t = 2)]
    pub(crate) jobs: usize,
    /// `address` also finds memory errors, but is several times slower: worth it for `outbound`, which covers unsafe
    /// code
    #[arg(long, default_value = "none")]
    pub(crate) sanitizer: String,
    /// Targets [default: all]
    pub(crate) targets: Vec<String>,
}

impl Options {
    /// All targets, this long.
    pub(crate) fn all(seconds: u64) -> Self {
        Self { seconds, executions: None, seed: None, jobs: 2, sanitizer: "none".into(), targets: Vec::new() }
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let targets = if options.targets.is_empty() { targets()? } else { options.targets.clone() };
    let out = Path::new("target/fuzz").join(&options.sanitizer);
    build(options, &out)?;
    let programs = out.join(host()?).join("release");
    let (left, failures) = (Mutex::new(targets.into_iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while let Some(target) = left.lock().ok().and_then(|mut left| left.next()) {
                    if let (Err(failure), Ok(mut failures)) = (fuzz(options, &programs, &target), failures.lock()) {
                        failures.push(failure.0);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_default();
    if failures.is_empty() { Ok(()) } else { Err(Failure(failures.join("\n"))) }
}

/// The names of all targets.
fn targets() -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir("fuzz/targets").map_err(|error| Failure(format!("fuzz/targets: {error}")))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut names: Vec<_> = paths.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// Builds as `cargo fuzz build` does, without the tool. Comparisons are not traced: the corpora include the compared
/// values, and tracing halves the speed.
fn build(options: &Options, out: &Path) -> Result<(), Failure> {
    let mut flags = "--cfg fuzzing -Cdebug-assertions -Ccodegen-units=16 -Cpasses=sancov-module \
        -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
        -Cllvm-args=-sanitizer-coverage-pc-table"
        .to_owned();
    if options.sanitizer != "none" {
        flags.push_str(&format!(" -Zsanitizer={}", options.sanitizer));
    }
    // A target makes Cargo build procedural macros and build scripts without these flags.
    let build = cargo(["build", "--release", "--package", "tidegate-fuzz", "--bins", "--features", "libfuzzer"]);
    let build = build.args(["--target", &host()?, "--target-dir"]).arg(out);
    // The stable compiler accepts the flag of a sanitizer only with RUSTC_BOOTSTRAP.
    let build = build.env("RUSTFLAGS", flags).env("RUSTC_BOOTSTRAP", "1");
    build.env("CARGO_PROFILE_RELEASE_LTO", "off").run()
}

/// The target triple of this machine.
fn host() -> Result<String, Failure> {
    let version = Step::new("rustc").arg("-vV").output()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure("rustc -vV prints no host".into()))
}

fn fuzz(options: &Options, programs: &Path, target: &str) -> Result<(), Failure> {
    let out = absolute(Path::new("target/fuzz"))?;
    let found = out.join(if options.seed.is_some() { "sample" } else { "found" }).join(target);
    let io = |error: std::io::Error| Failure(format!("{target}: {error}"));
    if options.seed.is_some() && found.exists() {
        fs::remove_dir_all(&found).map_err(io)?;
    }
    fs::create_dir_all(&found).map_err(io)?;
    let log_path = out.join(format!("{target}.log"));
    let log = File::create(&log_path).map_err(io)?;
    let length_max = if ["http1", "requests", "responses"].contains(&target) { 1100 } else { 320 };
    let mut command = Step::new(&programs.join(target).to_string_lossy())
        .arg(format!("-max_total_time={}", options.seconds))
        .args(options.executions.map(|executions| format!("-runs={executions}")))
        .args(options.seed.map(|seed| format!("-seed={seed}")))
        .arg(format!("-max_len={length_max}"))
        .args(["-timeout=20", "-rss_limit_mb=1024", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/{target}-", out.display()))
        .arg(&found)
        .arg(format!("fuzz/corpus/{target}"))
        .into_command();
    let status = command.stdout(log.try_clone().map_err(io)?).stderr(log).status().map_err(io)?;
    let text = String::from_utf8_lossy(&fs::read(&log_path).map_err(io)?).into_owned();
    if !status.success() {
        let tail: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let tail = tail[tail.len().saturating_sub(30)..].join("\n");
        return Err(Failure(format!("{tail}\n{target} has failed; fuzz/README.md describes how to replay the input")));
    }
    let count = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    println!("{target:14} {:>12} executions", count.unwrap_or_default().trim());
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure(format!("{}: {error}", path.display())))
}
