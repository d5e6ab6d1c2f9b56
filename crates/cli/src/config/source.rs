//! The files of a configuration: the one that the command names, and those that it includes.
//!
//! Each has a bounded size, and so have all together. A file that includes itself, directly or not, is a mistake.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::globs;
use super::mistakes::{Mistakes, Place, SourceFile};
use super::value::{Data, Value};

/// Reads a file and all that it includes. The tables of the files come in the order in which they are included, the
/// including file first.
pub(super) fn read_all(path: &Path, mistakes: &mut Mistakes) -> Vec<Value> {
    let mut reading = Reading { bytes: 0, tables: Vec::new(), open: Vec::new() };
    reading.file(path, None, mistakes);
    reading.tables
}

/// The files so far.
struct Reading {
    bytes: usize,
    tables: Vec<Value>,
    /// The files that include the current one, and it itself.
    open: Vec<PathBuf>,
}

impl Reading {
    /// Reads a file that is included at `place`.
    fn file(&mut self, path: &Path, place: Option<Place>, mistakes: &mut Mistakes) {
        let shown = path.display();
        let text = match self.text(path) {
            Ok(text) => text,
            Err(error) => {
                // The main file is no place to point at.
                let text = format!("{shown}: {error}");
                return mistakes.add(place.or(Some(Place::FLAG)), text);
            }
        };
        let identity = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if self.open.contains(&identity) {
            return mistakes.add(place, format!("`{shown}` includes itself"));
        }
        if self.open.len() >= DEPTH_MAX || mistakes.files.len() >= FILES_MAX {
            let text = format!("`{shown}` is too much: {DEPTH_MAX} levels of includes, {FILES_MAX} files at most");
            return mistakes.add(place, text);
        }
        let file = mistakes.files.len() as u32;
        let (table, errors) = DeTable::parse_recoverable(&text);
        let table = toml::Spanned::new(table.span(), DeValue::Table(table.into_inner()));
        mistakes.files.push(SourceFile::new(path.to_owned(), text.clone()));
        for error in errors {
            let at = error.span().map_or(0, |span| span.start);
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            mistakes.add(Place { file, at }, message);
        }
        let table = Value::new(&table, file, mistakes);
        let includes = includes_of(&table);
        self.tables.push(table);
        self.open.push(identity);
        for (pattern, at) in includes {
            let pattern = mistakes.folder(at).join(pattern);
            match globs::expand(&pattern, FILES_MAX) {
                Ok(files) => files.iter().for_each(|included| self.file(included, Some(at), mistakes)),
                Err(error) => mistakes.add(at, format!("`{}`: {error}", pattern.display())),
            }
        }
        self.open.pop();
    }

    fn text(&mut self, path: &Path) -> io::Result<String> {
        let left = TOTAL_BYTES_MAX - self.bytes;
        let mut bytes = Vec::new();
        File::open(path)?.take(left as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > left {
            return Err(io::Error::other(format!("the configuration is larger than {} MiB", TOTAL_BYTES_MAX >> 20)));
        }
        self.bytes += bytes.len();
        String::from_utf8(bytes).map_err(|error| {
            let line =
                error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            io::Error::other(format!("line {} is not UTF-8", line + 1))
        })
    }
}

/// The patterns of `include`. Values of other kinds are reported when the keys are read.
fn includes_of(table: &Value) -> Vec<(String, Place)> {
    let Data::Table(entries) = &table.data else { return Vec::new() };
    let text = |value: &Value| match &value.data {
        Data::Text { text, .. } => Some((text.clone(), value.place)),
        _ => None,
    };
    let of = |value: &Value| match &value.data {
        Data::List(items) => items.iter().filter_map(text).collect(),
        _ => text(value).into_iter().collect::<Vec<_>>(),
    };
    entries.iter().filter(|(name, _)| name.text == "include").flat_map(|(_, value)| of(value)).collect()
}

/// A file in which a value is a secret, or a page: without a newline at its end.
pub(super) fn read_secret(path: &Path) -> io::Result<String> {
    Ok(read_text(path, SECRET_BYTES_MAX)?.trim_end_matches(['\r', '\n']).to_owned())
}

/// A file of a bounded length.
pub(super) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("the file is longer than {} KiB", bytes_max >> 10)));
    }
    Ok(text)
}

/// All files together. Ten thousand routes take two.
const TOTAL_BYTES_MAX: usize = 8 * 1024 * 1024;
const FILES_MAX: usize = 1000;
/// How deep files include each other.
const DEPTH_MAX: usize = 8;
const SECRET_BYTES_MAX: u64 = 64 * 1024;
