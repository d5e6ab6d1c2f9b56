//! Programs of the templates of `tidegate new`, made, built and tested as a user would: in an empty folder outside of this
//! workspace, with cargo's defaults.

use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};

use crate::chance;
use crate::command::{Failure, Step, cargo};

const ALL: [&str; 4] = ["protocol", "http", "push", "gateway"];

/// Makes a program of each template, runs its lints and its tests. The programs are packages of one workspace: their tests
/// have one build, with the features of all. The lints have a build with the features of each: a program compiles with
/// what its own manifest names.
pub(crate) fn check_all() -> Result<(), Failure> {
    let root = std::env::current_dir().map_err(|error| failed(Path::new("."), &error))?;
    // A folder below the workspace would be a package of it to cargo.
    let folder = std::env::temp_dir().join(format!("tidegate-templates-{}", std::process::id()));
    fs::create_dir(&folder).map_err(|error| failed(&folder, &error))?;
    let checked = make_all(&root, &folder).and_then(|()| check(&root, &folder));
    fs::remove_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
    checked
}

/// Runs `tidegate new` for each template, and makes a workspace of the programs.
fn make_all(root: &Path, folder: &Path) -> Result<(), Failure> {
    cargo("build --workspace --bin tidegate".split(' ')).run()?;
    let program: PathBuf = root.join("target/debug/tidegate");
    for template in ALL {
        let new = Step::new(&program.to_string_lossy()).args(["new", &name_of(template), "--template", template]);
        new.arg("--path").arg(root).folder(&folder.to_string_lossy()).run()?;
    }
    let manifest = "[workspace]\nmembers = [\"*\"]\nresolver = \"3\"\n";
    fs::write(folder.join("Cargo.toml"), manifest).map_err(|error| failed(folder, &error))?;
    // The versions of this workspace: a release of another crate does not fail the step.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).map_err(|error| failed(folder, &error))?;
    Ok(())
}

fn check(root: &Path, folder: &Path) -> Result<(), Failure> {
    let target = root.join(TARGET).to_string_lossy().into_owned();
    // A user's own profile, except for debug information, which only takes time here.
    let in_folder = |step: Step| {
        let step = step.folder(&folder.to_string_lossy()).env("CARGO_TARGET_DIR", &target);
        step.env("CARGO_PROFILE_DEV_DEBUG", "0")
    };
    for name in ALL.map(name_of) {
        println!("   {name}");
        in_folder(cargo(["fmt", "--check", "--package", &name])).run()?;
        in_folder(cargo(["clippy", "--package", &name]).args("--all-targets -- -D warnings".split(' '))).run()?;
    }
    chance::tests_that_exist(in_folder(cargo(["test", "--workspace"])))
}

/// A name with a hyphen, which the crate of the library cannot have.
fn name_of(template: &str) -> String {
    format!("my-{template}")
}

fn failed(path: &Path, error: &Error) -> Failure {
    Failure(format!("{}: {error}", path.display()))
}

/// The features of the crates differ from those of the workspace's build.
pub(crate) const TARGET: &str = "target/templates";
