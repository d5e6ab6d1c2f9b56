//! The program `tidegate`.
//!
//! `serve` starts a small HTTP/1.1 server, to look at and to measure; `serve.rs` is its life, `site.rs` what it
//! answers, `counts.rs` what it says of itself. `load` is the other side, in `load/`; `experiment` runs
//! both, with several queues, in `experiment/`. Each is an application like any other: it
//! uses the facade, and nothing beneath it.

#![forbid(unsafe_code)]

mod counts;
mod experiment;
mod load;
mod serve;
mod site;
mod sum;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// An asynchronous, event-driven network application framework, as a program.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve /, /plaintext, /json, /bytes/N, /stream/N, /echo and /sum over HTTP/1.1; SIGUSR1 makes it print its counts
    Serve(serve::Options),
    /// Put a load on an HTTP/1.1 server, and say how it bears it; exit code 1 if anything was not answered as it should be
    Load(load::Options),
    /// Compare the outbound queue with two others, in the same server: with Netty's from before its change #2693, and with that
    /// change as it was published; they are built from the source tree
    Experiment(experiment::Options),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => {
            eprintln!("tidegate: {}; see 'tidegate --help'", first_sentence(&error.to_string()));
            return ExitCode::from(USAGE);
        }
        // Help and version were asked for. If nobody reads them, nobody misses them.
        Err(error) => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
    };
    let done = match arguments.command {
        Command::Serve(options) => serve::run(&options).map(|()| true).map_err(Into::into),
        Command::Load(options) => load::run(&options),
        Command::Experiment(options) => experiment::run(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tidegate: {error}");
            ExitCode::from(USAGE)
        }
    }
}

/// What is wrong, without the advice that follows it on further lines.
fn first_sentence(text: &str) -> String {
    let mut lines = text.lines();
    let line = lines.next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    if !line.ends_with(':') {
        return line.to_owned();
    }
    // What is missing stands below it, one in a line.
    let missing: Vec<_> = lines.map_while(|line| line.strip_prefix("  ")).collect();
    format!("{line} {}", missing.join(", "))
}

/// The exit code for what the user can mend: a flag, an address.
const USAGE: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_flag_is_told_in_one_line() {
        for (arguments, expected) in [
            (&["tidegate", "serve", "--bogus"][..], "--bogus"),
            (&["tidegate", "serve", "--loops", "many"], "many"),
            (&["tidegate", "serve", "--loops", "0"], "0"),
            (&["tidegate", "serve", "--backend", "carrier-pigeon"], "carrier-pigeon"),
            (&["tidegate", "experiment", "--depth", "0"], "0"),
            (&["tidegate", "experiment", "--backend", "carrier-pigeon"], "carrier-pigeon"),
            (&["tidegate", "sail"], "sail"),
            (&["tidegate"], "subcommand"),
            (&["tidegate", "load"], "URL"),
        ] {
            let error = Arguments::try_parse_from(arguments).expect_err("it is wrong").to_string();
            let line = first_sentence(&error);
            assert!(line.contains(expected) && !line.contains('\n') && !line.starts_with("error"), "{line}");
        }
    }
}
