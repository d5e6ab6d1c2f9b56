//! `cargo xtask release --dry-run`: all files of a release in `target/release-files`, and a table of them. Publishing is
//! a person's act: docs/releasing.md.
//!
//! The steps run in the order of publishing. `--list`, `--only` and `--from` choose among them, and cargo keeps what it
//! has built, so that a run which has stopped goes on. Slow checks that have passed on the same inputs are skipped, as
//! in `long.rs`. Read next: `binaries.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `packages.rs` | packages of all crates, in the order of publishing |
//! | `interfaces.rs` | interfaces beside a baseline, the oldest compiler |
//! | `binaries.rs` | the stripped program, archives, two builds that are compared |
//! | `deb.rs` | the Debian package |
//! | `sbom.rs` | the crates in the program, as CycloneDX |
//! | `notes.rs` | the notes, from CHANGELOG.md |

mod binaries;
mod deb;
mod interfaces;
mod notes;
mod packages;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

pub(crate) use self::interfaces::{declared_versions_of_dependencies, interfaces, oldest_compiler};
pub(crate) use self::packages::packages_that_compile;
use crate::command::{Failure, cargo};
use crate::record::Record;
use crate::steps::{NamedStep, Selection, run_recorded, skip_part, step, step_apart};
use crate::tools;

/// All files of a release.
const FILES: &str = "target/release-files";

const SBOM: &str = "target/release-files/sbom.cdx.json";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Make and check everything, and publish nothing. Without it the command refuses to run
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    selection: Selection,
    /// Run checks as well that have passed on the same inputs
    #[arg(long)]
    again: bool,
    /// Build the program twice, and compare the builds byte for byte
    #[arg(long)]
    reproduce: bool,
    /// Compare the interfaces of all libraries with the baseline in Cargo.toml, which takes a quarter of an hour
    #[arg(long)]
    interfaces: bool,
    /// The profile of the program, for a quick trial
    #[arg(long, default_value = "dist")]
    profile: String,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if !options.dry_run {
        return Err(Failure(
            "publishing is not automated: `--dry-run` makes all files, docs/releasing.md goes on".into(),
        ));
    }
    let version = version()?;
    fs::create_dir_all(FILES).map_err(|error| Failure(format!("{FILES}: {error}")))?;
    run_recorded(steps(options, &version), &options.selection, &Record::open(options.again), None)
}

fn steps(options: &Options, version: &str) -> Vec<NamedStep> {
    let with = |run: fn(&str) -> Result<(), Failure>| {
        let version = version.to_owned();
        move || run(&version)
    };
    let built = |run: fn(&str, &str) -> Result<(), Failure>| {
        let (version, profile) = (version.to_owned(), options.profile.clone());
        move || run(&version, &profile)
    };
    let mut steps = vec![
        step("packages in the order of publishing", with(packages::make)),
        step_apart("packages that compile", "target/release-packages", packages_that_compile)
            .of(&["crates", "README.md"]),
        step("the oldest supported compiler", oldest_compiler).of(&["benches", "crates", "examples", "fuzz"]),
        step("licences, sources and advisories", licences),
        step("the SBOM", with(sbom::write)),
        step("the program for x86_64", built(binaries::native)),
        step("the program for aarch64", built(binaries::foreign)),
        step("the Debian package", with(deb::build)),
        step("the Debian package in a system of its own", with(deb::try_out)),
        step("the image", image),
        step("notes, checksums and the table", with(table)),
    ];
    let profile = options.profile.clone();
    if options.reproduce {
        let twice =
            step_apart("two builds of the program", binaries::SECOND_BUILD, move || binaries::reproduce(&profile));
        steps.insert(steps.len() - 1, twice);
    }
    if options.interfaces {
        let compare = || tools::SEMVER_CHECKS.install().and_then(|()| interfaces());
        steps.insert(steps.len() - 1, step("interfaces beside the baseline", compare).of(&["crates"]));
    }
    steps
}

/// The rules of deny.toml for the licences and sources of all crates, and for known vulnerabilities if their database is
/// here.
pub(crate) fn licences() -> Result<(), Failure> {
    tools::CARGO_DENY.install()?;
    // Crates of other targets, which no build here has fetched.
    cargo("fetch --locked".split(' ')).run()?;
    cargo("deny --offline check --hide-inclusion-graph licenses bans sources".split(' ')).run()?;
    let home = packages::cargo_home();
    if home.is_some_and(|home| home.join("advisory-dbs").exists()) {
        return cargo("deny --offline check --hide-inclusion-graph advisories".split(' ')).run();
    }
    skip_part("advisories need the database of RustSec: `cargo deny fetch db` with a network");
    Ok(())
}

fn image() -> Result<(), Failure> {
    let recipe = Path::new("deploy/container/Containerfile");
    if !recipe.exists() {
        return Err(Failure(format!("{} is missing", recipe.display())));
    }
    println!("docker build -f {} -t tidegate:{} .", recipe.display(), version()?);
    println!("`cargo xtask long --only 'the image in namespaces'` builds its program, and runs it without an engine");
    Ok(())
}

/// Writes notes and checksums, and prints all files.
fn table(version: &str) -> Result<(), Failure> {
    let (mut checksums, mut rows) = (String::new(), String::new());
    for file in files(Path::new(FILES))? {
        let name = file.strip_prefix(FILES).unwrap_or(&file).display().to_string();
        if ["SHA256SUMS", "RELEASE-NOTES.md"].contains(&name.as_str()) {
            continue;
        }
        let bytes = fs::metadata(&file).map_err(|error| Failure(format!("{name}: {error}")))?.len();
        let digest = binaries::sha256(&file)?;
        rows.push_str(&format!("{:>9} KB  {}  {name}\n", bytes.div_ceil(1000), &digest[..16]));
        checksums.push_str(&format!("{digest}  {name}\n"));
    }
    let path = format!("{FILES}/SHA256SUMS");
    fs::write(&path, &checksums).map_err(|error| Failure(format!("{path}: {error}")))?;
    let archives = checksums.lines().filter(|line| !line.contains("crates/"));
    notes::write(version, &archives.map(|line| format!("{line}\n")).collect::<String>())?;
    print!("{rows}");
    println!("{FILES}: these files, SHA256SUMS and RELEASE-NOTES.md");
    Ok(())
}

/// All files below a folder, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| Failure(format!("{}: {error}", folder.display())))?;
    let (folders, mut found): (Vec<_>, Vec<_>) =
        entries.filter_map(Result::ok).map(|entry| entry.path()).partition(|path| path.is_dir());
    for folder in folders {
        found.extend(files(&folder)?);
    }
    found.sort();
    Ok(found)
}

/// The version that all crates share.
fn version() -> Result<String, Failure> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let version =
        packages.filter(|package| package["name"] == "tidegate").find_map(|package| package["version"].as_str());
    version.map(str::to_owned).ok_or_else(|| Failure("there is no crate `tidegate`".into()))
}

/// Cargo's metadata of the workspace's packages.
pub(crate) fn metadata() -> Result<Value, Failure> {
    let text = cargo("metadata --no-deps --format-version 1 --offline".split(' ')).output()?;
    serde_json::from_str(&text).map_err(|error| Failure(format!("cargo metadata: {error}")))
}
