//! docs/imports.md and ARCHITECTURE.md match the tree: imports between packages, named paths, and where `unsafe` is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, TargetKind};

/// Packages in which `unsafe` is allowed.
const UNSAFE_ALLOWED: &[&str] = &["tidegate-buffer", "tidegate-sys", "tidegate-scan"];

/// The package of the fuzz targets.
const FUZZ: &str = "tidegate-fuzz";
const INSTRUCTIONS: &str = "tidegate-instructions";

/// The imports of a package from this workspace: of the package itself, and of its tests.
type Imports = (BTreeSet<String>, BTreeSet<String>);

#[test]
fn the_table_of_imports_matches_the_manifests() {
    let documented = documented_imports();
    let actual: BTreeMap<_, _> = metadata().packages.iter().map(|package| (name(package), imports(package))).collect();
    let names: BTreeSet<_> = documented.keys().chain(actual.keys()).collect();
    let different = names.into_iter().filter(|name| documented.get(*name) != actual.get(*name));
    let rows: Vec<_> = different
        .map(|name| match actual.get(name) {
            Some((own, tests)) => format!("| `{name}` | {} | {} |", cell(own), cell(tests)),
            None => format!("there is no package {name}"),
        })
        .collect();
    assert!(rows.is_empty(), "the manifests differ from docs/imports.md:\n{}", rows.join("\n"));
}

#[test]
fn only_tests_and_measurements_import_the_testkit() {
    // Fuzz targets are tests.
    let is_product = |name: &str| name != FUZZ && name != INSTRUCTIONS;
    for package in metadata().packages.iter().filter(|package| is_product(&package.name)) {
        let (own, _) = imports(package);
        assert!(!own.contains("tidegate-testkit"), "{} imports the testkit outside its tests", package.name);
    }
}

#[test]
fn unsafe_code_is_forbidden_outside_three_crates() {
    for package in metadata().packages {
        if UNSAFE_ALLOWED.contains(&package.name.as_str()) {
            continue;
        }
        for target in &package.targets {
            let is_ours = [TargetKind::Lib, TargetKind::Bin].iter().any(|kind| target.kind.contains(kind));
            // The entry point that libFuzzer calls has a name that is not mangled, which counts as unsafe.
            let is_ours = is_ours && !(package.name == FUZZ && target.kind.contains(&TargetKind::Bin));
            if is_ours || package.name == "tidegate-examples" {
                let forbids = read(target.src_path.as_std_path()).contains("\n#![forbid(unsafe_code)]\n");
                assert!(forbids, "{} does not forbid unsafe code", target.src_path);
            }
        }
    }
}

#[test]
fn every_path_in_architecture_md_exists() {
    let missing: Vec<_> =
        code_spans(&architecture()).into_iter().filter(|name| is_path(name) && !root().join(name).exists()).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names missing files: {missing:?}");
}

/// The rows of the table of imports.
fn documented_imports() -> BTreeMap<String, Imports> {
    let text = read(&root().join("docs/imports.md"));
    let rows = text.lines().skip_while(|line| !line.starts_with("| package | imports |")).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(code_spans).collect();
            let [_, package, own, tests, _] = &cells[..] else { panic!("a row of three cells: {row}") };
            (package.first().expect("a package").clone(), (own.clone(), tests.clone()))
        })
        .collect()
}

fn imports(package: &Package) -> Imports {
    let of = |kind| {
        let ours = package.dependencies.iter().filter(|one| one.path.is_some() && one.kind == kind);
        ours.map(|one| one.name.clone()).collect()
    };
    (of(DependencyKind::Normal), of(DependencyKind::Development))
}

fn name(package: &Package) -> String {
    package.name.to_string()
}

fn cell(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
}

fn code_spans(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn is_path(text: &str) -> bool {
    let folder = text.split_once('/').map(|(folder, _)| folder);
    folder.is_some_and(|folder| ["crates", "examples", "benches", "docs", "fuzz", ".ci"].contains(&folder))
}

fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).no_deps().other_options(["--offline".to_owned()]);
    command.exec().expect("cargo describes this workspace")
}

fn architecture() -> String {
    read(&root().join("ARCHITECTURE.md"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
