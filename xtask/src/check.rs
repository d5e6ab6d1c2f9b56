//! `cargo xtask check CRATE`: format, lints, and the tests of one crate, with the corpora of its fuzz targets. A
//! contributor runs it between changes; `cargo xtask ci` is the whole.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::command::{Failure, Step, cargo};

/// Checks the crate in `crates/NAME`, or the package of that name.
pub(crate) fn run(name: &str) -> Result<(), Failure> {
    let package = package(Path::new("."), name)?;
    let targets = fuzz_targets(Path::new("fuzz/src"), &package)?;
    let begun = Instant::now();
    let steps = [
        ("format", Some(cargo(["fmt", "--check", "--package", &package]))),
        ("lints", Some(cargo(["clippy", "--package", &package, "--all-targets", "--", "-D", "warnings"]))),
        ("tests", Some(cargo(["test", "--package", &package]))),
        ("fuzz corpora", replay(&targets)),
    ];
    for (name, step) in steps {
        let (Some(step), begun) = (step, Instant::now()) else { continue };
        step.run().map_err(|Failure(text)| Failure(format!("{name}: {text}")))?;
        println!("== {:4} s  {name}", begun.elapsed().as_secs());
    }
    println!("{package} is checked, in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// The package of a crate. The name may be that of its folder.
fn package(root: &Path, name: &str) -> Result<String, Failure> {
    let folder = name.strip_prefix("tidegate-").unwrap_or(name);
    let has_manifest = |folder: &str| root.join(folder).join("Cargo.toml").exists();
    match folder {
        "tidegate" => Ok(folder.to_owned()),
        "xtask" | "fuzz" | "examples" if has_manifest(folder) => Ok(format!("tidegate-{folder}")),
        _ if has_manifest(&format!("crates/{folder}")) => Ok(format!("tidegate-{folder}")),
        _ => Err(Failure(format!("there is no crate `{name}`: crates/{folder} has no manifest"))),
    }
}

/// The targets whose sources name the package.
fn fuzz_targets(sources: &Path, package: &str) -> Result<Vec<String>, Failure> {
    if let Some((_, targets)) = FOUNDATIONS.iter().find(|(foundation, _)| *foundation == package) {
        return Ok(targets.iter().map(|target| (*target).to_owned()).collect());
    }
    let module = format!("{}::", package.replace('-', "_"));
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())));
    let mut targets = Vec::new();
    for line in read(&sources.join("lib.rs"))?.lines() {
        let Some((file, names)) = line.strip_prefix("pub use ").and_then(|rest| rest.split_once("::")) else {
            continue;
        };
        let names = names.trim_end_matches(';').trim_matches(['{', '}']);
        if read(&sources.join(file).with_extension("rs"))?.contains(&module) {
            targets.extend(names.split(", ").map(str::to_owned));
        }
    }
    Ok(targets)
}

/// Most targets name these packages, whichever crate they test. Listed are those that test the package.
const FOUNDATIONS: [(&str, &[&str]); 5] = [
    ("tidegate-buffer", &["outbound"]),
    (
        "tidegate-codec",
        &["lines", "delimiter", "fixed", "length_field", "varint", "json", "filters", "sniff", "streams"],
    ),
    ("tidegate-engine", &["connections"]),
    ("tidegate-sys", &["rings"]),
    ("tidegate-testkit", &["connections"]),
];

/// Replays the corpora of these targets.
fn replay(targets: &[String]) -> Option<Step> {
    let replay = cargo(["test", "--package", "tidegate-fuzz", "--test", "corpora", "every_input_passes_its_target"]);
    (!targets.is_empty()).then(|| replay.env("TIDEGATE_FUZZ_TARGETS", targets.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn a_crate_has_the_name_of_its_folder_or_of_its_package() {
        for (name, expected) in [
            ("socks", Some("tidegate-socks")),
            ("tidegate-socks", Some("tidegate-socks")),
            ("tidegate", Some("tidegate")),
            ("xtask", Some("tidegate-xtask")),
            ("nothing", None),
        ] {
            assert_eq!(package(&root(), name).ok().as_deref(), expected);
        }
    }

    #[test]
    fn the_fuzz_targets_of_a_crate_are_those_that_name_it() {
        let targets = |package| fuzz_targets(&root().join("fuzz/src"), package).expect("there are sources");
        assert_eq!(targets("tidegate-socks"), ["socks"]);
        assert_eq!(targets("tidegate-http2"), ["hpack", "http2"]);
        assert_eq!(targets("tidegate-http3"), ["http3", "qpack", "qpack_tables"]);
        assert_eq!(targets("tidegate-admin"), [""; 0]);
        assert_eq!(targets("tidegate-buffer"), ["outbound"]);
        let targets = root().join("fuzz/targets");
        for target in FOUNDATIONS.iter().flat_map(|(_, targets)| *targets) {
            assert!(targets.join(target).with_extension("rs").exists(), "{target}");
        }
    }
}
