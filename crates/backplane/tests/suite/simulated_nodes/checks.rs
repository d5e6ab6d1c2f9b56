//! The checks of a run: order, presence and kicks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tidegate::RoomNotice;

use super::world::{Place, Process, Visit, World};
use crate::redis_model::Published;

/// A message that the broker has published in a room.
struct BrokerMessage {
    /// The one before it: in the history, or, in a room without one, among the messages.
    previous: Option<String>,
    origin: [u8; 16],
    place: usize,
}

/// The text and the origin of a plain message.
fn plain(payload: &[u8]) -> Option<(String, [u8; 16])> {
    let payload = match payload.split_first() {
        Some((b'@', rest)) => &rest[rest.iter().position(|byte| *byte == b'\n')? + 1..],
        _ => payload,
    };
    let (head, text) = payload.split_at_checked(HEAD_BYTES)?;
    let origin = head[4..20].try_into().expect("16 bytes");
    (head[3] == 0).then(|| (String::from_utf8_lossy(text).into_owned(), origin))
}

/// The plain messages of a room by their texts. Each was published once, and those of a process in the order of their texts,
/// but for requests without a reply: the broker may execute one after the next one, which comes over another connection.
fn broker_messages(world: &World, place: Place, published: &[Published]) -> BTreeMap<String, BrokerMessage> {
    let channel = world.model.channel(&place.full_name());
    let mut messages = BTreeMap::new();
    let mut last_of = BTreeMap::new();
    let mut last: Option<String> = None;
    for one in published.iter().filter(|one| one.channel == channel.as_bytes()) {
        let Some((text, origin)) = plain(&one.payload) else { continue };
        let number: u64 = text.parse().expect("a number");
        let (before, late) = last_of.entry(origin).or_insert((number, 0));
        *late += u64::from(number < *before);
        let incarnation = u128::from_be_bytes(origin) as u64;
        let is_allowed = *late <= world.unconfirmed(incarnation);
        assert!(is_allowed, "{place:?}: {text} after {before} of one process");
        *before = number.max(*before);
        let previous = match place {
            Place::Ordered(_) => one.previous.as_ref().and_then(|payload| plain(payload)).map(|(text, _)| text),
            _ => last.replace(text.clone()),
        };
        let message = BrokerMessage { previous, origin, place: messages.len() };
        assert!(messages.insert(text.clone(), message).is_none(), "{place:?}: {text} is published twice");
    }
    messages
}

/// Each member's log has the order of the broker, no message twice, and holes only where they are reported.
pub(super) fn one_order(world: &World) {
    let published = world.model.published();
    for place in Place::all() {
        let messages = broker_messages(world, place, &published);
        for (number, visit) in world.visits.iter().enumerate().filter(|(_, visit)| visit.place == place) {
            let is_last = !world.visits.iter().any(|other| other.continues == Some(number));
            if is_last {
                let mut order = Order { visit, messages: &messages, last: None, is_first: true, seen: BTreeSet::new() };
                order.follow(world, number);
            }
        }
    }
}

struct Order<'a> {
    visit: &'a Visit,
    messages: &'a BTreeMap<String, BrokerMessage>,
    last: Option<String>,
    /// Messages before the next one may be missing.
    is_first: bool,
    seen: BTreeSet<String>,
}

impl Order<'_> {
    /// The visits of a client, one after the other.
    fn follow(&mut self, world: &World, number: usize) {
        let visit = &world.visits[number];
        if let Some(before) = visit.continues {
            self.follow(world, before);
        }
        let is_ordered = matches!(visit.place, Place::Ordered(_));
        if !is_ordered {
            // Without positions, a client that returns to another process may see a message again.
            (self.is_first, self.last, self.seen) = (true, None, BTreeSet::new());
        }
        // The room may have opened after that, and another message may have the position that the client has named.
        self.is_first |= world.fail_overs.iter().any(|at| has_waited_at(visit, *at));
        for (place, (_, notice)) in visit.log.seen.borrow().iter().enumerate() {
            match notice {
                // A client that returns gets the whole history if it cannot have the rest alone.
                RoomNotice::Gap { .. } if place == 0 && visit.continues.is_some() => {
                    (self.is_first, self.last, self.seen) = (true, None, BTreeSet::new());
                }
                RoomNotice::Message { bytes, .. } => {
                    self.next(&visit.name, String::from_utf8_lossy(bytes).into_owned());
                }
                RoomNotice::Gap { .. } => self.is_first = true,
                RoomNotice::Down | RoomNotice::Up => self.is_first |= !is_ordered,
                _ => {}
            }
        }
    }

    fn next(&mut self, name: &str, text: String) {
        let place = self.visit.place;
        let message =
            self.messages.get(&text).unwrap_or_else(|| panic!("{name}: {text} was never published in {place:?}"));
        assert!(self.seen.insert(text.clone()), "{name} in {place:?} has {text} twice");
        if let Some(before) = self.last.as_ref().and_then(|last| self.messages.get(last)) {
            assert!(before.place < message.place, "{name} in {place:?}: {text} after {:?}", self.last);
        }
        if !std::mem::take(&mut self.is_first) {
            assert_eq!(message.previous, self.last, "{name} in {place:?}: before {text} of {:x?}", message.origin);
        }
        self.last = Some(text);
    }
}

/// All members that are present have the last message of their room.
pub(super) fn all_have(world: &World, place: Place, text: &str) -> bool {
    let has = |visit: &Visit| {
        let seen = visit.log.seen.borrow();
        seen.iter().any(|(_, notice)| matches!(notice, RoomNotice::Message { bytes, .. } if bytes == text))
    };
    world.visits.iter().filter(|visit| visit.place == place && visit.is_present()).all(has)
}

/// Whether a member was there at this time, and had no message yet.
fn has_waited_at(visit: &Visit, at: Instant) -> bool {
    let first = visit.log.seen.borrow().first().map(|(first, _)| *first);
    visit.log.entered_at.get().is_some_and(|entered| entered <= at) && first.is_none_or(|first| at <= first)
}

fn present<'a>(world: &'a World, process: &Process, place: Place) -> impl Iterator<Item = &'a Visit> + use<'a> {
    let incarnation = process.incarnation;
    let is_there = move |visit: &&Visit| visit.incarnation == incarnation && visit.place == place && visit.is_present();
    world.visits.iter().filter(is_there)
}

/// No process lists a member of one that has died for longer than its lease.
pub(super) fn nobody_is_left_behind(world: &World) {
    let now = world.network.now();
    for process in world.processes.iter().filter(|process| !process.is_stopped && process.disturbed_until <= now) {
        for place in Place::all().filter(|place| present(world, process, *place).next().is_some()) {
            for name in process.room(place).present() {
                let died_at = name.split_once('/').and_then(|(number, _)| world.deaths.get(&number.parse().ok()?));
                let Some(died_at) = died_at else { continue };
                let since = now - process.disturbed_until.max(*died_at);
                let seen_by = process.incarnation;
                assert!(since <= LEASE + SLACK, "{name} is dead for {since:?}, and {seen_by} lists it in {place:?}");
            }
        }
    }
}

/// Each process lists the members of all others.
pub(super) fn all_are_listed(world: &World) {
    for place in Place::all() {
        let all: BTreeSet<_> = world
            .visits
            .iter()
            .filter(|visit| visit.place == place && visit.is_present())
            .map(|visit| &visit.name)
            .collect();
        for process in &world.processes {
            if present(world, process, place).next().is_none() {
                continue;
            }
            let (room, by) = (process.room(place), process.incarnation);
            let listed = room.present();
            assert_eq!(listed.iter().collect::<BTreeSet<_>>(), all, "members of {place:?} that {by} lists");
            assert_eq!((listed.len(), room.len()), (all.len(), all.len()), "members of {place:?} that {by} counts");
        }
    }
}

/// A kick closes each member once, and none that came back later.
pub(super) fn kicks(world: &World) {
    let stored = stored_kicks(world);
    for visit in &world.visits {
        let Place::User(_) = visit.place else { continue };
        let seen = visit.log.seen.borrow();
        let kick = seen.iter().find_map(|(at, notice)| match notice {
            RoomNotice::Kicked { reason, .. } => Some((*at, reason.parse::<usize>().expect("a number"))),
            _ => None,
        });
        match kick {
            Some((at, number)) => kicked_once(world, visit, at, number, stored.get(&number)),
            None if visit.is_present() => not_missed(world, visit, &stored),
            None => {}
        }
    }
}

/// When the broker has stored each kick the first time, and the last time.
fn stored_kicks(world: &World) -> BTreeMap<usize, (Instant, Instant)> {
    let mut stored = BTreeMap::new();
    for set in world.model.kicks() {
        let reason = set.value.rsplit(|byte| !byte.is_ascii_digit()).next().expect("a part");
        // The code before it, 4000, is no digit.
        let Ok(number) = String::from_utf8_lossy(reason).parse() else { continue };
        stored.entry(number).or_insert((set.at, set.at)).1 = set.at;
    }
    stored
}

fn kicked_once(world: &World, visit: &Visit, at: Instant, number: usize, stored: Option<&(Instant, Instant)>) {
    let (kick, name) = (&world.kicks[number], &visit.name);
    let entered_at = visit.log.entered_at.get().expect("it has entered");
    assert_eq!(kick.user, visit.place, "{name} is closed by the kick of another user");
    assert!(kick.at <= at, "{name} is closed by {number} too early");
    let is_own = kick.incarnation == visit.incarnation;
    assert!(
        !is_own || entered_at <= kick.at + SLACK_OF_TURN,
        "{name} came back to the process that sent kick {number}"
    );
    // If the broker's clock was set, the age of a kick may be ambiguous: then it counts as young, and a process forgets the kicks of
    // rooms that it leaves.
    if world.clock_steps.iter().any(|step| *step <= at) {
        return;
    }
    if let Some((_, last)) = stored {
        came_back(world, visit, number, *last);
    }
    // The process has executed it once.
    for other in
        world.visits.iter().filter(|other| other.incarnation == visit.incarnation && other.place == visit.place)
    {
        let by_same = |(_, notice): &&(Instant, RoomNotice)| matches!(notice, RoomNotice::Kicked { reason, .. } if **reason == *number.to_string());
        if let Some((before, _)) = other.log.seen.borrow().iter().find(by_same) {
            assert!(entered_at <= *before, "{name} is closed by {number}, which has closed {} before", other.name);
        }
    }
}

/// A member that has entered after the broker had the kick may be closed only with others of its process that were there before.
fn came_back(world: &World, visit: &Visit, number: usize, stored_at: Instant) {
    let mut since = visit.log.entered_at.get().expect("it has entered");
    let is_other = |other: &&Visit| other.incarnation == visit.incarnation && other.place == visit.place;
    let others: Vec<_> = world.visits.iter().filter(is_other).collect();
    loop {
        let overlaps = |other: &&&Visit| {
            other.log.entered_at.get().is_some_and(|at| at < since)
                && ended_at(other).is_none_or(|at| at + LINGER >= since)
        };
        let Some(before) = others.iter().find(overlaps).and_then(|other| other.log.entered_at.get()) else { break };
        since = before;
    }
    let name = &visit.name;
    assert!(
        since <= stored_at + AGE_TOLERANCE,
        "{name} is closed by kick {number}, which the broker had {:?} before its process had members",
        since - stored_at
    );
}

/// When a member has left, or was kicked.
fn ended_at(visit: &Visit) -> Option<Instant> {
    let is_kick = |(_, notice): &&(Instant, RoomNotice)| matches!(notice, RoomNotice::Kicked { .. });
    let kicked_at = visit.log.seen.borrow().iter().find(is_kick).map(|(at, _)| *at);
    kicked_at.or(visit.left_at)
}

/// A member that is present has entered after the kicks of its user, as far as the broker has not lost them.
fn not_missed(world: &World, visit: &Visit, stored: &BTreeMap<usize, (Instant, Instant)>) {
    let entered_at = visit.log.entered_at.get().expect("it has entered");
    for (number, kick) in world.kicks.iter().enumerate().filter(|(_, kick)| kick.user == visit.place) {
        let is_own = kick.incarnation == visit.incarnation;
        let is_kept = |(first, _): &(Instant, Instant)| !world.losses.iter().any(|loss| loss >= first);
        if is_own || stored.get(&number).is_some_and(is_kept) {
            let name = &visit.name;
            assert!(
                entered_at >= kick.at,
                "kick {number} has not closed {name}, which entered {:?} before",
                kick.at - entered_at
            );
        }
    }
}

/// Before the text of a message: `TG`, a version, bits, the sender and a number.
const HEAD_BYTES: usize = 28;
const LEASE: Duration = Duration::from_secs(30);
/// The longest way of a message without reported faults of the network, and the longest delay of a timer.
const SLACK: Duration = Duration::from_secs(2);
/// A room without members stays subscribed for so long, and a loop is late.
const LINGER: Duration = Duration::from_millis(1500);
/// The age of a kick is as exact as the reply is fast that reports it.
const AGE_TOLERANCE: Duration = Duration::from_secs(6);
/// A loop's time stands still during its turn.
const SLACK_OF_TURN: Duration = Duration::from_millis(1);
