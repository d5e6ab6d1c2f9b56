//! `World`: the clock, what happens when it moves, and who has which socket.
//!
//! All randomness is that of the seed and nothing is done in the order of a hash map, so one seed is one course of
//! events. What happens to bytes is in `flow.rs`, how streams begin in `connect.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tidegate_sys::{Address, Completion, Load, ReadyQueue, Token};

use super::Link;
use super::agenda::{Agenda, Event};
use super::connect::PORT_FIRST;
use super::faults::{Fault, Faults, Fired};
use super::stream::{End, Listener, Owner, Route, SEND_BUFFER_BYTES};
use super::table::Table;
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
    pub(super) links: BTreeMap<Route, Link>,
    /// Ways that are cut.
    cuts: BTreeSet<Route>,
    /// What would have arrived there.
    held_back: Vec<Event>,
    pub(super) ends: Table<End>,
    /// Ends that somebody has, or has yet to accept.
    pub(super) open_ends: usize,
    pub(super) listeners: Table<Listener>,
    /// Who listens where. A path stays when its listener is gone. Nobody walks over these, so their order is no matter.
    pub(super) addresses: HashMap<Address, u64>,
    pub(super) driver_states: Vec<SimDriverState>,
    agenda: Agenda,
    pub(super) next_port: u16,
    /// What a loop has asked for that no driver could do.
    pub(super) violation: Option<&'static str>,
}

/// What the world knows of a driver.
pub(super) struct SimDriverState {
    pub(super) ip: IpAddr,
    pub(super) sockets: Sockets,
    /// The sockets that have something to report; each is in here at most once.
    pub(super) ready: ReadyQueue<Place>,
    pub(super) receives_paused: bool,
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

impl SimDriverState {
    pub(super) fn new(ip: IpAddr) -> Self {
        Self {
            ip,
            sockets: Sockets::default(),
            ready: ReadyQueue::default(),
            receives_paused: false,
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

/// The sockets of a driver, by slot.
#[derive(Debug, Default)]
pub(super) struct Sockets(Vec<Option<(u32, Place)>>);

impl Sockets {
    pub(super) fn put(&mut self, token: Token, place: Place) {
        let slot = token.slot as usize;
        if slot >= self.0.len() {
            self.0.resize(slot + 1, None);
        }
        self.0[slot] = Some((token.generation, place));
    }

    pub(super) fn get(&self, token: Token) -> Option<Place> {
        let (generation, place) = (*self.0.get(token.slot as usize)?)?;
        (generation == token.generation).then_some(place)
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Place> {
        let place = self.get(token)?;
        self.0[token.slot as usize] = None;
        Some(place)
    }

    pub(super) fn places(&self) -> Vec<Place> {
        self.0.iter().flatten().map(|(_, place)| *place).collect()
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
            cuts: BTreeSet::new(),
            held_back: Vec::new(),
            ends: Table::new(),
            open_ends: 0,
            listeners: Table::new(),
            addresses: HashMap::new(),
            driver_states: Vec::new(),
            agenda: Agenda::default(),
            next_port: PORT_FIRST,
            violation: None,
        }
    }

    /// Whether a fault strikes now.
    pub(super) fn strikes(&mut self, fault: Fault) -> bool {
        let strikes = self.threatens(fault);
        if strikes {
            self.fired.note(fault);
        }
        strikes
    }

    /// Whether a fault may strike, which whoever asks takes note of when it does.
    pub(super) fn threatens(&mut self, fault: Fault) -> bool {
        let once_in = self.faults.once_in(fault);
        once_in > 0 && self.random.once_in(once_in)
    }

    /// A new end of a stream.
    pub(super) fn open(&mut self, end: End) -> u64 {
        self.open_ends += 1;
        self.ends.insert(end)
    }

    /// Some time up to `most`, and not none.
    pub(super) fn some_time(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(1 + self.random.below(most.as_nanos() as usize) as u64)
    }

    pub(super) fn put(&mut self, after: Duration, event: Event) {
        self.put_at(self.now + after, event);
    }

    pub(super) fn put_at(&mut self, at: Duration, event: Event) {
        self.agenda.put(at, event);
    }

    /// When something happens next, or a loop has slept enough.
    pub(super) fn next_time(&self) -> Option<Duration> {
        let event = self.agenda.next_time();
        let sleeps = self.driver_states.iter().filter(|desk| desk.is_turned).filter_map(|desk| desk.sleep);
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
        while let Some(event) = self.agenda.pop(self.now) {
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        if self.is_cut(&event) {
            return self.hold_back(event);
        }
        match event {
            Event::Knock { from } => self.knock(from),
            Event::Decided { end, outcome } => self.decided(end, outcome),
            Event::Data { to, bytes } => self.arrive(to, &bytes),
            Event::Fin { to, joined } => self.change(to, |end| (end.fin_came, end.fin_joined) = (true, joined)),
            Event::Reset { to } => self.change(to, End::break_off),
            Event::Acknowledged { end, count } => self.change(end, |end| end.unacknowledged -= count),
            Event::Unstalled { end } => self.change(end, |end| end.stalled = false),
            Event::Roomy { end } => self.change(end, |end| end.send_buffer = SEND_BUFFER_BYTES),
            Event::SendDue { end } => self.change(end, |end| end.send_is_due = end.taken.is_some()),
            Event::Cancelled { place } => self.set_one_more(place, false),
            Event::Attend { place } => {
                match place {
                    Place::End(id) => self.ends.get_mut(id).into_iter().for_each(|end| end.lined_up = false),
                    Place::Listener(id) => self.listeners.get_mut(id).into_iter().for_each(|it| it.lined_up = false),
                    Place::Closed(_) => {}
                }
                self.line_up(place);
            }
            Event::Closed { desk, token } => {
                self.driver_states[desk].ready.push(Place::Closed(token), Load::LIGHT);
            }
        }
    }

    /// Goes on with receiving or accepting, or stops; then one completion may be on its way.
    pub(super) fn go_on(&mut self, place: Place, on: bool) {
        let (goes_on, one_more) = match place {
            Place::End(id) => match self.ends.get_mut(id) {
                Some(end) => (&mut end.receiving, &mut end.one_more),
                None => return,
            },
            Place::Listener(id) => match self.listeners.get_mut(id) {
                Some(listener) => (&mut listener.accepting, &mut listener.one_more),
                None => return,
            },
            Place::Closed(_) => return,
        };
        *one_more = false;
        if std::mem::replace(goes_on, on) && !on && self.threatens(Fault::LateCancel) {
            let pause = self.some_time(CANCEL_MAX);
            self.set_one_more(place, true);
            self.put(pause, Event::Cancelled { place });
        }
        self.line_up(place);
    }

    fn set_one_more(&mut self, place: Place, one_more: bool) {
        match place {
            Place::End(id) => self.ends.get_mut(id).into_iter().for_each(|end| end.one_more = one_more),
            Place::Listener(id) => self.listeners.get_mut(id).into_iter().for_each(|it| it.one_more = one_more),
            Place::Closed(_) => {}
        }
    }

    /// Something about an end is otherwise, and it may have something to say for that reason.
    fn change(&mut self, id: u64, change: impl FnOnce(&mut End)) {
        if let Some(end) = self.ends.get_mut(id) {
            change(end);
            self.line_up(Place::End(id));
        }
    }

    /// The way that an event takes, unless it stays within its host.
    fn route_of(&self, event: &Event) -> Option<Route> {
        match *event {
            Event::Knock { from } => self.ends.get(from).map(|end| end.route),
            Event::Decided { end, outcome: Ok(()) | Err(io::ErrorKind::ConnectionRefused) }
            | Event::Data { to: end, .. }
            | Event::Fin { to: end, .. }
            | Event::Reset { to: end }
            | Event::Acknowledged { end, .. } => self.ends.get(end).map(|end| (end.route.1, end.route.0)),
            _ => None,
        }
    }

    fn is_cut(&self, event: &Event) -> bool {
        !self.cuts.is_empty() && self.route_of(event).is_some_and(|route| self.cuts.contains(&route))
    }

    fn hold_back(&mut self, event: Event) {
        // Neither who asks in vain nor who is answered in vain waits for ever.
        if let Event::Knock { from: end } | Event::Decided { end, .. } = event {
            self.answers_nobody(end);
        }
        self.held_back.push(event);
    }

    /// Two hosts hear nothing of each other any more.
    pub(super) fn cut_between(&mut self, one: IpAddr, other: IpAddr) {
        self.cuts.extend([(one, other), (other, one)]);
    }

    /// They do again, and what they have sent meanwhile arrives, in the order in which it would have.
    pub(super) fn heal_between(&mut self, one: IpAddr, other: IpAddr) {
        self.cuts.remove(&(one, other));
        self.cuts.remove(&(other, one));
        for event in std::mem::take(&mut self.held_back) {
            if self.is_cut(&event) {
                self.held_back.push(event);
            } else {
                self.happen(event);
            }
        }
    }

    /// Queues a socket at its driver, unless it is queued, or no driver has it.
    pub(super) fn line_up(&mut self, place: Place) {
        let socket = match place {
            Place::End(id) => self.ends.get_mut(id).map(|end| (end.owner, &mut end.lined_up, end.load)),
            Place::Listener(id) => {
                self.listeners.get_mut(id).map(|found| (found.owner, &mut found.lined_up, Load::default()))
            }
            Place::Closed(_) => None,
        };
        if let Some((Some(owner), lined_up, load)) = socket
            && !std::mem::replace(lined_up, true)
        {
            let ready = &mut self.driver_states[owner.desk].ready;
            match place {
                Place::Listener(_) => ready.push_listener(place),
                Place::End(_) | Place::Closed(_) => ready.push(place, load),
            }
        }
    }

    /// Takes note of what a driver tells its loop.
    pub(super) fn told(&mut self, owner: Owner, completion: &Completion) {
        self.driver_states[owner.desk].activity += 1;
        self.trace.note(self.now.as_nanos() as u64, owner.desk, owner.token, completion);
    }

    pub(super) fn link_between(&self, route: Route) -> Link {
        self.links.get(&route).copied().unwrap_or(self.link)
    }
}

/// How long something may be on its way after receiving or accepting was stopped.
const CANCEL_MAX: Duration = Duration::from_millis(5);

/// How far the clock leaps at most.
const LEAP_MAX: Duration = Duration::from_millis(300);

/// How far the time of day leaps at most.
const WALL_LEAP_MAX: Duration = Duration::from_secs(3600);
