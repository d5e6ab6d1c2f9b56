//! The requirements on a release of the packages: each package can be made and compiles from its content, the compiler
//! is the oldest that the manifest promises, and the interfaces break only where the version allows it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{Failure, Step, cargo};

/// Makes and compiles the packages of all crates that are published.
pub(crate) fn packages_that_compile() -> Result<(), Failure> {
    let package = cargo("package --quiet --allow-dirty --target-dir target/release-packages".split(' '));
    package.args(published()?.iter().flat_map(|crate_| ["--package", &crate_.name])).run()
}

/// All steps run with the compiler of this machine. They test the oldest supported version if that is the compiler's own;
/// else the workspace is checked with the oldest, which rustup has to have.
pub(crate) fn oldest_compiler() -> Result<(), Failure> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let oldest = packages.filter_map(|package| package["rust_version"].as_str()).next();
    let oldest = oldest.ok_or_else(|| Failure("Cargo.toml has no rust-version".into()))?;
    let version = Step::line("rustc --version").output()?;
    let used = version.split_whitespace().nth(1).unwrap_or_default();
    if minor(used) == minor(oldest) {
        println!("rustc {used}: all steps test the oldest supported version, {oldest}");
        return Ok(());
    }
    // The variable of an outer cargo would choose its own toolchain.
    let check = Step::line(&format!("rustup run {oldest} cargo check --workspace --all-targets --locked"));
    let folder = format!("target/rust-{oldest}");
    check.env("CARGO_TARGET_DIR", &folder).run().map_err(|failure| {
        Failure(format!("{failure}; is Rust {oldest} there? `rustup toolchain install {oldest} --profile minimal`"))
    })?;
    remove(&folder)
}

/// Removes folders that no other step uses.
fn remove(folder: &str) -> Result<(), Failure> {
    fs::remove_dir_all(folder).map_err(|error| Failure(format!("{folder}: {error}")))
}

/// `1.95` of `1.95.0`.
fn minor(version: &str) -> Vec<&str> {
    version.split('.').take(2).collect()
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

/// A crate that is published.
#[derive(Debug)]
struct Published {
    name: String,
    folder: PathBuf,
    is_library: bool,
}

fn published() -> Result<Vec<Published>, Failure> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // `publish = false` is an empty list of registries.
    let published = packages.filter(|package| package["publish"].is_null());
    Ok(published.filter_map(describe).collect())
}

fn describe(package: &Value) -> Option<Published> {
    let mut kinds = package["targets"].as_array()?.iter().filter_map(|target| target["kind"].as_array()).flatten();
    let is_library = kinds.any(|kind| kind == "lib");
    let name = package["name"].as_str()?.to_owned();
    let folder = Path::new(package["manifest_path"].as_str()?).parent()?.to_owned();
    Some(Published { name, folder, is_library })
}

/// Cargo's metadata of the workspace's packages.
pub(crate) fn metadata() -> Result<Value, Failure> {
    let text = cargo("metadata --no-deps --format-version 1 --offline".split(' ')).output()?;
    serde_json::from_str(&text).map_err(|error| Failure(format!("cargo metadata: {error}")))
}
