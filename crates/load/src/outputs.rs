//! `Outputs`: writes the figures to standard output and to files.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::report;
use super::results::LoadResults;

/// The destinations of the figures.
#[derive(Debug)]
pub(crate) struct Outputs {
    printed: Form,
    files: Vec<(Form, PathBuf, File)>,
}

/// The format of the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// With the latency distribution, or without.
    Table {
        latency: bool,
    },
    Json,
    Page,
}

impl Outputs {
    /// The table goes to standard output, unless another format does. Files are created now, so that an error is
    /// reported before the load and not after it.
    ///
    /// # Errors
    /// If a file cannot be created, or two formats are to be printed.
    pub(crate) fn open(latency: bool, json: Option<&Path>, html: Option<&Path>) -> Result<Self, String> {
        let mut printed = Form::Table { latency };
        let mut files = Vec::new();
        for (form, path) in [(Form::Json, json), (Form::Page, html)] {
            let Some(path) = path else { continue };
            if path != Path::new("-") {
                let file = File::create(path).map_err(|error| unwritten(path, &error))?;
                files.push((form, path.to_owned(), file));
            } else if printed == Form::Json {
                return Err("--json and --html cannot both be printed: write one of them into a file".into());
            } else {
                printed = form;
            }
        }
        Ok(Self { printed, files })
    }

    /// Whether the table is printed. It includes all messages; with another format the caller prints them separately.
    pub(crate) fn has_table(&self) -> bool {
        matches!(self.printed, Form::Table { .. })
    }

    /// Writes the figures to all destinations.
    ///
    /// # Errors
    /// The output that could not be written, and the reason. A broken pipe on standard output is no error.
    pub(crate) fn write(self, figures: &LoadResults) -> Result<(), String> {
        let printed = match print(&self.printed.text(figures)) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(format!("cannot write the figures to standard output: {error}"))
            }
            _ => Ok(()),
        };
        let saved = self.files.into_iter().map(|(form, path, mut file)| {
            file.write_all(form.text(figures).as_bytes()).map_err(|error| unwritten(&path, &error))
        });
        // Every file is written, even if another one failed.
        let saved: Vec<_> = saved.collect();
        saved.into_iter().fold(printed, Result::and)
    }
}

impl Form {
    /// The figures in this format, with a newline at the end.
    fn text(self, figures: &LoadResults) -> String {
        let mut text = match self {
            Self::Table { latency } => report::table(figures, latency),
            Self::Json => format!("{:#}", report::json(figures)),
            Self::Page => report::page(figures),
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("cannot write '{}': {error}", path.display())
}
