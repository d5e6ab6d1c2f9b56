//! `Mistakes`: all that is wrong with a configuration, each with its file, line and column.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where a value or a key begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The number of the file; `u32::MAX` for a value that comes from no file.
    pub(super) file: u32,
    pub(super) at: usize,
}

impl Place {
    /// The place of a value that a flag gives.
    pub(crate) const FLAG: Self = Self { file: u32::MAX, at: 0 };
}

impl Default for Place {
    fn default() -> Self {
        Self::FLAG
    }
}

/// A value with its place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// The same value at another place is equal.
impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> Located<T> {
    pub(crate) fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }

    /// A value that a flag gives.
    pub(crate) fn of_flag(value: T) -> Self {
        Self { value, place: Place::FLAG }
    }
}

/// A file that was read, with the beginnings of its lines.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    text: String,
    line_starts: Vec<usize>,
}

impl SourceFile {
    pub(super) fn new(path: PathBuf, text: String) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(ends).collect();
        Self { path, text, line_starts }
    }

    /// The line and the column of an offset, from one.
    fn line_and_column(&self, at: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= at);
        let start = self.line_starts[line - 1];
        let before = self.text.get(start..at).unwrap_or_default();
        (line, before.chars().count() + 1)
    }
}

/// Mistakes and warnings, with the files that they are in.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    pub(super) files: Vec<SourceFile>,
    errors: Vec<(Option<Place>, String)>,
    warnings: Vec<(Option<Place>, String)>,
}

impl Mistakes {
    /// Adds a mistake, unless there are too many already.
    pub(crate) fn add(&mut self, place: impl Into<Option<Place>>, text: impl Into<String>) {
        if self.errors.len() < MISTAKES_MAX {
            self.errors.push((place.into(), text.into()));
        }
    }

    /// Adds a text that refuses nothing.
    pub(crate) fn warn(&mut self, place: impl Into<Option<Place>>, text: impl Into<String>) {
        if self.warnings.len() < MISTAKES_MAX {
            self.warnings.push((place.into(), text.into()));
        }
    }

    /// Whether the configuration is refused.
    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Whether no further mistake is kept.
    pub(super) fn is_full(&self) -> bool {
        self.errors.len() >= MISTAKES_MAX
    }

    /// The mistakes, one line each, in the order of the files.
    pub(crate) fn error_lines(&self) -> Vec<String> {
        let mut lines = self.lines(&self.errors);
        if self.is_full() {
            lines.push(format!("there are {MISTAKES_MAX} mistakes or more; the rest is not shown"));
        }
        lines
    }

    /// The warnings, one line each.
    pub(crate) fn warning_lines(&self) -> Vec<String> {
        self.lines(&self.warnings)
    }

    fn lines(&self, list: &[(Option<Place>, String)]) -> Vec<String> {
        let mut list: Vec<_> = list.iter().collect();
        list.sort_by_key(|(place, _)| *place);
        list.iter().map(|(place, text)| format!("{}{text}", self.prefix(*place))).collect()
    }

    /// `FILE:LINE:COLUMN: `.
    fn prefix(&self, place: Option<Place>) -> String {
        let file = |place: Place| self.files.get(place.file as usize);
        match place.and_then(|place| Some((file(place)?, place.at))) {
            Some((file, at)) => {
                let (line, column) = file.line_and_column(at);
                format!("{}:{line}:{column}: ", file.path.display())
            }
            None => match (place, self.files.first()) {
                (None, Some(main)) => format!("{}: ", main.path.display()),
                _ => String::new(),
            },
        }
    }

    /// The folder in which relative paths of a file begin.
    pub(super) fn folder(&self, place: Place) -> &Path {
        let file = self.files.get(place.file as usize);
        file.and_then(|file| file.path.parent()).unwrap_or(Path::new(""))
    }
}

/// All mistakes as one error, a line each.
impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error_lines().join("\n"))
    }
}

impl Error for Mistakes {}

/// How many mistakes one run reports: the file may be megabytes of them.
const MISTAKES_MAX: usize = 200;
