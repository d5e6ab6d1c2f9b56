//! Inspection by an operator: the connections of a server, and the close of one.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tidegate::engine::{ConnectionCursor, ConnectionInfo, ConnectionState};
use tidegate::framing::Lines;
use tidegate::{Address, Backend, Context, EventLoop, Handler, Outcome, Server, ServerHandle, Slice};

/// Answers each line but `pause`, after which it reads no more.
struct Echo;

impl Handler<Lines> for Echo {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        if &*line == b"pause" {
            cx.pause();
            return Outcome::Continue;
        }
        cx.send(line.into()).into()
    }
}

fn start(loops: usize) -> ServerHandle {
    Server::bind("127.0.0.1:0").unwrap().loops(loops).start(|| (Lines::new(), Echo)).expect("it starts")
}

fn connect(server: &ServerHandle) -> TcpStream {
    let mut peer = TcpStream::connect(server.address().ip().expect("an IP address")).expect("it connects");
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    // The answer proves that the loop has the connection.
    peer.write_all(b"ebb\n").unwrap();
    peer.read_exact(&mut [0; 4]).unwrap();
    peer
}

fn all(server: &ServerHandle) -> Vec<ConnectionInfo> {
    let mut found = Vec::new();
    EventLoop::on(Backend::Auto)
        .unwrap()
        .block_on(async {
            for event_loop in 0..server.loops() {
                let mut cursor = Some(ConnectionCursor::default());
                while let Some(at) = cursor {
                    let page = server.connections(event_loop, at).await.expect("the loop runs");
                    found.extend(page.connections);
                    cursor = page.next;
                }
            }
        })
        .unwrap();
    found
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_connections_of_all_loops_are_listed_with_their_peers() {
    let server = start(2);
    let peers: Vec<_> = (0..20).map(|_| connect(&server)).collect();
    let listed = all(&server);
    let mut addresses: Vec<_> = listed.iter().map(|connection| connection.peer.clone()).collect();
    let mut expected: Vec<_> = peers.iter().map(|peer| Address::Ip(peer.local_addr().unwrap())).collect();
    addresses.sort_by_key(ToString::to_string);
    expected.sort_by_key(ToString::to_string);
    assert_eq!(addresses, expected);
    for connection in listed {
        assert!(connection.is_accepted);
        assert_eq!((connection.state, connection.inbound_bytes), (ConnectionState::Open, 0));
        assert_eq!(connection.protocols.to_string(), "Lines");
    }
    server.drain(Duration::ZERO);
}

#[test]
fn a_state_names_the_side_that_is_waited_for() {
    let server = start(1);
    let mut paused = connect(&server);
    paused.write_all(b"pause\n").unwrap();
    let state = |server: &ServerHandle| all(server)[0].state;
    until("it waits for the application", || state(&server) == ConnectionState::WaitsForApplication);
    server.drain(Duration::ZERO);

    let server = start(1);
    let mut greedy = connect(&server);
    greedy.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    // It sends, and reads nothing, until neither side's kernel takes more.
    let line = [[b'x'; 999].as_slice(), b"\n"].concat();
    while greedy.write_all(&line).is_ok() {}
    until("it waits for the peer", || state(&server) == ConnectionState::WaitsForPeer);
    assert!(all(&server)[0].outbound_bytes > 0);
    server.drain(Duration::ZERO);
}

#[test]
fn a_connection_is_reset_by_its_number_and_no_other_is() {
    let server = start(1);
    let (mut first, mut second) = (connect(&server), connect(&server));
    let address = Address::Ip(first.local_addr().unwrap());
    let target = all(&server).into_iter().find(|connection| connection.peer == address).expect("it is listed");
    let close = |event_loop, id| {
        EventLoop::on(Backend::Auto).unwrap().block_on(server.close_connection(event_loop, id)).unwrap()
    };
    assert!(close(0, target.id));
    let error = first.read(&mut [0]).expect_err("it is reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // The number belongs to no connection now; nor do the numbers of listeners and of unused slots.
    for id in [target.id, 0, 1 << 32, u64::MAX] {
        assert!(!close(0, id), "{id}");
    }
    assert!(!close(7, target.id), "there is no such loop");
    second.write_all(b"tide\n").unwrap();
    second.read_exact(&mut [0; 5]).unwrap();
    let _third = connect(&server);
    assert_eq!(server.counts()[0].closed_aborted, 1);
    server.drain(Duration::ZERO);
}

#[test]
fn a_loop_that_has_ended_lists_nothing() {
    let server = start(1);
    server.drain(Duration::ZERO);
    let page = EventLoop::on(Backend::Auto).unwrap().block_on(server.connections(0, ConnectionCursor::default()));
    assert!(page.unwrap().is_none());
    let closed = EventLoop::on(Backend::Auto).unwrap().block_on(server.close_connection(0, 1 << 32));
    assert!(!closed.unwrap());
}

#[test]
fn turns_are_counted_by_how_long_they_took() {
    let server = start(1);
    drop(connect(&server));
    until("the counts agree", || {
        let counts = server.counts()[0];
        counts.turns > 0 && counts.turn_times.buckets().iter().sum::<u64>() == counts.turns
    });
    let counts = server.counts()[0];
    assert!(counts.busy_time >= counts.longest_turn && counts.memory_budget_bytes > 0);
    server.drain(Duration::ZERO);
}

/// No wait takes longer, even if the machine is busy.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_loop_without_a_turn_reports_its_budget() {
    let server = start(2);
    assert!(server.counts().iter().all(|counts| counts.memory_budget_bytes > 0), "{:?}", server.counts());
    server.drain(Duration::ZERO);
}
