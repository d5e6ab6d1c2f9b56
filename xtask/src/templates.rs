//! Programs of the templates of `tidegate new`, made, built and tested as a user would: in an empty folder outside of this
//! workspace, with cargo's defaults.

use std::fs;
use std::path::{Path, PathBuf};

use crate::chance;
use crate::command::{Failure, Step, cargo};

const ALL: [&str; 4] = ["http", "push", "protocol", "gateway"];

pub(crate) fn check_all() -> Result<(), Failure> {
    ALL.into_iter().try_for_each(check)
}

/// Makes the program of a template, runs its lints and its tests.
fn check(template: &str) -> Result<(), Failure> {
    println!("   Template {template}");
    let failed = |path: &Path, error: std::io::Error| Failure(format!("{}: {error}", path.display()));
    let root = std::env::current_dir().map_err(|error| failed(Path::new("."), error))?;
    // A folder below the workspace would be a package of it to cargo.
    let folder = std::env::temp_dir().join(format!("tidegate-template-{}", std::process::id()));
    let program = folder.join(NAME);
    fs::create_dir(&folder).map_err(|error| failed(&folder, error))?;
    let checked = make(&root, &folder, template).and_then(|()| {
        // The versions of this workspace: a release of another crate does not fail the step.
        fs::copy(root.join("Cargo.lock"), program.join("Cargo.lock")).map_err(|error| failed(&program, error))?;
        let target = root.join(TARGET).to_string_lossy().into_owned();
        // A user's own profile, except for debug information, which only takes time here.
        let in_program = |step: Step| {
            let step = step.folder(&program.to_string_lossy()).env("CARGO_TARGET_DIR", &target);
            step.env("CARGO_PROFILE_DEV_DEBUG", "0")
        };
        in_program(cargo(["fmt", "--check"])).run()?;
        in_program(cargo("clippy --all-targets -- -D warnings".split(' '))).run()?;
        chance::tests_that_exist(in_program(cargo(["test"])))
    });
    fs::remove_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    checked
}

/// Runs `tidegate new` in the folder.
fn make(root: &Path, folder: &Path, template: &str) -> Result<(), Failure> {
    cargo("build --workspace --bin tidegate".split(' ')).run()?;
    let program: PathBuf = root.join("target/debug/tidegate");
    let new = Step::new(&program.to_string_lossy()).args(["new", NAME, "--template", template, "--path"]);
    new.arg(root).folder(&folder.to_string_lossy()).run()
}

/// A name with a hyphen, which the crate of the library cannot have.
const NAME: &str = "my-program";
/// The features of the crates differ from those of the workspace's build.
pub(crate) const TARGET: &str = "target/templates";
