//! `tidegate load`: a load generator for HTTP/1.1, HTTP/2 and WebSocket, with wrk's flags and table, and features that
//! wrk lacks.
//!
//! Its connections are those of the client: `Client` of the engine makes them, over TLS as well, and the codecs of the
//! client's role decode the responses, as strictly as for any client (`http1::Client`, `http2::Connection`,
//! `websocket`). The pool of `http::Client` has no part: the load itself decides the number of connections, their
//! requests, and the times.
//!
//! | file | holds |
//! |---|---|
//! | `lib.rs` | the flags, the threads, and the sums over them |
//! | `worker.rs` | one thread: its loop and its share of the connections |
//! | `role.rs` | the purpose of a connection |
//! | `connection.rs` | the handler of a connection |
//! | `pipeline.rs` | its codec: sends batches of requests and checks each response |
//! | `messages.rs` | the codec of a connection that is a WebSocket: its handshake, messages, broadcasts |
//! | `frames.rs` | its messages, encoded |
//! | `http2/` | the same two for HTTP/2 |
//! | `request.rs`, `url.rs` | the request, as the flags describe it and encoded; the server and the target |
//! | `schedule.rs` | `--rate`: when each batch is due |
//! | `idle.rs`, `sockets.rs` | idle connections, and whether they are still established |
//! | `start_barrier.rs`, `cpu_time.rs` | all threads begin at one moment; the CPU time of a process |
//! | `counters.rs`, `results.rs` | the counters of a loop, and the results of all threads |
//! | `outputs.rs`, `report/` | the results as a table, JSON, a page with charts, and a progress bar |

#![forbid(unsafe_code)]

mod connection;
mod counters;
mod cpu_time;
mod frames;
mod http2;
mod idle;
mod messages;
mod outputs;
mod pipeline;
mod report;
mod request;
mod results;
mod role;
mod schedule;
mod sockets;
mod start_barrier;
mod url;
mod worker;

use std::error::Error;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use tidegate::Backend;
use tidegate::tls::{ClientConfig, Provider};

use self::counters::SharedStats;
use self::cpu_time::cpu_time;
pub use self::cpu_time::cpu_time_of;
use self::outputs::Outputs;
use self::report::progress::ProgressDisplay;
pub use self::report::units;
use self::request::RequestTemplate;
pub use self::results::CpuTime;
use self::results::{LoadResults, Parameters};
use self::start_barrier::StartBarrier;
use self::url::Url;
use self::worker::{Count, Part, WorkerConfig};

/// The flags of `load`.
#[derive(Debug, Args)]
pub struct Options {
    /// The URL to request: http://HOST[:PORT]/PATH, or https. With ws or wss, messages are sent on WebSockets, and the
    /// server is expected to send them back
    url: Url,
    /// With https or wss: trust every server, whatever its certificate is
    #[arg(long, conflicts_with = "root")]
    insecure: bool,
    /// With https or wss: a PEM file of the certificates to trust [default: the root certificates of the system, or of
    /// SSL_CERT_FILE]
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Connections that send requests, over all threads
    #[arg(short, long, value_name = "N", default_value = "10", value_parser = count)]
    connections: usize,
    /// Threads, each with an event loop [default: 2, and at most one per connection]
    #[arg(short, long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Duration: 30, 30s, 2m, 1h
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// A header field of the request, 'Name: value'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// Method of the request [default: GET, or POST with a body]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Body of the request, or @FILE. With ws the message: a text if it is UTF-8, otherwise binary
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// With ws: the length of the message, which is a text [default: 64]
    #[arg(long, value_name = "N", conflicts_with = "body", value_parser = clap::value_parser!(u32).range(0..=67_108_864))]
    message_bytes: Option<u32>,
    /// With ws: the first connection sends messages, and the server delivers each to all connections, its sender
    /// included, as /chat of `tidegate serve` does in a room. The figures count deliveries, and latency is that of a
    /// delivery
    #[arg(long, conflicts_with_all = ["never_read", "idle", "rate", "body"])]
    broadcast: bool,
    /// Requests that a connection sends at once (pipelining) before it waits for the responses; with ws, messages
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pipeline: u32,
    /// Speak HTTP/2: by ALPN with https, by prior knowledge with http
    #[arg(long, conflicts_with = "pipeline")]
    http2: bool,
    /// With --http2: streams that each connection keeps open, each with a request, or as many as the server permits
    #[arg(short = 'm', long, value_name = "N", default_value = "1", requires = "http2",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    streams: u32,
    /// Constant request rate per second over all connections (open loop), whether or not the server keeps up; latency
    /// starts at the scheduled send time, unanswered requests included [default: closed loop, as fast as it goes]
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// Timeout of connecting, and of the responses to the requests that were sent at once
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    timeout: Duration,
    /// Print the latency distribution
    #[arg(long)]
    latency: bool,
    /// Keep N further connections open that make one request each and are then idle; to a loopback address they connect
    /// from several 127.0.0.x. They are opened before the measured time, 64 per thread concurrently; each of these 64
    /// lanes ends at its first connection that fails
    #[arg(long, value_name = "N", default_value = "0", value_parser = count)]
    idle: usize,
    /// Connections send the pipelined requests once, and never read
    #[arg(long, conflicts_with = "rate")]
    never_read: bool,
    /// Accept responses of any length; otherwise all must be as long as the first
    #[arg(long)]
    any_length: bool,
    /// I/O backend of the load generator: epoll, uring or auto
    #[arg(long, value_name = "NAME", default_value = "auto")]
    backend: Backend,
    /// Write the results to a file as JSON; - prints them instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML page with charts to a file; - prints it instead of the table
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs a load, and returns whether it had no errors.
///
/// # Errors
/// Those that the user can correct.
pub fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let config = config(options)?;
    let threads = threads(options)?;
    allow_descriptors(options.connections + options.idle + threads * DESCRIPTORS_OF_LOOP + DESCRIPTORS_SPARE)?;
    let outputs = Outputs::open(options.latency, options.json.as_deref(), options.html.as_deref())?;
    for signal in [SIGINT, SIGTERM] {
        // The second signal exits at once.
        signal_hook::flag::register_conditional_shutdown(signal, SIGNALLED + signal, config.stop.clone())?;
        signal_hook::flag::register(signal, config.stop.clone())?;
    }
    let (figures, unreachable) = measure(options, &config, threads)?;

    let (no_responses, has_table) = (report::no_responses(&figures), outputs.has_table());
    let is_good = figures.errors.total() + figures.idle.lost + figures.stuck.lost == 0 && no_responses.is_none();
    let written = outputs.write(&figures);
    if let Some(why) = unreachable.or(no_responses.filter(|_| !has_table)) {
        eprintln!("tidegate: {why}");
    }
    written?;
    Ok(is_good)
}

/// The TLS configuration, with the name that the server's certificate must have; `None` for plain HTTP.
fn tls(options: &Options) -> Result<Option<(ClientConfig, String)>, Box<dyn Error>> {
    if !options.url.is_secure() {
        return Ok(None);
    }
    let provider = Provider::aws_lc_rs();
    let builder = match &options.root {
        Some(path) => ClientConfig::builder_with_root_file(&provider, path)?,
        None if options.insecure => ClientConfig::dangerous_builder_without_verification(&provider),
        None => ClientConfig::builder_with_platform_roots(&provider)
            .map_err(|error| format!("{error}: use --root FILE with those to trust, or --insecure"))?,
    };
    let builder = if options.http2 { builder.alpn(["h2"]) } else { builder };
    let config = builder.handshake_timeout(options.timeout).build()?;
    // Errors in the name are reported here, before the threads start.
    config.connect(options.url.host())?;
    Ok(Some((config, options.url.host().to_owned())))
}

fn config(options: &Options) -> Result<WorkerConfig, Box<dyn Error>> {
    let body = match options.body.as_deref().map(|body| body.strip_prefix('@').ok_or(body)) {
        None => Vec::new(),
        Some(Err(text)) => text.into(),
        Some(Ok(path)) => fs::read(path).map_err(|error| format!("cannot read the body from '{path}': {error}"))?,
    };
    let is_websocket = options.url.is_websocket();
    if !is_websocket && (options.broadcast || options.message_bytes.is_some()) {
        return Err("--broadcast and --message-bytes are for WebSockets: give a URL of ws or wss".into());
    }
    if is_websocket && options.http2 {
        return Err("--http2 is for HTTP: a WebSocket of the load is on a connection of its own".into());
    }
    if is_websocket && options.never_read {
        return Err("--never-read is for HTTP: a WebSocket begins with a response that has to be read".into());
    }
    let body = match options.message_bytes.unwrap_or(MESSAGE_BYTES) {
        bytes if is_websocket && options.body.is_none() => vec![b'x'; bytes as usize],
        _ => body,
    };
    let depth = options.pipeline;
    let (url, headers, method) = (options.url.clone(), options.headers.clone(), method(options).to_owned());
    let template = RequestTemplate { url, method, headers, body, depth, is_http2: options.http2 };
    // Each thread encodes its own request; errors in it are reported here, before the threads start.
    template.encode()?;
    Ok(WorkerConfig {
        template,
        addresses: options.url.resolve()?,
        tls: tls(options)?,
        backend: options.backend,
        duration: options.duration,
        timeout: options.timeout,
        never_read: options.never_read,
        broadcast: options.broadcast,
        streams: options.streams,
        connections: options.connections,
        shared: Arc::new(SharedStats::new(options.any_length)),
        stop: Arc::new(AtomicBool::new(false)),
    })
}

fn method(options: &Options) -> &str {
    let has_body = options.body.is_some() && !options.url.is_websocket();
    options.method.as_deref().unwrap_or(if has_body { "POST" } else { "GET" })
}

fn threads(options: &Options) -> Result<usize, String> {
    let (connections, idle) = (options.connections, options.idle);
    if connections + idle == 0 {
        return Err("there are no connections; give some with --connections or --idle".into());
    }
    let most = connections.max(idle);
    let threads = options.threads.map_or(THREADS.min(most), NonZeroUsize::get);
    if threads > most {
        return Err(format!("{threads} threads need a connection each, and there are {most}"));
    }
    Ok(threads)
}

/// Runs all threads to their end, and adds up their counts. Also returns why no connection was made, if none was.
fn measure(
    options: &Options,
    config: &WorkerConfig,
    threads: usize,
) -> Result<(LoadResults, Option<String>), Box<dyn Error>> {
    let mut progress = ProgressDisplay::start(options.duration);
    let start = Arc::new(StartBarrier::default());
    let runners = start.runners(threads);
    let counts = thread::scope(|scope| {
        let workers: Vec<_> = runners
            .into_iter()
            .enumerate()
            .map(|(index, runner)| {
                let part = part(options, index, threads);
                thread::Builder::new()
                    .name(format!("tidegate-load-{index}"))
                    .spawn_scoped(scope, move || worker::run(config, part, runner))
            })
            .collect();
        while workers.iter().flatten().any(|worker| !worker.is_finished()) {
            thread::sleep(LOOP_CHECK_INTERVAL);
            // Before that, the threads open the idle connections.
            if let Some(begun) = start.begun() {
                let (requests, errors) = config.shared.read();
                progress.update(begun.at.elapsed(), requests, errors);
            }
        }
        progress.finish();
        workers
            .into_iter()
            .map(|worker| Ok(worker?.join().map_err(|_| "a thread of the load panicked")??))
            .collect::<Result<Vec<_>, Box<dyn Error>>>()
    })?;
    let now = cpu_time();
    let before = start.begun().map_or(now, |begun| begun.cpu);
    let (user, system) = (now.user.saturating_sub(before.user), now.system.saturating_sub(before.system));
    let cpu = CpuTime { user, system };
    let is_hopeless = config.shared.is_hopeless(options.connections);
    let unreachable = counts.iter().find_map(|count| count.last_failure.clone().filter(|_| is_hopeless));
    Ok((add_up(options, counts, cpu), unreachable))
}

/// The share of one thread.
fn part(options: &Options, index: usize, threads: usize) -> Part {
    let before = |count: usize, index: usize| count * index / threads;
    let share = |count: usize| before(count, index + 1) - before(count, index);
    let connections = share(options.connections);
    Part {
        index,
        connections,
        idle: share(options.idle),
        idle_before: before(options.idle, index),
        rate: options
            .rate
            .map(|rate| rate * connections as f64 / options.connections.max(1) as f64)
            .filter(|&rate| rate > 0.0),
    }
}

fn add_up(options: &Options, counts: Vec<Count>, cpu: CpuTime) -> LoadResults {
    let parameters = Parameters {
        url: options.url.to_string(),
        method: method(options).to_owned(),
        backend: counts.first().map_or("", |count| count.backend),
        threads: counts.len(),
        connections: options.connections,
        idle: options.idle,
        pipeline: options.pipeline as usize,
        streams: options.http2.then_some(options.streams),
        rate: options.rate,
        duration: options.duration,
        never_read: options.never_read,
        is_websocket: options.url.is_websocket(),
        broadcast: options.broadcast,
    };
    let mut figures = LoadResults::nothing(parameters, cpu);
    for count in counts {
        figures.elapsed = figures.elapsed.max(count.elapsed);
        figures.requests += count.requests;
        figures.bytes_read += count.bytes_read;
        figures.latency += count.latency;
        figures.errors += count.errors;
        figures.idle += count.idle;
        figures.stuck += count.stuck;
        figures.goaways += count.goaways;
        figures.unanswered += count.unanswered;
        figures.connecting += count.connecting;
        figures.unsent += count.unsent;
        figures.thread_rates.extend(count.rates);
        for (place, interval) in count.over_time.into_iter().enumerate() {
            match figures.over_time.get_mut(place) {
                Some(sum) => {
                    sum.requests += interval.requests;
                    sum.latency += interval.latency;
                }
                None => figures.over_time.push(interval),
            }
        }
    }
    figures
}

/// Raises the descriptor limit as far as needed. Fails if the hard limit is lower.
fn allow_descriptors(needed: usize) -> Result<(), String> {
    let (limit, needed) = (getrlimit(Resource::Nofile), needed as u64);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        let maximum = limit.maximum.unwrap_or(0);
        return Err(format!(
            "this load needs {needed} descriptors, and the process may have {maximum}: use fewer connections, or raise the \
             limit (ulimit -n)"
        ));
    }
    let raised = Rlimit { current: Some(needed), ..limit };
    setrlimit(Resource::Nofile, raised).map_err(|error| format!("cannot have {needed} descriptors: {error}"))
}

/// A number that may end in k or M.
fn count(text: &str) -> Result<usize, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |number| (number, 1_000_000)),
    };
    let count: Option<usize> = number.parse().ok().and_then(|number: usize| number.checked_mul(unit));
    count.filter(|&count| count <= COUNT_MAX).ok_or_else(|| "write a number up to a million, 10k for instance".into())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = match text.strip_suffix(['k', 'K']) {
        Some(number) => number.parse().ok().map(|number: f64| number * 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => number.parse().ok().map(|number: f64| number * 1e6),
            None => text.parse().ok(),
        },
    };
    rate.filter(|rate| (0.001..=1e9).contains(rate)).ok_or_else(|| "write requests a second, 50000 or 50k".into())
}

/// Parses a duration as flags have it: `500ms`, `30s`, `2m`, `1h`, or seconds without a unit.
///
/// # Errors
/// A suggestion if the text is no duration, or zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("write a time with a unit: 500ms, 30s, 2m or 1h".into()),
    };
    let time = number.parse().ok().map(|number: f64| number * seconds).filter(|time| (0.001..=1e6).contains(time));
    time.map(Duration::from_secs_f64).ok_or_else(|| "write a time above zero: 500ms, 30s, 2m or 1h".into())
}

/// The default length of a message, in bytes.
const MESSAGE_BYTES: u32 = 64;

/// The default number of threads.
const THREADS: usize = 2;

/// How often progress is updated.
const LOOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The maximum of a number of connections: more than any process has descriptors.
const COUNT_MAX: usize = 1_000_000;

/// Descriptors of an event loop besides its connections, and of the process besides its loops.
const DESCRIPTORS_OF_LOOP: usize = 8;
const DESCRIPTORS_SPARE: usize = 16;

/// The exit code after a second signal is this plus the number of the signal.
const SIGNALLED: i32 = 128;
