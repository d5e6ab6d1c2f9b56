//! The links of finished pages: the target of each is there, with the anchor that it names. Links to other sites are
//! not followed, and neither are those of the interfaces' documentation, which rustdoc checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::links::resolved;
use super::{Failure, read};

/// Checks all pages below this folder, and returns how many there are.
pub(super) fn all_links(site: &Path) -> Result<usize, Failure> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(site.join(&folder)).map_err(|error| Failure(format!("{folder}: {error}")))?;
        for entry in entries.filter_map(Result::ok) {
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() && path != "api" {
                folders.push(format!("{path}/"));
            } else if path.ends_with(".html") && !UNLINKED.contains(&path.as_str()) {
                pages.insert(path, read(&entry.path())?);
            }
        }
    }
    let anchors: BTreeMap<_, _> = pages.iter().map(|(path, text)| (path.as_str(), values(text, " id=\""))).collect();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        for link in values(text, " href=\"").into_iter().chain(values(text, " src=\"")) {
            if !has_target(site, path, link, &anchors) {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    if broken.is_empty() {
        Ok(pages.len())
    } else {
        Err(Failure(format!("links without a target:\n{}", broken.join("\n"))))
    }
}

fn has_target(site: &Path, page: &str, link: &str, anchors: &BTreeMap<&str, BTreeSet<&str>>) -> bool {
    if link.contains("://") || ["mailto:", "data:", "javascript:"].iter().any(|start| link.starts_with(start)) {
        return true;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file = file.split('?').next().unwrap_or_default();
    let target = if file.is_empty() { Some(page.to_owned()) } else { resolved(page, file) };
    let Some(target) = target else { return false };
    let has_anchor = || anchors.get(target.as_str()).is_none_or(|anchors| anchors.contains(anchor));
    site.join(&target).is_file() && (anchor.is_empty() || has_anchor())
}

/// The values of an attribute.
fn values<'a>(text: &'a str, attribute: &str) -> BTreeSet<&'a str> {
    text.split(attribute).skip(1).filter_map(|rest| rest.split_once('"')).map(|(value, _)| value).collect()
}

/// Pages that belong to no place: their links are those of the root.
const UNLINKED: [&str; 2] = ["404.html", "toc.html"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_needs_a_file_and_an_anchor() {
        let site = std::env::temp_dir().join(format!("tidegate-site-{}", std::process::id()));
        let write = |text: &str| fs::create_dir_all(&site).and_then(|()| fs::write(site.join("a.html"), text));
        for (text, is_good) in [
            ("<p id=\"x\"><a href=\"a.html#x\"><a href=\"https://e/f\"><a href=\"#x\">", true),
            ("<a href=\"b.html\">", false),
            ("<a href=\"a.html#y\">", false),
            ("<img src=\"../c.svg\">", false),
        ] {
            write(text).expect("a page");
            assert_eq!(all_links(&site).is_ok(), is_good, "{text}");
        }
        fs::remove_dir_all(&site).expect("the site is removed");
    }
}
