//! `cargo xtask site`: the documents of the repository as pages with search, in `target/site/index.html`.
//!
//! mdBook makes the pages from copies of the Markdown files in `target/site-source`. The copies differ in their links
//! (`links.rs`): a document of the site is a page, and a source file is a link to the repository or plain text. The
//! table of contents follows from the links of `docs/README.md` (`summary.rs`). At the end each link of each page has a
//! target (`check.rs`).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `summary.rs` | the table of contents |
//! | `links.rs` | links and paths of documents |
//! | `check.rs` | the links of the finished pages |

mod check;
mod links;
mod summary;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::Args;

use crate::command::{Failure, Step};
use crate::measure;
use crate::release::metadata;
use crate::tools;

#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Build the documentation of all crates as well, and put it below `api/`
    #[arg(long)]
    api: bool,
    /// The address of the source tree's files, such as `https://host/owner/tidegate/blob/main`; without it, and without
    /// `repository` in Cargo.toml, names of source files are no links
    #[arg(long, value_name = "URL")]
    repository: Option<String>,
}

/// Documents of the site that lie in the root of the repository. `docs` has the others.
const OF_ROOT: [&str; 6] =
    ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "GOVERNANCE.md", "SECURITY.md"];

const SOURCE: &str = "target/site-source";

const SITE: &str = "target/site";

pub(crate) fn build(options: &Options) -> Result<(), Failure> {
    tools::MDBOOK.install()?;
    let documents = documents(Path::new("."))?;
    let repository = match &options.repository {
        Some(address) => Some(address.trim_end_matches('/').to_owned()),
        None => repository()?,
    };
    write_book(&documents, repository.as_deref(), options.api)?;
    drop(fs::remove_dir_all(SITE));
    Step::line("mdbook build target/site-source --dest-dir target/site").run()?;
    if options.api {
        measure::documentation_of_workspace()?;
        Step::line("cp -r target/doc target/site/api").run()?;
    }
    let pages = check::all_links(Path::new(SITE))?;
    println!("{SITE}/index.html: {pages} pages, and each of their links has a target");
    Ok(())
}

/// `repository` of the workspace, as the address of its files.
fn repository() -> Result<Option<String>, Failure> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let address = packages.filter_map(|package| package["repository"].as_str()).next();
    Ok(address.map(|address| format!("{}/blob/main", address.trim_end_matches('/'))))
}

/// The documents of the site below this root: text by path.
fn documents(root: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let mut found = BTreeMap::new();
    for path in OF_ROOT {
        found.insert(path.to_owned(), read(&root.join(path))?);
    }
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root.join(&folder)).map_err(|error| Failure(format!("{folder}: {error}")))?;
        for entry in entries.filter_map(Result::ok) {
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.ends_with(".md") {
                found.insert(path, read(&entry.path())?);
            }
        }
    }
    Ok(found)
}

fn write_book(documents: &BTreeMap<String, String>, repository: Option<&str>, api: bool) -> Result<(), Failure> {
    drop(fs::remove_dir_all(SOURCE));
    for (path, text) in documents {
        let has_file = |path: &str| Path::new(path).exists();
        let text = links::rewrite(path, text, documents, repository, &has_file);
        write(&format!("{SOURCE}/src/{}", links::page(path)), &text)?;
    }
    for (path, at) in ASSETS {
        copy(path, at)?;
    }
    for path in pictures()? {
        copy(&path, &path)?;
    }
    write(&format!("{SOURCE}/src/charts.md"), CHARTS)?;
    let mut summary = summary::of(documents)?;
    summary.push_str("- [Charts](charts.md)\n");
    if api {
        write(&format!("{SOURCE}/src/api.md"), API)?;
        summary.push_str("- [The interfaces](api.md)\n");
    }
    write(&format!("{SOURCE}/src/SUMMARY.md"), &summary)?;
    let link = repository.and_then(|address| address.split("/blob/").next());
    let link = link.map_or_else(String::new, |address| format!("git-repository-url = \"{address}\"\n"));
    write(&format!("{SOURCE}/theme/site.css"), STYLE)?;
    write(&format!("{SOURCE}/book.toml"), &format!("{BOOK}{link}"))
}

/// The pictures of documents.
fn pictures() -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(PICTURES).map_err(|error| Failure(format!("{PICTURES}: {error}")))?;
    Ok(entries
        .filter_map(Result::ok)
        .map(|entry| format!("{PICTURES}/{}", entry.file_name().to_string_lossy()))
        .collect())
}

/// Copies a file of the repository to its place in the site.
fn copy(path: &str, at: &str) -> Result<(), Failure> {
    let bytes = fs::read(path).map_err(|error| Failure(format!("{path}: {error}")))?;
    write_bytes(&format!("{SOURCE}/src/{at}"), &bytes)
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())))
}

fn write(path: &str, text: &str) -> Result<(), Failure> {
    write_bytes(path, text.as_bytes())
}

fn write_bytes(path: &str, bytes: &[u8]) -> Result<(), Failure> {
    let folder = Path::new(path).parent().unwrap_or(Path::new("."));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, bytes));
    written.map_err(|error| Failure(format!("{path}: {error}")))
}

/// Files that pages show, and where the site has them. The page of charts stands beside no document whose page has its
/// name.
const ASSETS: [(&str, &str); 3] = [
    ("docs/benchmarks/summary.svg", "docs/benchmarks/summary.svg"),
    ("docs/benchmarks/index.html", "docs/benchmarks/charts.html"),
    ("docs/benchmarks/results.json", "docs/benchmarks/results.json"),
];

/// `interop/pictures.py` writes it.
const PICTURES: &str = "docs/pictures";

const CHARTS: &str = "# Charts\n\n\
    [The charts on a page of their own](docs/benchmarks/charts.html) show the figures of \
    [the comparison](docs/benchmarks/results.md); [results.json](docs/benchmarks/results.json) has the same figures \
    for programs.\n\n![CPU per request and memory per connection](docs/benchmarks/summary.svg)\n";

const API: &str = "# The interfaces\n\n\
    [The documentation of the crate `tidegate`](api/tidegate/index.html) has each public item; its features choose the \
    others. [`tidegate-testkit`](api/tidegate_testkit/index.html) has the interfaces for tests.\n";

/// `git-repository-url` may follow, so the table `output.html` is the last one.
const BOOK: &str = "[book]\ntitle = \"Tidegate\"\nlanguage = \"en\"\nsrc = \"src\"\n\n\
    [build]\ncreate-missing = false\nuse-default-preprocessors = false\n\n\
    [output.html.search]\nlimit-results = 30\nuse-boolean-and = true\n\n\
    [output.html.fold]\nenable = true\nlevel = 0\n\n\
    [output.html.playground]\ncopyable = true\nrunnable = false\n\n\
    [output.html.print]\nenable = false\n\n\
    [output.html]\ndefault-theme = \"light\"\npreferred-dark-theme = \"navy\"\nsmart-punctuation = false\n\
    no-section-label = true\nadditional-css = [\"theme/site.css\"]\n";

/// Long paths break, and wide tables scroll by themselves, so that a page is as wide as the window of a telephone.
const STYLE: &str = "main img { max-width: 100%; background: #fff; }\n\
    main p code, main li code, main p a, main li a { overflow-wrap: anywhere; }\n\
    main .table-wrapper { overflow-x: auto; }\n";

#[cfg(test)]
mod tests {
    use super::*;

    /// All documents of this repository are in the table of contents, once.
    #[test]
    fn the_table_of_contents_has_each_document() {
        let documents = documents(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).expect("the documents");
        let summary = summary::of(&documents).expect("each document is linked");
        for path in documents.keys() {
            let link = format!("]({})\n", links::page(path));
            assert_eq!(summary.matches(&link).count(), 1, "{path}: docs/README.md, or the README.md of its folder");
        }
        assert!(summary.starts_with("# Summary\n\n[Tidegate](index.md)\n"));
    }
}
