//! With any number of heavy peers, a light one waits for at most one slice of them.
//!
//! A slice is the number of bytes that heavy connections may move in one turn. So there are two claims for each turn of
//! the server's loop: it dispatches every light connection whose bytes had arrived when the turn began, before any
//! heavy connection; and heavy connections move a bounded number of bytes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_codec::Slice;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Client, Context, Handler, Limits, Outcome, task};
use tidegate_sys::{Address, Class, Completion, Driver, Operation, Side, Token, Waker};
use tidegate_testkit::network::{FaultRates, Link, Network, NetworkFault};
use tidegate_testkit::seeds;

/// The record of the server's turns.
#[derive(Debug, Default)]
struct Seen {
    /// Light connections whose bytes had arrived when this turn began, and that were not dispatched yet.
    waiting: Vec<Token>,
    /// Bytes that heavy connections have received in this turn.
    heavy_bytes: usize,
    /// The heavy connections that have received bytes.
    heavy: BTreeSet<Token>,
    light_receives: usize,
    /// Turns in which heavy connections used a whole slice.
    slices: usize,
}

/// A driver that checks the claims in each turn of its loop.
struct Watch {
    below: Box<dyn Driver>,
    adopted: Vec<Token>,
    seen: Rc<RefCell<Seen>>,
}

impl Watch {
    fn is_light(&self, token: Token) -> bool {
        matches!(self.below.address(token, Side::Peer), Ok(Address::Ip(ip)) if ip.ip() == LIGHT)
    }
}

impl Driver for Watch {
    fn name(&self) -> &'static str {
        "watch"
    }

    fn waker(&self) -> Waker {
        self.below.waker()
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        if let Operation::Adopt(_) = operation {
            self.adopted.push(token);
        }
        self.below.submit(token, operation)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.seen.borrow_mut().waiting);
        assert_eq!(waiting, [], "light connections waited for longer than a turn");
        self.below.wait(timeout)?;
        let light: Vec<_> = self.adopted.iter().copied().filter(|token| self.is_light(*token)).collect();
        let waiting = light.into_iter().filter(|token| self.below.has_input(*token)).collect();
        let seen = &mut *self.seen.borrow_mut();
        seen.slices += usize::from(seen.heavy_bytes >= SLICE_BYTES);
        (seen.waiting, seen.heavy_bytes) = (waiting, 0);
        Ok(())
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        let (token, completion) = self.below.next(class)?;
        let Completion::Received(bytes) = &completion else { return Some((token, completion)) };
        let is_light = self.is_light(token);
        let seen = &mut *self.seen.borrow_mut();
        if is_light {
            assert_eq!(seen.heavy_bytes, 0, "a heavy connection came before a light one");
            seen.waiting.retain(|waits| *waits != token);
            seen.light_receives += 1;
        } else if class == Class::Heavy {
            assert!(seen.heavy_bytes < SLICE_BYTES, "heavy connections had more than a slice");
            seen.heavy_bytes += bytes.len();
            seen.heavy.insert(token);
        }
        Some((token, completion))
    }

    fn has_ready(&self) -> bool {
        self.below.has_ready()
    }

    fn has_input(&mut self, token: Token) -> bool {
        self.below.has_input(token)
    }

    fn pause_receives(&mut self, hold: bool) {
        self.below.pause_receives(hold);
    }

    fn now(&self) -> Instant {
        self.below.now()
    }

    fn system_time(&self) -> SystemTime {
        self.below.system_time()
    }

    fn address(&self, token: Token, side: Side) -> io::Result<Address> {
        self.below.address(token, side)
    }
}

/// Echoes short messages, and discards long ones.
struct Sink;

impl Handler<Raw> for Sink {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        if bytes.len() < 10 { cx.send(bytes.into()).into() } else { Outcome::Continue }
    }
}

async fn upload(to: Address) {
    let (_reader, mut writer) = Client::at(to).connect(Raw).await.expect("a server").split();
    while writer.ready().await.is_ok() && writer.send(vec![0; 60_000].into()).is_ok() {}
}

/// Pings every 7 ms. Returns how often it was answered.
async fn ping(to: Address) -> usize {
    let mut channel = Client::at(to).connect(Raw).await.expect("a server");
    let mut answers = 0;
    for _ in 0..40 {
        channel.send("ping".into()).expect("room");
        let mut length = 0;
        while length < 4 {
            length += channel.recv().await.expect("an answer").expect("an answer").len();
        }
        answers += 1;
        task::sleep(Duration::from_millis(7)).await;
    }
    answers
}

fn play(seed: u64, heavy: usize, light: usize) -> Seen {
    let network = Network::new(seed);
    // No fault that makes a socket report another completion first, which takes a turn of its own.
    let faults = [NetworkFault::Reordered, NetworkFault::Jitter, NetworkFault::SplitRead];
    network.set_faults(faults.into_iter().fold(FaultRates::none(), |faults, fault| faults.with(fault, 5)));
    network.set_link(Link { bytes_per_second: 1_000_000_000, ..Link::default() });
    let seen = Rc::<RefCell<Seen>>::default();
    let watched = seen.clone();
    let server = network
        .host("10.0.0.1")
        .node_with_driver(move |below| Box::new(Watch { below, adopted: Vec::new(), seen: watched }));
    let address = server.listen(7, Limits::default(), |_| (Raw, Sink)).expect("the port is free");
    let uploads = network.host("10.0.0.2").node();
    for _ in 0..heavy {
        drop(uploads.spawn(upload(address.clone())));
    }
    network.run_for(Duration::from_millis(30));
    let pings = network.host(&LIGHT.to_string()).node();
    let pings: Vec<_> = (0..light).map(|_| pings.spawn(ping(address.clone()))).collect();
    while pings.iter().any(|ping| !ping.is_finished()) {
        network.run_for(Duration::from_millis(3));
        // All bytes in flight arrive at once, as for a loop that is overloaded.
        network.suspend(Duration::from_millis(5));
    }
    for ping in pings {
        assert_eq!(network.run_task(Duration::ZERO, ping), 40);
    }
    seen.take()
}

#[test]
fn a_light_connection_waits_for_one_slice_of_any_number_of_heavy_ones() {
    for seed in seeds(4) {
        for heavy in [0, 1, 10, 100] {
            let seen = play(seed, heavy, 5);
            assert!(seen.light_receives >= 5 * 40);
            assert_eq!(seen.heavy.len(), heavy, "every heavy connection is served");
            assert!(heavy < 100 || seen.slices > 20, "there were {} whole slices", seen.slices);
        }
    }
}

/// The host of the light peers.
const LIGHT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3));

/// How many bytes heavy connections may move in one turn.
const SLICE_BYTES: usize = 1024 * 1024;
