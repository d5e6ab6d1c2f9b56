//! The packages of the crates that are published, in the order in which they are.

use std::collections::{BTreeMap, BTreeSet};
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
    let package = cargo("package --quiet --allow-dirty --target-dir".split(' ')).arg(TARGET);
    package.args(published()?.iter().flat_map(|crate_| ["--package", &crate_.name])).run()
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
