//! `Capture`: a capture file that many connections write to, on any loop.
//!
//! Frames go to a thread through a bounded buffer. A loop never waits for the file: it takes a lock that is held only
//! to move frames, and where the buffer is full, the frame is dropped and counted.

mod connection;
mod frame;

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tidegate_codec::Time;

pub use self::connection::{ConnectionCapture, Role};
use self::frame::{FILE_HEADER_BYTES, Frame, file_header};

/// The limits of a [`Capture`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureOptions {
    /// The most bytes of the file; frames that do not fit are dropped. Default 256 MiB.
    pub file_bytes_max: u64,
    /// The most bytes of memory of frames that are not written yet; frames that do not fit are dropped. Default 8 MiB.
    pub buffer_bytes_max: usize,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self { file_bytes_max: 256 * 1024 * 1024, buffer_bytes_max: 8 * 1024 * 1024 }
    }
}

/// The counts of a [`Capture`] so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CaptureCounts {
    /// Frames in the file.
    pub frames: u64,
    /// Frames that were dropped: the buffer or the file was full, or the file failed.
    pub dropped: u64,
}

/// A pcap file, and the thread that writes it. Clones are the same capture.
///
/// The file has the bytes that [`ByteLog`](crate::ByteLog) sees at its stage, in Ethernet, IP and TCP frames that are
/// made up: with the addresses of the connection, sequence numbers that count the bytes of the stage, and the time of the
/// loop's turn. Above TLS it has the plaintext, so the file is as secret as that; only its owner may read it.
///
/// The thread ends with [`finish`](Self::finish), or with the last clone and the last connection. A process that exits
/// before loses buffered frames.
#[derive(Clone)]
pub struct Capture(Arc<Owner>);

/// Closes the buffer when nothing can add to it any more.
struct Owner {
    shared: Arc<CaptureState>,
    thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

struct CaptureState {
    buffer: Mutex<Buffer>,
    /// The thread waits for frames, or for the end.
    changed: Condvar,
    options: CaptureOptions,
    /// Whether frames can still get into the file.
    is_open: AtomicBool,
    frames: AtomicU64,
    dropped: AtomicU64,
    connections: AtomicU64,
    /// The same time on both clocks.
    begun: (Instant, SystemTime),
}

#[derive(Default)]
struct Buffer {
    frames: VecDeque<Frame>,
    /// Memory of all frames that are not written yet.
    bytes: usize,
    is_closed: bool,
}

impl Capture {
    /// Creates the file, with the permissions 0600, and starts the thread.
    ///
    /// # Errors
    /// The system's. [`io::ErrorKind::AlreadyExists`] if there is such a file: a capture never overwrites one, and
    /// follows no link.
    pub fn create(path: impl AsRef<Path>, options: CaptureOptions) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Self::into(file, options)
    }

    fn into(mut file: File, options: CaptureOptions) -> io::Result<Self> {
        file.write_all(&file_header())?;
        let shared = Arc::new(CaptureState {
            buffer: Mutex::default(),
            changed: Condvar::new(),
            options,
            is_open: AtomicBool::new(true),
            frames: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            begun: (Instant::now(), SystemTime::now()),
        });
        let writer = shared.clone();
        let thread =
            std::thread::Builder::new().name("tidegate-capture".into()).spawn(move || writer.run(&mut file))?;
        Ok(Self(Arc::new(Owner { shared, thread: Mutex::new(Some(thread)) })))
    }

    /// A sink for one connection. An address that is not known, or that is none of IP, is replaced by one of 192.0.2.0/24
    /// with a port of its own; [`set_local`](ConnectionCapture::set_local) and
    /// [`set_peer`](ConnectionCapture::set_peer) change it until the first byte.
    #[must_use]
    pub fn connection(&self, role: Role, local: Option<SocketAddr>, peer: Option<SocketAddr>) -> ConnectionCapture {
        let number = self.0.shared.connections.fetch_add(1, Ordering::Relaxed);
        ConnectionCapture::new(self.clone(), number, role, local, peer)
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> CaptureCounts {
        let shared = &self.0.shared;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CaptureCounts { frames: count(&shared.frames), dropped: count(&shared.dropped) }
    }

    /// Writes the buffered frames, and closes the file. Further frames are dropped. It waits for the file, so it is not
    /// for a loop's thread.
    ///
    /// # Errors
    /// The first error of the file; later errors are not in it. It is returned once.
    pub fn finish(&self) -> io::Result<CaptureCounts> {
        self.0.shared.close();
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join().map_err(|_| io::Error::other("the thread of the capture panicked"))??;
        }
        Ok(self.counts())
    }

    /// Whether frames can still get into the file.
    pub(crate) fn is_open(&self) -> bool {
        self.0.shared.is_open.load(Ordering::Relaxed)
    }

    /// The time of a turn, since the Unix epoch.
    pub(crate) fn since_epoch(&self, time: &Time) -> Duration {
        let (instant, system_time) = self.0.shared.begun;
        let begun = system_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // A simulated clock may be behind.
        match time.now().checked_duration_since(instant) {
            Some(after) => begun.saturating_add(after),
            None => begun.saturating_sub(instant.saturating_duration_since(time.now())),
        }
    }

    /// Buffers a frame, unless there is no room.
    pub(crate) fn push(&self, frame: Frame) {
        self.0.shared.push(frame);
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Capture").field(&self.counts()).finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The thread writes the rest by itself: this may be a loop's thread.
        self.shared.close();
    }
}

impl CaptureState {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        // No code that holds the lock panics.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, frame: Frame) {
        let mut buffer = self.lock();
        let bytes = buffer.bytes + frame.memory_bytes();
        if !self.is_open.load(Ordering::Relaxed) || bytes > self.options.buffer_bytes_max {
            drop(buffer);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        buffer.bytes = bytes;
        buffer.frames.push_back(frame);
        let was_empty = buffer.frames.len() == 1;
        drop(buffer);
        if was_empty {
            self.changed.notify_one();
        }
    }

    fn close(&self) {
        let mut buffer = self.lock();
        self.is_open.store(false, Ordering::Relaxed);
        buffer.is_closed = true;
        drop(buffer);
        self.changed.notify_one();
    }

    /// The thread: writes frames until the buffer is closed and empty.
    fn run(&self, file: &mut File) -> io::Result<()> {
        let mut file_bytes = FILE_HEADER_BYTES as u64;
        let mut result = Ok(());
        loop {
            let mut buffer = self.lock();
            while buffer.frames.is_empty() && !buffer.is_closed {
                buffer = self.changed.wait(buffer).unwrap_or_else(PoisonError::into_inner);
            }
            let mut frames = std::mem::take(&mut buffer.frames);
            drop(buffer);
            if frames.is_empty() {
                return result;
            }
            for frames in frames.make_contiguous().chunks(FRAMES_PER_WRITE_MAX) {
                let written = if result.is_ok() { self.write(frames, file, &mut file_bytes) } else { Ok(0) };
                let count = *written.as_ref().unwrap_or(&0);
                self.frames.fetch_add(count, Ordering::Relaxed);
                self.dropped.fetch_add(frames.len() as u64 - count, Ordering::Relaxed);
                if let Err(error) = written {
                    tracing::warn!(%error, "capture file failed");
                    self.is_open.store(false, Ordering::Relaxed);
                    result = Err(error);
                }
                self.lock().bytes -= frames.iter().map(Frame::memory_bytes).sum::<usize>();
            }
        }
    }

    /// Writes the frames that fit, and returns how many these are.
    fn write(&self, frames: &[Frame], file: &mut File, file_bytes: &mut u64) -> io::Result<u64> {
        let (mut records, mut count) = (Vec::new(), 0);
        for frame in frames {
            if file_bytes.saturating_add(frame.file_bytes_max()) > self.options.file_bytes_max {
                // Once a frame does not fit, none does: no smaller one comes behind it.
                *file_bytes = u64::MAX;
                self.is_open.store(false, Ordering::Relaxed);
                break;
            }
            let before = records.len();
            frame.write(&mut records);
            *file_bytes += (records.len() - before) as u64;
            count += 1;
        }
        file.write_all(&records)?;
        Ok(count)
    }
}

/// Frames that become one write: with payloads of 32 KiB, 1 MiB.
const FRAMES_PER_WRITE_MAX: usize = 32;

#[cfg(test)]
mod tests;
