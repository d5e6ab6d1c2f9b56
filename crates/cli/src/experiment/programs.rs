//! The programs that are compared: this one, and the two that are built with another queue in the place of ours.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All three, in the order of the report.
pub(crate) struct Programs(pub(crate) [Program; 3]);

/// The server with one of the queues.
pub(crate) struct Program {
    /// What the design is called.
    pub(crate) name: &'static str,
    pub(crate) server: PathBuf,
    /// What measures the queue alone, if it is there.
    pub(crate) probe: Option<PathBuf>,
}

impl Programs {
    /// Takes what is given, and builds the rest from the source tree around the current directory.
    ///
    /// # Errors
    /// If something has to be built and there is no such tree, or cargo fails.
    pub(crate) fn find(array: Option<&Path>, linked: Option<&Path>) -> Result<Self, String> {
        let tree = env::current_dir().ok().and_then(|directory| source_tree(&directory));
        let other = |name: &'static str, given: Option<&Path>| match (given, &tree) {
            (Some(server), _) => with_probe_beside(name, server),
            (None, Some(tree)) => build_with(tree, name),
            (None, None) => Err(format!(
                "the server with the {name} queue has to be built: run this in a source tree of Tidegate, or give the \
                 program with --{name}"
            )),
        };
        let [array, linked] = [other("array", array)?, other("linked", linked)?];
        let own = env::current_exe().map_err(|error| format!("cannot tell what program this is: {error}"))?;
        let mut ours = with_probe_beside("ours", &own)?;
        if let Some(tree) = &tree {
            let target = target_directory(tree);
            cargo_build(tree, &target, &["tidegate-experiment"], None)?;
            ours.probe = Some(target.join("release").join(PROBE));
        }
        Ok(Self([array, linked, ours]))
    }
}

/// The directory that has our workspace in it: this one, or the first above it.
fn source_tree(directory: &Path) -> Option<PathBuf> {
    let is_tree = |directory: &&Path| directory.join("benches/experiment/Cargo.toml").is_file();
    directory.ancestors().find(is_tree).map(Path::to_path_buf)
}

fn target_directory(tree: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree.join("target"), |directory| tree.join(directory))
}

fn with_probe_beside(name: &'static str, server: &Path) -> Result<Program, String> {
    if !server.is_file() {
        return Err(format!("there is no program '{}'", server.display()));
    }
    let probe = Some(server.with_file_name(PROBE)).filter(|probe| probe.is_file());
    Ok(Program { name, server: server.to_path_buf(), probe })
}

/// Builds server and probe with another queue, in a directory of their own: flags of the compiler make all of it anew.
fn build_with(tree: &Path, name: &'static str) -> Result<Program, String> {
    let target = target_directory(tree).join("experiment").join(name);
    cargo_build(tree, &target, &["tidegate-cli", "tidegate-experiment"], Some(name))?;
    let release = target.join("release");
    Ok(Program { name, server: release.join("tidegate"), probe: Some(release.join(PROBE)) })
}

fn cargo_build(tree: &Path, target: &Path, packages: &[&str], queue: Option<&str>) -> Result<(), String> {
    eprintln!("building {} with the queue: {}", packages.join(" and "), queue.unwrap_or("ours"));
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--quiet", "--target-dir"]).arg(target);
    cargo.args(packages.iter().flat_map(|package| ["--package", package]));
    if let Some(queue) = queue {
        let flags = env::var("RUSTFLAGS").unwrap_or_default();
        cargo.env("RUSTFLAGS", format!("{flags} --cfg tidegate_queue=\"{queue}\""));
    }
    let status = cargo.current_dir(tree).stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status.map_err(|error| format!("cannot run cargo: {error}"))? {
        status if status.success() => Ok(()),
        status => Err(format!("cargo build failed: {status}")),
    }
}

const PROBE: &str = "tidegate-experiment";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_tree_is_found_from_anywhere_within_it() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tree = source_tree(&here.join("src/experiment")).expect("this is within one");
        assert_eq!(tree, here.parent().and_then(Path::parent).expect("a workspace"));
        assert_eq!(source_tree(Path::new("/")), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_told_by_its_name() {
        let error = with_probe_beside("array", Path::new("/no/such/program")).map(|_| ()).unwrap_err();
        assert_eq!(error, "there is no program '/no/such/program'");
    }
}
