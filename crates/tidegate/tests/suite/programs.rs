//! A package has one program of tests, `tests/suite`, since each program is linked with everything that it uses. Any other
//! one gives its reason in its first lines.

use std::fs;
use std::path::Path;

use cargo_metadata::{MetadataCommand, Target, TargetKind};

#[test]
fn a_package_has_one_program_of_tests_or_a_reason_for_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = MetadataCommand::new();
    command.manifest_path(root.join("Cargo.toml")).no_deps().other_options(["--offline".to_owned()]);
    let metadata = command.exec().expect("cargo describes this workspace");
    let (mut suites, mut wrong) = (0, Vec::new());
    for package in &metadata.packages {
        for program in package.targets.iter().filter(|target| is_test(target)) {
            let is_suite = program.name == "suite";
            let text = fs::read_to_string(&program.src_path).expect("the root of a program");
            let has_reason = text.lines().take_while(|line| line.starts_with("//!")).any(gives_reason);
            suites += usize::from(is_suite);
            if is_suite == has_reason {
                wrong.push(program.src_path.to_string());
            }
        }
    }
    assert!(wrong.is_empty(), "move into `tests/suite`, or begin a line of the head with `{REASON}`: {wrong:#?}");
    assert!(suites >= SUITES_MIN, "programs were lost: {suites}");
}

fn is_test(target: &Target) -> bool {
    target.kind.contains(&TargetKind::Test)
}

fn gives_reason(line: &str) -> bool {
    line.strip_prefix(&format!("//! {REASON} ")).is_some_and(|reason| reason.contains(' '))
}

const REASON: &str = "A program of its own:";

const SUITES_MIN: usize = 20;
