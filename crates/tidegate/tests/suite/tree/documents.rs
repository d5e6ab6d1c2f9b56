//! Documents for readers: links have targets, documents are short, and the guide has an order.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::sources::{markdown, root};

/// Words of a document, or of the chapters of a part of the guide together, at most.
const WORDS_MAX: &[(&str, usize)] = &[
    ("README.md", 900),
    ("ARCHITECTURE.md", 3_300),
    ("docs/guide/http/", 9_000),
    ("docs/guide/operating/", 9_000),
    ("docs/guide/protocol/", 9_000),
];

/// Words that a reader reads in a minute.
const WORDS_PER_MINUTE: usize = 220;

const GUIDE: &str = "docs/guide";

#[test]
fn every_link_of_a_document_has_a_target() {
    let documents = markdown();
    let mut broken = Vec::new();
    for (path, text) in &documents {
        for link in links(text) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { resolved(path, file) };
            let has_anchor = || documents.get(&target).is_none_or(|text| anchors(text).contains(anchor));
            if !root().join(&target).exists() || !anchor.is_empty() && !has_anchor() {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "links without a target:\n{}", broken.join("\n"));
}

#[test]
fn documents_are_short_enough_to_be_read() {
    let documents = markdown();
    for (start, max) in WORDS_MAX {
        let words: usize =
            documents.iter().filter(|(path, _)| path.starts_with(start)).map(|(_, text)| count(text)).sum();
        assert!((1..=*max).contains(&words), "{start} has {words} words, and at most {max} are wanted");
    }
}

/// The map names each chapter, in the order in which the chapters name their next one.
#[test]
fn the_map_of_the_guide_has_each_chapter_in_its_order() {
    let documents = markdown();
    let map = &documents[&format!("{GUIDE}/README.md")];
    let rows: Vec<_> = map.lines().filter(|line| line.starts_with("| [")).collect();
    let chapters: Vec<_> = rows.iter().map(|row| resolved("docs/guide/README.md", &links(row)[0])).collect();
    let found = documents.keys().filter(|path| path.starts_with(GUIDE) && !path.ends_with("README.md"));
    assert_eq!(
        chapters.iter().collect::<BTreeSet<_>>(),
        found.collect::<BTreeSet<_>>(),
        "chapters on the map, and files"
    );

    for (number, (row, chapter)) in rows.iter().zip(&chapters).enumerate() {
        let text = &documents[chapter];
        let minutes: usize = row.trim_end_matches(" |").rsplit(' ').next().unwrap().parse().expect("minutes");
        let actual = count(text).div_ceil(WORDS_PER_MINUTE);
        assert!(minutes.abs_diff(actual) <= 1, "{chapter} reads in {actual} minutes, and the map has {minutes}");
        let last = text.trim_end().lines().next_back().unwrap_or_default();
        let next = last.starts_with("Next: [").then(|| resolved(chapter, &links(last)[0]));
        assert_eq!(next.as_ref(), chapters.get(number + 1), "{chapter}: the chapter that follows it on the map");
    }
}

/// The index of the decisions has each of them once, with its number and its heading.
#[test]
fn the_index_has_each_decision_by_its_heading() {
    let documents = markdown();
    let index = &documents["docs/decisions/README.md"];
    for (path, text) in documents.iter().filter(|(path, _)| path.starts_with("docs/decisions/0")) {
        let file = path.rsplit('/').next().unwrap_or_default();
        let heading = text.lines().next().unwrap_or_default();
        let (number, title) = heading.trim_start_matches("# ").split_once(". ").expect("a number and a title");
        assert_eq!(file[..4].parse::<u32>().ok(), number.parse().ok(), "{path}: {heading}");
        let row = format!("| {} | [{title}]({file}) |\n", &file[..4]);
        assert_eq!(index.matches(&row).count(), 1, "docs/decisions/README.md: {row}");
    }
}

fn count(text: &str) -> usize {
    text.split_whitespace().count()
}

/// The targets of a document's links, except those to other sites.
fn links(text: &str) -> Vec<String> {
    let prose: String = text.split("\n```").step_by(2).collect();
    let targets =
        prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned());
    targets.filter(|target| !target.contains("://")).collect()
}

/// The path of a link's target, from the root of the repository.
fn resolved(document: &str, link: &str) -> String {
    let joined = Path::new(document).parent().expect("a file").join(link);
    let mut path = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::ParentDir => assert!(path.pop(), "{document}: {link} leaves the repository"),
            other => path.push(other),
        }
    }
    path.to_string_lossy().into_owned()
}

/// The anchors of a document's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let is_kept = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
    headings
        .map(|heading| heading.to_lowercase().chars().filter(is_kept).collect::<String>().replace(' ', "-"))
        .collect()
}

#[test]
fn links_and_anchors_are_found_outside_of_code() {
    let text = "# One `two`: 3\n[a](b.md#c) [d](https://e)\n```rust\nf[0](g)\n```\n[h](#one-two-3)\n";
    assert_eq!(links(text), ["b.md#c", "#one-two-3"]);
    assert_eq!(anchors(text), BTreeSet::from(["one-two-3".to_owned()]));
    assert_eq!(resolved("docs/guide/a.md", "../b.md"), "docs/b.md");
}
