//! Requirements on a release beside its files: interfaces break only where the version allows it, and the oldest
//! supported compiler compiles the published crates.

use std::fs;
use std::path::Path;

use super::metadata;
use super::packages::published;
use crate::command::{Failure, Step, cargo};
use crate::steps::skip_part;

/// Checks the published crates with the oldest supported compiler, if rustup has it. Otherwise the lint
/// `incompatible_msrv`, which knows the version of each item of the standard library, and the versions that
/// dependencies declare have to do.
pub(crate) fn oldest_compiler() -> Result<(), Failure> {
    let oldest = oldest()?;
    let version = Step::line("rustc --version").output()?;
    let used = version.split_whitespace().nth(1).unwrap_or_default();
    if minor(used) == minor(&oldest) {
        println!("rustc {used}: all steps test the oldest supported version, {oldest}");
        return Ok(());
    }
    let installed = Step::line("rustup toolchain list").output().unwrap_or_default();
    if !installed.lines().any(|line| line.starts_with(&oldest)) {
        skip_part(&format!(
            "Rust {oldest} is not there (`rustup toolchain install {oldest} --profile minimal`): its lint and the versions \
             that dependencies declare are checked"
        ));
        return declared_versions(&oldest).and_then(|()| lint());
    }
    // The variable of an outer cargo would choose its own toolchain.
    let check = Step::line(&format!("rustup run {oldest} cargo check --locked"));
    let folder = format!("target/rust-{oldest}");
    check.args(packages()?).env("CARGO_TARGET_DIR", &folder).run()?;
    remove(&folder)
}

/// No crate that a published one needs declares a newer compiler. Tests may need crates that do.
pub(crate) fn declared_versions_of_dependencies() -> Result<(), Failure> {
    declared_versions(&oldest()?)
}

fn declared_versions(oldest: &str) -> Result<(), Failure> {
    // For this version alone, cargo knows a crate of the tree by its place; `--edges` leaves the tests out.
    let tree = cargo("tree --locked --all-features --edges normal,build --prefix none --format {p}".split(' '))
        .args(packages()?)
        .output()?;
    let used: std::collections::BTreeSet<_> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let text = cargo("metadata --locked --format-version 1".split(' ')).output()?;
    let metadata: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| Failure(format!("cargo metadata: {error}")))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let newer: Vec<_> = packages
        .filter_map(|package| {
            let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
            let declared = package["rust_version"].as_str()?;
            let is_newer = used.contains(&(name, version)) && minor(declared) > minor(oldest);
            is_newer.then(|| format!("{name} {version} needs Rust {declared}"))
        })
        .collect();
    if !newer.is_empty() {
        return Err(Failure(format!("Rust {oldest} is promised: {}", newer.join(", "))));
    }
    println!("{} crates, and none declares a newer compiler than {oldest}", used.len());
    Ok(())
}

/// The lint is also among those of `cargo xtask ci`, since it is on by default and `rust-version` is its version.
fn lint() -> Result<(), Failure> {
    let clippy = cargo("clippy --locked --lib --bins".split(' ')).args(packages()?);
    clippy.args("-- --allow warnings --deny clippy::incompatible_msrv".split(' ')).run()
}

/// `--package` for each published crate.
fn packages() -> Result<Vec<String>, Failure> {
    Ok(published()?.into_iter().flat_map(|crate_| ["--package".to_owned(), crate_.name]).collect())
}

fn oldest() -> Result<String, Failure> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let oldest = packages.filter_map(|package| package["rust_version"].as_str()).next();
    oldest.map(str::to_owned).ok_or_else(|| Failure("Cargo.toml has no rust-version".into()))
}

/// Removes folders that no other step uses.
fn remove(folder: &str) -> Result<(), Failure> {
    fs::remove_dir_all(folder).map_err(|error| Failure(format!("{folder}: {error}")))
}

/// 1 and 95 of `1.95.0`.
fn minor(version: &str) -> Vec<u32> {
    version.split('.').take(2).filter_map(|part| part.parse().ok()).collect()
}

/// Compares the interfaces of all libraries that are published with those of the baseline, which is a commit in the
/// workspace's manifest. A change that breaks a user's code needs a version that allows it.
pub(crate) fn interfaces() -> Result<(), Failure> {
    let metadata = metadata()?;
    let baseline = metadata["metadata"]["interfaces"]["baseline"].as_str();
    let baseline =
        baseline.ok_or_else(|| Failure("Cargo.toml has no workspace.metadata.interfaces.baseline".into()))?;
    // Two packages of the repository have the same name, so the tool gets folders and not the names.
    let before = format!("target/interfaces/{baseline}");
    let export = format!("mkdir -p {before} && git archive {baseline} | tar -x -C {before}");
    Step::new("sh").arg("-c").arg(export).run()?;
    let root = Path::new(metadata["workspace_root"].as_str().unwrap_or_default());
    let mut broken = Vec::new();
    for library in published()?.into_iter().filter(|crate_| crate_.is_library) {
        let folder = library.folder.strip_prefix(root).unwrap_or(&library.folder);
        let before = Path::new(&before).join(folder);
        if !before.exists() {
            println!("{}: it is new", library.name);
            continue;
        }
        let check = cargo(["semver-checks", "check-release", "--baseline-root"]).arg(before);
        if check.arg("--manifest-path").arg(library.folder.join("Cargo.toml")).run().is_err() {
            broken.push(library.name);
        }
    }
    if !broken.is_empty() {
        return Err(Failure(format!("interfaces beside {baseline}: {}", broken.join(", "))));
    }
    // The tool builds both sides here.
    let _ = fs::remove_dir_all("target/semver-checks");
    Ok(())
}
