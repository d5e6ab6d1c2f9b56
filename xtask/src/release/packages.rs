//! The packages of the crates that are published, in the order in which they are.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{FILES, metadata};
use crate::command::{Failure, cargo};

const TARGET: &str = "target/release-packages";

/// Packages all crates and copies the packages into the files of the release, with their order and the commands that
/// publish them. Cargo resolves each against the packages of the others, as if the registry had them.
pub(super) fn make(version: &str) -> Result<(), Failure> {
    let order = order(&metadata()?)?;
    let package = cargo("package --quiet --allow-dirty --no-verify --target-dir".split(' ')).arg(TARGET);
    package.args(order.iter().flat_map(|name| ["--package", name])).run()?;
    let folder = format!("{FILES}/crates");
    drop(fs::remove_dir_all(&folder));
    let io = |error: std::io::Error| Failure(format!("{folder}: {error}"));
    fs::create_dir_all(&folder).map_err(io)?;
    for name in &order {
        let file = format!("{name}-{version}.crate");
        fs::copy(format!("{TARGET}/package/{file}"), format!("{folder}/{file}")).map_err(io)?;
    }
    let commands: String = order.iter().map(|name| format!("cargo publish --package {name}\n")).collect();
    fs::write(format!("{folder}/PUBLISH.txt"), commands).map_err(io)?;
    println!("{} packages; the order is in {folder}/PUBLISH.txt", order.len());
    Ok(())
}

/// Makes and compiles the packages of all crates that are published.
pub(crate) fn packages_that_compile() -> Result<(), Failure> {
    let published = published()?;
    let home = cargo_home().ok_or_else(|| Failure("there is no home folder, and CARGO_HOME is not set".into()))?;
    forget_earlier(&home, Path::new(TARGET), &published)?;
    let package = cargo("package --quiet --allow-dirty --target-dir".split(' ')).arg(TARGET);
    package.args(published.iter().flat_map(|crate_| ["--package", &crate_.name])).run()
}

/// Removes the sources and the state of builds that an earlier run has left. Cargo takes a package of the same name and
/// version for the same one, so it would compile the others against the sources of that run.
fn forget_earlier(home: &Path, target: &Path, published: &[Published]) -> Result<(), Failure> {
    let sources = folders(&home.join("registry/src"), |name| name.starts_with('-'));
    let unpacked = sources
        .iter()
        .flat_map(|source| folders(source, |name| published.iter().any(|crate_| is_package(name, &crate_.name))));
    let built = folders(&target.join("debug/.fingerprint"), |name| {
        published.iter().any(|crate_| name.starts_with(&format!("{}-", crate_.name)))
    });
    for folder in unpacked.chain(built) {
        fs::remove_dir_all(&folder).map_err(|error| Failure(format!("{}: {error}", folder.display())))?;
    }
    Ok(())
}

/// Whether a folder is that of a package in some version.
fn is_package(folder: &str, name: &str) -> bool {
    let version = folder.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

/// The folders in a folder whose names are chosen; none if it is not there.
fn folders(folder: &Path, is_chosen: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_str().is_some_and(&is_chosen)).map(|entry| entry.path()).collect()
}

/// The folder of cargo.
pub(super) fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")))
}

/// The published crates, each behind those that it needs.
fn order(metadata: &Value) -> Result<Vec<String>, Failure> {
    let packages = metadata["packages"].as_array().into_iter().flatten().filter(|package| package["publish"].is_null());
    let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        // Tests name no version, and cargo leaves them out of the package.
        let own = dependencies.filter(|need| need["path"].is_string() && need["kind"] != "dev");
        needs.insert(
            package["name"].as_str().unwrap_or_default(),
            own.filter_map(|need| need["name"].as_str()).collect(),
        );
    }
    let mut order: Vec<String> = Vec::new();
    while order.len() < needs.len() {
        let is_done = |name: &str| order.iter().any(|done| done == name);
        let ready = |(name, needs): &(&&str, &BTreeSet<&str>)| !is_done(name) && needs.iter().all(|need| is_done(need));
        let Some((name, _)) = needs.iter().find(ready) else {
            let left: Vec<_> = needs.keys().copied().filter(|name| !is_done(name)).collect();
            return Err(Failure(format!(
                "these need each other, or a crate that is not published: {}",
                left.join(", ")
            )));
        };
        order.push((*name).to_owned());
    }
    Ok(order)
}

/// A crate that is published.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) is_library: bool,
}

pub(super) fn published() -> Result<Vec<Published>, Failure> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sources_of_an_earlier_run_are_removed() {
        let root = env::temp_dir().join(format!("tidegate-earlier-{}", std::process::id()));
        let earlier = ["home/registry/src/-1/a-0.1.0", "target/debug/.fingerprint/a-12ef"];
        let kept = ["home/registry/src/-1/a-b-0.1.0", "home/registry/src/index-1/a-0.1.0", "target/debug/deps/a-12ef"];
        earlier.iter().chain(&kept).for_each(|folder| fs::create_dir_all(root.join(folder)).expect("a folder"));
        let published = [Published { name: "a".into(), folder: PathBuf::new(), is_library: true }];
        forget_earlier(&root.join("home"), &root.join("target"), &published).expect("they are removed");
        let exists = |folder: &&str| root.join(folder).exists();
        let left = (earlier.iter().any(exists), kept.iter().all(exists));
        fs::remove_dir_all(&root).expect("it is removed");
        assert_eq!(left, (false, true));
    }

    #[test]
    fn a_crate_is_published_behind_those_that_it_needs() {
        let need = |name: &str, kind: Value| json!({ "name": name, "kind": kind, "path": "/a" });
        let package = |name: &str, needs: &[Value]| json!({ "name": name, "publish": null, "dependencies": needs });
        let metadata = |more: &[Value]| {
            json!({ "packages": [
                package("a", &[need("c", Value::Null), need("b", json!("dev"))]),
                package("b", &[need("a", Value::Null)]),
                package("c", more),
                { "name": "tests", "publish": [], "dependencies": [] },
            ] })
        };
        assert_eq!(order(&metadata(&[])).expect("an order"), ["c", "a", "b"]);
        let circle = order(&metadata(&[need("b", Value::Null)]));
        assert!(circle.is_err_and(|failure| failure.0.contains("a, b, c")));
    }
}
