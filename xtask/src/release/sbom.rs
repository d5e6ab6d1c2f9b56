//! The SBOM: the crates that are linked into the program, as CycloneDX 1.5.
//!
//! `cargo tree` names the crates of the program with its own features and for its own target, which neither `cargo
//! metadata` nor a tool over it does in a workspace; `cargo metadata` and `Cargo.lock` describe them. The file has no
//! time and no random number, so it is the same in each run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use super::SBOM;
use super::binaries::NATIVE;
use crate::command::{Failure, cargo};

pub(super) fn write(version: &str) -> Result<(), Failure> {
    let line = format!(
        "tree --locked --package tidegate-cli --no-default-features --target {NATIVE} --edges normal --prefix none \
         --format {{p}}"
    );
    let used = used(&cargo(line.split(' ')).output()?);
    let text = cargo(format!("metadata --locked --format-version 1 --filter-platform {NATIVE}").split(' ')).output()?;
    let metadata: Value = serde_json::from_str(&text).map_err(|error| Failure(format!("cargo metadata: {error}")))?;
    let lock = fs::read_to_string("Cargo.lock").map_err(|error| Failure(format!("Cargo.lock: {error}")))?;
    let sbom = sbom(version, &used, &metadata, &checksums(&lock));
    let components = sbom["components"].as_array().map_or(0, Vec::len);
    let text = serde_json::to_string_pretty(&sbom).map_err(|error| Failure(error.to_string()))?;
    fs::write(SBOM, text + "\n").map_err(|error| Failure(format!("{SBOM}: {error}")))?;
    println!("{SBOM}: {components} crates");
    if components == used.len() - 1 { Ok(()) } else { Err(Failure(format!("{} crates are used", used.len() - 1))) }
}

/// Names and versions in the output of `cargo tree`.
fn used(tree: &str) -> BTreeSet<(String, String)> {
    let crates = tree.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    });
    crates.collect()
}

/// SHA-256 digests of crates from the registry.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line.map(|text| text.trim_end_matches('"').to_owned())
    };
    let packages = lock.split("[[package]]\n").skip(1);
    packages
        .filter_map(|text| Some(((value(text, "name")?, value(text, "version")?), value(text, "checksum")?)))
        .collect()
}

fn sbom(
    version: &str,
    used: &BTreeSet<(String, String)>,
    metadata: &Value,
    checksums: &BTreeMap<(String, String), String>,
) -> Value {
    let key = |package: &Value| {
        let text = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        (text("name"), text("version"))
    };
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let by_id: BTreeMap<_, _> = packages
        .filter(|package| used.contains(&key(package)))
        .filter_map(|package| Some((package["id"].as_str()?, (key(package), package))))
        .collect();
    let program = |(name, _): &(String, String)| name == "tidegate-cli";
    let mut components: Vec<_> = by_id
        .values()
        .filter(|(key, _)| !program(key))
        .map(|(key, package)| component(key, package, checksums))
        .collect();
    components.sort_by_key(|component| component["bom-ref"].to_string());
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    let mut graph: Vec<_> = nodes
        .filter_map(|node| {
            let (key, _) = by_id.get(node["id"].as_str()?)?;
            let needs = node["deps"].as_array()?.iter().filter(|need| is_normal(need));
            let needs: BTreeSet<_> =
                needs.filter_map(|need| Some(purl(&by_id.get(need["pkg"].as_str()?)?.0))).collect();
            Some(json!({ "ref": purl(key), "dependsOn": needs }))
        })
        .collect();
    graph.sort_by_key(|node| node["ref"].to_string());
    let own = purl(&("tidegate-cli".to_owned(), version.to_owned()));
    let licenses = json!([{ "expression": "MIT OR Apache-2.0" }]);
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": own, "name": "tidegate", "version": version, "purl": own,
                "licenses": licenses,
            },
            "properties": [{ "name": "target", "value": NATIVE }],
        },
        "components": components,
        "dependencies": graph,
    })
}

fn is_normal(need: &Value) -> bool {
    need["dep_kinds"].as_array().is_none_or(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}

fn component(key: &(String, String), package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let (name, version) = key;
    let purl = purl(key);
    let mut component = json!({
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "scope": "required",
    });
    if let Some(digest) = checksums.get(key) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": digest }]);
    }
    // `MIT/Apache-2.0` is the old form of an alternative.
    if let Some(license) = package["license"].as_str() {
        component["licenses"] = json!([{ "expression": license.replace(" / ", " OR ").replace('/', " OR ") }]);
    }
    if let Some(address) = package["repository"].as_str() {
        component["externalReferences"] = json!([{ "type": "vcs", "url": address }]);
    }
    component
}

/// The package URL, which names a crate here as well.
fn purl((name, version): &(String, String)) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_has_licence_digest_and_needs() {
        let used = used("tidegate-cli v0.1.0 (/a)\nslab v0.4.9\nslab v0.4.9 (*)\nopt v1.0.0+b\n");
        assert_eq!(used.len(), 3);
        let lock = "version = 4\n\n[[package]]\nname = \"slab\"\nversion = \"0.4.9\"\nchecksum = \"ab\"\n";
        let metadata = json!({
            "packages": [
                { "id": "0", "name": "tidegate-cli", "version": "0.1.0", "license": "MIT" },
                { "id": "1", "name": "slab", "version": "0.4.9", "license": "MIT/Apache-2.0" },
                { "id": "2", "name": "opt", "version": "1.0.0+b" },
                { "id": "3", "name": "unused", "version": "1.0.0" },
            ],
            "resolve": { "nodes": [{ "id": "0", "deps": [
                { "pkg": "1", "dep_kinds": [{ "kind": null }] },
                { "pkg": "2", "dep_kinds": [{ "kind": "dev" }] },
            ] }] },
        });
        let sbom = sbom("0.1.0", &used, &metadata, &checksums(lock));
        let components = sbom["components"].as_array().expect("a list");
        assert_eq!(components.len(), 2);
        assert_eq!(components[1]["hashes"][0]["content"], "ab");
        assert_eq!(components[1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(components[0]["purl"], "pkg:cargo/opt@1.0.0%2Bb");
        assert_eq!(sbom["dependencies"][0]["dependsOn"], json!(["pkg:cargo/slab@0.4.9"]));
    }
}
