//! The ledger of RFC 9112 and of the RFCs that it builds on, `docs/rfc9112.md`, is correct: each row has a test that
//! exists, or a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Counts of the rows of a ledger.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    rows: usize,
    /// Rows whose tests all exist.
    held: usize,
    /// Rows with a test that is still to be written.
    open: usize,
    not_kept: usize,
    not_ours: usize,
}

/// The last cell of a row.
#[derive(Debug, PartialEq, Eq)]
enum Cell<'a> {
    NotOurs(&'a str),
    Tests { not_kept: Option<&'a str>, there: Vec<&'a str>, open: Vec<&'a str> },
}

impl<'a> Cell<'a> {
    fn read(cell: &'a str) -> Self {
        if let Some(reason) = cell.strip_prefix("not ours:") {
            return Self::NotOurs(reason.trim());
        }
        let (there, open) = cell.split_once("open:").unwrap_or((cell, ""));
        let not_kept =
            there.strip_prefix("not kept:").map(|reason| reason.split(['`', ';']).next().unwrap_or("").trim());
        Self::Tests { not_kept, there: code_spans(there), open: code_spans(open) }
    }
}

/// Counts the rows of a ledger, or returns all of its errors.
fn check(ledger: &str, tests: &BTreeSet<String>) -> Result<Counts, Vec<String>> {
    let (mut counts, mut wrong) = (Counts::default(), Vec::new());
    for row in ledger.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| § |")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [section, must, whom, held_by] = cells[..] else {
            wrong.push(format!("not a row of four cells: {row}"));
            continue;
        };
        let mut say = |what: &str| wrong.push(format!("§{section}, {must}: {what}"));
        if section.split('.').any(|part| part.parse::<u8>().is_err()) || must.is_empty() || whom.is_empty() {
            say("no section, no requirement, or no role");
        }
        counts.rows += 1;
        match Cell::read(held_by) {
            Cell::NotOurs(reason) => {
                counts.not_ours += 1;
                if reason.is_empty() {
                    say("not ours for no reason");
                }
            }
            Cell::Tests { not_kept, there, open } => {
                if not_kept == Some("") {
                    say("not kept for no reason");
                }
                if there.is_empty() && open.is_empty() {
                    say("no test and no reason");
                }
                for test in there.iter().filter(|test| !tests.contains(**test)) {
                    say(&format!("there is no test {test}"));
                }
                for test in open.iter().filter(|test| tests.contains(**test)) {
                    say(&format!("{test} is there: it is no longer open"));
                }
                counts.not_kept += usize::from(not_kept.is_some());
                counts.open += usize::from(!open.is_empty());
                counts.held += usize::from(open.is_empty() && not_kept.is_none());
            }
        }
    }
    if wrong.is_empty() { Ok(counts) } else { Err(wrong) }
}

#[test]
fn each_demand_of_the_rfcs_has_a_test_or_a_reason() {
    let ledger = read(&root().join("docs/rfc9112.md"));
    let tests = tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite"), "");
    let counts = check(&ledger, &tests).unwrap_or_else(|wrong| panic!("docs/rfc9112.md:\n{}", wrong.join("\n")));
    assert!(counts.rows >= ROWS_MIN, "rows were lost: {counts:?}");
    let Counts { rows, held, open, not_kept, not_ours } = counts;
    println!("{rows} demands: {held} held by tests, {open} open, {not_kept} not kept, {not_ours} not ours");
    let mut to_write: BTreeMap<&str, usize> = BTreeMap::new();
    for row in ledger.lines().filter(|line| line.starts_with("| ")) {
        if let Some((_, open)) = row.split_once("open:") {
            code_spans(open).into_iter().for_each(|test| *to_write.entry(test).or_default() += 1);
        }
    }
    to_write.iter().for_each(|(test, rows)| println!("open: {test}, for {rows} of them"));
}

#[test]
fn a_wrong_ledger_is_detected() {
    let tests = BTreeSet::from(["a.rs::it_holds".to_owned()]);
    let check = |held_by: &str| check(&format!("| § | must | whom | held by |\n|---|---|---|---|\n{held_by}"), &tests);
    let row = |held_by: &str| check(&format!("| 2.2 | do | server in | {held_by} |\n"));

    let one = |counts: Counts| Ok(Counts { rows: 1, ..counts });
    assert_eq!(row("`a.rs::it_holds`"), one(Counts { held: 1, ..Counts::default() }));
    assert_eq!(row("not ours: it is a proxy's"), one(Counts { not_ours: 1, ..Counts::default() }));
    assert_eq!(row("`a.rs::it_holds`; open: `b.rs::it_will`"), one(Counts { open: 1, ..Counts::default() }));
    assert_eq!(row("not kept: too lax `a.rs::it_holds`"), one(Counts { not_kept: 1, ..Counts::default() }));

    for (held_by, complaint) in [
        ("`a.rs::it_does_not`", "there is no test a.rs::it_does_not"),
        ("`a.rs::it_holds` `it_holds`", "there is no test it_holds"),
        ("", "no test and no reason"),
        ("open:", "no test and no reason"),
        ("because", "no test and no reason"),
        ("not ours:", "not ours for no reason"),
        ("not kept: `a.rs::it_holds`", "not kept for no reason"),
        ("not kept: too lax", "no test and no reason"),
        ("open: `a.rs::it_holds`", "a.rs::it_holds is there: it is no longer open"),
    ] {
        assert_eq!(row(held_by), Err(vec![format!("§2.2, do: {complaint}")]), "{held_by}");
    }
    let torn = check("| 2.2 | do | server in |\n");
    assert_eq!(torn, Err(vec!["not a row of four cells: | 2.2 | do | server in |".to_owned()]));
    assert_eq!(names("#[test]\nfn a() {}\nfn b() {}\n#[test]\n#[ignore]\nfn c() {}\n").collect::<Vec<_>>(), ["a"]);
    assert!(check("| two | do | server in | not ours: no |\n").is_err());
}

/// The tests of a folder and of its subfolders: `file.rs::name`. An ignored test does not count.
fn tests(folder: &Path, within: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("a folder of tests") {
        let path = entry.expect("a readable folder").path();
        let name = format!("{within}{}", path.file_name().expect("it has one").to_string_lossy());
        if path.is_dir() {
            tests.extend(self::tests(&path, &format!("{name}/")));
        } else if name.ends_with(".rs") {
            let text = read(&path);
            tests.extend(names(&text).map(|test| format!("{name}::{test}")));
        }
    }
    tests
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let starts: Vec<_> = (0..lines.len()).filter(|at| lines[*at] == "#[test]").collect();
    starts.into_iter().filter_map(move |at| {
        let signature = lines[at..].iter().position(|line| line.starts_with("fn "))?;
        let is_run = !lines[at..at + signature].iter().any(|line| line.starts_with("#[ignore"));
        let name = lines[at + signature].strip_prefix("fn ")?.split('(').next()?;
        is_run.then_some(name)
    })
}

fn code_spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// How many requirements were found in the RFCs. Fewer are a mistake.
const ROWS_MIN: usize = 140;
