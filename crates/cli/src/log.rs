//! The log of the program on standard error, and its lines on standard output. Threads of their own write both, so that
//! no loop waits for their readers.

use std::io::{self, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate::http::LineLog;
use tidegate::metrics::{Kind, MetricsText};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{FilterFn, LevelFilter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::access_log;
use crate::telemetry::{self, SpanLayer, is_request_span};

/// Logs to standard error from now on: lines of `tracing`, panics, and lines of [`complain`](crate::complain::complain).
pub(crate) fn log_to_stderr(is_quiet: bool, has_bytes: bool) {
    let level = match (is_quiet, has_bytes) {
        (true, _) => LevelFilter::ERROR,
        (false, true) => LevelFilter::TRACE,
        (false, false) => LevelFilter::INFO,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        // Programs read these lines too: no escape codes, whatever features other crates enable.
        .with_ansi(false)
        .log_internal_errors(false);
    log.with_writer(|| EscapedLines(standard_error().clone())).init();
    panic::set_hook(Box::new(log_panic));
}

/// The same for a program whose requests may have spans: those go to a collector, and the log has none of them.
pub(crate) fn log_to_stderr_without_spans(is_quiet: bool) {
    let level = if is_quiet { LevelFilter::ERROR } else { LevelFilter::INFO };
    let log = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(|| EscapedLines(standard_error().clone()));
    let is_logged = FilterFn::new(move |metadata| *metadata.level() <= level && !is_request_span(metadata));
    let collected = FilterFn::new(is_request_span).with_max_level_hint(LevelFilter::INFO);
    tracing_subscriber::registry()
        .with(log.with_filter(is_logged.with_max_level_hint(level)))
        .with(SpanLayer.with_filter(collected))
        .init();
    panic::set_hook(Box::new(log_panic));
}

/// Writes a line to standard error behind those that wait, or at once before there is a log.
pub(crate) fn write_to_stderr(line: &str) {
    match STANDARD_ERROR.get() {
        Some(lines) => lines.line(line),
        // One that is closed, or a file on a full disk, changes nothing: `eprintln!` would panic.
        None => drop(io::stderr().write_all(format!("{line}\n").as_bytes())),
    }
}

/// Writes a line to standard output, without waiting for its reader; to standard error if the access log has standard
/// output to itself.
pub(crate) fn write_to_stdout(line: &str) {
    let is_taken = STDOUT_IS_ACCESS_LOG.load(Ordering::Relaxed);
    if is_taken { write_to_stderr(line) } else { standard_output().line(line) }
}

/// Writes a start-up line to the same place, at once: the process that starts the program waits for it.
pub(crate) fn announce(line: &str) {
    if STDOUT_IS_ACCESS_LOG.load(Ordering::Relaxed) {
        return write_to_stderr(line);
    }
    // A closed standard output does not stop the server.
    let _ = io::stdout().write_all(format!("{line}\n").as_bytes());
}

/// Standard output gets lines of the access log alone from now on.
pub(crate) fn leave_stdout_to_access_log() {
    STDOUT_IS_ACCESS_LOG.store(true, Ordering::Relaxed);
}

/// Waits until the lines are written, for a moment at most.
pub(crate) fn flush() {
    let deadline = Instant::now() + FLUSH_MAX;
    for lines in [access_log::lines(), STANDARD_OUTPUT.get(), STANDARD_ERROR.get()].into_iter().flatten() {
        lines.flush(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Ends the process with its last lines written.
pub(crate) fn exit(status: i32) -> ! {
    telemetry::flush();
    flush();
    std::process::exit(status)
}

/// Writes the counts of lines that were dropped.
pub(crate) fn write_metrics(text: &mut MetricsText) {
    text.family(
        "tidegate_log_lines_dropped",
        Kind::Counter,
        "Lines of logs that were dropped: no process read them in time.",
    );
    let dropped = |lines: Option<&LineLog>| lines.map_or(0, LineLog::dropped);
    text.sample(&[("log", "stderr")], dropped(STANDARD_ERROR.get()));
    text.sample(&[("log", "access")], dropped(access_log::lines()));
}

pub(crate) fn standard_error() -> &'static LineLog {
    STANDARD_ERROR.get_or_init(|| LineLog::new("stderr", io::stderr()))
}

pub(crate) fn standard_output() -> &'static LineLog {
    STANDARD_OUTPUT.get_or_init(|| LineLog::new("stdout", io::stdout()))
}

/// As the hook of the standard library writes it, which would wait for the reader of standard error.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let payload = panic.payload();
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    let payload = payload.downcast_ref::<&str>().copied().or(formatted).unwrap_or("Box<dyn Any>");
    let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
    let backtrace = std::backtrace::Backtrace::capture();
    let backtrace = match backtrace.status() {
        std::backtrace::BacktraceStatus::Captured => format!("\nstack backtrace:\n{backtrace}"),
        _ => String::new(),
    };
    write_to_stderr(&format!("thread '{name}' panicked{place}:\n{}{backtrace}", escape(payload)));
}

/// Lines in which control characters are escaped: a peer may choose a part of them, and a terminal obeys them.
struct EscapedLines(LineLog);

impl Write for EscapedLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains(is_hostile) => self.0.write_all(bytes)?,
            _ => self.0.write_all(escape(&String::from_utf8_lossy(bytes)).as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A control character other than those in a dump of bytes.
fn is_hostile(character: char) -> bool {
    character.is_control() && !matches!(character, '\n' | '\t')
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_hostile(character) { escaped.extend(character.escape_default()) } else { escaped.push(character) }
    }
    escaped
}

static STANDARD_ERROR: OnceLock<LineLog> = OnceLock::new();
static STANDARD_OUTPUT: OnceLock<LineLog> = OnceLock::new();
static STDOUT_IS_ACCESS_LOG: AtomicBool = AtomicBool::new(false);

/// How long the end of the program waits for the readers of the logs.
const FLUSH_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_peer_are_escaped_in_the_log() {
        assert_eq!(escape("a\u{1b}[31m\u{9b}31m\r\n\tü"), "a\\u{1b}[31m\\u{9b}31m\\r\n\tü");
    }
}
