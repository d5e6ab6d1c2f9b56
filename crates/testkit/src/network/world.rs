//! `World`: the clock, the agenda, and who has which socket.
//!
//! Whatever happens later stands on the agenda, by its time and, within that, in the order in which it was put there.
//! Nothing is kept in a hash map, and all randomness is that of the seed, so one seed is one course of events. What
//! happens to bytes is in `flow.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tidegate_sys::{Address, Completion, Token};

use super::Link;
use super::faults::{Fault, Faults, Fired};
use super::stream::{BACKLOG_MAX, End, Listener, Owner};
use super::trace::Trace;
use crate::random::Random;

/// Everything that the hosts of a network share.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) replay_told: bool,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) fired: Fired,
    pub(super) trace: Trace,
    pub(super) start: Instant,
    /// What time it is, since the start.
    pub(super) now: Duration,
    /// How far the time of day is from what it would be.
    pub(super) wall_ahead: Duration,
    pub(super) link: Link,
    pub(super) links: BTreeMap<(IpAddr, IpAddr), Link>,
    pub(super) ends: BTreeMap<u64, End>,
    pub(super) listeners: BTreeMap<u64, Listener>,
    /// Where somebody has listened: a socket file stays when its listener is gone.
    paths: BTreeSet<PathBuf>,
    pub(super) desks: Vec<Desk>,
    agenda: BTreeMap<(Duration, u64), Event>,
    /// Counts sockets and events.
    number: u64,
    next_port: u16,
}

/// What the world knows of a driver.
pub(super) struct Desk {
    pub(super) ip: IpAddr,
    pub(super) sockets: BTreeMap<Token, Place>,
    /// Who has something to say; each is in here at most once.
    pub(super) attention: VecDeque<Place>,
    pub(super) turn: usize,
    pub(super) held: bool,
    pub(super) woken: Arc<AtomicBool>,
    /// The network turns the loop, so that its sleep moves the clock.
    pub(super) is_turned: bool,
    /// Until when the loop would sleep; none is until something happens.
    pub(super) sleep: Option<Duration>,
    /// The loop would have slept when it was last turned.
    pub(super) slept: bool,
    /// When the loop was last turned.
    pub(super) turned_at: Option<Duration>,
    /// Counts what is asked of the driver and what it tells.
    pub(super) activity: u64,
    /// The loop may have something to do of which the world knows nothing.
    pub(super) restless: bool,
}

impl Desk {
    pub(super) fn new(ip: IpAddr) -> Self {
        Self {
            ip,
            sockets: BTreeMap::new(),
            attention: VecDeque::new(),
            turn: 0,
            held: false,
            woken: Arc::default(),
            is_turned: false,
            sleep: None,
            slept: false,
            turned_at: None,
            activity: 0,
            restless: true,
        }
    }
}

/// Where a token leads, and who is to be attended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    End(u64),
    Listener(u64),
    /// Not a socket any more: its driver's last word is due.
    Closed(Token),
}

/// What is going to happen.
pub(super) enum Event {
    /// Somebody wants to be connected.
    Knock {
        from: u64,
    },
    /// Connecting has come to an end.
    Decided {
        end: u64,
        outcome: Result<(), io::ErrorKind>,
    },
    Data {
        to: u64,
        bytes: Vec<u8>,
    },
    Fin {
        to: u64,
    },
    Reset {
        to: u64,
    },
    Acknowledged {
        end: u64,
        count: usize,
    },
    /// A fault that held sending back is over.
    Unstalled {
        end: u64,
    },
    Closed {
        desk: usize,
        token: Token,
    },
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            replay_told: false,
            random: Random::new(seed),
            faults: Faults::none(),
            fired: Fired::default(),
            trace: Trace::default(),
            start: Instant::now(),
            now: Duration::ZERO,
            wall_ahead: Duration::from_secs(1_800_000_000),
            link: Link::default(),
            links: BTreeMap::new(),
            ends: BTreeMap::new(),
            listeners: BTreeMap::new(),
            paths: BTreeSet::new(),
            desks: Vec::new(),
            agenda: BTreeMap::new(),
            number: 0,
            next_port: PORT_FIRST,
        }
    }

    /// Whether a fault strikes now.
    pub(super) fn strikes(&mut self, fault: Fault) -> bool {
        let once_in = self.faults.once_in(fault);
        let strikes = once_in > 0 && self.random.once_in(once_in);
        if strikes {
            self.fired.note(fault);
        }
        strikes
    }

    /// Some time up to `most`, and not none.
    pub(super) fn some_time(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(1 + self.random.below(most.as_nanos() as usize) as u64)
    }

    pub(super) fn put(&mut self, after: Duration, event: Event) {
        self.put_at(self.now + after, event);
    }

    pub(super) fn put_at(&mut self, at: Duration, event: Event) {
        self.number += 1;
        self.agenda.insert((at, self.number), event);
    }

    /// When something happens next, or a loop has slept enough.
    pub(super) fn next_time(&self) -> Option<Duration> {
        let event = self.agenda.keys().next().map(|(at, _)| *at);
        let sleeps = self.desks.iter().filter(|desk| desk.is_turned).filter_map(|desk| desk.sleep);
        sleeps.chain(event).min()
    }

    /// Moves the clock, and lets everything happen that is due.
    pub(super) fn advance(&mut self, to: Duration) {
        self.now = self.now.max(to);
        if self.strikes(Fault::ClockJump) {
            let ahead = self.some_time(LEAP_MAX);
            self.now += ahead;
            let leap = self.some_time(WALL_LEAP_MAX);
            let back = self.random.once_in(2);
            self.wall_ahead = if back { self.wall_ahead.saturating_sub(leap) } else { self.wall_ahead + leap };
        }
        while let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= self.now
        {
            let event = entry.remove();
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Knock { from } => self.knock(from),
            Event::Decided { end, outcome } => {
                if let Some(found) = self.ends.get_mut(&end) {
                    found.outcome = Some(outcome);
                    self.line_up(Place::End(end));
                }
            }
            Event::Data { to, bytes } => self.arrive(to, bytes),
            Event::Fin { to } => {
                if let Some(end) = self.ends.get_mut(&to) {
                    end.fin_came = true;
                    self.line_up(Place::End(to));
                }
            }
            Event::Reset { to } => {
                if let Some(end) = self.ends.get_mut(&to) {
                    end.break_off();
                    self.line_up(Place::End(to));
                }
            }
            Event::Acknowledged { end, count } => {
                if let Some(found) = self.ends.get_mut(&end) {
                    found.unacknowledged -= count;
                    self.line_up(Place::End(end));
                }
            }
            Event::Unstalled { end } => {
                if let Some(found) = self.ends.get_mut(&end) {
                    found.stalled = false;
                    self.line_up(Place::End(end));
                }
            }
            Event::Closed { desk, token } => self.desks[desk].attention.push_back(Place::Closed(token)),
        }
    }

    /// Lines a socket up for its driver's attention, unless it is, or nobody has it.
    pub(super) fn line_up(&mut self, place: Place) {
        let socket = match place {
            Place::End(id) => self.ends.get_mut(&id).map(|end| (end.owner, &mut end.lined_up)),
            Place::Listener(id) => self.listeners.get_mut(&id).map(|found| (found.owner, &mut found.lined_up)),
            Place::Closed(_) => None,
        };
        if let Some((Some(owner), lined_up)) = socket
            && !std::mem::replace(lined_up, true)
        {
            self.desks[owner.desk].attention.push_back(place);
        }
    }

    /// Takes note of what a driver tells its loop.
    pub(super) fn told(&mut self, owner: Owner, completion: &Completion) {
        self.desks[owner.desk].activity += 1;
        self.trace.note(self.now.as_nanos() as u64, owner.desk, owner.token, completion);
    }

    /// Listens on a host. A Unix path belongs to the network.
    pub(super) fn listen(&mut self, ip: IpAddr, address: &Address) -> io::Result<u64> {
        match address {
            Address::Ip(there) if there.ip() != ip => return Err(io::ErrorKind::AddrNotAvailable.into()),
            Address::Unix(path) if path.as_os_str().is_empty() => return Err(io::ErrorKind::InvalidInput.into()),
            _ if self.listener_at(address).is_some() => return Err(io::ErrorKind::AddrInUse.into()),
            Address::Ip(_) => {}
            Address::Unix(path) => drop(self.paths.insert(path.clone())),
        }
        let id = self.new_number();
        self.listeners.insert(id, Listener::new(address.clone(), ip));
        Ok(id)
    }

    fn listener_at(&self, address: &Address) -> Option<u64> {
        self.listeners.iter().find(|(_, listener)| listener.address == *address).map(|(id, _)| *id)
    }

    /// Begins to connect.
    pub(super) fn connect(&mut self, owner: Owner, to: &Address, local: Option<&Address>) -> Option<Completion> {
        match to {
            Address::Ip(to) => {
                self.connect_to_ip(owner, *to, local.and_then(Address::ip));
                None
            }
            Address::Unix(path) => Some(Completion::Connected(self.connect_to_path(owner, path, local))),
        }
    }

    /// Connects over the wire.
    fn connect_to_ip(&mut self, owner: Owner, to: SocketAddr, local: Option<SocketAddr>) {
        let here = self.desks[owner.desk].ip;
        let ip = local.map_or(here, |local| local.ip());
        let port = local.map_or(0, |local| local.port());
        let port = if port == 0 { self.free_port() } else { port };
        let local = Address::Ip(SocketAddr::new(ip, port));
        let mut end = End::new(local, Address::Ip(to), (here, to.ip()));
        end.connecting = true;
        let id = self.place(owner, end);
        if self.strikes(Fault::TimedOut) {
            self.put(CONNECT_PATIENCE, Event::Decided { end: id, outcome: Err(io::ErrorKind::TimedOut) });
            return;
        }
        let at = self.arrival(id, 0);
        if self.strikes(Fault::Refused) {
            self.put_at(at, Event::Decided { end: id, outcome: Err(io::ErrorKind::ConnectionRefused) });
        } else {
            self.put_at(at, Event::Knock { from: id });
        }
    }

    /// Connects to a path, which as on Linux succeeds or fails at once.
    fn connect_to_path(&mut self, owner: Owner, path: &Path, local: Option<&Address>) -> io::Result<()> {
        let address = Address::Unix(path.to_owned());
        let Some(listener) = self.listener_at(&address) else {
            let is_there = self.paths.contains(path);
            return Err(if is_there { io::ErrorKind::ConnectionRefused } else { io::ErrorKind::NotFound }.into());
        };
        if self.strikes(Fault::Refused) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        if self.listeners[&listener].backlog.len() >= BACKLOG_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (here, there) = (self.desks[owner.desk].ip, self.listeners[&listener].ip);
        let local = local.cloned().unwrap_or_else(|| Address::Unix(PathBuf::new()));
        let id = self.place(owner, End::new(local, address, (here, there)));
        self.queue_up(listener, id);
        Ok(())
    }

    /// Gives a driver a new end.
    fn place(&mut self, owner: Owner, mut end: End) -> u64 {
        let id = self.new_number();
        end.owner = Some(owner);
        self.ends.insert(id, end);
        self.desks[owner.desk].sockets.insert(owner.token, Place::End(id));
        id
    }

    /// A request to connect has come to its host.
    fn knock(&mut self, from: u64) {
        let Some(client) = self.ends.get(&from) else { return };
        let (here, there) = client.route;
        let listener = self.listener_at(&client.remote);
        let Some(listener) = listener.filter(|id| self.listeners[id].backlog.len() < BACKLOG_MAX) else {
            let outcome = Err(io::ErrorKind::ConnectionRefused);
            let back = self.link_between((there, here)).latency;
            return self.put(back, Event::Decided { end: from, outcome });
        };
        let id = self.queue_up(listener, from);
        let at = self.arrival(id, 0);
        self.put_at(at, Event::Decided { end: from, outcome: Ok(()) });
    }

    /// Makes the other end of a stream, which waits to be accepted.
    fn queue_up(&mut self, listener: u64, from: u64) -> u64 {
        let id = self.new_number();
        let client = self.ends.get_mut(&from).expect("it was looked at a moment ago");
        client.peer = Some(id);
        let (here, there) = client.route;
        let mut end = End::new(client.remote.clone(), client.local.clone(), (there, here));
        end.peer = Some(from);
        self.ends.insert(id, end);
        if let Some(found) = self.listeners.get_mut(&listener) {
            found.backlog.push_back(id);
        }
        self.line_up(Place::Listener(listener));
        id
    }

    pub(super) fn link_between(&self, route: (IpAddr, IpAddr)) -> Link {
        self.links.get(&route).copied().unwrap_or(self.link)
    }

    fn new_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn free_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(PORT_FIRST);
        port
    }
}

/// The first port that is given to who connects.
const PORT_FIRST: u16 = 49_152;

/// How long a kernel tries to connect to who does not answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(127);

/// How far the clock leaps at most.
const LEAP_MAX: Duration = Duration::from_millis(300);

/// How far the time of day leaps at most.
const WALL_LEAP_MAX: Duration = Duration::from_secs(3600);
