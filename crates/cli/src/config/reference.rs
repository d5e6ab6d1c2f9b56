//! The table of all keys for readers, `docs/reference/configuration.md`: written from the descriptions of the keys.

use std::collections::BTreeSet;

use super::Config;
use super::keys::{Kind, Need, TableInfo, info};

const HEAD: &str = "# The configuration file

All keys of the file of `tidegate run --config FILE`, which `serve --config`, `proxy --config` and `check-config` read too. The
program writes this table from the same descriptions by which it reads the file. `tidegate run --schema` prints them as a
JSON schema for editors. [A gateway](../guide/http/gateway.md#the-program) explains the file.

";

/// The whole document.
fn reference() -> String {
    let mut text = HEAD.to_owned();
    let mut seen = BTreeSet::new();
    add(&info::<Config>(), &mut seen, &mut text);
    text
}

/// A table, and those that its keys have.
fn add(table: &TableInfo, seen: &mut BTreeSet<&'static str>, text: &mut String) {
    if !seen.insert(table.title) {
        return;
    }
    let mut title = table.title.to_owned();
    title[..1].make_ascii_uppercase();
    let title =
        if table.title.starts_with('[') || !table.title.contains(' ') { format!("`{}`", table.title) } else { title };
    text.push_str(&format!("## {title}\n\n{}\n\n| key | value | default | meaning |\n|---|---|---|---|\n", table.text));
    for key in &table.keys {
        let default = match key.need {
            Need::Required => "required".to_owned(),
            Need::Default("") | Need::Optional => String::new(),
            Need::Default(default) => format!("`{default}`"),
        };
        text.push_str(&format!("| `{}` | {} | {default} | {} |\n", key.name, key.kind.name(), key.text));
    }
    text.push('\n');
    for key in &table.keys {
        for table in tables(key.kind) {
            add(&table, seen, text);
        }
    }
}

/// The tables of a kind.
fn tables(kind: Kind) -> Vec<TableInfo> {
    match kind {
        Kind::Table(info) => vec![info()],
        Kind::List(inner) | Kind::OneOrMore(inner) | Kind::Map(inner) => tables(*inner),
        Kind::Either(kinds) => kinds.iter().flat_map(|kind| tables(*kind)).collect(),
        _ => Vec::new(),
    }
}

/// With `TIDEGATE_WRITE` in the environment it writes the document in place of comparing it.
#[test]
fn the_table_of_keys_is_that_of_the_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
    let expected = reference().trim_end().to_owned() + "\n";
    if std::env::var_os("TIDEGATE_WRITE").is_some() {
        std::fs::create_dir_all(std::path::Path::new(path).parent().expect("it has a folder")).expect("the folder");
        std::fs::write(path, &expected).expect("the document");
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == expected, "run this test with TIDEGATE_WRITE=1, which writes {path}");
}
