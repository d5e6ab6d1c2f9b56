//! Links of documents: where they lead, and how they read in the site.

use std::collections::BTreeMap;

/// The page of a document: the `README.md` of a folder is its `index.md`, which mdBook makes the folder's `index.html`.
pub(super) fn page(document: &str) -> String {
    match document.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.md"),
        None => document.to_owned(),
    }
}

/// The path of a link's target from the root of the repository. A link that leaves the repository has none.
pub(super) fn resolved(document: &str, link: &str) -> Option<String> {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut path: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(path.pop()?),
            part => path.push(part),
        }
    }
    Some(path.join("/"))
}

/// The way from a document to a path of the repository.
fn relative(document: &str, target: &str) -> String {
    let ups = document.matches('/').count();
    let from: Vec<_> = document.split('/').take(ups).collect();
    let to: Vec<_> = target.split('/').collect();
    let common = from.iter().zip(&to[..to.len() - 1]).take_while(|(one, other)| one == other).count();
    let ups = std::iter::repeat_n("..", from.len() - common);
    ups.chain(to[common..].iter().copied()).collect::<Vec<_>>().join("/")
}

/// The document as a page: links to documents lead to their pages, and links to other files of the repository lead into
/// `repository`, or become their text without one.
pub(super) fn rewrite(
    document: &str,
    text: &str,
    documents: &BTreeMap<String, String>,
    repository: Option<&str>,
    exists: &dyn Fn(&str) -> bool,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_code = false;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence {
            out.push_str(&without_doctest_words(line));
            continue;
        }
        let mut rest = line;
        while let Some(link) = Link::first(rest) {
            out.push_str(&rest[..link.begins]);
            out.push_str(&link.rewritten(document, documents, repository, exists));
            rest = &rest[link.ends..];
        }
        out.push_str(rest);
    }
    out
}

/// A fence such as `rust,no_run`: highlighting needs its first word alone.
fn without_doctest_words(line: &str) -> String {
    match line.split_once("```rust,") {
        Some((before, _)) => format!("{before}```rust\n"),
        None => line.to_owned(),
    }
}

/// `[text](target)` within a line, or `![text](target)`.
#[derive(Debug, PartialEq, Eq)]
struct Link<'a> {
    begins: usize,
    ends: usize,
    is_image: bool,
    text: &'a str,
    target: &'a str,
}

impl<'a> Link<'a> {
    fn first(line: &'a str) -> Option<Self> {
        let mut from = 0;
        while let Some(at) = line[from..].find("](").map(|at| from + at) {
            let (before, after) = (&line[..at], &line[at + 2..]);
            if let (Some(open), Some(close)) = (opening(before), after.find(')')) {
                let is_image = before[..open].ends_with('!');
                let begins = open - usize::from(is_image);
                let (text, target) = (&before[open + 1..], &after[..close]);
                // Brackets and parentheses of code, such as `parts[i](x)`, are no link.
                if before[..open].matches('`').count() % 2 == 0 {
                    return Some(Self { begins, ends: at + 2 + close + 1, is_image, text, target });
                }
            }
            from = at + 2;
        }
        None
    }

    fn rewritten(
        &self,
        document: &str,
        documents: &BTreeMap<String, String>,
        repository: Option<&str>,
        exists: &dyn Fn(&str) -> bool,
    ) -> String {
        let Self { text, target, .. } = *self;
        let mark = if self.is_image { "!" } else { "" };
        let unchanged = || format!("{mark}[{text}]({target})");
        if target.contains("://") || target.starts_with('#') || target.starts_with("mailto:") {
            return unchanged();
        }
        let (file, anchor) =
            target.split_once('#').map_or((target, String::new()), |(file, at)| (file, format!("#{at}")));
        let Some(path) = resolved(document, file) else { return unchanged() };
        let folder = format!("{path}/README.md");
        let found = [path.as_str(), folder.as_str()].into_iter().find(|path| documents.contains_key(*path));
        if let Some(found) = found {
            return format!("{mark}[{text}]({}{anchor})", relative(document, &page(found)));
        }
        match repository {
            _ if self.is_image => unchanged(),
            Some(address) if exists(&path) => format!("[{text}]({address}/{path}{anchor})"),
            _ => text.to_owned(),
        }
    }
}

/// The `[` that belongs to a `]` behind this text.
fn opening(before: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, letter) in before.char_indices().rev() {
        match letter {
            ']' => depth += 1,
            '[' if depth == 0 => return Some(at),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The documents to which a document links, in order, with the heading of level 2 above each link.
pub(super) fn targets<'a>(document: &str, text: &'a str) -> Vec<(Option<&'a str>, String)> {
    let (mut heading, mut found, mut is_code) = (None, Vec::new(), false);
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if is_code {
            continue;
        }
        if let Some(text) = line.strip_prefix("## ") {
            heading = Some(text);
        }
        let mut rest = line;
        while let Some(link) = Link::first(rest) {
            let file = link.target.split('#').next().unwrap_or_default();
            found.extend(resolved(document, file).map(|path| (heading, path)));
            rest = &rest[link.ends..];
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(document: &str, text: &str, repository: Option<&str>) -> String {
        let documents = ["README.md", "docs/README.md", "docs/guide/README.md", "docs/guide/tls.md"];
        let documents = documents.map(|path| (path.to_owned(), String::new())).into();
        rewrite(document, text, &documents, repository, &|path| path.starts_with("crates"))
    }

    #[test]
    fn a_link_to_a_document_leads_to_its_page() {
        assert_eq!(rewritten("docs/guide/tls.md", "[a](../../README.md#b)", None), "[a](../../index.md#b)");
        assert_eq!(
            rewritten("README.md", "[a](docs/guide) [b](docs/guide/tls.md)", None),
            "[a](docs/guide/index.md) [b](docs/guide/tls.md)"
        );
        assert_eq!(rewritten("docs/guide/README.md", "[a](tls.md#c)", None), "[a](tls.md#c)");
    }

    #[test]
    fn a_link_to_a_source_file_leads_into_the_repository_or_is_text() {
        let text = "see [`lib.rs`](../crates/tls/src/lib.rs), [e](https://e), [f](#f)";
        assert_eq!(rewritten("docs/README.md", text, None), "see `lib.rs`, [e](https://e), [f](#f)");
        let there = rewritten("docs/README.md", text, Some("https://host/blob/main"));
        assert!(there.contains("[`lib.rs`](https://host/blob/main/crates/tls/src/lib.rs)"), "{there}");
    }

    #[test]
    fn code_and_images_stay_as_they_are() {
        let text = "![a](summary.svg) `a[0](b)`\n```rust,no_run\nparts[i](tls.md)\n```\n";
        assert_eq!(rewritten("docs/guide/tls.md", text, None), text.replace(",no_run", ""));
    }
}
