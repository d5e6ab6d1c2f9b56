//! The program `tidegate`.
//!
//! `serve` starts a small HTTP server for demonstrations and measurements: `serve.rs` starts and stops it, the crate
//! `tidegate-site` answers requests, `counts.rs` prints the server's counts, `admission.rs` has the flags that decide
//! which peers may connect, `limits.rs` those for deadlines and rates. `run` runs a configuration: `config/` reads it,
//! `gateway/` runs it. `serve --root` and `proxy` are configurations that come from flags: `sites.rs`, `proxy.rs`. `dns`
//! forwards DNS queries.
//! `server.rs` has the parts that all need of a server, with `log.rs` for its logs, and `admin.rs` for the administrative
//! server, whose figures `top.rs` shows in a terminal. `load` generates load: the crate `tidegate-load`. `new` makes a
//! program of one's own. `experiment` runs `serve` and `load` with several outbound queues, in `experiment/`. Each is an
//! ordinary application: it uses only the facade crate.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `serve.rs` | `tidegate serve` |
//! | `server.rs` | the flags of a server, its signals, the server that replaces it, and its end |
//! | `config/` | the configuration file: its keys, their reading, its mistakes, its JSON schema |
//! | `gateway/` | `tidegate run`: from a configuration to a server, and to another configuration |
//! | `proxy.rs` | `tidegate proxy`: its flags as a configuration |
//! | `qpack.rs` | flags and limits of dynamic QPACK tables |
//! | `dns.rs` | `tidegate dns` |
//! | `dns_listeners.rs` | its listeners over TLS and HTTPS |
//! | `dns_upstream.rs` | the servers that it asks |
//! | `admin.rs` | `--admin` of all of them, while it runs |
//! | `check_config.rs` | `tidegate check-config` |
//! | `complain.rs` | lines on standard error, outside of the log |
//! | `log.rs` | the log on standard error, the access log, panics: written by threads of their own |
//! | `top.rs` | `tidegate top` |
//! | `new.rs` | `tidegate new`: a program from a template in `templates/` |
//! | `manual.rs` | `tidegate completions`, `tidegate man` |
//! | `tls.rs` | its TLS flags |
//! | `acme.rs` | certificates that an authority issues: flags, and the server that answers HTTP-01 |
//! | `dns_program.rs` | `--acme-dns-exec`: the program that sets the records of DNS-01 |
//! | `to_https.rs` | the redirect of a request to https |
//! | `admission.rs` | its flags that decide which peers may connect |
//! | `limits.rs` | its flags for deadlines and rates |
//! | `sites.rs` | `tidegate serve --root`: its flags as a configuration |
//! | `access_log.rs` | `AccessLogFormat`; the flags of the access log's destination |
//! | `telemetry/` | `--otlp`: spans of requests for a collector of OpenTelemetry: chosen, collected, queued, encoded, exported |
//! | `findings.rs` | lines behind the start-up lines: protocols, names of certificates, settings that differ from the defaults |
//! | `counts.rs` | its counters, printed on SIGUSR1 |
//! | `experiment/` | `tidegate experiment`: builds with each queue (`programs.rs`), server (`server.rs`), load (`load.rs`), the cost of the queue alone (`probe.rs`), report (`report.rs`), ending all processes (`child.rs`) |

#![forbid(unsafe_code)]

mod access_log;
mod acme;
mod admin;
mod admission;
mod check_config;
mod complain;
mod config;
mod counts;
mod dns;
mod dns_listeners;
mod dns_program;
mod dns_upstream;
#[cfg(feature = "experiment")]
mod experiment;
mod findings;
mod gateway;
mod limits;
mod log;
mod manual;
mod new;
mod proxy;
mod qpack;
mod serve;
mod server;
mod sites;
mod telemetry;
mod tls;
mod to_https;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::complain::complain;

/// An asynchronous, event-driven network application framework, as a program.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the files of a directory with --root, or sites with --config; otherwise /, /plaintext, /json, /bytes/N,
    /// /stream/N, /address, /echo and /sum, for demonstrations and measurements. SIGUSR1 makes it print its counts
    Serve(Box<serve::ServeOptions>),
    /// Run a configuration: listeners for HTTP and HTTPS, sites, routes and upstreams in one file. SIGHUP reads it again,
    /// SIGUSR1 prints counts
    Run(Box<gateway::RunOptions>),
    /// Pass requests on to other HTTP servers: a reverse proxy, by --upstream or by --config. SIGUSR1 makes it print its
    /// counts, SIGHUP makes it read its files again
    Proxy(Box<proxy::ProxyOptions>),
    /// Forward DNS queries to other servers, with a cache, over UDP and TCP. SIGUSR1 makes it print its counts
    Dns(Box<dns::DnsOptions>),
    /// Generate load on an HTTP, WebSocket or Redis server, and report throughput, latency and errors; exit code 1 if
    /// there were errors or no good response came
    Load(Box<tidegate_load::Options>),
    /// Check a configuration, with the files that it names, and start nothing; exit code 1 if it has mistakes
    CheckConfig(check_config::CheckOptions),
    /// Show the figures of a running server in the terminal: those of its --admin, every second
    Top(top::TopOptions),
    /// Make a program of your own from a template: service, tests, settings, container file and unit
    New(new::NewOptions),
    /// Print the completions of a shell
    Completions(manual::Completions),
    /// Print the manual page of the program or, with --out, write one for each subcommand into a folder
    Man(manual::Man),
    /// Compare the outbound queue with two others in the same server: Netty's queue before its change #2693, and that
    /// change as published; all are built from the source tree
    #[cfg(feature = "experiment")]
    Experiment(experiment::ExperimentOptions),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => {
            let subcommand = std::env::args_os().nth(1).unwrap_or_default();
            complain(format_args!("{}", usage_error(&error.to_string(), &subcommand.to_string_lossy())));
            return ExitCode::from(USAGE);
        }
        // The user requested help or the version. A closed standard output is no error.
        Err(error) => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
    };
    let done = match arguments.command {
        Command::Serve(options) => serve::run(*options).map(|()| true),
        Command::Run(options) => gateway::run_file(*options).map(|()| true),
        Command::Proxy(options) => proxy::run(*options).map(|()| true),
        Command::Dns(options) => dns::run(&options).map(|()| true),
        Command::Load(options) => tidegate_load::run(&options),
        Command::CheckConfig(options) => check_config::run(&options),
        Command::Top(options) => top::run(&options).map(|()| true),
        Command::New(options) => new::run(&options).map(|()| true),
        Command::Completions(options) => manual::completions(&options, &mut Arguments::command()).map(|()| true),
        Command::Man(options) => manual::man(&options, Arguments::command()).map(|()| true),
        #[cfg(feature = "experiment")]
        Command::Experiment(options) => experiment::run(&options),
    };
    let code = match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // A configuration has a line for each mistake.
            error.to_string().lines().for_each(|line| complain(format_args!("{line}")));
            ExitCode::from(USAGE)
        }
    };
    telemetry::flush();
    log::flush();
    code
}

/// The error in one line: with the values that are possible, without usage, and with the command that prints the help.
fn usage_error(text: &str, subcommand: &str) -> String {
    let mut line = first_sentence(text);
    let values = text.lines().map(str::trim).find_map(|line| line.strip_prefix("[possible values: "));
    if let Some(values) = values.and_then(|values| values.strip_suffix(']')) {
        line.push_str(&format!(": it is one of {values}"));
    }
    match Arguments::command().find_subcommand(subcommand) {
        Some(known) => format!("{line}; see 'tidegate {} --help'", known.get_name()),
        None => format!("{line}; see 'tidegate --help'"),
    }
}

/// The error itself, without the advice on the lines after it.
fn first_sentence(text: &str) -> String {
    let mut lines = text.lines();
    let line = lines.next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    if !line.ends_with(':') {
        return line.to_owned();
    }
    // Clap lists missing arguments on the following lines, one per line.
    let missing: Vec<_> = lines.map_while(|line| line.strip_prefix("  ")).collect();
    format!("{line} {}", missing.join(", "))
}

/// The exit code for errors that the user can correct: a flag, an address.
const USAGE: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_error_is_reported_in_one_line() {
        for (arguments, expected) in [
            (&["tidegate", "serve", "--bogus"][..], "--bogus"),
            (&["tidegate", "serve", "--loops", "many"], "many"),
            (&["tidegate", "serve", "--loops", "0"], "0"),
            (&["tidegate", "serve", "--backend", "carrier-pigeon"], "carrier-pigeon"),
            #[cfg(feature = "experiment")]
            (&["tidegate", "experiment", "--depth", "0"], "0"),
            #[cfg(feature = "experiment")]
            (&["tidegate", "experiment", "--backend", "carrier-pigeon"], "carrier-pigeon"),
            (&["tidegate", "sail"], "sail"),
            (&["tidegate"], "subcommand"),
            (&["tidegate", "load"], "URL"),
            (&["tidegate", "proxy"], "--upstream"),
            (&["tidegate", "dns", "--listen", "127.0.0.1:0"], "--upstream"),
            (&["tidegate", "proxy", "--upstream", "http://a/b"], "path"),
        ] {
            let error = Arguments::try_parse_from(arguments).expect_err("it is wrong").to_string();
            let line = usage_error(&error, "");
            assert!(line.contains(expected) && !line.contains('\n') && !line.starts_with("error"), "{line}");
        }
    }

    #[test]
    fn a_usage_error_names_the_values_and_the_help_of_its_subcommand() {
        let error =
            Arguments::try_parse_from(["tidegate", "new", "demo", "--template", "none"]).expect_err("it is wrong");
        let line = usage_error(&error.to_string(), "new");
        assert!(line.contains(": it is one of http, push, protocol, gateway; see 'tidegate new --help'"), "{line}");
        let error = Arguments::try_parse_from(["tidegate", "sail"]).expect_err("it is wrong");
        assert!(usage_error(&error.to_string(), "sail").ends_with("; see 'tidegate --help'"));
    }
}
