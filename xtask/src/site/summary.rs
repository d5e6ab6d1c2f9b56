//! The table of contents. `docs/README.md` names the documents in their order; the `README.md` of a folder names those
//! of the folder, and the headings of the guide group them. A document that no README names is an error.

use std::collections::{BTreeMap, BTreeSet};

use super::links::{page, targets};
use super::{Failure, OF_ROOT};

/// `SUMMARY.md` of these documents.
pub(super) fn of(documents: &BTreeMap<String, String>) -> Result<String, Failure> {
    let mut table = Table { documents, listed: BTreeSet::new(), lines: "# Summary\n\n".to_owned() };
    table.listed.extend(OF_ROOT.map(str::to_owned));
    table.lines.push_str("[Tidegate](index.md)\n");
    table.entry("docs/README.md", 0);
    for path in OF_ROOT.into_iter().filter(|path| *path != "README.md") {
        table.line(path, 0);
    }
    let missing: Vec<_> = documents.keys().filter(|path| !table.listed.contains(*path)).map(String::as_str).collect();
    if missing.is_empty() {
        return Ok(table.lines);
    }
    Err(Failure(format!("docs/README.md, or the README.md of its folder, has no link to {}", missing.join(", "))))
}

struct Table<'a> {
    documents: &'a BTreeMap<String, String>,
    listed: BTreeSet<String>,
    lines: String,
}

impl Table<'_> {
    /// Lists a document and, below it, the documents that it names if it is the README of a folder.
    fn entry(&mut self, path: &str, depth: usize) {
        if !self.documents.contains_key(path) || !self.listed.insert(path.to_owned()) {
            return;
        }
        self.line(path, depth);
        let Some(folder) = path.strip_suffix("README.md") else { return };
        let text = &self.documents[path];
        let is_below = |target: &String| target.starts_with(folder) && target != path;
        let targets = targets(path, text).into_iter().map(|(heading, target)| (heading, self.document(target)));
        let targets: Vec<_> = targets.filter(|(_, target)| is_below(target)).collect();
        let mut group = None;
        for (heading, target) in targets {
            if self.listed.contains(&target) || !self.documents.contains_key(&target) {
                continue;
            }
            // The groups of the guide are its parts. Other headings only order their documents.
            let (is_root, is_part) = (folder == "docs/", folder.ends_with("guide/"));
            if is_part && heading != group {
                group = heading;
                let heading = heading.unwrap_or("More");
                self.lines.push_str(&format!("{}- [{heading}]()\n", "  ".repeat(depth + 1)));
            }
            self.entry(&target, depth + usize::from(!is_root) + usize::from(is_part));
        }
    }

    /// The document of a link: of a folder its README.
    fn document(&self, target: String) -> String {
        let readme = format!("{target}/README.md");
        if self.documents.contains_key(&readme) { readme } else { target }
    }

    fn line(&mut self, path: &str, depth: usize) {
        let title = title(path, &self.documents[path]);
        self.lines.push_str(&format!("{}- [{title}]({})\n", "  ".repeat(depth), page(path)));
    }
}

/// The first heading, else the name of the file. Brackets would end the text of a link.
fn title(path: &str, text: &str) -> String {
    let name = || path.rsplit('/').next().unwrap_or(path).trim_end_matches(".md");
    let heading = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_else(name);
    heading.replace(['[', ']'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(more: &[(&str, &str)]) -> BTreeMap<String, String> {
        let of_root = OF_ROOT.map(|path| (path, "# A\n"));
        of_root.iter().chain(more).map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn folders_nest_and_the_parts_of_the_guide_are_groups() {
        let documents = documents(&[
            ("docs/README.md", "# Documents\n- [guide](guide/README.md), [load](load.md)\n[a](../README.md)\n"),
            ("docs/load.md", "# Load\n"),
            ("docs/guide/README.md", "# The guide\n## HTTP\n| [s](http/service.md) |\n## Operating\n[d](deploy.md)\n"),
            ("docs/guide/http/service.md", "# A [service]\n"),
            ("docs/guide/deploy.md", "# Deploy\n"),
        ]);
        let summary = of(&documents).expect("all are linked");
        let wanted = "- [Documents](docs/index.md)\n- [The guide](docs/guide/index.md)\n  - [HTTP]()\n    \
            - [A service](docs/guide/http/service.md)\n  - [Operating]()\n    - [Deploy](docs/guide/deploy.md)\n\
            - [Load](docs/load.md)\n- [A](ARCHITECTURE.md)\n";
        assert!(summary.contains(wanted), "{summary}");
    }

    #[test]
    fn a_document_without_a_link_is_an_error() {
        let documents = documents(&[("docs/README.md", "# Documents\n"), ("docs/lost.md", "# Lost\n")]);
        assert!(of(&documents).is_err_and(|failure| failure.0.contains("docs/lost.md")));
    }
}
