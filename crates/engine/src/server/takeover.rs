//! Taking listeners over from a server that runs, and handing them over to the next one: a restart without a moment in
//! which nobody accepts.
//!
//! Both meet at the path of a Unix socket. The successor says hello and gets the listeners; it starts its loops, puts a
//! socket of its own at the path, and says that it is ready; only then is the predecessor superseded. Before that
//! nothing has changed for it, whatever becomes of the successor; and each of them holds the same listeners, so no
//! connection waits for somebody who is gone.
//!
//! One thread waits at the path, and serves one successor at a time. How descriptors travel: `handover.rs` of `sys`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_sys::{Socket, handover};

use crate::core::quietly;
use crate::limits::{ACCEPT_LINE_PAUSE, ACCEPT_PAUSE};
use crate::server::running::Superseded;

/// A takeover that has begun: listeners may have been received, and nobody was told that we are ready.
pub(crate) struct Takeover {
    door: Door,
    predecessor: Option<Predecessor>,
}

struct Predecessor {
    stream: UnixStream,
    process: i32,
    listeners: usize,
}

impl Takeover {
    /// Takes the listeners of who serves at `path`, if anybody does, and prepares to serve there.
    pub(crate) fn begin(path: &Path) -> io::Result<(Self, Option<Vec<OwnedFd>>)> {
        let found = find(path)?;
        let door = Door::open(path)?;
        let (predecessor, listeners) = found.unzip();
        Ok((Self { door, predecessor }, listeners))
    }

    /// Our loops run: from here on successors find us, and the predecessor is told that it may go.
    pub(crate) fn complete(self, listeners: Vec<Socket>, superseded: Superseded) -> io::Result<Control> {
        let Self { mut door, predecessor } = self;
        door.publish()?;
        let control = Control::start(door, listeners, superseded)?;
        if let Some(predecessor) = predecessor {
            predecessor.release()?;
        }
        Ok(control)
    }
}

/// Asks who serves at `path` for its listeners.
fn find(path: &Path) -> io::Result<Option<(Predecessor, Vec<OwnedFd>)>> {
    let deadline = Instant::now() + STEP_PATIENCE;
    loop {
        let patience = deadline.saturating_duration_since(Instant::now()).max(MEANWHILE);
        let Some(stream) = handover::connect(path, patience)? else { return Ok(None) };
        match ask(stream) {
            // It was ending, or was itself superseded: there may be somebody else by now.
            Err(error) if has_hung_up(&error) && Instant::now() < deadline => std::thread::sleep(MEANWHILE),
            other => return other.map(Some),
        }
    }
}

fn ask(stream: UnixStream) -> io::Result<(Predecessor, Vec<OwnedFd>)> {
    let peer = handover::peer(&stream)?;
    if !peer.is_same_user {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there"));
    }
    let deadline = Instant::now() + STEP_PATIENCE;
    handover::write_all(&stream, HELLO, deadline)?;
    let listeners = handover::receive(&stream, deadline)?;
    Ok((Predecessor { stream, process: peer.process, listeners: listeners.len() }, listeners))
}

impl Predecessor {
    /// Tells it that it may go. An error if it has said that it stays.
    fn release(self) -> io::Result<()> {
        let Self { stream, process, listeners } = self;
        let deadline = Instant::now() + STEP_PATIENCE;
        let mut answer = [0];
        let released = handover::write_all(&stream, &[READY], deadline)
            .and_then(|()| handover::read_exact(&stream, &mut answer, deadline));
        match released {
            Ok(()) if answer == [RELEASED] => {
                quietly(|| tracing::info!(process, listeners, "taken over from a running server"));
                Ok(())
            }
            Ok(()) => Err(io::Error::new(io::ErrorKind::TimedOut, "the running server did not wait for this one")),
            // It has ended, or hangs. It may still have let go of the listeners, so somebody has to stay.
            Err(error) => {
                quietly(|| tracing::warn!(process, listeners, %error, "taken over from a server that does not answer"));
                Ok(())
            }
        }
    }
}

fn has_hung_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// The thread that waits for a successor. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Control {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread can be interrupted by.
#[derive(Debug)]
struct Shared {
    waits: Mutex<Waits>,
    ending: Condvar,
}

/// What the thread may be waiting for.
#[derive(Debug)]
struct Waits {
    ending: bool,
    /// Until it has ended: who is in its queue then has to see that nobody will come.
    listener: Option<Arc<UnixListener>>,
    stream: Option<Arc<UnixStream>>,
}

impl Control {
    fn start(door: Door, listeners: Vec<Socket>, superseded: Superseded) -> io::Result<Self> {
        let waits = Waits { ending: false, listener: Some(door.listener.clone()), stream: None };
        let shared = Arc::new(Shared { waits: Mutex::new(waits), ending: Condvar::new() });
        let mut keeper = Keeper { door, listeners, shared: shared.clone(), accept_failed: None };
        let keep = move || {
            let has_successor = keeper.keep();
            keeper.shared.lock().listener = None;
            // What it holds is gone before anybody drains: those listeners are the successor's.
            drop(keeper);
            if has_successor {
                superseded.come();
            }
        };
        let thread = std::thread::Builder::new().name("tidegate-takeover".into()).spawn(keep)?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        {
            let mut waits = self.shared.lock();
            waits.ending = true;
            if let Some(listener) = &waits.listener {
                handover::wake(listener);
            }
            if let Some(stream) = &waits.stream {
                // It fails only where the other end is gone already.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
        self.shared.ending.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it panicked, it was a bug of ours, and its thread has printed it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what the thread waits for now; false if it is to end.
    fn wait_for(&self, stream: Option<Arc<UnixStream>>) -> bool {
        let mut waits = self.lock();
        waits.stream = stream;
        !waits.ending
    }

    fn pause(&self) {
        let waits = self.lock();
        if !waits.ending {
            // Woken too early, it only tries again too early.
            drop(self.ending.wait_timeout(waits, ACCEPT_PAUSE));
        }
    }
}

/// The life of the control thread. It takes one descriptor for a successor and no other, and the system sets that one
/// aside while it waits: a server that has used up its descriptors can be restarted with more of them.
struct Keeper {
    door: Door,
    listeners: Vec<Socket>,
    shared: Arc<Shared>,
    /// When it was last said that nobody can be accepted.
    accept_failed: Option<Instant>,
}

impl Keeper {
    /// Serves until there is a successor, or it is told to end. Says which.
    fn keep(&mut self) -> bool {
        loop {
            let (failed, is_news) = match self.door.listener.accept() {
                Ok((stream, _)) => {
                    let stream = Arc::new(stream);
                    if !self.shared.wait_for(Some(stream.clone())) {
                        return false;
                    }
                    let handed_over = self.hand_over(&stream);
                    if !self.shared.wait_for(None) {
                        return handed_over.is_ok();
                    }
                    match handed_over {
                        Ok(process) => {
                            quietly(|| tracing::info!(process, "handing over to a new server"));
                            return true;
                        }
                        Err(error) => (error, true),
                    }
                }
                Err(error) if self.shared.wait_for(None) => {
                    self.shared.pause();
                    (error, self.is_news())
                }
                Err(_) => return false,
            };
            if is_news {
                quietly(|| tracing::warn!(error = %failed, "no takeover; this server goes on"));
            }
            if let Err(error) = self.come_back()
                && is_news
            {
                let path = self.door.path.display();
                quietly(|| tracing::error!(%error, %path, "this server cannot be found for a takeover any more"));
            }
        }
    }

    /// Where descriptors are used up, accepting fails again and again: that is said now and then.
    fn is_news(&mut self) -> bool {
        let now = Instant::now();
        let is_news = self.accept_failed.is_none_or(|said| now.duration_since(said) >= ACCEPT_LINE_PAUSE);
        if is_news {
            self.accept_failed = Some(now);
        }
        is_news
    }

    /// Hands the listeners to who has connected. Returns its number once it is ready.
    fn hand_over(&self, stream: &UnixStream) -> io::Result<i32> {
        let peer = handover::peer(stream)?;
        if !peer.is_same_user {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
        }
        let deadline = Instant::now() + STEP_PATIENCE;
        let mut hello = [0; HELLO.len()];
        handover::read_exact(stream, &mut hello, deadline)?;
        if hello != *HELLO {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it speaks another protocol"));
        }
        let listeners = self.listeners.iter().map(Socket::descriptor).collect::<io::Result<Vec<BorrowedFd<'_>>>>()?;
        handover::send(stream, &listeners, deadline)?;
        let mut ready = [0];
        if let Err(error) = handover::read_exact(stream, &mut ready, Instant::now() + READY_PATIENCE) {
            if error.kind() == io::ErrorKind::TimedOut {
                // If it cannot be told, it sees the end of the stream.
                let _ = handover::write_all(stream, &[TOO_LATE], Instant::now() + STEP_PATIENCE);
            }
            return Err(error);
        }
        if ready != [READY] {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it speaks another protocol"));
        }
        handover::write_all(stream, &[RELEASED], Instant::now() + STEP_PATIENCE)?;
        Ok(peer.process)
    }

    /// A successor that failed may have replaced our socket by its own before.
    fn come_back(&mut self) -> io::Result<()> {
        if self.door.is_ours() {
            return Ok(());
        }
        let mut door = Door::open(&self.door.path)?;
        let listener = door.listener.clone();
        door.publish()?;
        self.door = door;
        let mut waits = self.shared.lock();
        if waits.ending {
            handover::wake(&listener);
        }
        waits.listener = Some(listener);
        Ok(())
    }
}

/// A control socket and its file, which goes with it unless somebody has replaced it.
struct Door {
    listener: Arc<UnixListener>,
    path: PathBuf,
    /// Where it is until it is published.
    temporary: Option<PathBuf>,
    identity: (u64, u64),
}

impl Door {
    /// Listens, under a name that nobody knows yet.
    fn open(path: &Path) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if path.file_name().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not the path of a file"));
        }
        // The socket is renamed to it, which works for any length; but nobody could connect there.
        SocketAddr::from_pathname(path)?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".tg{}-{number}", std::process::id()));
        // Left behind by a process of the same number that was killed.
        let _ = std::fs::remove_file(&temporary);
        let listener = Arc::new(handover::listen(&temporary)?);
        let identity = identity(&temporary)?;
        Ok(Self { listener, path: path.into(), temporary: Some(temporary), identity })
    }

    /// Puts it at its path, in place of what is there: at no moment is there nothing.
    fn publish(&mut self) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            std::fs::rename(temporary, &self.path)?;
            self.temporary = None;
        }
        Ok(())
    }

    fn is_ours(&self) -> bool {
        identity(&self.path).is_ok_and(|identity| identity == self.identity)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // While the socket is open nobody else's file can have the same identity.
        let file = match &self.temporary {
            Some(temporary) => Some(temporary),
            None => self.is_ours().then_some(&self.path),
        };
        if let Some(file) = file {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(file);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// What a successor says first.
const HELLO: &[u8; 20] = b"tidegate takeover 1\n";

/// What a successor says when its loops run.
const READY: u8 = b'R';

/// The last word of a predecessor that was superseded.
const RELEASED: u8 = b'G';

/// The last word of one that goes on, since its successor took too long.
const TOO_LATE: u8 = b'L';

/// How long one of them waits for a word of the other.
const STEP_PATIENCE: Duration = Duration::from_secs(3);

/// How long a successor may take to start its loops.
const READY_PATIENCE: Duration = Duration::from_secs(10);

/// Before a path is looked at again.
const MEANWHILE: Duration = Duration::from_millis(20);
