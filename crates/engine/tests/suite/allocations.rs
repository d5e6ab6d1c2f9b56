//! The cost of a message on the steady path, and of an idle connection, counted by the allocator.
//!
//! The allocator counts for each thread, so other threads of the test do not count.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tidegate_buffer::Pool;
use tidegate_codec::framing::{LengthField, Lines, Payload};
use tidegate_codec::{Over, Pipeline, Slice, sniff};
use tidegate_engine::task::Task;
use tidegate_engine::{Channel, Context, EventLoop, Handler, Limits, Outcome, Protocol, Protocols, task};
use tidegate_sys::readiness::Readiness;
use tidegate_sys::{
    Accepted, Address, Class, Completion, Driver, ListenOptions, Operation, Side, Socket, Token, Wake, Waker,
};
use tidegate_testkit::allocations::{Allocations, Region};
use tidegate_testkit::filters::StripPrefix;
use tidegate_testkit::{ToyMux, ToyMuxConfig};

struct Echo;

impl<C: Pipeline<In = Slice, Out = Payload>> Handler<C> for Echo {
    type Post = ();

    fn message(&mut self, message: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        cx.send(message.into()).into()
    }
}

#[test]
fn messages_allocate_nothing_and_idle_connections_stay_within_their_bound() {
    allocates_nothing(Lines::new, b"", &b"ebb and flow\n".repeat(16));
    allocates_nothing(|| LengthField::new(2), b"", b"\0\x05tides");
    allocates_nothing(|| Over::new(StripPrefix::new(b"P"), Lines::new()), b"P", b"one\ntwo\nthree\n");
    // Larger than the copy limit: the answer links the received bytes.
    allocates_nothing(Lines::new, b"", &[&[b'x'; 6_000][..], b"\n"].concat());

    let bytes = idle_bytes(|event_loop, limits, live| {
        event_loop.listen(Socket::Simulated(0), limits, live, |_| (Lines::new(), Echo))
    });
    println!("{bytes} bytes for an idle connection");
    assert!(bytes <= 200, "{bytes} bytes for an idle connection");
    let bytes =
        idle_bytes(|event_loop, limits, live| event_loop.serve(Socket::Simulated(0), limits, live, Lines::new, echo));
    println!("{bytes} bytes for an idle connection with a channel");
    assert!(bytes <= 336, "{bytes} bytes for an idle connection with a channel");

    let bytes = idle_bytes(|event_loop, limits, live| {
        let mux = || ToyMux::server(ToyMuxConfig::default());
        event_loop.listen_streams(Socket::Simulated(0), limits, live, mux, || (Lines::new(), Echo))
    });
    println!("{bytes} bytes for an idle session");
    assert!(bytes <= 384, "{bytes} bytes for an idle session");
    let violation = |mut peer: TcpStream| {
        peer.write_all(&ToyMux::frame(99, 0, 1, b"ebb")).expect("there is room");
        Some(peer)
    };
    for (why, end) in [("the peer ends", (|_| None) as EndPeer), ("the peer breaks the protocol", violation)] {
        let (bytes, ending) = idle_streams(end);
        println!("{bytes} bytes for an idle stream; {ending} allocations for the end of {CROWD}, when {why}");
        assert!(bytes <= 200, "{bytes} bytes for an idle stream");
        assert!(ending < CROWD, "{ending} allocations for the end of {CROWD} streams, when {why}");
    }

    sniffing_leaves_nothing_behind();
    a_task_that_has_given_its_connection_back_leaves_nothing_behind();
    tasks_leave_nothing_behind();
}

/// A connection whose protocol was chosen by its first bytes takes as much memory as one that had it from the start.
fn sniffing_leaves_nothing_behind() {
    let protocols = Protocols::new().on(sniff::http2, Protocol::serve(Lines::new, echo));
    let protocols = protocols.on(sniff::starts_with(b"ebb"), Protocol::handle(|| (Lines::new(), Echo)));
    let protocols = protocols.on(sniff::starts_with(b"flow"), Protocol::serve(Lines::new, echo)).share();
    let handled = served_bytes(b"ebb\n", |event_loop, socket, peer| {
        event_loop.adopt(socket, peer, Limits::default(), Lines::new(), Echo).map(drop)
    });
    let task = served_bytes(b"flow\n", |event_loop, socket, peer| {
        let channel = event_loop.open(socket, peer, Limits::default(), Lines::new())?;
        event_loop.spawn(echo(channel));
        Ok(())
    });
    let [sniffed, sniffed_task] = [&b"ebb\n"[..], b"flow\n"].map(|line| {
        served_bytes(line, |event_loop, socket, peer| {
            event_loop.adopt(socket, peer, Limits::default(), protocols.sniffer(), protocols.handler()).map(drop)
        })
    });
    println!("{handled} bytes for an idle connection, {sniffed} after sniffing");
    assert_eq!(sniffed, handled, "bytes for an idle connection after sniffing");
    println!("{task} bytes for one with a channel, {sniffed_task} after sniffing");
    assert!(sniffed_task <= task, "{sniffed_task} bytes with a channel after sniffing, {task} without");
}

/// Answers each line by a task, which then gives the connection back.
struct ByTask;

impl Handler<Lines> for ByTask {
    type Post = ();

    fn message(&mut self, line: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        Outcome::into_channel(move |mut channel| async move {
            channel.send(line.into())?;
            channel.into_handler(Self)?;
            Ok::<_, Box<dyn Error>>(())
        })
    }
}

fn a_task_that_has_given_its_connection_back_leaves_nothing_behind() {
    let [handled, by_task] = [false, true].map(|by_task| {
        served_bytes(b"ebb\n", |event_loop, socket, peer| match by_task {
            true => event_loop.adopt(socket, peer, Limits::default(), Lines::new(), ByTask).map(drop),
            false => event_loop.adopt(socket, peer, Limits::default(), Lines::new(), Echo).map(drop),
        })
    });
    println!("{handled} bytes for an idle connection, {by_task} after a task");
    assert_eq!(by_task, handled, "bytes for an idle connection after a task");
}

/// The memory for each of many connections, idle after their first line was answered.
fn served_bytes(line: &[u8], mut open: impl FnMut(&mut EventLoop, Socket, &Address) -> std::io::Result<()>) -> usize {
    const COUNT: usize = 200;
    let mut event_loop = EventLoop::readiness().expect("a loop");
    let mut serve = |peers: &mut Vec<UnixStream>| {
        let (ours, mut theirs) = UnixStream::pair().expect("there are descriptors left");
        theirs.write_all(line).expect("there is room");
        let ours = Socket::from_stream(ours).expect("a stream");
        open(&mut event_loop, ours, &Address::Unix(PathBuf::new())).expect("it is adopted");
        theirs.set_nonblocking(true).expect("a socket");
        let mut answer = [0; 16];
        while theirs.read(&mut answer).is_err() {
            event_loop.turn(Some(Duration::from_secs(1))).expect("waiting does not fail");
        }
        assert!(answer.starts_with(line), "{}", answer.escape_ascii());
        peers.push(theirs);
    };
    let mut peers = Vec::with_capacity(2 * COUNT);
    (0..COUNT).for_each(|_| serve(&mut peers));
    let region = Region::new();
    (0..COUNT).for_each(|_| serve(&mut peers));
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated) / COUNT
}

/// Ends a connection, and keeps its socket if the server has to end it.
type EndPeer = fn(TcpStream) -> Option<TcpStream>;

/// The engine's memory for each of many idle streams of one session: the stream, its slot, and its place in the table of
/// the session. Then the allocations of the session's end, which has one reason for all streams.
fn idle_streams(end: EndPeer) -> (usize, usize) {
    let mut event_loop = EventLoop::readiness().expect("a loop");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let listener = Socket::from_listener(listener, &ListenOptions::default()).expect("a listener");
    let config = ToyMuxConfig { streams_max: u32::MAX, ..ToyMuxConfig::default() };
    let mux = move || ToyMux::server(config);
    let listening =
        event_loop.listen_streams(listener, Limits::default(), Arc::default(), mux, || (Lines::new(), Echo));
    listening.expect("it listens");
    let mut peer = TcpStream::connect(address).expect("it listens");
    let (mut id, mut opened) = (1, 0);
    let mut open = |count: u64| {
        opened += count;
        for _ in 0..count {
            peer.write_all(&ToyMux::frame(0, 0, id, &[3])).expect("there is room");
            id += 2;
        }
        while event_loop.counts().streams < opened {
            event_loop.turn(Some(Duration::from_secs(1))).expect("waiting does not fail");
        }
    };
    open(100);
    let region = Region::new();
    open(CROWD as u64);
    let change = region.change();
    let bytes = (change.bytes_allocated - change.bytes_deallocated) / CROWD;
    let region = Region::new();
    let _ended = end(peer);
    while event_loop.counts().streams > 0 {
        event_loop.turn(Some(Duration::from_secs(1))).expect("waiting does not fail");
    }
    (bytes, region.change().allocations)
}

async fn echo<C: Pipeline<In = Slice, Out = Payload>>(mut channel: Channel<C>) -> Result<(), Box<dyn Error>> {
    while let Some(message) = channel.recv().await? {
        channel.send(message.into())?;
    }
    Ok(())
}

/// The memory of thousands of tasks, with their timers and handles, is freed when they have ended; the loop keeps the
/// buffers for the ids of woken tasks, and a table of pages.
fn tasks_leave_nothing_behind() {
    let mut event_loop = EventLoop::new(Box::new(Crowd::default()), Pool::new());
    let mut round = |count: usize| {
        let region = Region::new();
        let tasks: Vec<_> = (0..count)
            .map(|_| {
                event_loop.spawn(async {
                    let sleeping = task::spawn(task::sleep(Duration::from_secs(3600)));
                    task::sleep(Duration::from_millis(1)).await;
                    sleeping.cancel();
                })
            })
            .collect();
        while !tasks.iter().all(Task::is_finished) {
            event_loop.turn(None).expect("waiting does not fail");
        }
        // The buffers of a burst are freed when they are used again.
        for _ in 0..10 {
            event_loop.spawn(async {});
            event_loop.turn(None).expect("waiting does not fail");
        }
        drop(tasks);
        let change = region.change();
        change.bytes_allocated.wrapping_sub(change.bytes_deallocated) as isize
    };
    round(100);
    let left = round(20_000);
    println!("{left} bytes are left of 20,000 tasks");
    assert!(left < 200_000, "{left} bytes are left of 20,000 tasks");
    let left = round(20_000);
    assert!(left < 10_000, "{left} bytes more are left of 20,000 tasks");
}

/// Sends `first`, and then again and again the bytes that are echoed, to a handler and to a channel.
fn allocates_nothing<C: Pipeline<In = Slice, Out = Payload>>(codec: impl Fn() -> C, first: &[u8], wire: &[u8]) {
    for with_channel in [false, true] {
        let change = allocated(codec(), with_channel, first, wire);
        // The test runner's own thread may allocate meanwhile; an allocation per message would count hundreds of
        // times.
        let count = change.allocations + change.reallocations;
        println!("{count} allocations in {ROUNDS} rounds of {} bytes, channel: {with_channel}", wire.len());
        // A task may keep its messages: a small receive is copied out of the scratch, once.
        let copies = if with_channel && wire.len() < 5_152 { ROUNDS } else { 0 };
        assert!(count < copies + 10, "{change:?}, channel: {with_channel}");
    }
}

fn allocated<C: Pipeline<In = Slice, Out = Payload>>(
    codec: C,
    with_channel: bool,
    first: &[u8],
    wire: &[u8],
) -> Allocations {
    let pool = Pool::new();
    let driver = Readiness::new(&pool).expect("there is a descriptor left");
    let mut event_loop = EventLoop::new(Box::new(driver), pool);
    let (ours, mut theirs) = UnixStream::pair().expect("there are descriptors left");
    theirs.set_nonblocking(true).expect("a socket");
    let ours = Socket::from_stream(ours).expect("a stream");
    let peer = Address::Unix(PathBuf::new());
    if with_channel {
        let channel = event_loop.open(ours, &peer, Limits::default(), codec).expect("it is adopted");
        event_loop.spawn(echo(channel));
    } else {
        event_loop.adopt(ours, &peer, Limits::default(), codec, Echo).expect("it is adopted");
    }
    theirs.write_all(first).expect("there is room");
    let mut answer = vec![0; wire.len()];
    let mut round = || {
        theirs.write_all(wire).expect("there is room");
        let mut come = 0;
        while come < answer.len() {
            event_loop.turn(Some(Duration::from_secs(1))).expect("waiting does not fail");
            match theirs.read(&mut answer[come..]) {
                Ok(0) => panic!("it ended"),
                Ok(count) => come += count,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
        assert!(answer == wire);
    };
    // The first rounds fill the pool.
    (0..10).for_each(|_| round());
    let region = Region::new();
    (0..ROUNDS).for_each(|_| round());
    region.change()
}

/// The engine's memory for each of many idle connections over IPv4: the connection and its slot. The driver's memory
/// and the allocator's overhead are not included.
fn idle_bytes(listen: impl FnOnce(&mut EventLoop, Limits, Arc<AtomicUsize>) -> std::io::Result<()>) -> usize {
    let mut event_loop = EventLoop::new(Box::new(Crowd::default()), Pool::new());
    let live = Arc::new(AtomicUsize::new(0));
    let limits = Limits { connections_max: usize::MAX, ..Limits::default() };
    listen(&mut event_loop, limits, live.clone()).expect("it listens");
    let region = Region::new();
    while live.load(std::sync::atomic::Ordering::Relaxed) < CROWD {
        event_loop.turn(None).expect("waiting does not fail");
    }
    let change = region.change();
    (change.bytes_allocated - change.bytes_deallocated) / CROWD
}

const ROUNDS: usize = 1_000;

/// Connections of [`Crowd`].
const CROWD: usize = 6_400;

/// A driver on which connections arrive and do nothing.
#[derive(Default)]
struct Crowd {
    listener: Option<Token>,
    accepted: usize,
}

impl Driver for Crowd {
    fn name(&self) -> &'static str {
        "crowd"
    }

    fn waker(&self) -> Waker {
        struct NoWake;
        impl Wake for NoWake {
            fn wake(&self) {}
        }
        Waker::new(Arc::new(NoWake))
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        match operation {
            Operation::Listen(_) => self.listener = Some(token),
            Operation::Close { .. } => return Some(Completion::Closed),
            _ => {}
        }
        None
    }

    fn wait(&mut self, _: Option<Duration>) -> std::io::Result<()> {
        Ok(())
    }

    fn next(&mut self, _: Class) -> Option<(Token, Completion)> {
        if self.accepted == CROWD {
            return None;
        }
        self.accepted += 1;
        let peer = Address::Ip(SocketAddr::from(([192, 0, 2, 1], self.accepted as u16)));
        let accepted = Accepted { socket: Socket::Simulated(self.accepted as u64), peer };
        Some((self.listener?, Completion::Accepted(Ok(accepted))))
    }

    fn has_ready(&self) -> bool {
        false
    }

    fn pause_receives(&mut self, _: bool) {}

    fn address(&self, _: Token, _: Side) -> std::io::Result<Address> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
