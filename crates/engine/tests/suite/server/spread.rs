//! The loop that serves a connection: the one whose listener the kernel chose, or the one with the fewest connections.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_codec::Slice;
use tidegate_codec::framing::Lines;
use tidegate_engine::{Backend, Context, Event, Handler, Limits, LoadBalancing, Outcome, Server, ServerHandle};
use tidegate_sys::memory::descriptors_max;
use tidegate_sys::uring::Uring;

use crate::server::support::{PATIENCE, SocketPath, ask, connect, has_ended, port, sum, until};

/// Sends the number of its loop.
struct Numbered(usize);

impl Handler<Lines> for Numbered {
    type Post = ();

    fn message(&mut self, _: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        cx.send(self.0.to_string().into_bytes().into()).into()
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        match event {
            Event::Drain | Event::ReadClosed => Outcome::Close,
            _ => Outcome::Continue,
        }
    }
}

#[test]
fn a_thousand_connections_are_even_where_they_go_to_the_least_loaded() {
    let Some(_alone) = a_crowd() else { return };
    for backend in backends() {
        let server = start(backend, LoadBalancing::LeastLoaded);
        let (_clients, numbers) = a_thousand(&server);
        assert_eq!(numbers, [250; LOOPS], "{backend:?}: each came when those before had been counted");
        assert_eq!(connections(&server), numbers.map(|number| number as u64));
        assert_eq!(sum(&server, |counts| counts.accepted), 1000);
    }
}

#[test]
fn the_kernel_spreads_a_thousand_connections_over_every_loop() {
    let Some(_alone) = a_crowd() else { return };
    for backend in backends() {
        let server = start(backend, LoadBalancing::Kernel);
        let (_clients, numbers) = a_thousand(&server);
        // By a hash, each loop's share is binomial: 250 on average, with a standard deviation of 13.7. Once in 10^12
        // runs one of them is off by more than seven deviations.
        assert!(numbers.iter().all(|number| (150..=350).contains(number)), "{backend:?}: {numbers:?}");
        assert_eq!(connections(&server), numbers.map(|number| number as u64));
        assert_eq!(sum(&server, |counts| counts.accepted), 1000);
    }
}

#[test]
fn a_thousand_that_come_at_once_are_almost_even() {
    let Some(_alone) = a_crowd() else { return };
    for backend in backends() {
        let server = start(backend, LoadBalancing::LeastLoaded);
        let mut clients: Vec<_> = (0..1000).map(|_| connect(&server)).collect();
        let mut numbers = [0; LOOPS];
        clients.iter_mut().for_each(|client| numbers[which(client)] += 1);
        // Each loop may be about to send one to where another has just sent one.
        let (fewest, most) = (numbers.iter().min().unwrap(), numbers.iter().max().unwrap());
        assert!(most - fewest <= 1 + LOOPS, "{backend:?}: {numbers:?}");
    }
}

#[test]
fn a_queue_that_loops_share_is_spread_evenly_too() {
    for backend in backends() {
        let path = SocketPath::new("spread");
        let server = Server::bind(&format!("unix:{}", path.0.display())).unwrap();
        let server = numbered(server.backend(backend).load_balancing(LoadBalancing::LeastLoaded));
        let mut numbers = [0; LOOPS];
        let clients: Vec<_> = (0..80)
            .map(|_| {
                let mut client = UnixStream::connect(&path.0).unwrap();
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                numbers[ask(&mut client, "which").parse::<usize>().unwrap()] += 1;
                client
            })
            .collect();
        assert_eq!(numbers, [20; LOOPS], "{backend:?}");
        drop((clients, server));
    }
}

#[test]
fn fresh_connections_go_where_others_have_gone_until_it_is_even() {
    for backend in backends() {
        let server = start(backend, LoadBalancing::LeastLoaded);
        let mut clients: Vec<_> = (0..40).map(|_| connect(&server)).collect();
        clients.iter_mut().for_each(|client| drop(ask(client, "which")));
        clients.retain_mut(|client| which(client) == 0);
        let stayed = clients.len();
        until(|| sum(&server, |counts| counts.connections) == stayed as u64);
        let mut numbers = [0; LOOPS];
        for _ in 0..(LOOPS - 1) * stayed {
            let mut client = connect(&server);
            numbers[which(&mut client)] += 1;
            clients.push(client);
        }
        assert_eq!(numbers, [0, stayed, stayed, stayed], "{backend:?}");
    }
}

#[test]
fn a_drain_ends_connections_accepted_on_any_loop() {
    for backend in backends() {
        let server = start(backend, LoadBalancing::LeastLoaded);
        let address = port(&server);
        let mut clients: Vec<_> = (0..40).map(|_| connect(&server)).collect();
        clients.iter_mut().for_each(|client| drop(ask(client, "which")));
        let drain = std::thread::spawn(move || server.drain(PATIENCE));
        assert!(clients.iter_mut().all(has_ended), "{backend:?}");
        drop(clients);
        drain.join().unwrap();
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn a_server_that_hands_connections_over_ends_while_they_keep_coming() {
    for backend in backends() {
        let server = Server::bind("127.0.0.1:0").unwrap().limits(Limits { connections_max: 8, ..Limits::default() });
        let server = numbered(server.backend(backend).load_balancing(LoadBalancing::LeastLoaded));
        let address = port(&server);
        let crowd = std::thread::spawn(move || {
            let mut clients = Vec::new();
            while let Ok(client) = TcpStream::connect(address) {
                clients.push(client);
                if clients.len() > 100 {
                    clients.clear();
                }
            }
        });
        until(|| sum(&server, |counts| counts.accepted) > 100);
        server.drain(Duration::from_millis(50));
        crowd.join().unwrap();
    }
}

fn start(backend: Backend, spread: LoadBalancing) -> ServerHandle {
    numbered(Server::bind("127.0.0.1:0").unwrap().backend(backend).load_balancing(spread))
}

fn numbered(server: Server) -> ServerHandle {
    server.loops(LOOPS).start_each(|number| move |_: &_| (Lines::new(), Numbered(number))).unwrap()
}

/// A thousand connections, each opened when the one before was answered, and the number on each loop.
fn a_thousand(server: &ServerHandle) -> (Vec<TcpStream>, [usize; LOOPS]) {
    let mut numbers = [0; LOOPS];
    let clients = (0..1000)
        .map(|_| {
            let mut client = connect(server);
            numbers[which(&mut client)] += 1;
            client
        })
        .collect();
    until(|| sum(server, |counts| counts.connections) == 1000);
    (clients, numbers)
}

fn which(client: &mut TcpStream) -> usize {
    ask(client, "which").parse().unwrap()
}

fn connections(server: &ServerHandle) -> [u64; LOOPS] {
    let connections: Vec<_> = server.counts().iter().map(|counts| counts.connections).collect();
    connections.try_into().unwrap()
}

/// All drivers that this machine supports.
fn backends() -> Vec<Backend> {
    let mut backends = vec![Backend::Epoll];
    match Uring::probe() {
        Ok(()) => backends.push(Backend::Uring),
        Err(error) => skipped(&format!("no io_uring: {error}")),
    }
    backends
}

/// A thousand connections are two thousand descriptors, and one test at a time has as many.
fn a_crowd() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    if descriptors_max() < 4096 {
        skipped("there are too few descriptors for a thousand connections: ulimit -n 4096");
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn skipped(why: &str) {
    assert!(std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_none(), "{why}");
    eprintln!("skipped: {why}");
}

const LOOPS: usize = 4;
