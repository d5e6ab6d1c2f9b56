//! `tidegate check-config`: whether a server would start with a file, without starting one.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use crate::complain::complain;
use crate::config::Config;
use crate::gateway;
use crate::server::ResolverName;

/// The flags of `check-config`.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// The file, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Accept a file without [[listen]], which `serve --config` and `proxy --config` run at the addresses of their flags, and
    /// `run` refuses
    #[arg(long)]
    listen_by_flags: bool,
}

/// Reads the file as the server would, opens the folders of its routes and reads the certificates that it names. It
/// listens nowhere and asks no upstream. Prints each mistake in a line, and returns whether there is none.
pub(crate) fn run(options: &CheckOptions) -> Result<bool, Box<dyn Error>> {
    ResolverName::Dns.set_as_default();
    let (config, mistakes) = Config::read(&options.file);
    let checked = match config {
        Some(config) if config.listen.is_empty() && !options.listen_by_flags => {
            let text = "there is no [[listen]]: `run` refuses the file, and with `serve --config` or `proxy --config` the flags \
                        say where to listen (--listen-by-flags)";
            Err(vec![format!("{}: {text}", options.file.display())])
        }
        Some(config) => {
            for line in mistakes.warning_lines() {
                complain(format_args!("warning: {line}"));
            }
            gateway::check(config).map_err(|error| vec![error.to_string()])
        }
        None => Err(mistakes.error_lines()),
    };
    match checked {
        Ok(summary) => {
            // A closed standard output is no error.
            let _ = writeln!(io::stdout(), "{}: ok: {summary}", options.file.display());
            Ok(true)
        }
        Err(lines) => {
            lines.iter().for_each(|line| complain(format_args!("{line}")));
            Ok(false)
        }
    }
}
