//! The log of the program on standard error, and the access log. Threads of their own write both, so that no loop waits for
//! their readers.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{self, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tidegate::http::LineLog;
use tidegate::metrics::{Kind, MetricsText};
use tracing_subscriber::filter::LevelFilter;

/// The flags of the access log's destination.
#[derive(Debug, Clone, Args)]
pub(crate) struct AccessLogOptions {
    /// Write the access log to stderr, stdout or FILE, which SIGHUP opens again; each line is of its format as a whole, and
    /// a FILE has no other lines
    #[arg(long, value_name = "FILE", default_value = "stderr")]
    access_log_to: PathBuf,
    /// While no process reads the log: drop lines of the access log and count them, or block all connections until
    /// there is room. Other lines are always dropped
    #[arg(long, value_name = "MODE", value_enum, default_value = "drop")]
    access_log_full: WhenFull,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WhenFull {
    Drop,
    Block,
}

/// Where lines of the access log go.
#[derive(Debug, Clone)]
pub(crate) struct AccessLines {
    lines: LineLog,
    /// The file, if it is one.
    path: Option<PathBuf>,
}

impl AccessLogOptions {
    /// Opens the destination.
    pub(crate) fn open(&self) -> Result<AccessLines, String> {
        let failed = |error: io::Error| format!("--access-log-to {}: {error}", self.access_log_to.display());
        let (lines, path) = match self.access_log_to.to_str() {
            Some("stderr") => (standard_error().clone(), None),
            Some("stdout") => (standard_output().clone(), None),
            _ => {
                let file = open(&self.access_log_to).map_err(failed)?;
                (LineLog::new("access", file), Some(self.access_log_to.clone()))
            }
        };
        let lines = lines.wait_when_full(self.access_log_full == WhenFull::Block);
        if self.access_log_to.as_os_str() != "stderr" {
            let _ = ACCESS.set(lines.clone());
        }
        Ok(AccessLines { lines, path })
    }
}

impl AccessLines {
    pub(crate) fn lines(&self) -> &LineLog {
        &self.lines
    }

    /// Opens the file again, which may have been renamed, and logs the outcome in one line.
    pub(crate) fn reopen(&self) {
        let Some(path) = &self.path else { return };
        match open(path) {
            Ok(file) => {
                self.lines.replace_output(file);
                tracing::info!(subsystem = "log", path = %path.display(), "access log opened again");
            }
            Err(error) => {
                let path = path.display();
                tracing::error!(subsystem = "log", %path, %error, "access log not opened again; the old file stays in use");
            }
        }
    }
}

/// The file of an access log has addresses of clients, so not all users may read it.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

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

/// Writes a line to standard error behind those that wait, or at once before there is a log.
pub(crate) fn write_to_stderr(line: &str) {
    match STANDARD_ERROR.get() {
        Some(lines) => lines.line(line),
        // One that is closed, or a file on a full disk, changes nothing: `eprintln!` would panic.
        None => drop(io::stderr().write_all(format!("{line}\n").as_bytes())),
    }
}

/// Writes a line to standard output, without waiting for its reader.
pub(crate) fn write_to_stdout(line: &str) {
    standard_output().line(line);
}

/// Waits until the lines are written, for a moment at most.
pub(crate) fn flush() {
    let deadline = Instant::now() + FLUSH_MAX;
    for lines in [&ACCESS, &STANDARD_OUTPUT, &STANDARD_ERROR] {
        lines.get().map(|lines| lines.flush(deadline.saturating_duration_since(Instant::now())));
    }
}

/// Ends the process with its last lines written.
pub(crate) fn exit(status: i32) -> ! {
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
    let dropped = |lines: &OnceLock<LineLog>| lines.get().map_or(0, LineLog::dropped);
    text.sample(&[("log", "stderr")], dropped(&STANDARD_ERROR));
    text.sample(&[("log", "access")], dropped(&ACCESS));
}

fn standard_error() -> &'static LineLog {
    STANDARD_ERROR.get_or_init(|| LineLog::new("stderr", io::stderr()))
}

fn standard_output() -> &'static LineLog {
    STANDARD_OUTPUT.get_or_init(|| LineLog::new("stdout", io::stdout()))
}

/// As the hook of the standard library writes it, which would wait for the reader of standard error.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let payload = panic.payload_as_str().unwrap_or("Box<dyn Any>");
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
/// The access log, unless it shares standard error.
static ACCESS: OnceLock<LineLog> = OnceLock::new();

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
