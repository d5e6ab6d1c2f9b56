//! `World`: ten processes with the real rooms, users, backplane and client, and the model of the server, on hosts of a simulated
//! network.
//!
//! A member is a task that subscribes to a room, and logs all that it is given. Faults that last end by themselves, while the
//! applications go on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate::framing::Lines;
use tidegate::{RoomNotice, Rooms, Slow, UserLimits, Users};
use tidegate_backplane::Backplane;
use tidegate_engine::task::{self, Task};
use tidegate_engine::{NodeId, Position, Room, RoomLimits};
use tidegate_testkit::Random;
use tidegate_testkit::network::{Host, Network, SimNode};

use super::broker::{BrokerKind, BrokerModel};
use super::faults::FaultEnd;

/// A room, or a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Ordered(usize),
    Ephemeral(usize),
    User(usize),
}

impl Place {
    fn any(random: &mut Random) -> Self {
        match random.below(ORDERED + EPHEMERAL + USERS) {
            number if number < ORDERED => Self::Ordered(number),
            number if number < ORDERED + EPHEMERAL => Self::Ephemeral(number - ORDERED),
            number => Self::User(number - ORDERED - EPHEMERAL),
        }
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let rooms = (0..ORDERED).map(Self::Ordered).chain((0..EPHEMERAL).map(Self::Ephemeral));
        rooms.chain((0..USERS).map(Self::User))
    }

    /// The name of its room in the backplane.
    pub(crate) fn full_name(self) -> String {
        if let Self::User(_) = self { format!("\u{1}user:{}", self.name()) } else { self.name() }
    }

    fn name(self) -> String {
        match self {
            Self::Ordered(number) => format!("ordered {number}"),
            Self::Ephemeral(number) => format!("ephemeral {number}"),
            Self::User(number) => format!("user {number}"),
        }
    }
}

/// A process.
pub(crate) struct Process {
    /// Another one at each start.
    pub(crate) incarnation: u64,
    pub(crate) backplane: Backplane,
    ordered: Rooms<Lines, String>,
    ephemeral: Rooms<Lines, String>,
    users: Users<Lines, String>,
    pub(super) node: SimNode,
    pub(super) is_stopped: bool,
    /// The end of the last fault that concerned its connections.
    pub(super) disturbed_until: Instant,
}

impl Process {
    pub(crate) fn room(&self, place: Place) -> Room<Lines, String> {
        let name = place.name();
        let room = match place {
            Place::Ordered(_) => self.ordered.room(&name),
            Place::Ephemeral(_) => self.ephemeral.room(&name),
            Place::User(_) => self.users.room(&name),
        };
        room.expect("there are few rooms")
    }
}

/// All that a member was given.
#[derive(Default)]
pub(crate) struct VisitLog {
    pub(crate) entered_at: Cell<Option<Instant>>,
    pub(crate) seen: RefCell<Vec<(Instant, RoomNotice)>>,
    /// It was kicked.
    pub(crate) is_over: Cell<bool>,
}

/// A member of a room, present or not any more.
pub(crate) struct Visit {
    pub(crate) place: Place,
    pub(crate) incarnation: u64,
    pub(crate) name: String,
    pub(crate) log: Rc<VisitLog>,
    /// The visit before it of the same client, which names the last position that it has seen.
    pub(crate) continues: Option<usize>,
    pub(crate) left_at: Option<Instant>,
    pub(super) task: Option<Task<()>>,
}

impl Visit {
    pub(crate) fn is_present(&self) -> bool {
        self.task.is_some() && self.log.entered_at.get().is_some() && !self.log.is_over.get()
    }

    /// The last position that it has seen, if it has seen one.
    fn position(&self) -> Option<Option<Position>> {
        let position = |(_, notice): &(Instant, RoomNotice)| match notice {
            RoomNotice::Message { position, .. } | RoomNotice::Gap { position } => Some(*position),
            _ => None,
        };
        self.log.seen.borrow().iter().rev().find_map(position)
    }
}

/// A kick, by its number, which is its reason.
pub(crate) struct IssuedKick {
    pub(crate) user: Place,
    pub(crate) incarnation: u64,
    pub(crate) at: Instant,
}

pub(crate) struct World {
    pub(crate) network: Network,
    pub(super) model: BrokerModel,
    pub(super) broker: Host,
    pub(super) server: Option<SimNode>,
    pub(super) hosts: Vec<Host>,
    pub(crate) processes: Vec<Process>,
    pub(crate) visits: Vec<Visit>,
    pub(crate) kicks: Vec<IssuedKick>,
    /// When an incarnation has died, and its last commands had arrived.
    pub(crate) deaths: BTreeMap<u64, Instant>,
    /// Messages of an incarnation that has died whose requests had no reply in time.
    unconfirmed: BTreeMap<u64, u64>,
    /// Until when segments from each host may be late.
    pub(super) late_until: Vec<Instant>,
    /// Until when records last longer, since the broker's clock was set back.
    pub(super) records_last_until: Instant,
    /// When the broker has lost data, or was set ahead by more than it remembers kicks.
    pub(crate) losses: Vec<Instant>,
    /// When the broker went back.
    pub(crate) fail_overs: Vec<Instant>,
    /// When the broker's clock was set.
    pub(crate) clock_steps: Vec<Instant>,
    pub(super) fault_ends: Vec<(Instant, FaultEnd)>,
    /// The end of the last fault of the broker or of all networks: a process that starts meanwhile has it as well.
    pub(super) disturbed_until: Instant,
    pub(crate) random: Random,
    pub(super) seed: u64,
    last_incarnation: u64,
    last_text: u64,
    /// `TIDEGATE_TRACE` is set: each action is printed.
    prints: bool,
}

impl World {
    pub(crate) fn new(kind: BrokerKind, seed: u64) -> Self {
        let network = Network::new(seed);
        let broker = network.host("10.0.0.1");
        let mut world = Self {
            model: BrokerModel::new(kind),
            server: None,
            hosts: (1..=NODES).map(|number| network.host(&format!("10.0.1.{number}"))).collect(),
            processes: Vec::new(),
            visits: Vec::new(),
            kicks: Vec::new(),
            deaths: BTreeMap::new(),
            late_until: vec![network.now(); NODES],
            records_last_until: network.now(),
            unconfirmed: BTreeMap::new(),
            losses: Vec::new(),
            fail_overs: Vec::new(),
            clock_steps: Vec::new(),
            fault_ends: Vec::new(),
            disturbed_until: network.now(),
            random: Random::new(seed),
            seed,
            last_incarnation: 0,
            last_text: 0,
            prints: std::env::var_os("TIDEGATE_TRACE").is_some(),
            network,
            broker,
        };
        world.start_broker();
        for number in 0..NODES {
            let process = world.new_process(number);
            world.processes.push(process);
        }
        world.network.run_for(Duration::from_secs(1));
        world
    }

    pub(super) fn start_broker(&mut self) {
        let node = self.broker.node();
        self.model.listen(&node);
        self.server = Some(node);
    }

    pub(super) fn new_process(&mut self, number: usize) -> Process {
        self.last_incarnation += 1;
        let (incarnation, node) = (self.last_incarnation, self.hosts[number].node());
        let id = NodeId((u128::from(self.seed) << 64 | u128::from(incarnation)).to_be_bytes());
        let kind = self.model.kind();
        let started = node.spawn(async move { BrokerModel::client(kind, incarnation).id(id).start() });
        let backplane = self.network.run_task(Duration::from_secs(10), started);
        let rooms = |history_max| {
            let mut limits = RoomLimits::default();
            (limits.history_max, limits.waiting_messages_max) = (history_max, WAITING_MAX);
            Rooms::new(Slow::Skip, limits).encoding(|_| None).with(&backplane)
        };
        let ephemeral = rooms(0);
        Process {
            incarnation,
            ordered: rooms(HISTORY_MAX),
            users: Users::new(&ephemeral, &UserLimits::default()),
            ephemeral,
            backplane,
            node,
            is_stopped: false,
            disturbed_until: self.disturbed_until.max(self.network.now() + Duration::from_secs(1)),
        }
    }

    /// An incarnation dies. Its host still delivers all that it has sent, and a lease begins when the broker has the record.
    pub(super) fn dies(&mut self, number: usize) {
        let Process { incarnation, backplane, .. } = &self.processes[number];
        self.deaths.insert(*incarnation, self.network.now().max(self.late_until[number]));
        self.unconfirmed.insert(*incarnation, backplane.counts().unconfirmed);
    }

    /// Messages of an incarnation whose requests had no reply in time.
    pub(crate) fn unconfirmed(&self, incarnation: u64) -> u64 {
        let process = self.processes.iter().find(|process| process.incarnation == incarnation);
        let of_dead = || self.unconfirmed.get(&incarnation).copied();
        process.map(|process| process.backplane.counts().unconfirmed).or_else(of_dead).expect("it was started")
    }

    pub(super) fn trace(&self, text: impl FnOnce() -> String) {
        if self.prints {
            println!("{:>8} {}", self.network.elapsed().as_millis(), text());
        }
    }

    /// A process that runs.
    fn any_process(&mut self) -> Option<usize> {
        let number = self.random.below(NODES);
        (!self.processes[number].is_stopped).then_some(number)
    }

    /// A member that is present in a process that runs.
    fn any_visit(&mut self) -> Option<(usize, usize)> {
        let process = self.any_process()?;
        let incarnation = self.processes[process].incarnation;
        let is_there = |(_, visit): &(usize, &Visit)| visit.incarnation == incarnation && visit.is_present();
        let present: Vec<_> = self.visits.iter().enumerate().filter(is_there).map(|(number, _)| number).collect();
        (!present.is_empty()).then(|| (process, *self.random.pick(&present)))
    }

    /// An action of an application.
    pub(crate) fn act(&mut self) {
        match self.random.below(20) {
            0..=4 => {
                let place = Place::any(&mut self.random);
                if let Some(process) = self.any_process() {
                    self.enter(process, place, None);
                }
            }
            5 | 6 => {
                if let Some((_, visit)) = self.any_visit() {
                    self.leave(visit);
                }
            }
            7 | 8 => {
                // The client returns, perhaps to another process.
                if let (Some((_, visit)), Some(process)) = (self.any_visit(), self.any_process()) {
                    self.leave(visit);
                    let before = self.has_a_position(visit).then_some(visit);
                    self.enter(process, self.visits[visit].place, before);
                }
            }
            9 => {
                let user = Place::User(self.random.below(USERS));
                if let Some(process) = self.any_process() {
                    self.kick(process, user);
                }
            }
            _ => {
                let place = Place::any(&mut self.random);
                if let Some(process) = self.any_process() {
                    self.publish(process, place);
                }
            }
        }
    }

    /// Whether the broker has not gone back since this client came first: another message may have the last position that it has
    /// seen.
    fn has_a_position(&self, visit: usize) -> bool {
        let visits = std::iter::successors(Some(visit), |before| self.visits[*before].continues);
        let first = visits.last().and_then(|first| self.visits[first].log.entered_at.get());
        first.is_some_and(|first| !self.fail_overs.iter().any(|at| *at >= first))
    }

    pub(crate) fn enter(&mut self, process: usize, place: Place, continues: Option<usize>) {
        let Process { incarnation, node, .. } = &self.processes[process];
        let (incarnation, room) = (*incarnation, self.processes[process].room(place));
        let name = format!("{incarnation}/{}", self.visits.len());
        let visits = std::iter::successors(continues, |before| self.visits[*before].continues);
        let seen = visits.map(|before| &self.visits[before]).find_map(Visit::position);
        // After a gap without a position, the client of an ordered room has an identifier that is none: it may have seen messages
        // that this process still has.
        let is_ordered = matches!(place, Place::Ordered(_));
        let after = seen.and_then(|seen| seen.or(is_ordered.then_some(Position { epoch: 0, offset: 0 })));
        let pause = if self.random.once_in(6) { self.random.below(500) as u64 } else { 0 };
        let log = Rc::<VisitLog>::default();
        let (of_task, newcomer) = (log.clone(), name.clone());
        let task = node.spawn(attend(room, after, newcomer, Duration::from_millis(pause), of_task, self.prints));
        self.trace(|| format!("{name} enters {place:?} after {after:?}"));
        self.visits.push(Visit { place, incarnation, name, log, continues, left_at: None, task: Some(task) });
    }

    fn leave(&mut self, visit: usize) {
        let now = self.network.now();
        let visit = &mut self.visits[visit];
        visit.left_at = Some(now);
        visit.task.take().into_iter().for_each(Task::cancel);
        let (name, place) = (visit.name.clone(), visit.place);
        self.trace(|| format!("{name} leaves {place:?}"));
    }

    pub(crate) fn publish(&mut self, process: usize, place: Place) -> String {
        self.last_text += 1;
        let text = self.last_text.to_string();
        let room = self.processes[process].room(place);
        let is_taken = room.publish(&Bytes::from(text.clone())).is_ok();
        self.trace(|| format!("{} publishes {text} in {place:?}: {is_taken}", self.processes[process].incarnation));
        text
    }

    fn kick(&mut self, process: usize, user: Place) {
        let number = self.kicks.len();
        let Process { users, incarnation, .. } = &self.processes[process];
        let (at, incarnation) = (self.network.now(), *incarnation);
        let is_taken = users.kick(&user.name(), 4000, &number.to_string()).is_ok();
        self.trace(|| format!("{incarnation} kicks {user:?} by {number}: {is_taken}"));
        self.kicks.push(IssuedKick { user, incarnation, at });
    }
}

/// The task of a member.
async fn attend(
    room: Room<Lines, String>,
    after: Option<Position>,
    name: String,
    pause: Duration,
    log: Rc<VisitLog>,
    prints: bool,
) {
    let mut subscriber = room.subscribe(after, name.clone()).expect("there is room");
    log.entered_at.set(Some(task::now()));
    while let Some(notice) = subscriber.recv().await {
        if prints {
            println!("         {name} gets {notice:?}");
        }
        log.seen.borrow_mut().push((task::now(), notice));
        if !pause.is_zero() {
            task::sleep(pause).await;
        }
    }
    log.is_over.set(true);
}

pub(crate) const NODES: usize = 10;
const ORDERED: usize = 3;
const EPHEMERAL: usize = 2;
const USERS: usize = 4;
/// Messages that a room keeps.
const HISTORY_MAX: usize = 20;
/// Messages that wait for a member which reads slowly.
const WAITING_MAX: usize = 8;
