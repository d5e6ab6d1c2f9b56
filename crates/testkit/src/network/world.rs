//! `World`: the clock, the events that it triggers, and the owner of each socket.
//!
//! All randomness comes from the seed, and no code iterates a hash map, so one seed gives one sequence of events. The
//! transfer of bytes is in `flow.rs`, the start of streams in `connect.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tidegate_sys::{Address, Completion, Load, ReadyQueue, Token};

use super::Link;
use super::datagram_sockets::DatagramSockets;
use super::event_queue::{Event, EventQueue};
use super::faults::{FaultCounts, FaultRates, NetworkFault};
use super::stream::{Endpoint, Listener, Owner, Route, SEND_BUFFER_BYTES};
use super::table::Table;
use super::trace::Trace;
use crate::random::Random;

/// Everything that the hosts of a network share.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) replay_printed: bool,
    pub(super) random: Random,
    pub(super) faults: FaultRates,
    pub(super) fault_counts: FaultCounts,
    pub(super) trace: Trace,
    pub(super) start: Instant,
    /// The current time, since the start.
    pub(super) now: Duration,
    /// The system time at the start, since the Unix epoch; faults move it.
    pub(super) clock_offset: Duration,
    pub(super) link: Link,
    pub(super) links: BTreeMap<Route, Link>,
    /// Routes that are cut.
    partitions: BTreeSet<Route>,
    /// Events that would have arrived over a route that is cut.
    undelivered: Vec<Event>,
    pub(super) ends: Table<Endpoint>,
    /// How many ends are open or wait in a backlog.
    pub(super) open_ends: usize,
    pub(super) listeners: Table<Listener>,
    /// The listener at each address. A path stays when its listener closes. No code iterates this map.
    pub(super) addresses: HashMap<Address, u64>,
    pub(super) driver_states: Vec<SimDriverState>,
    pub(super) datagrams: DatagramSockets,
    event_queue: EventQueue,
    pub(super) next_port: u16,
    /// An operation of a loop that violates the contract of a driver.
    pub(super) violation: Option<&'static str>,
}

/// The world's state of a driver.
pub(super) struct SimDriverState {
    pub(super) ip: IpAddr,
    pub(super) sockets: Sockets,
    /// The sockets that have something to report; each is in here at most once.
    pub(super) ready: ReadyQueue<SocketRef>,
    pub(super) receives_paused: bool,
    /// Another loop or thread has woken the loop, which has not noticed it yet.
    pub(super) woken: Arc<AtomicBool>,
    pub(super) wake_up: WakeUp,
    /// The network turns the loop, so that its sleep moves the clock.
    pub(super) is_turned: bool,
    /// The process is stopped: the loop is not turned, and its sleep does not move the clock.
    pub(super) is_stopped: bool,
    /// Until when the loop would sleep; none means until an event.
    pub(super) sleep: Option<Duration>,
    /// Whether the loop would have slept in its last turn.
    pub(super) slept: bool,
    /// When the loop was last turned.
    pub(super) turned_at: Option<Duration>,
    /// Counts operations submitted to the driver and completions from it.
    pub(super) activity: u64,
    /// The loop may have work that the world does not see.
    pub(super) may_have_work: bool,
}

/// The state of the wake-up that makes an idle loop collect its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum WakeUp {
    #[default]
    Expected,
    Late,
    Arrived,
}

impl SimDriverState {
    pub(super) fn new(ip: IpAddr) -> Self {
        Self {
            ip,
            sockets: Sockets::default(),
            ready: ReadyQueue::default(),
            receives_paused: false,
            woken: Arc::default(),
            wake_up: WakeUp::default(),
            is_turned: false,
            is_stopped: false,
            sleep: None,
            slept: false,
            turned_at: None,
            activity: 0,
            may_have_work: true,
        }
    }
}

/// The sockets of a driver, by slot.
#[derive(Debug, Default)]
pub(super) struct Sockets(Vec<Option<(u32, SocketRef)>>);

impl Sockets {
    pub(super) fn put(&mut self, token: Token, place: SocketRef) {
        let slot = token.slot as usize;
        if slot >= self.0.len() {
            self.0.resize(slot + 1, None);
        }
        self.0[slot] = Some((token.generation, place));
    }

    pub(super) fn get(&self, token: Token) -> Option<SocketRef> {
        let (generation, place) = (*self.0.get(token.slot as usize)?)?;
        (generation == token.generation).then_some(place)
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<SocketRef> {
        let place = self.get(token)?;
        self.0[token.slot as usize] = None;
        Some(place)
    }

    pub(super) fn places(&self) -> Vec<SocketRef> {
        self.0.iter().flatten().map(|(_, place)| *place).collect()
    }
}

/// The target of a token, and the socket that a driver polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketRef {
    Endpoint(u64),
    Listener(u64),
    Datagrams(u64),
    /// A closed socket: the completion of its close is due.
    Closed(Token),
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            replay_printed: false,
            random: Random::new(seed),
            faults: FaultRates::none(),
            fault_counts: FaultCounts::default(),
            trace: Trace::default(),
            start: Instant::now(),
            now: Duration::ZERO,
            clock_offset: Duration::from_secs(1_800_000_000),
            link: Link::default(),
            links: BTreeMap::new(),
            partitions: BTreeSet::new(),
            undelivered: Vec::new(),
            ends: Table::new(),
            open_ends: 0,
            listeners: Table::new(),
            addresses: HashMap::new(),
            driver_states: Vec::new(),
            datagrams: DatagramSockets::new(),
            event_queue: EventQueue::default(),
            next_port: PORT_FIRST,
            violation: None,
        }
    }

    /// Whether a fault occurs now.
    pub(super) fn occurs(&mut self, fault: NetworkFault) -> bool {
        let occurs = self.may_occur(fault);
        if occurs {
            self.fault_counts.note(fault);
        }
        occurs
    }

    /// Whether a loop that has something to do is turned now. If it was idle after its last turn, another loop or thread
    /// has sent it a message or woken one of its tasks, and that may reach it late.
    pub(super) fn wakes(&mut self, driver: usize) -> bool {
        let state = &self.driver_states[driver];
        if !state.slept {
            return true;
        }
        if state.wake_up == WakeUp::Expected {
            let is_late = self.occurs(NetworkFault::LateWakeUp);
            if is_late {
                let later = self.random_delay(WAKE_UP_MAX);
                self.put(later, Event::WakeUp { driver });
            }
            self.driver_states[driver].wake_up = if is_late { WakeUp::Late } else { WakeUp::Arrived };
        }
        self.driver_states[driver].wake_up == WakeUp::Arrived
    }

    /// Whether a fault may strike. The caller counts it if it does.
    pub(super) fn may_occur(&mut self, fault: NetworkFault) -> bool {
        let once_in = self.faults.once_in(fault);
        once_in > 0 && self.random.once_in(once_in)
    }

    /// A new end of a stream.
    pub(super) fn open(&mut self, end: Endpoint) -> u64 {
        self.open_ends += 1;
        self.ends.insert(end)
    }

    /// A random time up to `most`, never zero.
    pub(super) fn random_delay(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(1 + self.random.below(most.as_nanos() as usize) as u64)
    }

    pub(super) fn put(&mut self, after: Duration, event: Event) {
        self.put_at(self.now + after, event);
    }

    pub(super) fn put_at(&mut self, at: Duration, event: Event) {
        self.event_queue.put(at, event);
    }

    /// The time of the next event, or of the next end of a loop's sleep.
    pub(super) fn next_time(&self) -> Option<Duration> {
        let event = self.event_queue.next_time();
        let sleeps = self.driver_states.iter().filter(|state| state.is_turned && !state.is_stopped);
        let sleeps = sleeps.filter_map(|state| state.sleep);
        sleeps.chain(event).min()
    }

    /// Moves the clock, and handles all events that are due.
    pub(super) fn advance(&mut self, to: Duration) {
        self.now = self.now.max(to);
        if self.occurs(NetworkFault::ClockJump) {
            let ahead = self.random_delay(CLOCK_JUMP_MAX);
            self.now += ahead;
            let leap = self.random_delay(SYSTEM_TIME_JUMP_MAX);
            let back = self.random.once_in(2);
            self.clock_offset = if back { self.clock_offset.saturating_sub(leap) } else { self.clock_offset + leap };
        }
        while let Some(event) = self.event_queue.pop(self.now) {
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        if self.is_partitioned(&event) {
            return self.defer(event);
        }
        match event {
            Event::Syn { from } => self.handle_syn(from),
            Event::ConnectDone { end, outcome } => self.connect_done(end, outcome),
            Event::Data { to, bytes } => self.arrive(to, &bytes),
            Event::Datagram { packet } => self.datagram_arrives(*packet),
            Event::PortUnreachable { source, destination } => self.port_unreachable(source, destination),
            Event::DatagramRoom { socket } => self.datagram_room(socket),
            Event::Fin { to, joined } => self.change(to, |end| (end.fin_received, end.fin_joined) = (true, joined)),
            Event::Reset { to } => self.change(to, Endpoint::break_stream),
            Event::Acknowledged { end, count } => self.change(end, |end| end.unacknowledged -= count),
            Event::Unstalled { end } => self.change(end, |end| end.stalled = false),
            Event::BufferRestored { end } => self.change(end, |end| end.send_buffer = SEND_BUFFER_BYTES),
            Event::SendDue { end } => self.change(end, |end| end.send_is_due = end.taken.is_some()),
            Event::Cancelled { place } => self.set_one_more(place, false),
            Event::Poll { place } => {
                match place {
                    SocketRef::Endpoint(id) => self.ends.get_mut(id).into_iter().for_each(|end| end.queued = false),
                    SocketRef::Listener(id) => self.listeners.get_mut(id).into_iter().for_each(|it| it.queued = false),
                    SocketRef::Datagrams(id) => {
                        self.datagrams.sockets.get_mut(id).into_iter().for_each(|it| it.queued = false);
                    }
                    SocketRef::Closed(_) => {}
                }
                self.enqueue(place);
            }
            Event::Closed { driver, token } => {
                self.driver_states[driver].ready.push(SocketRef::Closed(token), Load::LIGHT);
            }
            Event::WakeUp { driver } => {
                let wake_up = &mut self.driver_states[driver].wake_up;
                // The loop may have been turned meanwhile for another reason.
                if *wake_up == WakeUp::Late {
                    *wake_up = WakeUp::Arrived;
                }
            }
        }
    }

    /// Resumes receiving or accepting, or stops it; after a stop one completion may still come.
    pub(super) fn set_interest(&mut self, place: SocketRef, on: bool) {
        let (is_on, one_more) = match place {
            SocketRef::Endpoint(id) => match self.ends.get_mut(id) {
                Some(end) => (&mut end.receiving, &mut end.one_more),
                None => return,
            },
            SocketRef::Listener(id) => match self.listeners.get_mut(id) {
                Some(listener) => (&mut listener.accepting, &mut listener.one_more),
                None => return,
            },
            SocketRef::Datagrams(id) => {
                self.datagrams.sockets.get_mut(id).into_iter().for_each(|socket| socket.receiving = on);
                return self.enqueue(place);
            }
            SocketRef::Closed(_) => return,
        };
        *one_more = false;
        if std::mem::replace(is_on, on) && !on && self.may_occur(NetworkFault::LateCancel) {
            let pause = self.random_delay(CANCEL_MAX);
            self.set_one_more(place, true);
            self.put(pause, Event::Cancelled { place });
        }
        self.enqueue(place);
    }

    /// The owner of an end wants to know when the other end is shut down.
    pub(super) fn watch_end(&mut self, id: u64) {
        self.change(id, |end| end.is_watched = true);
    }

    fn set_one_more(&mut self, place: SocketRef, one_more: bool) {
        match place {
            SocketRef::Endpoint(id) => self.ends.get_mut(id).into_iter().for_each(|end| end.one_more = one_more),
            SocketRef::Listener(id) => self.listeners.get_mut(id).into_iter().for_each(|it| it.one_more = one_more),
            SocketRef::Datagrams(_) | SocketRef::Closed(_) => {}
        }
    }

    /// Changes an end, and queues it, since the change may cause a completion.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut Endpoint)) {
        if let Some(end) = self.ends.get_mut(id) {
            change(end);
            self.enqueue(SocketRef::Endpoint(id));
        }
    }

    /// The route that an event takes, unless it stays within its host.
    fn route_of(&self, event: &Event) -> Option<Route> {
        match *event {
            Event::Syn { from } => self.ends.get(from).map(|end| end.route),
            Event::ConnectDone { end, outcome: Ok(()) | Err(io::ErrorKind::ConnectionRefused) }
            | Event::Data { to: end, .. }
            | Event::Fin { to: end, .. }
            | Event::Reset { to: end }
            | Event::Acknowledged { end, .. } => self.ends.get(end).map(|end| (end.route.1, end.route.0)),
            _ => None,
        }
    }

    fn is_partitioned(&self, event: &Event) -> bool {
        !self.partitions.is_empty() && self.route_of(event).is_some_and(|route| self.partitions.contains(&route))
    }

    /// Whether a route is cut.
    pub(super) fn is_cut(&self, route: Route) -> bool {
        self.partitions.contains(&route)
    }

    fn defer(&mut self, event: Event) {
        // A connect times out whether its request or the answer is not delivered.
        if let Event::Syn { from: end } | Event::ConnectDone { end, .. } = event {
            self.time_out_later(end);
        }
        self.undelivered.push(event);
    }

    /// Cuts both routes between two hosts.
    pub(super) fn partition_between(&mut self, one: IpAddr, other: IpAddr) {
        self.partitions.extend([(one, other), (other, one)]);
    }

    /// Restores both routes, and delivers the bytes sent meanwhile, in their original order.
    pub(super) fn heal_between(&mut self, one: IpAddr, other: IpAddr) {
        self.partitions.remove(&(one, other));
        self.partitions.remove(&(other, one));
        for event in std::mem::take(&mut self.undelivered) {
            if self.is_partitioned(&event) {
                self.undelivered.push(event);
            } else {
                self.handle(event);
            }
        }
    }

    /// Queues a socket at its driver, unless it is queued already or has no driver.
    pub(super) fn enqueue(&mut self, place: SocketRef) {
        let socket = match place {
            SocketRef::Endpoint(id) => self.ends.get_mut(id).map(|end| (end.owner, &mut end.queued, end.load)),
            SocketRef::Listener(id) => {
                self.listeners.get_mut(id).map(|found| (found.owner, &mut found.queued, Load::default()))
            }
            SocketRef::Datagrams(id) => {
                self.datagrams.sockets.get_mut(id).map(|socket| (socket.owner, &mut socket.queued, socket.load))
            }
            SocketRef::Closed(_) => None,
        };
        if let Some((Some(owner), queued, load)) = socket
            && !std::mem::replace(queued, true)
        {
            let ready = &mut self.driver_states[owner.driver].ready;
            match place {
                SocketRef::Listener(_) => ready.push_listener(place),
                SocketRef::Endpoint(_) | SocketRef::Datagrams(_) | SocketRef::Closed(_) => ready.push(place, load),
            }
        }
    }

    /// Records a completion that a driver returns to its loop.
    pub(super) fn report(&mut self, owner: Owner, completion: &Completion) {
        self.driver_states[owner.driver].activity += 1;
        self.trace.note(self.now.as_nanos() as u64, owner.driver, owner.token, completion);
    }

    pub(super) fn link_between(&self, route: Route) -> Link {
        self.links.get(&route).copied().unwrap_or(self.link)
    }
}

/// The first ephemeral port of a connecting socket.
pub(super) const PORT_FIRST: u16 = 49_152;

/// How late a completion may come after receiving or accepting was stopped.
const CANCEL_MAX: Duration = Duration::from_millis(5);

/// How far the clock jumps at most.
const CLOCK_JUMP_MAX: Duration = Duration::from_millis(300);

/// How far the system time jumps at most.
const SYSTEM_TIME_JUMP_MAX: Duration = Duration::from_secs(3600);

/// How late a wake-up may be.
const WAKE_UP_MAX: Duration = Duration::from_millis(50);
