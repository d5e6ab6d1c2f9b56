//! `tidegate check-config`: whether a server would start with a file, without starting one.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{proxy, sites};

/// The flags of `check-config`.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// The file, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The command that reads the file [default: proxy if it has an [[upstream]] or a [[route]], otherwise serve]
    #[arg(long, value_name = "COMMAND", value_enum)]
    r#for: Option<Purpose>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// For `serve --config`.
    Serve,
    /// For `proxy --config`.
    Proxy,
}

/// Reads the file as the server would, opens the folders of its sites and reads the certificates that it names. It
/// listens nowhere and asks no upstream.
pub(crate) fn run(options: &CheckOptions) -> Result<(), Box<dyn Error>> {
    let file = &options.file;
    let (purpose, what) = match options.r#for.map_or_else(|| guess(file), Ok)? {
        Purpose::Serve => ("serve", sites::check(file)?),
        Purpose::Proxy => ("proxy", proxy::check(file)?),
    };
    // A closed standard output is no error.
    let _ = writeln!(io::stdout(), "{}: ok for tidegate {purpose} --config: {what}", file.display());
    Ok(())
}

fn guess(file: &PathBuf) -> Result<Purpose, Box<dyn Error>> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let is_of_proxy = |line: &str| line.starts_with("[[upstream") || line.starts_with("[[route");
    Ok(if text.lines().any(|line| is_of_proxy(line.trim_start())) { Purpose::Proxy } else { Purpose::Serve })
}
