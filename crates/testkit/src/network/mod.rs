//! `Network`: event loops on several hosts, in one thread, with a clock that does not wait and faults from a seed.
//!
//! Loops, queues, timers and closing are those that serve real connections; beneath them is a driver that looks
//! everything up in a world that they share. Time passes only when no loop has anything left to do: then the clock
//! moves to whatever comes next, so that a minute's time-out costs no time. All randomness comes from the seed, so a
//! run that fails can be had again.
//!
//! | what | where |
//! |---|---|
//! | who runs where | `host.rs` |
//! | the clock, what happens when it moves, who has which socket | `world.rs`, `table.rs` |
//! | what happens later | `agenda.rs` |
//! | listening and connecting | `connect.rs` |
//! | bytes on their way, and the ends of streams | `flow.rs`, and what a kernel knows of an end: `stream.rs` |
//! | what a socket has to say | `poll_socket.rs` |
//! | the driver | `driver.rs` |
//! | what goes wrong | `faults.rs` |
//! | whether two runs were the same | `trace.rs` |
//!
//! Kernels here have buffers of fixed size, know no Nagle and lose no segment: a real one repeats what was lost, which
//! is a delay to those above. To connect to a Unix path takes no time, and its bytes travel as others do.

mod agenda;
mod connect;
mod driver;
mod faults;
mod flow;
mod host;
mod poll_socket;
mod stream;
mod table;
mod trace;
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

pub use self::faults::{Fault, Faults, Fired};
pub use self::host::{Host, SimNode};
use self::world::World;
use crate::replay::replay;

/// A simulated network. Clones are the same network.
///
/// ```
/// use std::time::Duration;
/// use tidegate_codec::framing::Lines;
/// use tidegate_engine::{Channel, Client, Limits};
/// use tidegate_testkit::network::{Faults, Network};
///
/// async fn echo(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok(())
/// }
///
/// let network = Network::new(7);
/// network.set_faults(Faults::benign());
/// let (server, client) = (network.host("10.0.0.1").station(), network.host("10.0.0.2").station());
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
/// When a handle goes while the thread panics, the [command](replay) that runs this test again with this seed is printed,
/// once.
#[derive(Clone)]
pub struct Network {
    world: Rc<RefCell<World>>,
    loops: Rc<RefCell<Vec<Turned>>>,
}

/// A loop that the network turns, and its driver's number.
type Turned = (usize, Rc<RefCell<EventLoop>>);

/// How bytes travel from one host to another.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// How long a segment takes.
    pub latency: Duration,
    /// How many bytes of a stream leave in a second; at least one.
    pub bytes_per_second: u64,
}

impl Default for Link {
    /// A millisecond, and a hundred megabytes in a second.
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
    /// If it is no IP address.
    #[must_use]
    pub fn host(&self, ip: &str) -> Host {
        let ip: IpAddr = ip.parse().unwrap_or_else(|_| panic!("`{ip}` is no IP address"));
        Host { network: self.clone(), ip }
    }

    /// From now on these faults strike, and no others.
    pub fn set_faults(&self, faults: Faults) {
        self.world.borrow_mut().faults = faults;
    }

    /// How bytes travel, unless it is told for two hosts.
    pub fn set_link(&self, link: Link) {
        self.world.borrow_mut().link = link;
    }

    /// How bytes travel from one host to another; the way back is another link.
    pub fn set_link_between(&self, from: &Host, to: &Host, link: Link) {
        self.world.borrow_mut().links.insert((from.ip, to.ip), link);
    }

    /// Two hosts hear nothing of each other until they are [healed](Self::heal). Nothing is lost: a real network would
    /// repeat it. Who connects times out after two minutes, if not before by a time-out of its own; streams
    /// that were there wait, without an end of their kernels' patience.
    pub fn cut(&self, one: &Host, other: &Host) {
        self.world.borrow_mut().cut_between(one.ip, other.ip);
    }

    /// What two hosts have sent each other since they were [cut](Self::cut) arrives.
    pub fn heal(&self, one: &Host, other: &Host) {
        self.world.borrow_mut().heal_between(one.ip, other.ip);
    }

    /// How often each fault has struck.
    #[must_use]
    pub fn fired(&self) -> Fired {
        self.world.borrow().fired
    }

    /// A hash of everything that drivers have told their loops, and of when, bytes included. With the same seed and the same test it is the same.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.world.borrow().trace.hash()
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        let world = self.world.borrow();
        world.start + world.now
    }

    /// How much time has passed.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.world.borrow().now
    }

    /// Ends of streams that somebody still has, or has yet to accept. A socket that was accepted and that no loop has
    /// adopted is one of them: it is a number, which is not closed by being dropped, but with its driver.
    #[must_use]
    pub fn open_ends(&self) -> usize {
        self.world.borrow().open_ends
    }

    /// Lets so much time pass. Whatever is due on the way happens when it is due.
    ///
    /// # Panics
    /// If the loops do not come to rest, if one fails to wait again and again, which only a driver over the network's
    /// own may make it, and if one sends while an earlier send of the same socket is in flight.
    pub fn run_for(&self, time: Duration) {
        self.run_until(time, || false);
    }

    /// All hosts stand still for so long, as machines that are suspended: the clock moves at once, and what is on its way
    /// arrives, before any loop is turned again.
    pub fn suspend(&self, time: Duration) {
        let mut world = self.world.borrow_mut();
        let until = world.now.saturating_add(time);
        world.advance(until);
    }

    /// Lets time pass until something is so, which is looked at whenever all loops have come to rest; or until so much
    /// time is over. Says whether it is so.
    ///
    /// # Panics
    /// If the loops do not come to rest, if one fails to wait again and again, which only a driver over the network's
    /// own may make it, and if one sends while an earlier send of the same socket is in flight.
    pub fn run_until(&self, patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
        let end = self.elapsed().saturating_add(patience);
        // Something may have been posted to a loop since the network last ran, and the world knows nothing of letters.
        self.world.borrow_mut().driver_states.iter_mut().for_each(|desk| desk.restless = true);
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

    /// Lets time pass until a task has ended, and returns what it came to.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_engine::task;
    /// use tidegate_testkit::network::Network;
    ///
    /// let network = Network::new(7);
    /// let hour = async { task::sleep(Duration::from_secs(3600)).await };
    /// let hour = network.host("10.0.0.1").station().spawn(hour);
    /// network.run_task(Duration::from_secs(4000), hour);
    /// assert_eq!(network.elapsed().as_secs(), 3600);
    /// ```
    ///
    /// # Panics
    /// If it has not ended when so much time is over, if it was cancelled, and if it has panicked.
    pub fn run_task<T>(&self, patience: Duration, mut task: Task<T>) -> T {
        assert!(self.run_until(patience, || task.is_finished()), "a task has not ended after {patience:?}");
        match Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(value)) => value,
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => unreachable!("it has ended"),
        }
    }

    /// Turns all loops until none has anything to do at this time.
    fn run_until_idle(&self) {
        for _ in 0..ROUNDS_MAX {
            let mut at_rest = true;
            for number in 0..self.loops.borrow().len() {
                let desk = self.loops.borrow()[number].0;
                let is_busy = self.loops.borrow()[number].1.borrow().is_busy();
                if self.has_work(desk) || is_busy {
                    at_rest = false;
                    let event_loop = self.loops.borrow()[number].1.clone();
                    self.turn(desk, &event_loop);
                }
            }
            if at_rest {
                return;
            }
        }
        panic!("the loops have not come to rest after {ROUNDS_MAX} rounds");
    }

    fn has_work(&self, desk: usize) -> bool {
        let world = self.world.borrow();
        let desk = &world.driver_states[desk];
        let is_due = desk.sleep.is_some_and(|until| until <= world.now);
        desk.restless || is_due || !desk.ready.is_empty() || desk.woken.load(Ordering::Acquire)
    }

    /// One turn of a loop. It is at rest only after a turn in which it would have slept and nothing happened, and which
    /// was not its first at this time: a loop measures its sleep from the end of the turn before.
    fn turn(&self, desk: usize, event_loop: &RefCell<EventLoop>) {
        let before = self.world.borrow().driver_states[desk].activity;
        event_loop.borrow_mut().turn(None).expect("a loop has failed to wait again and again");
        let world = &mut *self.world.borrow_mut();
        // Not where it was found out: a loop takes a panic there for one of its user's.
        assert!(world.violation.is_none(), "{}", world.violation.unwrap_or_default());
        let desk = &mut world.driver_states[desk];
        let turned_before = desk.turned_at.replace(world.now) == Some(world.now);
        desk.restless = !(turned_before && desk.slept && desk.activity == before);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(mut world) = self.world.try_borrow_mut()
            && !std::mem::replace(&mut world.replay_told, true)
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

/// A loop that keeps itself busy for ever at one time is a bug of its test.
const ROUNDS_MAX: usize = 100_000;
