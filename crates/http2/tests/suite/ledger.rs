//! The ledger of RFC 9113 and RFC 7541, `docs/rfc9113.md`, is correct: each row has a test that exists, or a reason, and
//! no test that is listed as open exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn each_demand_of_the_rfcs_has_a_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ledger = fs::read_to_string(root.join("../../docs/rfc9113.md")).expect("the ledger");
    let mut tests = BTreeSet::new();
    for folder in ["tests/suite", "src", "src/hpack", "../http-stream/src"] {
        for entry in fs::read_dir(root.join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.file_name().expect("a name").to_string_lossy().into_owned();
                let text = fs::read_to_string(&path).expect("a file");
                tests.extend(names(&text).map(|name| format!("{file}::{name}")));
            }
        }
    }
    let (mut rows, mut open) = (0, 0);
    for row in ledger.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| §")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, _, _, held_by] = cells[..] else { panic!("not a row of four cells: {row}") };
        rows += 1;
        if let Some(reason) = held_by.strip_prefix("not ours:") {
            assert!(!reason.trim().is_empty(), "no reason: {row}");
            continue;
        }
        let (there, missing) = held_by.split_once("open:").unwrap_or((held_by, ""));
        let spans = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let (there, missing) = (spans(there), spans(missing));
        assert!(!there.is_empty() || !missing.is_empty(), "no test and no reason: {row}");
        for test in &there {
            assert!(tests.contains(test), "there is no test {test}: {row}");
        }
        for test in &missing {
            assert!(!tests.contains(test), "{test} is there, so it is not open: {row}");
        }
        open += usize::from(!missing.is_empty());
    }
    println!("{rows} demands, {open} of them open");
    assert!(rows >= 60, "rows were lost: {rows}");
}

/// The names of the tests in a file.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let functions = text.lines().map(str::trim_start).filter_map(|line| line.strip_prefix("fn "));
    functions.filter_map(|line| line.split('(').next())
}
