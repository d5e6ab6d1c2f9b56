//! `Network`: event loops on several hosts, in one thread, with virtual time and seeded faults.
//!
//! Loops, queues, timers and closing are those that serve real connections. Beneath them is a driver that looks up
//! everything in a world that all drivers share. Time advances only when every loop is idle: then the clock moves to
//! the next event, so a time-out of a minute takes no real time. All randomness comes from the seed, so a failed run
//! can be repeated.
//!
//! | part | file |
//! |---|---|
//! | hosts and their loops | `host.rs` |
//! | the clock, the events it triggers, the owner of each socket | `world.rs`, `table.rs` |
//! | scheduled events | `agenda.rs` |
//! | listening and connecting | `connect.rs` |
//! | datagrams | `datagrams.rs`, of Unix sockets: `unix_datagrams.rs`, the state of their sockets: `datagram_sockets.rs` |
//! | bytes in flight, and the ends of streams | `flow.rs`, and the kernel's state of an end: `stream.rs` |
//! | the completions of a socket | `poll_socket.rs` |
//! | the driver | `driver.rs` |
//! | faults | `faults.rs` |
//! | whether two runs were the same | `trace.rs` |
//!
//! Simulated kernels have buffers of fixed size, no Nagle algorithm, and lose no segment: a real kernel retransmits a
//! lost segment, which its users see as a delay. Connecting to a Unix path takes no time; its bytes travel as others.

mod connect;
mod datagram_sockets;
mod datagrams;
mod driver;
mod event_queue;
mod faults;
mod flow;
mod host;
mod poll_socket;
mod stream;
mod table;
mod trace;
mod unix_datagrams;
mod world;

use std::cell::RefCell;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_engine::EventLoop;
use tidegate_engine::task::Task;

pub use self::datagram_sockets::{DatagramCounts, DatagramFaults};
pub use self::faults::{FaultCounts, FaultRates, NetworkFault};
pub use self::host::{Host, SimNode};
use self::world::{WakeUp, World};
use crate::replay::replay;

/// A simulated network. Clones are the same network.
///
/// ```
/// use std::time::Duration;
/// use tidegate::framing::Lines;
/// use tidegate::{Channel, Client, Limits};
/// use tidegate_testkit::network::{FaultRates, Network};
///
/// async fn echo(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok(())
/// }
///
/// let network = Network::new(7);
/// network.set_faults(FaultRates::benign());
/// let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
/// let address = server.serve(7, Limits::default(), Lines::new, echo)?;
/// let answer = client.spawn(async move {
///     let mut channel = Client::at(address).connect(Lines::new()).await?;
///     channel.send("ebb and flow".into())?;
///     Ok::<_, Box<dyn std::error::Error>>(channel.recv().await?)
/// });
/// let answer = network.run_task(Duration::from_secs(10), answer)?;
/// assert_eq!(answer.as_deref(), Some(&b"ebb and flow"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// If the thread panics, dropping a handle prints the [command](replay) that runs this test again with this seed, once.
#[derive(Clone)]
pub struct Network {
    world: Rc<RefCell<World>>,
    loops: Rc<RefCell<Vec<Turned>>>,
}

/// The number of a driver, and its loop, which the network turns.
type Turned = (usize, Rc<RefCell<EventLoop>>);

/// How fast bytes travel from one host to another.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// How long a segment takes.
    pub latency: Duration,
    /// How many bytes of a stream leave per second; at least one.
    pub bytes_per_second: u64,
}

impl Default for Link {
    /// One millisecond, and 100 MB per second.
    fn default() -> Self {
        Self { latency: Duration::from_millis(1), bytes_per_second: 100_000_000 }
    }
}

impl Network {
    /// An empty network without faults. [`seeds`](crate::seeds) gives seeds that can be replayed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { world: Rc::new(RefCell::new(World::new(seed))), loops: Rc::default() }
    }

    /// The host at an address.
    ///
    /// # Panics
    /// If `ip` is no IP address.
    #[must_use]
    pub fn host(&self, ip: &str) -> Host {
        let ip: IpAddr = ip.parse().unwrap_or_else(|_| panic!("`{ip}` is no IP address"));
        Host { network: self.clone(), ip }
    }

    /// Replaces the faults: from now on only these occur.
    pub fn set_faults(&self, faults: FaultRates) {
        self.world.borrow_mut().faults = faults;
    }

    /// Sets the link of all pairs of hosts without a link of their own.
    pub fn set_link(&self, link: Link) {
        self.world.borrow_mut().link = link;
    }

    /// Sets the link from one host to another; the opposite direction is another link.
    pub fn set_link_between(&self, from: &Host, to: &Host, link: Link) {
        self.world.borrow_mut().links.insert((from.ip, to.ip), link);
    }

    /// Cuts two hosts off from each other until they are [healed](Self::heal). Datagrams are lost. Of streams nothing is lost, as a real kernel would
    /// retransmit it. A connect times out after two minutes, or earlier by a time-out of its own. Established streams
    /// wait, and their kernels never give up.
    pub fn partition(&self, one: &Host, other: &Host) {
        self.world.borrow_mut().partition_between(one.ip, other.ip);
    }

    /// Delivers the bytes that two hosts have sent each other since they were [cut](Self::partition), and reconnects
    /// them.
    pub fn heal(&self, one: &Host, other: &Host) {
        self.world.borrow_mut().heal_between(one.ip, other.ip);
    }

    /// How often each fault has occurred.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.world.borrow().fault_counts
    }

    /// Replaces the faults of datagrams. Streams have [others](Self::set_faults).
    pub fn set_datagram_faults(&self, faults: DatagramFaults) {
        self.world.borrow_mut().datagrams.faults = faults;
    }

    /// Sets the largest packet that the links carry, in bytes with the headers of IPv4 and UDP, which are 28; 1,500 by
    /// default. A longer datagram is refused.
    pub fn set_mtu(&self, bytes: usize) {
        self.world.borrow_mut().datagrams.mtu = bytes;
    }

    /// Numbers of datagrams so far.
    #[must_use]
    pub fn datagram_counts(&self) -> DatagramCounts {
        self.world.borrow().datagrams.counts
    }

    /// A hash of all completions that the drivers returned, with their times and bytes. The same test with the same
    /// seed gives the same hash.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.world.borrow().trace.hash()
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Instant {
        let world = self.world.borrow();
        world.start + world.now
    }

    /// The time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.world.borrow().now
    }

    /// How many ends of streams are open or wait in a backlog. An accepted socket that no loop has adopted is one of
    /// them: it is a number, so dropping it does not close it; dropping its driver does.
    #[must_use]
    pub fn open_endpoints(&self) -> usize {
        self.world.borrow().open_ends
    }

    /// Advances the clock by `time`. Each event on the way occurs at its own time.
    ///
    /// # Panics
    /// If the loops do not become idle, if a loop fails to wait repeatedly, which only a driver that wraps the
    /// network's can cause, and if a loop sends while an earlier send of the same socket is in flight.
    pub fn run_for(&self, time: Duration) {
        self.run_until(time, || false);
    }

    /// Suspends all hosts for `time`, as machines are suspended: the clock moves at once, and bytes in flight arrive
    /// before any loop is turned again.
    pub fn suspend(&self, time: Duration) {
        let mut world = self.world.borrow_mut();
        let until = world.now.saturating_add(time);
        world.advance(until);
    }

    /// Advances the clock until `is_so` returns true, which is checked whenever all loops are idle, or until `timeout`
    /// is over. Returns whether the condition is true.
    ///
    /// # Panics
    /// If the loops do not become idle, if a loop fails to wait repeatedly, which only a driver that wraps the
    /// network's can cause, and if a loop sends while an earlier send of the same socket is in flight.
    pub fn run_until(&self, timeout: Duration, mut is_so: impl FnMut() -> bool) -> bool {
        let end = self.elapsed().saturating_add(timeout);
        // The test may have posted to a loop since the network last ran, and the world sees no posted messages.
        self.world.borrow_mut().driver_states.iter_mut().for_each(|state| state.may_have_work = true);
        loop {
            self.run_until_idle();
            if is_so() {
                return true;
            }
            let mut world = self.world.borrow_mut();
            match world.next_time() {
                Some(at) if at <= end => world.advance(at),
                _ => {
                    world.now = world.now.max(end);
                    return false;
                }
            }
        }
    }

    /// Advances the clock until a task has ended, and returns its value.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::task;
    /// use tidegate_testkit::network::Network;
    ///
    /// let network = Network::new(7);
    /// let hour = async { task::sleep(Duration::from_secs(3600)).await };
    /// let hour = network.host("10.0.0.1").node().spawn(hour);
    /// network.run_task(Duration::from_secs(4000), hour);
    /// assert_eq!(network.elapsed().as_secs(), 3600);
    /// ```
    ///
    /// # Panics
    /// If the task has not ended when `timeout` is over, if it was cancelled, and if it has panicked.
    pub fn run_task<T>(&self, timeout: Duration, mut task: Task<T>) -> T {
        assert!(self.run_until(timeout, || task.is_finished()), "a task has not ended after {timeout:?}");
        match Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(value)) => value,
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => unreachable!("it has ended"),
        }
    }

    /// Turns all loops until none has work left at the current time.
    fn run_until_idle(&self) {
        for _ in 0..ROUNDS_MAX {
            let mut at_rest = true;
            for number in 0..self.loops.borrow().len() {
                let driver = self.loops.borrow()[number].0;
                if self.world.borrow().driver_states[driver].is_stopped {
                    continue;
                }
                let is_busy = self.loops.borrow()[number].1.borrow().is_busy();
                if self.has_work(driver) || is_busy && self.world.borrow_mut().wakes(driver) {
                    at_rest = false;
                    let event_loop = self.loops.borrow()[number].1.clone();
                    self.turn(driver, &event_loop);
                }
            }
            if at_rest {
                return;
            }
        }
        panic!("the loops have not come to rest after {ROUNDS_MAX} rounds");
    }

    fn has_work(&self, driver: usize) -> bool {
        let world = self.world.borrow();
        let state = &world.driver_states[driver];
        let is_due = state.sleep.is_some_and(|until| until <= world.now);
        state.may_have_work || is_due || !state.ready.is_empty() || state.woken.load(Ordering::Acquire)
    }

    /// One turn of a loop. The loop is idle only after a turn in which it would have slept and did no work, and which
    /// was not its first at the current time: a loop measures its sleep from the end of the previous turn.
    fn turn(&self, driver: usize, event_loop: &RefCell<EventLoop>) {
        let before = self.world.borrow().driver_states[driver].activity;
        event_loop.borrow_mut().turn(None).expect("a loop has failed to wait again and again");
        let world = &mut *self.world.borrow_mut();
        // Asserted here and not where it was detected: there a loop takes a panic for one of the application's.
        assert!(world.violation.is_none(), "{}", world.violation.unwrap_or_default());
        let state = &mut world.driver_states[driver];
        state.wake_up = WakeUp::Expected;
        let turned_before = state.turned_at.replace(world.now) == Some(world.now);
        state.may_have_work = !(turned_before && state.slept && state.activity == before);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(mut world) = self.world.try_borrow_mut()
            && !std::mem::replace(&mut world.replay_printed, true)
        {
            eprintln!("replay: {}", replay(world.seed));
        }
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("seed", &self.world.borrow().seed).finish_non_exhaustive()
    }
}

/// Bound of the rounds at one time: a loop that never becomes idle is a bug of its test.
const ROUNDS_MAX: usize = 100_000;
