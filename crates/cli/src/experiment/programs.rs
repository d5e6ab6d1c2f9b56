//! The programs under comparison: the server with our queue, and two builds of it with another queue.
//!
//! All three come from the same source tree, if there is one, so that they differ in the queue only.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::child::{Child, StopFlag};

/// All three, in the order of the report.
pub(crate) struct Programs(pub(crate) [Program; 3]);

/// The server with one of the queues.
pub(crate) struct Program {
    /// The name of the design.
    pub(crate) name: &'static str,
    pub(crate) server: PathBuf,
    pub(crate) origin: Origin,
    /// The program that measures the queue alone, if it exists.
    pub(crate) probe: Option<PathBuf>,
}

/// Where a server comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Built from the source tree, now or before.
    Tree,
    /// Given on the command line.
    Given,
    /// The program that runs the experiment.
    Present,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tree => "built from the source tree",
            Self::Given => "as it was given",
            Self::Present => "this very program, as there is no source tree",
        })
    }
}

impl Programs {
    /// Uses the given programs, and builds the others from the source tree around the current directory. Without a
    /// source tree, the running program is the server with our queue.
    ///
    /// # Errors
    /// If a build is needed and there is no source tree, or cargo fails, or `stop` is set before.
    pub(crate) fn find(given: [Option<&Path>; 3], stop: &StopFlag) -> Result<Self, String> {
        let tree = env::current_dir().ok().and_then(|directory| source_tree(&directory));
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Self::find_in(tree.as_deref(), given, &cargo, stop)
    }

    fn find_in(tree: Option<&Path>, given: [Option<&Path>; 3], cargo: &OsStr, stop: &StopFlag) -> Result<Self, String> {
        let [array, linked, ours] = given;
        let other = |name: &'static str, given: Option<&Path>| match (given, tree) {
            (Some(server), _) => with_probe_beside(name, server, Origin::Given),
            (None, Some(tree)) => build(tree, name, Some(name), cargo, stop),
            (None, None) => Err(format!(
                "the server with the {name} queue has to be built: run this in a source tree of Tidegate, or give the \
                 program with --{name}"
            )),
        };
        let [array, linked] = [other("array", array)?, other("linked", linked)?];
        let ours = match (ours, tree) {
            (Some(server), _) => with_probe_beside(OURS, server, Origin::Given)?,
            (None, Some(tree)) => build(tree, OURS, None, cargo, stop)?,
            (None, None) => {
                let present =
                    env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
                with_probe_beside(OURS, &present, Origin::Present)?
            }
        };
        Ok(Self([array, linked, ours]))
    }
}

/// The root of our workspace: `directory`, or its closest ancestor that is one.
fn source_tree(directory: &Path) -> Option<PathBuf> {
    let is_tree = |directory: &&Path| directory.join("benches/experiment/Cargo.toml").is_file();
    directory.ancestors().find(is_tree).map(Path::to_path_buf)
}

fn target_directory(tree: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree.join("target"), |directory| tree.join(directory))
}

fn with_probe_beside(name: &'static str, server: &Path, origin: Origin) -> Result<Program, String> {
    if !server.is_file() {
        return Err(format!("there is no program '{}'", server.display()));
    }
    let probe = Some(server.with_file_name(PROBE)).filter(|probe| probe.is_file());
    Ok(Program { name, server: server.to_path_buf(), origin, probe })
}

/// Builds server and probe. A build with another queue has its own target directory, since other compiler flags would
/// rebuild everything. The build with our queue shares the target directory of `cargo build --profile dist`, and reuses it.
fn build(
    tree: &Path,
    name: &'static str,
    queue: Option<&str>,
    cargo: &OsStr,
    stop: &StopFlag,
) -> Result<Program, String> {
    let target = target_directory(tree);
    let target = queue.map_or(target.clone(), |queue| target.join("experiment").join(queue));
    eprintln!("building the server and the probe with the queue: {name}");
    let mut cargo = Command::new(cargo);
    cargo.args(["build", "--profile", "dist", "--quiet", "--package", "tidegate-cli", "--package", PROBE]);
    cargo.arg("--target-dir").arg(&target).current_dir(tree).stdin(Stdio::null()).stdout(Stdio::null());
    if let Some(queue) = queue {
        let flags = env::var("RUSTFLAGS").unwrap_or_default();
        cargo.env("RUSTFLAGS", format!("{flags} --cfg tidegate_queue=\"{queue}\""));
        // A package of the same name replaces the one with our queue.
        let package = tree.join(OTHER_QUEUES);
        cargo.arg("--config").arg(format!("paths=[\"{}\"]", package.display()));
    }
    let status = Child::start(&mut cargo, None)?.wait(stop)?;
    if !status.success() {
        return Err(format!("cargo build failed: {status}"));
    }
    let built = target.join("dist");
    Ok(Program { name, server: built.join("tidegate"), origin: Origin::Tree, probe: Some(built.join(PROBE)) })
}

/// The package `tidegate-buffer` with the other queues.
const OTHER_QUEUES: &str = "benches/experiment/buffer";

/// The name of our design.
const OURS: &str = "ours";

const PROBE: &str = "tidegate-experiment";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_tree_is_found_from_its_subdirectories() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tree = source_tree(&here.join("src/experiment")).expect("this is within one");
        assert_eq!(tree, here.parent().and_then(Path::parent).expect("a workspace"));
        assert_eq!(source_tree(Path::new("/")), None);
    }

    fn find(tree: Option<&Path>, given: [Option<&Path>; 3], cargo: &str) -> Result<[(PathBuf, Origin); 3], String> {
        let programs = Programs::find_in(tree, given, cargo.as_ref(), &StopFlag::default())?;
        Ok(programs.0.map(|program| (program.server, program.origin)))
    }

    #[test]
    fn all_three_programs_are_built_from_the_source_tree() {
        let tree = Path::new("/");
        let target = target_directory(tree);
        let expected = ["experiment/array/dist", "experiment/linked/dist", "dist"]
            .map(|directory| (target.join(directory).join("tidegate"), Origin::Tree));
        assert_eq!(find(Some(tree), [None; 3], "true"), Ok(expected));
        assert!(find(Some(tree), [None; 3], "false").unwrap_err().starts_with("cargo build failed: "));
    }

    #[test]
    fn given_programs_are_not_built_and_ours_defaults_to_the_running_one() {
        let given = env::current_exe().expect("this is one");
        let origins = |tree, ours| {
            let found = find(tree, [Some(&given), Some(&given), ours], "false");
            found.map(|found| found.map(|(server, origin)| (server == given, origin)))
        };
        let of_user = (true, Origin::Given);
        assert_eq!(origins(Some(Path::new("/")), Some(&given)), Ok([of_user; 3]));
        assert_eq!(origins(None, Some(&given)), Ok([of_user; 3]));
        assert_eq!(origins(None, None), Ok([of_user, of_user, (true, Origin::Present)]));
        assert!(find(None, [None; 3], "false").unwrap_err().contains("--array"));
    }

    #[test]
    fn a_missing_program_is_named_in_the_error() {
        let error = with_probe_beside("array", Path::new("/no/such/program"), Origin::Given).map(|_| ()).unwrap_err();
        assert_eq!(error, "there is no program '/no/such/program'");
    }
}
