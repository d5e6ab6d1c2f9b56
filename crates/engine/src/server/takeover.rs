//! Taking listeners over from a running server, and handing them over to the next one: a restart during which
//! connections are accepted without a gap.
//!
//! Both meet at the path of a Unix socket. The successor sends hello and receives the listeners. It starts its loops,
//! puts its own socket at the path, and sends ready. Only then is the predecessor superseded. Until then the
//! predecessor is unchanged, whether or not the successor survives. Both hold the same listeners, so no connection
//! waits in the queue of a process that has exited. `session_groups.rs` describes how sessions of datagrams go on.
//!
//! One thread waits at the path. It reads from several clients at a time until one of them sends hello, so a silent
//! client delays no successor; then it serves that one. `handover.rs` of `sys` describes how descriptors travel,
//! `control_socket.rs` the file at the path, and its life.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_sys::handover;
use tidegate_sys::path_lock::PathLock;

use crate::limits::{ACCEPT_LINE_PAUSE, ACCEPT_PAUSE};
use crate::server::control_socket::ControlSocket;
use crate::server::datagram_sockets::KeptSockets;
use crate::server::handle::Superseded;
use crate::server::session_groups::{SessionParcel, TakenGroup};
use crate::unwind::catch_and_log;

/// A takeover that has begun: listeners may have been received, and ready has not been sent.
pub(crate) struct Takeover {
    path: PathBuf,
    found: Lookup,
}

/// The result of a starting server's look at the path.
enum Lookup {
    Predecessor(Predecessor),
    /// No process listens there, and none begins to before the lock is released.
    None(PathLock),
}

struct Predecessor {
    stream: UnixStream,
    process: i32,
    listeners: usize,
}

/// The sockets of a predecessor.
pub(crate) struct TakenSockets {
    pub(super) listeners: Vec<OwnedFd>,
    /// Those whose sessions go on.
    pub(super) sessions: Vec<TakenGroup>,
}

impl Takeover {
    /// Takes the sockets of the server at `path`, if there is one, and prepares to serve there.
    pub(crate) fn begin(path: &Path) -> io::Result<(Self, Option<TakenSockets>)> {
        ControlSocket::check(path)?;
        let (found, taken) = find(path)?;
        Ok((Self { path: path.into(), found }, taken))
    }

    /// Our loops run: from here on successors find this server, and the predecessor may drain. Returns also which sessions of
    /// the predecessor are being established.
    pub(crate) fn complete(
        self,
        listeners: KeptSockets,
        superseded: Superseded,
    ) -> io::Result<(TakeoverListener, Vec<u8>)> {
        let (lock, predecessor) = match self.found {
            Lookup::Predecessor(predecessor) => (PathLock::acquire(&self.path, STEP_TIMEOUT)?, Some(predecessor)),
            Lookup::None(lock) => (lock, None),
        };
        let socket = ControlSocket::publish(&self.path, lock)?;
        let mut control = TakeoverListener::start(socket, listeners, superseded)?;
        let Some(predecessor) = predecessor else { return Ok((control, Vec::new())) };
        let (establishing, unanswered) = predecessor.release()?;
        control.unanswered = unanswered;
        Ok((control, establishing))
    }
}

/// Requests the listeners of the server at `path`. If no server runs there, the path is locked: another process that
/// starts at the same time waits until this one serves, and then finds it.
fn find(path: &Path) -> io::Result<(Lookup, Option<TakenSockets>)> {
    let last = Instant::now() + READY_TIMEOUT + STEP_TIMEOUT;
    let mut deadline = Instant::now() + STEP_TIMEOUT;
    let mut lock = None;
    loop {
        let timeout = deadline.saturating_duration_since(Instant::now()).max(RETRY_PAUSE);
        let connected = handover::connect(path, timeout)?;
        match (connected, lock.take()) {
            (Some(stream), held) => {
                // A predecessor that ends needs the lock.
                drop(held);
                match request_listeners(stream) {
                    // The server was ending, or was itself superseded: another server may be there by now.
                    Err(error) if has_hung_up(&error) && Instant::now() < deadline => std::thread::sleep(RETRY_PAUSE),
                    result => {
                        return result.map(|(predecessor, taken)| (Lookup::Predecessor(predecessor), Some(taken)));
                    }
                }
            }
            (None, Some(lock)) => return Ok((Lookup::None(lock), None)),
            (None, None) => {
                let timeout = last.saturating_duration_since(Instant::now());
                lock = Some(PathLock::acquire(path, timeout)?);
                // The time spent on the lock does not count as time spent on a response.
                deadline = last.min(Instant::now() + STEP_TIMEOUT);
            }
        }
    }
}

fn request_listeners(stream: UnixStream) -> io::Result<(Predecessor, TakenSockets)> {
    let peer = handover::peer(&stream)?;
    if !peer.is_same_user {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there"));
    }
    let deadline = Instant::now() + STEP_TIMEOUT;
    handover::write_all(&stream, HELLO, deadline)?;
    let listeners = handover::receive(&stream, deadline)?;
    let bytes = handover::read_block(&stream, deadline)?;
    let parcel = SessionParcel { bytes, descriptors: handover::receive_any(&stream, deadline)? };
    let sessions = TakenGroup::unpack(parcel)?;
    let count = listeners.len() + sessions.iter().map(|group| group.sockets.len()).sum::<usize>();
    let predecessor = Predecessor { stream, process: peer.process, listeners: count };
    Ok((predecessor, TakenSockets { listeners, sessions }))
}

impl Predecessor {
    /// Releases the predecessor. Returns which of its sessions are being established, and the stream if no whole answer has
    /// come. An error if the predecessor has decided to stay.
    ///
    /// One side alone stays: a predecessor that has read ready stays only if it finds the stream closed. So a successor that
    /// goes on without an answer keeps the stream open.
    fn release(self) -> io::Result<(Vec<u8>, Option<UnixStream>)> {
        let Self { stream, process, listeners } = self;
        let deadline = Instant::now() + STEP_TIMEOUT;
        let mut answer = [0];
        // A predecessor that stays may have closed its end already, and its answer waits here.
        let written = handover::write_all(&stream, &[READY], deadline);
        let released = handover::read_exact(&stream, &mut answer, deadline)
            .and_then(|()| if answer == [TOO_LATE] { Ok(()) } else { written })
            .and_then(|()| if answer == [RELEASED] { handover::read_block(&stream, deadline) } else { Ok(Vec::new()) });
        match released {
            Ok(establishing) if answer == [RELEASED] => {
                catch_and_log(|| tracing::info!(subsystem = "takeover", process, listeners, "took over"));
                Ok((establishing, None))
            }
            Ok(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the running server did not wait for this one")),
            // It has ended, or hangs. It may already have dropped the listeners, so this server has to stay.
            Err(error) => {
                catch_and_log(
                    || tracing::warn!(subsystem = "takeover", process, listeners, %error, "took over; no answer"),
                );
                Ok((Vec::new(), Some(stream)))
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
pub(crate) struct TakeoverListener {
    shared: Arc<Interruption>,
    thread: Option<JoinHandle<()>>,
    /// To a predecessor that has not answered, and that would stay if it found the stream closed.
    unanswered: Option<UnixStream>,
}

/// The interruption of the thread.
#[derive(Debug)]
struct Interruption {
    blocked_on: Mutex<BlockedOn>,
    ending: Condvar,
}

/// The possible waits of the thread.
#[derive(Debug)]
struct BlockedOn {
    ending: bool,
    /// `Some` until the thread has ended: closing it then ends the clients that wait in its queue.
    listener: Option<Arc<UnixListener>>,
    stream: Option<Arc<UnixStream>>,
}

impl TakeoverListener {
    fn start(socket: ControlSocket, listeners: KeptSockets, superseded: Superseded) -> io::Result<Self> {
        let blocked_on = BlockedOn { ending: false, listener: Some(socket.listener.clone()), stream: None };
        let shared = Arc::new(Interruption { blocked_on: Mutex::new(blocked_on), ending: Condvar::new() });
        // Before the thread runs: by the time it waits, connections may have used up the descriptors.
        let reserve = Some(reserve_descriptor(&socket)?);
        let mut thread = TakeoverThread { socket, reserve, listeners, shared: shared.clone(), accept_failed: None };
        let run = move || {
            let has_successor = thread.run();
            thread.shared.lock().listener = None;
            // The thread's listeners are closed before the server drains: they are the successor's.
            drop(thread);
            if has_successor {
                superseded.set_superseded();
            }
        };
        let thread = std::thread::Builder::new().name("tidegate-takeover".into()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread), unanswered: None })
    }
}

impl Drop for TakeoverListener {
    fn drop(&mut self) {
        {
            let mut blocked_on = self.shared.lock();
            blocked_on.ending = true;
            if let Some(listener) = &blocked_on.listener {
                handover::wake(listener);
            }
            if let Some(stream) = &blocked_on.stream {
                // It fails only if the other end is gone already.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
        self.shared.ending.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it panicked, that is a bug of ours, and its thread has printed it.
            let _ = thread.join();
        }
    }
}

impl Interruption {
    fn lock(&self) -> MutexGuard<'_, BlockedOn> {
        self.blocked_on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the thread's current wait; false if it is to end.
    fn wait_for(&self, stream: Option<Arc<UnixStream>>) -> bool {
        let mut blocked_on = self.lock();
        blocked_on.stream = stream;
        !blocked_on.ending
    }

    fn is_ending(&self) -> bool {
        self.lock().ending
    }

    fn pause(&self, pause: Duration) {
        let blocked_on = self.lock();
        if !blocked_on.ending {
            // A spurious wake-up only makes the next attempt early.
            drop(self.ending.wait_timeout(blocked_on, pause));
        }
    }
}

/// A descriptor that serves nothing: closing it makes room for another one.
fn reserve_descriptor(socket: &ControlSocket) -> io::Result<OwnedFd> {
    Ok(socket.listener.try_clone()?.into())
}

/// A client that has connected and has not sent hello yet.
struct Candidate {
    stream: Arc<UnixStream>,
    process: i32,
    hello: [u8; HELLO.len()],
    read: usize,
    since: Instant,
}

impl Candidate {
    fn new(stream: UnixStream) -> io::Result<Self> {
        let peer = handover::peer(&stream)?;
        if !peer.is_same_user {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
        }
        let stream = Arc::new(stream);
        Ok(Self { stream, process: peer.process, hello: [0; HELLO.len()], read: 0, since: Instant::now() })
    }

    /// Whether it has sent hello. An error if it has sent anything else, has closed, or was silent for too long.
    fn has_sent_hello(&mut self, now: Instant) -> io::Result<bool> {
        self.read += handover::read_arrived(&self.stream, &mut self.hello[self.read..])?;
        if self.hello[..self.read] != HELLO[..self.read] {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it speaks another protocol"));
        }
        if self.read == HELLO.len() {
            return Ok(true);
        }
        if now.duration_since(self.since) < STEP_TIMEOUT { Ok(false) } else { Err(hello_timeout()) }
    }
}

/// The error of a client that sends nothing.
fn hello_timeout() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a client connected and said nothing")
}

/// The state of the control thread. A server that has used up its descriptors can be restarted with more of them: the
/// kernel reserves a descriptor for a successor while the thread waits in `accept`, and the thread holds another one
/// for the case that none is free when it calls `accept`.
struct TakeoverThread {
    socket: ControlSocket,
    /// `None` after `accept` needed it, until another descriptor is free.
    reserve: Option<OwnedFd>,
    listeners: KeptSockets,
    shared: Arc<Interruption>,
    /// When a failure to accept was last logged.
    accept_failed: Option<Instant>,
}

impl TakeoverThread {
    /// Serves until there is a successor, or the server ends. Returns whether there is a successor.
    fn run(&mut self) -> bool {
        let mut candidates = Vec::new();
        loop {
            let timeout = if candidates.is_empty() { None } else { Some(HELLO_PAUSE) };
            let accepted = self.accept(timeout);
            if self.shared.is_ending() {
                return false;
            }
            match accepted {
                Ok(Some(stream)) => self.admit(&mut candidates, stream),
                Ok(None) => {}
                Err(error) => self.on_accept_failed(&mut candidates, &error),
            }
            let mut next = 0;
            while next < candidates.len() {
                match candidates[next].has_sent_hello(Instant::now()) {
                    Ok(false) => next += 1,
                    Ok(true) => {
                        let candidate = candidates.remove(next);
                        if !self.shared.wait_for(Some(candidate.stream.clone())) {
                            return false;
                        }
                        let handed_over = self.hand_over(&candidate.stream);
                        if !self.shared.wait_for(None) {
                            return handed_over.is_ok();
                        }
                        match handed_over {
                            Ok(()) => {
                                let process = candidate.process;
                                catch_and_log(|| tracing::info!(subsystem = "takeover", process, "handing over"));
                                return true;
                            }
                            Err(error) => {
                                self.listeners.sessions().on_failed();
                                self.log_failed_attempt(&error, true);
                            }
                        }
                    }
                    Err(error) => {
                        candidates.remove(next);
                        self.log_failed_attempt(&error, true);
                    }
                }
            }
        }
    }

    /// Accepts one client, with the reserved descriptor if no other is free.
    fn accept(&mut self, timeout: Option<Duration>) -> io::Result<Option<UnixStream>> {
        if self.reserve.is_none() {
            self.reserve = reserve_descriptor(&self.socket).ok();
        }
        match handover::accept(&self.socket.listener, timeout) {
            Err(_) if self.reserve.take().is_some() => handover::accept(&self.socket.listener, timeout),
            accepted => accepted,
        }
    }

    /// Takes a client in. If too many wait, the one that has been silent for longest is dropped: a successor sends
    /// hello as soon as it has connected.
    fn admit(&mut self, candidates: &mut Vec<Candidate>, stream: UnixStream) {
        if candidates.len() == CANDIDATES_MAX {
            candidates.remove(0);
            self.log_failed_attempt(&hello_timeout(), true);
        }
        match Candidate::new(stream) {
            Ok(candidate) => candidates.push(candidate),
            Err(error) => self.log_failed_attempt(&error, true),
        }
    }

    /// Descriptors may be used up, and a silent client may hold the one that a successor needs.
    fn on_accept_failed(&mut self, candidates: &mut Vec<Candidate>, error: &io::Error) {
        if candidates.is_empty() {
            self.shared.pause(ACCEPT_PAUSE);
            let is_news = self.may_log_accept_failure();
            return self.log_failed_attempt(error, is_news);
        }
        self.shared.pause(HELLO_PAUSE);
        if candidates[0].since.elapsed() > HELLO_TIME_MIN {
            candidates.remove(0);
            let is_news = self.may_log_accept_failure();
            self.log_failed_attempt(&hello_timeout(), is_news);
        }
    }

    /// This takeover attempt failed; the server continues.
    fn log_failed_attempt(&mut self, error: &io::Error, is_news: bool) {
        if is_news {
            catch_and_log(|| tracing::warn!(subsystem = "takeover", %error, "takeover failed; serving on"));
        }
        if let Err(error) = self.restore_socket()
            && is_news
        {
            let path = self.socket.path().display();
            catch_and_log(|| tracing::error!(subsystem = "takeover", %error, %path, "takeover socket lost"));
        }
    }

    /// Without free descriptors accepting fails repeatedly: that is logged at intervals.
    fn may_log_accept_failure(&mut self) -> bool {
        let now = Instant::now();
        let is_news = self.accept_failed.is_none_or(|said| now.duration_since(said) >= ACCEPT_LINE_PAUSE);
        if is_news {
            self.accept_failed = Some(now);
        }
        is_news
    }

    /// Hands the sockets to a client that has sent hello. Returns once it is ready, and this server receives no datagrams of
    /// sessions but from it.
    fn hand_over(&self, stream: &UnixStream) -> io::Result<()> {
        let sessions = self.listeners.sessions();
        let mut packed = sessions.pack()?;
        let deadline = Instant::now() + STEP_TIMEOUT;
        self.listeners.with(|listeners| handover::send(stream, listeners, deadline))?;
        handover::write_block(stream, &packed.parcel.bytes, deadline)?;
        handover::send(stream, &packed.parcel.descriptors(), deadline)?;
        // The pipes end with the successor.
        packed.parcel = SessionParcel::default();
        let mut ready = [0];
        if let Err(error) = handover::read_exact(stream, &mut ready, Instant::now() + READY_TIMEOUT)
            // If this process did not run for so long, ready may be there: then the successor may go on by now.
            && !matches!(handover::read_arrived(stream, &mut ready), Ok(1))
        {
            if error.kind() == io::ErrorKind::TimedOut {
                // If the client does not receive this, it sees the end of the stream.
                let _ = handover::write_all(stream, &[TOO_LATE], Instant::now() + STEP_TIMEOUT);
            }
            return Err(error);
        }
        if ready != [READY] {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it speaks another protocol"));
        }
        let establishing = sessions.release(packed);
        let deadline = Instant::now() + STEP_TIMEOUT;
        let released = handover::write_all(stream, &[RELEASED], deadline)
            .and_then(|()| handover::write_block(stream, &establishing, deadline));
        match released {
            // The successor has ended: one that goes on keeps the stream open until it has the whole answer.
            Err(error) if has_hung_up(&error) => {
                sessions.resume();
                Err(error)
            }
            Err(error) => {
                catch_and_log(|| tracing::warn!(subsystem = "takeover", %error, "the successor reads no answer"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// A successor that failed may already have replaced our socket with its own.
    fn restore_socket(&mut self) -> io::Result<()> {
        if self.socket.is_at_path() {
            return Ok(());
        }
        let path = self.socket.path().to_owned();
        let socket = ControlSocket::publish(&path, PathLock::acquire(&path, STEP_TIMEOUT)?)?;
        let listener = socket.listener.clone();
        // It would keep the old socket open.
        self.reserve = reserve_descriptor(&socket).ok();
        self.socket = socket;
        let mut blocked_on = self.shared.lock();
        if blocked_on.ending {
            handover::wake(&listener);
        }
        blocked_on.listener = Some(listener);
        Ok(())
    }
}

/// The first message of a successor.
const HELLO: &[u8; 20] = b"tidegate takeover 2\n";

/// A successor sends this when its loops run.
const READY: u8 = b'R';

/// The last message of a predecessor that was superseded; the sessions that are being established follow.
const RELEASED: u8 = b'G';

/// The last message of a predecessor that stays, since its successor took too long.
const TOO_LATE: u8 = b'L';

/// How long one side waits for a message of the other.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a successor may take to start its loops.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Clients that may wait without having sent hello; each has a descriptor.
const CANDIDATES_MAX: usize = 8;

/// The polling interval for clients that have not sent hello, while there are any.
const HELLO_PAUSE: Duration = Duration::from_millis(10);

/// How long a client may be silent while no further one can be accepted.
const HELLO_TIME_MIN: Duration = Duration::from_millis(100);

/// The pause before the path is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// The release by a predecessor that has sent these bytes, and is gone before the successor is ready.
    fn release_after(answer: &[u8]) -> io::Result<(Vec<u8>, Option<UnixStream>)> {
        let (stream, mut far) = UnixStream::pair().expect("a pair");
        far.write_all(answer).expect("room");
        drop(far);
        Predecessor { stream, process: 0, listeners: 1 }.release()
    }

    #[test]
    fn one_side_alone_stays() {
        let stays = release_after(&[TOO_LATE]).expect_err("the predecessor stays");
        assert_eq!(stays.kind(), io::ErrorKind::TimedOut);
        for answer in [&[][..], &[RELEASED], &[RELEASED, 2, 0, 0, 0, 7]] {
            let (establishing, unanswered) = release_after(answer).expect("the predecessor is gone");
            assert!(establishing.is_empty());
            assert!(unanswered.is_some(), "the stream stays open");
        }
    }
}
