//! A registry's requirements on the published packages, and the oldest compiler, which has one value everywhere.

use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// The most keywords that crates.io accepts.
const KEYWORDS_MAX: usize = 5;
const KEYWORD_BYTES_MAX: usize = 20;

/// A package beside the crates measures, tests or shows them.
#[test]
fn the_crates_are_published_and_nothing_else_is() {
    for package in metadata().packages {
        let is_crate = folder(&package).parent() == Some(&root().join("crates"));
        assert_eq!(is_published(&package), is_crate, "{}: `publish = false`", package.name);
    }
}

#[test]
fn a_published_package_describes_itself() {
    for package in metadata().packages.iter().filter(|package| is_published(package)) {
        let name = &package.name;
        assert!(package.description.as_ref().is_some_and(|text| !text.ends_with('.')), "{name}: description");
        assert_eq!(package.license.as_deref(), Some("MIT OR Apache-2.0"), "{name}: license");
        assert!(package.documentation.is_some() && package.readme.is_some(), "{name}: documentation, readme");
        assert!((1..=5).contains(&package.categories.len()), "{name}: categories");
        assert!((1..=KEYWORDS_MAX).contains(&package.keywords.len()), "{name}: keywords");
        for keyword in &package.keywords {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+".contains(&byte);
            assert!(keyword.len() <= KEYWORD_BYTES_MAX && keyword.bytes().all(is_allowed), "{name}: {keyword}");
        }
        for license in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let (own, common) = (folder(package).join(license), root().join(license));
            assert_eq!(read(&own), read(&common), "{name}: {license}, a link to the one of the workspace");
        }
    }
}

/// A package is published after those that it needs. Its tests may need any, so they name no version: then Cargo leaves
/// them out of the published manifest.
#[test]
fn published_packages_need_published_packages_and_their_tests_need_no_version() {
    let metadata = metadata();
    let published = |name: &str| metadata.packages.iter().any(|one| one.name == name && is_published(one));
    for package in metadata.packages.iter().filter(|package| is_published(package)) {
        for one in package.dependencies.iter().filter(|one| one.path.is_some()) {
            let (has_version, what) = (one.req.to_string() != "*", format!("{} needs {}", package.name, one.name));
            match one.kind {
                DependencyKind::Development => assert!(!has_version, "{what} in tests, by a path without a version"),
                _ => assert!(has_version && published(&one.name), "{what}, by a version and a path"),
            }
        }
    }
}

/// A crate finds its included files in its own folder: its package has no others.
#[test]
fn a_published_package_includes_no_file_of_another() {
    for package in metadata().packages.iter().filter(|package| is_published(package)) {
        let sources = folder(package).join("src");
        for file in files(&sources) {
            let text = read(&file);
            let included =
                ["include_str!(\"", "include_bytes!(\""].into_iter().flat_map(|start| text.split(start).skip(1));
            for path in included.filter_map(|rest| rest.split_once('"')).map(|(path, _)| path) {
                let ups = path.matches("../").count();
                let depth = file.strip_prefix(folder(package)).expect("below the package").components().count() - 1;
                assert!(ups <= depth, "{}: {path} is not in the package", file.display());
            }
        }
    }
}

#[test]
fn the_oldest_compiler_is_the_same_everywhere() {
    let metadata = metadata();
    let version = metadata.packages.iter().find(|package| package.name == "tidegate").expect("the facade");
    let oldest = version.rust_version.clone().expect("`rust-version`");
    for package in &metadata.packages {
        assert_eq!(package.rust_version.as_ref(), Some(&oldest), "{}: `rust-version`", package.name);
    }
    let short = format!("{}.{}", oldest.major, oldest.minor);
    for (file, text) in [
        ("README.md", format!("Rust {short} or newer")),
        ("benches/peers/Cargo.toml", format!("rust-version = \"{short}\"")),
        ("benches/experiment/buffer/Cargo.toml", format!("rust-version = \"{short}\"")),
    ] {
        assert!(read(&root().join(file)).contains(&text), "{file}: {text}");
    }
    // The image is built by the compiler of CI.
    let recipe = read(&root().join("deploy/container/Containerfile"));
    let image = recipe.split("library/rust:").nth(1).and_then(|rest| rest.split('-').next()).expect("an image of Rust");
    let minor = image.split('.').nth(1).and_then(|text| text.parse::<u64>().ok()).expect("a minor version");
    assert!(minor >= oldest.minor, "deploy/container/Containerfile: Rust {image}");
}

/// `publish = false` is an empty list of registries.
fn is_published(package: &Package) -> bool {
    package.publish.is_none()
}

fn folder(package: &Package) -> PathBuf {
    package.manifest_path.parent().expect("a folder").as_std_path().to_owned()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, mut found): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    found.extend(folders.iter().flat_map(|folder| files(folder)));
    found
}

fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).no_deps().other_options(["--offline".to_owned()]);
    command.exec().expect("cargo describes this workspace")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}
