//! A line server with commands, and clients that never wait for ever.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidegate_codec::Slice;
use tidegate_codec::framing::{Lines, Payload};
use tidegate_engine::{Context, Counts, Event, Handler, Limits, Outcome, Server, ServerHandle};

/// Answers lines with themselves, except for its commands.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    works: bool,
}

impl Handler<Lines> for Commands {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let answer = match &*line {
            b"peer" => cx.peer().to_string().into(),
            b"local" => cx.local().expect("it is connected").to_string().into(),
            b"big" => Payload::Encoded(vec![b'x'; BIG_BYTES].into()),
            b"die" => panic!("on request"),
            b"close" => return Outcome::Close,
            b"stay" => {
                self.works = true;
                return Outcome::Continue;
            }
            // Done a moment later.
            b"work" => {
                self.works = true;
                cx.deadline_after(Duration::from_millis(200));
                return Outcome::Continue;
            }
            _ => line.into(),
        };
        cx.send(answer).into()
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        match event {
            Event::Deadline => {
                cx.send("done".into()).expect("there is room");
                if cx.is_draining() { Outcome::Close } else { Outcome::Continue }
            }
            Event::Drain if !self.works => Outcome::Close,
            Event::ReadClosed => Outcome::Close,
            _ => Outcome::Continue,
        }
    }
}

/// A server of [`Commands`] on any free port.
pub(crate) fn serve(loops: usize, limits: Limits) -> ServerHandle {
    start(Server::bind("127.0.0.1:0").expect("an address").loops(loops).limits(limits))
}

pub(crate) fn start(server: Server) -> ServerHandle {
    server.start(|| (Lines::new(), Commands::default())).expect("the port is free")
}

pub(crate) fn port(server: &ServerHandle) -> SocketAddr {
    server.address().ip().expect("it listens on TCP")
}

/// A connection whose reads and writes end, whatever happens.
pub(crate) fn connect(server: &ServerHandle) -> TcpStream {
    bounded(TcpStream::connect(port(server)).expect("it listens"))
}

pub(crate) fn bounded(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout that is not zero");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout that is not zero");
    stream
}

/// Calls until no signal has interrupted the call: the kernel interrupts a call with a time-out to run the work of a ring.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Sends a line and returns the line that comes back.
pub(crate) fn ask<S: Read + Write>(stream: &mut S, line: &str) -> String {
    stream.write_all(format!("{line}\n").as_bytes()).expect("it is connected");
    read_line(stream)
}

/// The next line, read byte by byte so that nothing behind it is lost.
pub(crate) fn read_line<S: Read>(stream: &mut S) -> String {
    let mut line = String::new();
    BufReader::with_capacity(1, stream).read_line(&mut line).expect("an answer");
    assert!(line.ends_with('\n'), "it ended after `{line}`");
    line.truncate(line.len() - 1);
    line
}

/// Whether the other side has closed, in any way.
pub(crate) fn has_ended<S: Read>(stream: &mut S) -> bool {
    loop {
        match stream.read(&mut [0]) {
            Ok(0) => return true,
            Ok(_) => panic!("there was something to read"),
            // The kernel tears a probed ring down asynchronously, which interrupts the thread that made it; a read
            // with a timeout is not restarted then.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// Waits until `done`, for a long time if it has to be.
#[track_caller]
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "it has not come to it");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The counts of all loops together.
pub(crate) fn sum(server: &ServerHandle, of: impl Fn(&Counts) -> u64) -> u64 {
    server.counts().iter().map(of).sum()
}

/// A path for a Unix socket, short enough for its address, that is removed in the end.
pub(crate) struct SocketPath(pub(crate) PathBuf);

impl SocketPath {
    pub(crate) fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("tidegate-{name}-{}.sock", std::process::id())))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) const BIG_BYTES: usize = 8 << 20;

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
