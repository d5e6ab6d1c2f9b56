//! `tidegate serve`: from the flags to the last connection.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tidegate::http1::{self, Config};
use tidegate::{Address, Backend, Limits, LoadBalancing, Server, ServerHandle, StartError};

use crate::counts;
use crate::site::Site;

/// The flags of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where to listen: IP:PORT, [IPV6]:PORT, localhost:PORT, unix:PATH or unix:@NAME (abstract); port 0 takes any that is free. Not used if
    /// the environment passes listeners (LISTEN_FDS, LISTEN_PID), or if they are taken over
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: Address,
    /// Event loops, each on a thread of its own [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    loops: Option<u16>,
    /// What loops wait on: epoll, uring, or auto, which is what the environment names in TIDEGATE_BACKEND, if anything,
    /// and otherwise uring where it is there
    #[arg(long, value_name = "NAME", default_value = "auto")]
    backend: Backend,
    /// Serve a new connection on the loop that has the fewest, wherever it was accepted: for few connections that last
    /// long, and for listeners that loops share, such as Unix sockets
    #[arg(long)]
    least_loaded: bool,
    /// Connections at a time; further ones wait [default: three quarters of the descriptor limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: Option<u32>,
    /// Memory that connections may hold, in bytes [default: half of the machine's]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(MEMORY_MAX_FLOOR..))]
    memory_max: Option<u64>,
    /// Seconds that a request's head may take, and that its body may be late [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    request_timeout: Option<u32>,
    /// Seconds that a connection may wait for its next request [default: 75]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    idle_timeout: Option<u32>,
    /// Seconds that a peer may take nothing of what waits to be sent to it [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    write_timeout: Option<u32>,
    /// The least rate of a request's body, in bytes per second: whoever sends less is late; 0 for none [default: 240]
    #[arg(long, value_name = "BYTES")]
    body_rate_min: Option<u32>,
    /// The least rate at which a peer takes what waits to be sent to it, in bytes per second: who takes less has taken
    /// nothing; 0 for none [default: 240]
    #[arg(long, value_name = "BYTES")]
    write_rate_min: Option<u32>,
    /// Restart without a gap: take the listeners of the server that was started with the same PATH over, if one runs,
    /// which then drains and ends; and wait there for the next one
    #[arg(long, value_name = "PATH")]
    takeover: Option<PathBuf>,
    /// Print the start-up line and errors of our own, not what peers do wrong
    #[arg(long)]
    quiet: bool,
}

/// What a signal, or a server that takes over, asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    End,
    Counts,
}

/// Serves until SIGTERM, Ctrl-C or a server that takes over, then drains. SIGUSR1 asks for the counts.
pub(crate) fn run(options: &Options) -> Result<(), StartError> {
    log_to_stderr(options.quiet);
    // Before this process opens descriptors of its own.
    let inherited = Server::from_environment()?;
    // Before the server is there, so that no signal is missed once it has said so.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1]).map_err(StartError::System)?;
    let running = start(options, inherited)?;
    announce(&running);

    let (asked, wait) = channel();
    let (superseded, told) = (running.superseded(), asked.clone());
    let successor = move || {
        if superseded.wait() {
            // Nobody waits any more only when the process is about to end.
            let _ = told.send(Asked::End);
        }
    };
    std::thread::Builder::new().name("tidegate-successor".into()).spawn(successor).map_err(StartError::System)?;
    let watcher = move || {
        let mut is_ending = false;
        for signal in signals.forever() {
            let what = if signal == SIGUSR1 { Asked::Counts } else { Asked::End };
            if what == Asked::End && std::mem::replace(&mut is_ending, true) {
                // Whoever asks twice does not want to wait.
                std::process::exit(130);
            }
            // Nobody waits any more only when the process is about to end.
            let _ = asked.send(what);
        }
    };
    std::thread::Builder::new().name("tidegate-signals".into()).spawn(watcher).map_err(StartError::System)?;
    // A sender lives as long as the process, so what ends this is a signal or a successor.
    loop {
        match wait.recv_timeout(LOOK_AGAIN) {
            Ok(Asked::End) => break,
            Ok(Asked::Counts) => counts::print(&running),
            Err(_) if running.is_whole() => {}
            Err(_) => {
                eprintln!("tidegate: an event loop has ended; nothing can be served without it");
                std::process::exit(1);
            }
        }
    }
    running.drain(DRAIN_DEADLINE);
    Ok(())
}

fn start(options: &Options, inherited: Option<Server>) -> Result<ServerHandle, StartError> {
    let mut limits = Limits::default();
    if let Some(connections) = options.max_connections {
        limits.connections_max = connections as usize;
    }
    if let Some(bytes) = options.memory_max {
        limits.memory_max = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    if let Some(seconds) = options.write_timeout {
        limits.write_timeout = Duration::from_secs(seconds.into());
    }
    if let Some(bytes) = options.write_rate_min {
        limits.write_rate_min = bytes;
    }
    let server = inherited.unwrap_or_else(|| Server::at(options.listen.clone()));
    let mut server = server.backend(options.backend).limits(limits);
    if options.least_loaded {
        server = server.load_balancing(LoadBalancing::LeastLoaded);
    }
    if let Some(path) = &options.takeover {
        server = server.takeover(path);
    }
    if let Some(loops) = options.loops {
        server = server.loops(loops.into());
    }
    let mut limits_of_http = http1::Limits { body_bytes_max: BODY_BYTES_MAX, ..http1::Limits::default() };
    if let Some(seconds) = options.request_timeout {
        let timeout = Duration::from_secs(seconds.into());
        (limits_of_http.head_timeout, limits_of_http.body_timeout) = (timeout, timeout);
    }
    if let Some(bytes) = options.body_rate_min {
        limits_of_http.body_rate_min = bytes;
    }
    if let Some(seconds) = options.idle_timeout {
        limits_of_http.idle_timeout = Duration::from_secs(seconds.into());
    }
    let config = Arc::new(Config::new(limits_of_http));
    server.start(move || (http1::Server::new(config.clone()), Site::new()))
}

/// The one line that says where.
fn announce(running: &ServerHandle) {
    let (address, loops) = (running.address(), running.loops());
    let scheme = if address.ip().is_some() { "http://" } else { "" };
    let plural = if loops == 1 { "" } else { "s" };
    let line = format!("tidegate: listening on {scheme}{address} ({}, {loops} loop{plural})\n", running.backend());
    // Serving goes on if nobody reads it.
    let _ = io::stdout().write_all(line.as_bytes());
}

fn log_to_stderr(quiet: bool) {
    use tracing_subscriber::filter::LevelFilter;
    let level = if quiet { LevelFilter::ERROR } else { LevelFilter::INFO };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        // Whatever features others ask of the crate: lines are read by programs too.
        .with_ansi(false)
        .with_writer(io::stderr)
        .log_internal_errors(false)
        .init();
}

/// How often the loops are looked after.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long connections may take to finish what is under way.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

/// A request may bring this much: /echo holds none of it.
const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// With less memory than this a loop could hold no connection's bytes.
const MEMORY_MAX_FLOOR: u64 = 1024 * 1024;
