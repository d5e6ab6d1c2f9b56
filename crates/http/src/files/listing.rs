//! The listing of a folder, as a page of HTML.
//!
//! A folder may have millions of entries, or lie on a slow disk: it is read on another thread, up to a bound, and the
//! loop goes on meanwhile.

use std::fmt::Write;
use std::os::fd::OwnedFd;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use rustix::fs::{Dir, FileType};
use tidegate_engine::blocking;
use tidegate_http_message::Body;

use super::path::is_served;
use crate::response::Response;

/// The entries that a listing shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) dot_files: bool,
    pub(super) links: bool,
}

/// A page with the entries of a folder. `path` is that of the request, decoded.
pub(super) fn listing(folder: OwnedFd, path: String, is_root: bool, shown: Shown) -> Response {
    let body = Body::produce(async move |writer| {
        // The head is sent already: an error ends the response before its end.
        let page = blocking(move || page(folder, &path, is_root, shown)).await??;
        writer.write(page).await?;
        Ok(())
    });
    Response::html(body)
}

fn page(folder: OwnedFd, path: &str, is_root: bool, shown: Shown) -> std::io::Result<String> {
    let (mut entries, has_more) = entries(folder, shown)?;
    entries.sort_unstable_by(|one, other| (!one.is_folder, &one.name).cmp(&(!other.is_folder, &other.name)));
    let title = HtmlText(path);
    let mut page = format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body><h1>{title}</h1>\n<ul>\n"
    );
    if !is_root {
        page.push_str("<li><a href=\"../\">../</a></li>\n");
    }
    for Entry { name, is_folder } in &entries {
        let slash = if *is_folder { "/" } else { "" };
        // With `./` a colon in the name does not end a scheme.
        let link = utf8_percent_encode(name, IN_PATH);
        writeln!(page, "<li><a href=\"./{link}{slash}\">{}{slash}</a></li>", HtmlText(name))
            .expect("a String takes all");
    }
    page.push_str("</ul>\n");
    if has_more {
        writeln!(page, "<p>There are more than {ENTRIES_MAX} entries; these are some of them.</p>")
            .expect("a String takes all");
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

struct Entry {
    name: String,
    is_folder: bool,
}

/// The entries that would be served, and whether there are more.
fn entries(folder: OwnedFd, shown: Shown) -> std::io::Result<(Vec<Entry>, bool)> {
    let mut entries = Vec::new();
    // Omitted entries count as well: the work is bounded.
    let mut seen = 0;
    for entry in Dir::new(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") {
            continue;
        }
        if seen == ENTRIES_MAX {
            return Ok((entries, true));
        }
        seen += 1;
        let is_shown = match entry.file_type() {
            FileType::RegularFile | FileType::Directory | FileType::Unknown => true,
            FileType::Symlink => shown.links,
            _ => false,
        };
        if is_shown && is_served(name, shown.dot_files) {
            entries.push(Entry { name: name.to_owned(), is_folder: entry.file_type() == FileType::Directory });
        }
    }
    Ok((entries, false))
}

/// A text within HTML, or within a quoted attribute.
struct HtmlText<'a>(&'a str);

impl std::fmt::Display for HtmlText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// The bytes that a path segment escapes.
const IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// Entries of a folder that are read; of one with more, the listing has a part.
const ENTRIES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_text_and_in_links() {
        let name = "<script>\"'&.html";
        assert_eq!(HtmlText(name).to_string(), "&lt;script&gt;&quot;&#39;&amp;.html");
        assert_eq!(utf8_percent_encode("a b%?#é<\"", IN_PATH).to_string(), "a%20b%25%3F%23%C3%A9%3C%22");
    }
}
