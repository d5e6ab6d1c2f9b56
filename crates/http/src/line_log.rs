//! `LineLog`: lines that a thread of its own writes, so that a loop does not wait for the reader of a log.
//!
//! The queue is bounded in bytes. While the reader of a pipe is slow, lines are dropped and counted, or the logging thread
//! waits, by choice of the handle.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_codec::later;

/// Lines that a thread writes to a file, a pipe or a terminal. The threads that log them do not wait for it: beyond 1 MiB
/// of waiting lines further ones are dropped, and one line of the log of `tracing` has their number when writing goes on.
///
/// It is a destination of [`AccessLog`](crate::AccessLog), and a writer of `tracing_subscriber`: each
/// [`write`](Write::write) is one or more whole lines. A clone is another handle of the same log. When the last one is
/// dropped, the thread writes the lines that wait, and ends.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::http::{AccessLog, LineLog, LogFormat, Router};
///
/// let lines = LineLog::new("access", std::io::stdout());
/// let router = Router::new().get("/", || "hello").with(AccessLog::new(LogFormat::Json).to(&lines));
/// // At the end of the program.
/// lines.flush(Duration::from_secs(1));
/// # drop(router);
/// ```
#[derive(Clone)]
pub struct LineLog {
    handle: Arc<Handle>,
    waits: bool,
}

struct Handle(Arc<Shared>);

struct Shared {
    name: Box<str>,
    queue: Mutex<Queue>,
    /// Lines wait, another output does, or no handle is left.
    has_work: Condvar,
    /// The thread has taken lines, or written them.
    has_room: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Queue {
    lines: Vec<u8>,
    /// The thread has started.
    is_started: bool,
    is_writing: bool,
    is_closed: bool,
    /// Lines that were dropped since the last report.
    unreported: u64,
    output: Option<Box<dyn Write + Send>>,
}

impl LineLog {
    /// A log to this output. `name` stands in the reports of dropped lines. The thread starts with the first line; while
    /// the system has no thread left, lines are dropped.
    pub fn new(name: &str, output: impl Write + Send + 'static) -> Self {
        let queue = Queue { output: Some(Box::new(output)), ..Queue::default() };
        let shared = Arc::new(Shared {
            name: name.into(),
            queue: Mutex::new(queue),
            has_work: Condvar::new(),
            has_room: Condvar::new(),
            dropped: AtomicU64::new(0),
        });
        Self { handle: Arc::new(Handle(shared)), waits: false }
    }

    /// A handle whose lines are not dropped: the thread that logs waits while the queue is full, and with it all
    /// connections of its loop. For a log that must be complete, such as one for audits. Off by default.
    #[must_use]
    pub fn wait_when_full(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    /// Logs a line, which has no line feed at its end.
    pub fn line(&self, line: &str) {
        self.push(&[line.as_bytes(), b"\n"]);
    }

    /// The same for bytes.
    pub(crate) fn line_of_bytes(&self, line: &[u8]) {
        self.push(&[line, b"\n"]);
    }

    /// How many lines were dropped so far: the queue was full, or the output failed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.handle.0.dropped.load(Ordering::Relaxed)
    }

    /// Writes to another output from now on, such as a file that was opened again after a rotation.
    pub fn replace_output(&self, output: impl Write + Send + 'static) {
        self.handle.0.lock().output = Some(Box::new(output));
        self.handle.0.has_work.notify_one();
    }

    /// Waits until all lines are written, for a time at most. Returns whether they are.
    pub fn flush(&self, wait_max: Duration) -> bool {
        let deadline = later(Instant::now(), wait_max);
        let mut queue = self.handle.0.lock();
        while !queue.lines.is_empty() || queue.is_writing {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            queue = self.handle.0.has_room.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn push(&self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let shared = &*self.handle.0;
        let mut queue = shared.lock();
        // The thread that writes logs too, and must not wait for itself.
        while self.waits && !queue.lines.is_empty() && queue.lines.len() + bytes > QUEUE_BYTES_MAX && !WRITES.get() {
            queue = shared.has_room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if !queue.is_started {
            queue.is_started = start(&self.handle.0);
        }
        let fits = queue.lines.len() + bytes <= QUEUE_BYTES_MAX || (self.waits && queue.lines.is_empty());
        if fits && queue.is_started {
            let was_empty = queue.lines.is_empty();
            parts.iter().for_each(|part| queue.lines.extend_from_slice(part));
            if was_empty {
                shared.has_work.notify_one();
            }
        } else {
            queue.unreported += 1;
            shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Write for LineLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(&[bytes]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for LineLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineLog").field("name", &self.handle.0.name).field("waits", &self.waits).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.has_work.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread. Returns whether there is one.
fn start(shared: &Arc<Shared>) -> bool {
    let name = format!("tidegate-{}", shared.name);
    let shared = shared.clone();
    std::thread::Builder::new().name(name).spawn(move || write_all_lines(&shared)).is_ok()
}

/// The body of the thread.
fn write_all_lines(shared: &Shared) {
    WRITES.set(true);
    let (mut lines, mut output): (Vec<u8>, Box<dyn Write + Send>) = (Vec::new(), Box::new(io::sink()));
    loop {
        let mut queue = shared.lock();
        while queue.lines.is_empty() && queue.output.is_none() && !queue.is_closed {
            queue = shared.has_work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.lines.is_empty() && queue.is_closed {
            return;
        }
        std::mem::swap(&mut lines, &mut queue.lines);
        queue.is_writing = true;
        output = queue.output.take().unwrap_or(output);
        drop(queue);
        shared.has_room.notify_all();
        let written = output.write_all(&lines).and_then(|()| output.flush());
        let lost = if written.is_err() { lines.iter().filter(|byte| **byte == b'\n').count() as u64 } else { 0 };
        shared.dropped.fetch_add(lost, Ordering::Relaxed);
        lines.clear();
        let mut queue = shared.lock();
        queue.unreported += lost;
        queue.is_writing = false;
        // The report may go to this queue: while the output fails, or the queue is full, it would be lost.
        let has_room = lost == 0 && queue.lines.len() + REPORT_BYTES_MAX <= QUEUE_BYTES_MAX;
        let dropped = if has_room { std::mem::take(&mut queue.unreported) } else { 0 };
        drop(queue);
        shared.has_room.notify_all();
        if dropped > 0 {
            tracing::error!(
                subsystem = "log",
                log = &*shared.name,
                dropped,
                "lines dropped: the reader of the log was too slow"
            );
        }
    }
}

thread_local! {
    /// Whether this is a thread that writes lines.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// How many bytes wait at most.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;

/// Room for a report.
const REPORT_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    use super::*;

    /// Longer than any test.
    const A_DAY: Duration = Duration::from_secs(86_400);

    /// An output whose every write waits for a permission, and which keeps the written bytes.
    struct Gate {
        permissions: mpsc::Receiver<io::Result<()>>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permissions.recv().unwrap_or(Ok(()))?;
            let _ = self.written.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gate() -> (Gate, mpsc::Sender<io::Result<()>>, mpsc::Receiver<Vec<u8>>) {
        let ((permit, permissions), (written, output)) = (mpsc::channel(), mpsc::channel());
        (Gate { permissions, written }, permit, output)
    }

    #[test]
    fn lines_are_dropped_and_counted_while_the_output_is_blocked() {
        let (gate, permit, output) = gate();
        let log = LineLog::new("test", gate);
        let line = "x".repeat(1023);
        let waiting = QUEUE_BYTES_MAX / 1024;
        // The thread holds at most one queue, and another one waits.
        (0..3 * waiting).for_each(|_| log.line(&line));
        let dropped = log.dropped() as usize;
        assert!((waiting..=2 * waiting).contains(&dropped), "{dropped}");
        drop(permit);
        assert!(log.flush(A_DAY));
        log.line("last");
        drop(log);
        let all: Vec<u8> = output.into_iter().flatten().collect();
        assert_eq!(all.iter().filter(|byte| **byte == b'\n').count(), 3 * waiting - dropped + 1);
        assert!(all.ends_with(b"\nlast\n"));
    }

    #[test]
    fn a_handle_that_waits_loses_nothing() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let log = LineLog::new("test", writer).wait_when_full(true);
        let lines = 4 * QUEUE_BYTES_MAX / 1024;
        let logging = std::thread::spawn(move || {
            (0..lines).for_each(|number| log.line(&format!("{number:01023}")));
            log.dropped()
        });
        let mut all = String::new();
        reader.read_to_string(&mut all).unwrap();
        assert_eq!(logging.join().unwrap(), 0);
        assert!(all.lines().map(|line| line.parse::<usize>().unwrap()).eq(0..lines));
    }

    #[test]
    fn lines_of_an_output_that_fails_are_counted_and_another_output_goes_on() {
        let (gate, permit, _output) = gate();
        let log = LineLog::new("test", gate);
        permit.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        log.line("lost");
        assert!(log.flush(A_DAY));
        assert_eq!(log.dropped(), 1);
        let (mut reader, writer) = UnixStream::pair().unwrap();
        log.replace_output(writer);
        log.line("kept");
        drop(log);
        let mut all = String::new();
        reader.read_to_string(&mut all).unwrap();
        assert_eq!(all, "kept\n");
    }
}
