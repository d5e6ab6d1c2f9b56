//! `tidegate load`: a load generator for HTTP/1.1, HTTP/2, HTTP/3, WebSocket and Redis, with wrk's flags and table, and features that
//! wrk lacks.
//!
//! Its connections are those of the client: `Client` of the engine makes them, over TLS as well, and the codecs of the
//! client's role decode the responses, as strictly as for any client (`http1::Client`, `http2::Connection`,
//! `http3::ClientStream`, `websocket`). The pool of `http::Client` has no part: the load itself decides the number of connections, their
//! requests, and the times.
//!
//! | file | holds |
//! |---|---|
//! | `lib.rs` | the threads, and the sums over them |
//! | `options.rs`, `config.rs` | the flags, and the configuration of the threads that they make |
//! | `sources/` | requests from a file, a HAR file or a line of curl |
//! | `words.rs` | such a line, split as a shell does |
//! | `worker.rs` | one thread: its loop and its share of the connections |
//! | `role.rs` | the purpose of a connection |
//! | `connection.rs` | the handler of a connection |
//! | `pipeline.rs` | its codec: sends batches of requests and checks each response |
//! | `messages.rs` | the codec of a connection that is a WebSocket: its handshake, messages, broadcasts |
//! | `frames.rs` | its messages, encoded |
//! | `http2/` | the same two for HTTP/2 |
//! | `http3/` | the same for HTTP/3, where each request has both; its connections over UDP |
//! | `redis/` | commands of Redis: their mix, and the codec of a connection |
//! | `stamp.rs` | the time in a message that is delivered to others |
//! | `request.rs`, `url.rs` | the request, as the flags describe it and encoded; the server and the target |
//! | `traffic.rs` | which of these the connections of a loop send |
//! | `schedule.rs` | `--rate`: when each batch is due |
//! | `budget.rs` | `-n`: the requests that are left |
//! | `resend.rs` | requests that the server did not process, which are sent again |
//! | `idle.rs`, `sockets.rs` | idle connections, and whether they are still established |
//! | `start_barrier.rs`, `end_barrier.rs` | all threads begin at one moment, and none leaves before all have stopped |
//! | `cpu_time.rs` | the CPU time of a process |
//! | `permits.rs` | how many connections a thread opens at once |
//! | `counters.rs`, `shared_stats.rs`, `results.rs` | the counters of a loop, those of all loops, and the results |
//! | `baseline.rs` | the results of an earlier load, to compare with |
//! | `outputs.rs`, `report/` | the results as a table, JSON, a page with charts, and a progress bar |

#![forbid(unsafe_code)]

mod baseline;
mod budget;
mod config;
mod connection;
mod counters;
mod cpu_time;
mod end_barrier;
mod frames;
mod http2;
mod http3;
mod idle;
mod messages;
mod options;
mod outputs;
mod permits;
mod pipeline;
mod redis;
mod report;
mod request;
mod resend;
mod results;
mod role;
mod schedule;
mod shared_stats;
mod sockets;
mod sources;
mod stamp;
mod start_barrier;
mod traffic;
mod url;
mod words;
mod worker;

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};

use self::baseline::Baseline;
use self::config::{config, method};
use self::cpu_time::cpu_time;
pub use self::cpu_time::cpu_time_of;
use self::end_barrier::EndBarrier;
pub use self::options::{Options, duration};
use self::outputs::Outputs;
use self::report::progress::ProgressDisplay;
pub use self::report::units;
pub use self::results::CpuTime;
use self::results::{LoadResults, Parameters};
use self::start_barrier::StartBarrier;
use self::worker::{Count, Part, WorkerConfig};

/// Runs a load, and returns whether it had no errors.
///
/// # Errors
/// Those that the user can correct.
pub fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let options = &sources::resolved(options)?;
    let config = config(options)?;
    let threads = threads(options)?;
    allow_descriptors(
        options.connections()
            + options.idle
            + options.subscribers.unwrap_or(0)
            + threads * DESCRIPTORS_OF_LOOP
            + DESCRIPTORS_SPARE,
    )?;
    let baseline =
        options.baseline.as_deref().map(|path| Baseline::read(path, options.url().protocol().name())).transpose()?;
    let outputs = Outputs::open(options.latency, options.json.as_deref(), options.html.as_deref())?;
    for signal in [SIGINT, SIGTERM] {
        // The second signal exits at once.
        signal_hook::flag::register_conditional_shutdown(signal, SIGNALLED + signal, config.stop.clone())?;
        signal_hook::flag::register(signal, config.stop.clone())?;
    }
    let (mut figures, unreachable) = measure(options, &config, threads)?;
    figures.baseline = baseline;

    let (no_responses, has_table) = (report::no_responses(&figures), outputs.has_table());
    let is_good = figures.errors.total() + figures.idle.lost + figures.stuck.lost == 0 && no_responses.is_none();
    let written = outputs.write(&figures);
    if let Some(why) = unreachable.or(no_responses.filter(|_| !has_table)) {
        eprintln!("tidegate: {why}");
    }
    written?;
    Ok(is_good)
}

fn threads(options: &Options) -> Result<usize, String> {
    let (connections, idle) = (options.connections(), options.idle);
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
    let mut progress = ProgressDisplay::start(options.duration(), options.total);
    config.shared.set_watched(progress.has_table());
    let start = Arc::new(StartBarrier::default());
    let runners = start.runners(threads);
    let counts = thread::scope(|scope| {
        let workers: Vec<_> = runners
            .into_iter()
            .zip(EndBarrier::participants(threads))
            .enumerate()
            .map(|(index, (runner, end))| {
                let part = part(options, index, threads);
                thread::Builder::new()
                    .name(format!("tidegate-load-{index}"))
                    .spawn_scoped(scope, move || worker::run(config, part, runner, end))
            })
            .collect();
        while workers.iter().flatten().any(|worker| !worker.is_finished()) {
            thread::sleep(LOOP_CHECK_INTERVAL);
            // Before that, the threads open the idle connections.
            if let Some(begun) = start.begun() {
                let (requests, errors) = config.shared.read();
                progress.update(begun.at.elapsed(), requests, errors, || config.shared.live());
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
    let is_hopeless = config.shared.is_hopeless(options.connections());
    let unreachable = counts.iter().find_map(|count| count.last_failure.clone().filter(|_| is_hopeless));
    Ok((add_up(options, counts, cpu), unreachable))
}

/// The share of one thread.
fn part(options: &Options, index: usize, threads: usize) -> Part {
    let before = |count: usize, index: usize| count * index / threads;
    let share = |count: usize| before(count, index + 1) - before(count, index);
    let connections = share(options.connections());
    // The first thread has the author of broadcasts on WebSockets.
    let author = usize::from(options.broadcast && index == 0 && connections > 0);
    let listeners = options.subscribers.map_or(if options.broadcast { connections - author } else { 0 }, share);
    Part {
        index,
        connections,
        connections_before: before(options.connections(), index),
        listeners,
        idle: share(options.idle),
        idle_before: before(options.idle, index),
        rate: options
            .rate()
            .map(|rate| rate * connections as f64 / options.connections().max(1) as f64)
            .filter(|&rate| rate > 0.0),
    }
}

/// The URL in the reports.
fn shown_url(options: &Options) -> String {
    match options.urls.len().max(options.sources.len()) - 1 {
        0 => options.url().to_string(),
        others => format!("{} and {others} more", options.url()),
    }
}

fn add_up(options: &Options, counts: Vec<Count>, cpu: CpuTime) -> LoadResults {
    let parameters = Parameters {
        url: shown_url(options),
        method: method(options).to_owned(),
        backend: counts.first().map_or("", |count| count.backend),
        threads: counts.len(),
        connections: options.connections(),
        idle: options.idle,
        pipeline: options.pipeline as usize,
        version: options.version(),
        streams: options.version().has_streams().then_some(options.streams),
        rate: options.rate(),
        duration: options.duration(),
        total: options.total,
        never_read: options.never_read,
        protocol: options.url().protocol(),
        broadcast: options.listeners() > 0,
        subscribers: options.subscribers.unwrap_or(0),
    };
    let mut figures = LoadResults::nothing(parameters, cpu);
    for count in counts {
        figures.elapsed = figures.elapsed.max(count.elapsed);
        figures.requests += count.requests;
        figures.good += count.good;
        for (status, responses) in count.statuses {
            *figures.statuses.entry(status).or_default() += responses;
        }
        figures.redis += count.redis;
        figures.bytes_read += count.bytes_read;
        figures.latency += count.latency;
        figures.errors += count.errors;
        figures.idle += count.idle;
        figures.stuck += count.stuck;
        figures.goaways += count.goaways;
        figures.refused += count.refused;
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

/// The default number of threads.
const THREADS: usize = 2;

/// How often progress is updated.
const LOOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Descriptors of an event loop besides its connections, and of the process besides its loops.
const DESCRIPTORS_OF_LOOP: usize = 8;
const DESCRIPTORS_SPARE: usize = 16;

/// The exit code after a second signal is this plus the number of the signal.
const SIGNALLED: i32 = 128;
