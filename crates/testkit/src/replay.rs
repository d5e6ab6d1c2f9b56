//! `replay`: the command that runs a failed test again with its seed.

use std::env;
use std::path::Path;
use std::thread;

/// The command that runs only the test of this thread again, with this seed.
///
/// The command names package and target if `cargo` runs the test. It names the test if the test has a thread of its
/// own: with `--test-threads=1` it has none, and the command runs all tests of the target.
///
/// ```
/// assert!(tidegate_testkit::replay(42).starts_with("TIDEGATE_SEED=0x2a cargo test"));
/// ```
#[must_use]
pub fn replay(seed: u64) -> String {
    let mut command = format!("TIDEGATE_SEED={seed:#x} cargo test");
    let executable = env::current_exe().unwrap_or_default();
    if let (Ok(package), Some(root)) = (env::var("CARGO_PKG_NAME"), env::var_os("CARGO_MANIFEST_DIR")) {
        command.push_str(&options(&package, Path::new(&root), &executable));
    }
    if let Some(test) = thread::current().name().filter(|name| *name != "main") {
        command.push_str(&format!(" -- --exact {test}"));
    }
    command
}

/// The options that select package, profile and target.
fn options(package: &str, root: &Path, executable: &Path) -> String {
    // As in `target/debug/deps/network-0123456789abcdef`.
    let file = executable.file_name().unwrap_or_default().to_string_lossy();
    let name = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
    let folders: Vec<_> = executable.iter().rev().skip(1).take(2).map(|folder| folder.to_string_lossy()).collect();
    let is_release = folders.get(1).is_some_and(|profile| profile == "release");
    let is_example = folders.first().is_some_and(|folder| folder == "examples");
    let release = if is_release { " --release" } else { "" };
    let target = if is_example {
        format!(" --example {name}")
    } else if name != package.replace('-', "_") {
        format!(" --test {name}")
    } else if root.join("src/lib.rs").exists() {
        " --lib".to_owned()
    } else {
        format!(" --bin {package}")
    };
    format!("{release} -p {package}{target}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_name_selects_the_target() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let of = |path: &str| options("tidegate-testkit", root, Path::new(path));
        assert_eq!(of("/target/debug/deps/network-0123456789abcdef"), " -p tidegate-testkit --test network");
        assert_eq!(of("/target/release/deps/tidegate_testkit-01"), " --release -p tidegate-testkit --lib");
        assert_eq!(of("/target/debug/examples/tides-01"), " -p tidegate-testkit --example tides");
        let nowhere = options("a-tool", Path::new("/nowhere"), Path::new("/target/debug/deps/a_tool-01"));
        assert_eq!(nowhere, " -p a-tool --bin a-tool");
    }

    #[test]
    fn this_test_can_be_run_again() {
        let command = replay(42);
        let name = "replay::tests::this_test_can_be_run_again";
        assert!(command.starts_with("TIDEGATE_SEED=0x2a cargo test"), "{command}");
        assert!(thread::current().name() == Some("main") || command.ends_with(&format!(" -- --exact {name}")));
    }
}
