//! docs/reference/features.md has each feature of the crate, and those that it turns on.

use std::collections::BTreeMap;

use cargo_metadata::MetadataCommand;

#[test]
fn the_table_of_features_matches_the_manifest() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec().expect("the workspace");
    let package = metadata.packages.iter().find(|package| *package.name == "tidegate").expect("the crate");
    let is_feature = |name: &&String| package.features.contains_key(*name);
    let actual: BTreeMap<String, Vec<String>> = package
        .features
        .iter()
        .map(|(name, turned_on)| (name.clone(), turned_on.iter().filter(is_feature).cloned().collect()))
        .collect();
    let text = std::fs::read_to_string(format!("{root}/docs/reference/features.md")).expect("the table");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeMap<String, Vec<String>> = rows
        .map(|row| {
            let cells: Vec<_> = row.trim_end_matches('|').split('|').collect();
            let spans = cells.last().map_or("", |cell| cell).split('`').skip(1).step_by(2);
            (row.split('`').next().unwrap_or_default().to_owned(), spans.map(str::to_owned).collect())
        })
        .collect();
    // `dep:` entries have the name of no feature, and an optional dependency without `dep:` would be one.
    assert_eq!(documented, actual.into_iter().filter(|(name, _)| !name.starts_with("tidegate-")).collect());
}
