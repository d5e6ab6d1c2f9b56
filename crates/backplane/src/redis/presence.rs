//! `PresenceBatch`: the members of rooms whose keys one server has, recorded by one call of a script, and read in pages.
//!
//! The lists of all nodes in 100 rooms may be longer than a reply. So the first reply has those of the first rooms, and further calls
//! read the others; a page may end within a room. Nodes whose records change between two pages tell so by messages.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_engine::{NodeId, task};
use tidegate_redis::{Client, ClientError, OwnedValue};

use super::foreign_keys;
use super::pages::{PageBounds, text_of};
use super::refusals::{ServerProber, verdict_of};
use super::scripts::PRESENCE;
use crate::broker::{BrokerEvent, Lease, PresenceUpdate, RoomName};
use crate::broker_clock::BrokerClock;
use crate::refusals::Refusals;

/// The clocks of servers by slots: up to 16,384.
pub(super) type Clocks = HashMap<u16, BrokerClock>;

/// A presence request, without its rooms.
#[derive(Debug, Clone, Copy)]
pub(super) struct PresenceRequest {
    pub(super) ticket: u64,
    pub(super) node: NodeId,
    pub(super) lease: Duration,
    /// Whether the lists of all nodes are wanted.
    pub(super) reads: bool,
    pub(super) page: PageBounds,
}

impl PresenceRequest {
    /// The arguments of the script before those of rooms.
    fn arguments(&self, mode: &'static str, after: Option<NodeId>) -> Vec<Bytes> {
        let after = after.map(|node| node.to_string()).unwrap_or_default();
        let (page_max, list_max) = (self.page.page_max.to_string(), self.page.list_max.to_string());
        let lease = self.lease.as_millis().to_string();
        [self.node.to_string(), lease, mode.to_owned(), page_max, list_max, after].map(Bytes::from).into()
    }
}

/// Rooms of a presence request whose keys belong to one server, with their places in the request and their channels.
#[derive(Default)]
pub(super) struct PresenceBatch(Vec<(usize, String, PresenceUpdate)>);

/// The leases of each room that were read, with the room's place in the request.
type ReadLeases = Vec<(usize, Vec<Lease>)>;

impl PresenceBatch {
    /// Adds a room.
    pub(super) fn push(&mut self, place: usize, channel: String, update: PresenceUpdate) {
        self.0.push((place, channel, update));
    }

    /// Calls the script. Returns events of foreign keys and of kicks, and the leases if they are wanted and there was no error.
    pub(super) async fn run(
        self,
        client: &Client,
        clocks: &RefCell<Clocks>,
        refusals: &Rc<Refusals<ServerProber>>,
        slot: u16,
        request: PresenceRequest,
    ) -> (Vec<BrokerEvent>, Option<ReadLeases>) {
        let first = self.0.first().map(|(_, channel, _)| channel.clone()).unwrap_or_default();
        let keys: Vec<_> = self.0.iter().map(|(_, channel, _)| format!("{channel}:p")).collect();
        let flag = |is_set| Bytes::from_static(if is_set { b"1" } else { b"0" });
        let mut arguments = request.arguments(if request.reads { "1" } else { "0" }, None);
        let (mut places, mut names) = (Vec::new(), Vec::new());
        for (place, channel, update) in self.0 {
            arguments.push(channel.into());
            arguments.extend([flag(update.list.is_some()), update.list.unwrap_or_default()]);
            arguments.extend([flag(update.message.is_some()), update.message.unwrap_or_default()]);
            places.push(place);
            names.push(update.room);
        }
        let mut pages = Pages::new(request.ticket, &names);
        let mut sent_at = task::now();
        // A list must not replace a later one.
        let mut reply = PRESENCE.run_in_order(client, &keys, arguments).await;
        // A record that is taken shows nothing of messages: they need memory.
        if let Err(error) = &reply {
            refusals.note(slot, &first, 0, verdict_of(Some(error)));
        }
        loop {
            let times = (sent_at, task::now());
            let added = pages.add(reply, (clocks.borrow_mut().entry(slot).or_default(), times));
            if added.is_none() || !request.reads {
                return (pages.events, None);
            }
            if pages.place >= keys.len() {
                return (pages.events, Some(places.into_iter().zip(left_of(pages.leases, task::now())).collect()));
            }
            sent_at = task::now();
            reply = PRESENCE.run(client, &keys[pages.place..], request.arguments("2", pages.after)).await;
        }
    }
}

/// The leases of rooms, each with the time of its page, as they are now.
fn left_of(rooms: Vec<Vec<(Lease, Instant)>>, now: Instant) -> impl Iterator<Item = Vec<Lease>> {
    let lease = move |(lease, read_at): (Lease, Instant)| {
        let left = lease.left.saturating_sub(now.saturating_duration_since(read_at));
        Lease { left, ..lease }
    };
    rooms.into_iter().map(move |leases| leases.into_iter().map(lease).collect())
}

/// The pages of a presence request that were read.
struct Pages<'a> {
    ticket: u64,
    names: &'a [RoomName],
    events: Vec<BrokerEvent>,
    leases: Vec<Vec<(Lease, Instant)>>,
    /// The room with which the next page begins.
    place: usize,
    /// The node after which it goes on there.
    after: Option<NodeId>,
}

impl<'a> Pages<'a> {
    fn new(ticket: u64, names: &'a [RoomName]) -> Self {
        let leases = vec![Vec::new(); names.len()];
        Self { ticket, names, events: Vec::new(), leases, place: 0, after: None }
    }

    /// Adds a reply to [`PRESENCE`]. `None` if it is none, or goes in circles.
    fn add(
        &mut self,
        reply: Result<OwnedValue, ClientError>,
        (clock, (sent_at, received_at)): (&mut BrokerClock, (Instant, Instant)),
    ) -> Option<()> {
        let Ok(OwnedValue::Aggregate(_, mut rooms)) = reply else { return None };
        // Which room of the request has the key is not of interest.
        let foreign = rooms.pop();
        self.events.extend(self.names.first().into_iter().flat_map(|room| foreign_keys(room, foreign.as_ref())));
        let time = rooms.pop().and_then(|time| Some(Duration::from_millis(text_of(&time)?.parse().ok()?)));
        if let Some(time) = time {
            clock.sample(time, sent_at, received_at);
        }
        let after = text_of(&rooms.pop()?)?;
        let after = if after.is_empty() { None } else { Some(node_of(&after)?) };
        let first = self.place;
        let whole = rooms.len().checked_sub(usize::from(after.is_some()))?;
        let is_further = whole > 0 || after > self.after || self.names.is_empty();
        if rooms.len() > self.names.len() - first {
            return None;
        }
        for (place, room) in (first..).zip(rooms) {
            let OwnedValue::Aggregate(_, parts) = room else { return None };
            // Fields that no node has written are left out.
            self.leases[place].extend(parts.chunks(3).filter_map(lease_of).map(|lease| (lease, received_at)));
            let age_of = |age: &OwnedValue| {
                let milliseconds: i64 = text_of(age)?.parse().ok()?;
                let age = Duration::from_millis(milliseconds.unsigned_abs());
                let kicked_at = if milliseconds < 0 { time?.saturating_add(age) } else { time?.saturating_sub(age) };
                clock.age(kicked_at, received_at)
            };
            if let Some([_, age, OwnedValue::Bulk(bytes)]) = parts.chunks(3).find(|parts| is_kick(parts))
                && let Some(age) = age_of(age)
            {
                let (ticket, room) = (self.ticket, self.names[place].clone());
                self.events.push(BrokerEvent::Kick { ticket, room, age, read_at: received_at, bytes: bytes.clone() });
            }
        }
        (self.place, self.after) = (first + whole, after);
        is_further.then_some(())
    }
}

fn is_kick(parts: &[OwnedValue]) -> bool {
    matches!(parts, [OwnedValue::Bulk(word), ..] if word == "kick")
}

fn lease_of(parts: &[OwnedValue]) -> Option<Lease> {
    let [node, left, OwnedValue::Bulk(list)] = parts else { return None };
    let left = Duration::from_millis(text_of(left)?.parse().ok()?);
    Some(Lease { node: node_of(&text_of(node)?)?, left, list: list.clone() })
}

fn node_of(text: &str) -> Option<NodeId> {
    Some(NodeId(u128::from_str_radix(text, 16).ok()?.to_be_bytes()))
}
