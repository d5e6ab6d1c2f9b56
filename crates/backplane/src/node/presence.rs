//! The members of rooms on all nodes.
//!
//! Each node records its own members at the broker under its number, with a lease, and tells other nodes of changes. It renews
//! the leases at a third of their time, with requests of 100 rooms, whose replies have the lists of all nodes: so a node learns
//! the changes that it has missed, and forgets nodes that have died.
//!
//! Few requests are under way at a time, each with few rooms and bytes: the memory of a renewal does not grow with the rooms, and the
//! broker has other commands between them. Changes go before a renewal, which has half of each request at least: neither stops the other one.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use tidegate_engine::{NodeId, NodePresence};

use super::timers::Timer;
use super::{Node, Output, Ticket};
use crate::broker::{BrokerRequest, Lease, PresenceUpdate, RoomName};
use crate::envelope::{Content, Envelope};
use crate::presence_list::PresenceList;

/// The members of a room.
#[derive(Debug, Default)]
pub(super) struct RoomPresence {
    /// They have changed since the last window.
    pub(super) is_dirty: bool,
    /// The lists of other nodes are wanted with the next request.
    pub(super) wants_read: bool,
    /// In the order of their numbers. A tree would have places for eleven nodes at once.
    nodes: Vec<(NodeId, KnownNode)>,
}

/// Requests of this node that are under way, and rooms that wait for one.
#[derive(Debug, Default)]
pub(super) struct PresenceRequests {
    /// Rooms whose members have changed.
    changed: VecDeque<RoomName>,
    /// The rest of a renewal.
    renewal: VecDeque<RoomName>,
    /// Outputs that [`Node::presence`] has not answered yet.
    described: usize,
    /// Requests to the broker without a reply.
    sent: usize,
}

/// The last list of another node.
#[derive(Debug, Clone, Copy)]
struct KnownNode {
    number: u64,
    heard_at: Instant,
    until: Instant,
    has_members: bool,
}

impl RoomPresence {
    /// The room is not subscribed any more.
    pub(super) fn end(&mut self) {
        self.nodes.clear();
    }
}

impl PresenceRequests {
    /// The rooms of the next request; `None` if none wait.
    fn next_rooms(&mut self) -> Option<Vec<RoomName>> {
        let (changed, renewal) = (&mut self.changed, &mut self.renewal);
        let of_renewal = renewal.len().min(ROOMS_PER_REQUEST / 2);
        let of_changed = changed.len().min(ROOMS_PER_REQUEST - of_renewal);
        let of_renewal = renewal.len().min(ROOMS_PER_REQUEST - of_changed);
        let rooms: Vec<_> = changed.drain(..of_changed).chain(renewal.drain(..of_renewal)).collect();
        for queue in [changed, renewal] {
            if queue.is_empty() {
                *queue = VecDeque::new();
            }
        }
        (!rooms.is_empty()).then_some(rooms)
    }
}

impl Node {
    /// Members of this node have entered or left a room.
    pub fn presence_changed(&mut self, name: &RoomName, now: Instant) {
        let Some(room) = self.rooms.get_mut(name) else { return };
        if !std::mem::replace(&mut room.presence.is_dirty, true) {
            self.changed.push(name.clone());
        }
        self.start_window(now);
    }

    fn start_window(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.has_window, true) {
            self.timers.add(now + self.limits.presence_window, Timer::PresenceWindow);
        }
    }

    pub(super) fn start_renewal(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.has_renewal, true) {
            self.timers.add(now + self.limits.lease / RENEWALS, Timer::Renewal);
        }
    }

    /// After a lost connection all rooms are recorded and read again.
    pub(super) fn presence_after_reconnect(&mut self, now: Instant) {
        let names = self.attached();
        for name in names {
            if let Some(room) = self.rooms.get_mut(&name) {
                room.presence.wants_read = true;
            }
            self.presence_changed(&name, now);
        }
    }

    fn attached(&self) -> Vec<RoomName> {
        let mut names: Vec<_> =
            self.rooms.iter().filter(|(_, room)| room.is_attached).map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn end_window(&mut self) {
        self.has_window = false;
        let changed = std::mem::take(&mut self.changed);
        self.requests.changed.extend(changed);
        self.describe_next();
    }

    /// Requests the members of the rooms that wait, while fewer requests are under way than may be.
    fn describe_next(&mut self) {
        while self.requests.described + self.requests.sent < REQUESTS_MAX
            && let Some(rooms) = self.requests.next_rooms()
        {
            self.requests.described += 1;
            self.outputs.push_back(Output::Describe(rooms));
        }
    }

    pub(super) fn renew(&mut self, now: Instant) {
        self.has_renewal = false;
        let names = self.attached();
        if names.is_empty() {
            return;
        }
        self.start_renewal(now);
        for name in &names {
            if let Some(room) = self.rooms.get_mut(name) {
                room.presence.wants_read = true;
            }
        }
        // The last renewal may still wait for a slow broker.
        if self.requests.renewal.is_empty() {
            self.requests.renewal.extend(names);
        }
        self.describe_next();
    }

    /// Leases that end at this time are looked at then, or a presence window later: one look is for all that end meanwhile.
    fn plan_expiry(&mut self, until: Instant, now: Instant) {
        let at = until.max(now + self.limits.presence_window);
        if self.expiry.is_none_or(|planned| at + self.limits.presence_window < planned) {
            self.expiry = Some(at);
            self.timers.add(at, Timer::Expiry);
        }
    }

    /// Forgets nodes whose leases have ended, unless this is an expiry that an earlier one has replaced.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.expiry.is_none_or(|planned| planned > now) {
            return;
        }
        self.expiry = None;
        let mut next = None;
        let mut rooms: Vec<_> = self.rooms.iter_mut().filter(|(_, room)| !room.presence.nodes.is_empty()).collect();
        // The same order at each run.
        rooms.sort_unstable_by_key(|(name, _)| *name);
        for (name, room) in rooms {
            room.presence.nodes.retain(|(node, known)| {
                if known.until <= now {
                    if known.has_members {
                        self.outputs.push_back(Output::NodePresence(name.clone(), *node, None));
                    }
                    return false;
                }
                next = Some(next.map_or(known.until, |next: Instant| next.min(known.until)));
                true
            });
        }
        if let Some(next) = next {
            self.plan_expiry(next, now);
        }
    }

    /// The members of this node in rooms that are to be [described](Output::Describe).
    pub fn presence(&mut self, rooms: Vec<(RoomName, NodePresence)>, now: Instant) {
        self.requests.described = self.requests.described.saturating_sub(1);
        let mut rooms = rooms.into_iter();
        while self.request_presence(&mut rooms, now) {}
        // The lists are too long for one request. The other rooms wait: few bytes are under way.
        for (name, _) in rooms.rev() {
            self.requests.changed.push_front(name);
        }
        self.describe_next();
    }

    /// Requests the next rooms. Returns `false` if there are none, or if others have to wait.
    fn request_presence(
        &mut self,
        rooms: &mut impl ExactSizeIterator<Item = (RoomName, NodePresence)>,
        now: Instant,
    ) -> bool {
        let (mut reads, mut names, mut updates, mut bytes) = (false, Vec::new(), Vec::new(), 0);
        while names.len() < ROOMS_PER_REQUEST
            && bytes < REQUEST_BYTES_MAX
            && let Some((name, members)) = rooms.next()
        {
            let number = self.next_number();
            let Some(room) = self.rooms.get_mut(&name) else { continue };
            let is_changed = std::mem::take(&mut room.presence.is_dirty);
            reads |= std::mem::take(&mut room.presence.wants_read);
            let has_members = members.count > 0;
            let list = PresenceList { number, members }.to_bytes(self.limits.names_bytes_max);
            bytes += list.len();
            let content = Content::Presence(list.clone());
            let message = is_changed.then(|| Envelope { origin: self.id, number, content }.to_bytes());
            updates.push(PresenceUpdate { room: name.clone(), list: has_members.then_some(list), message });
            self.remove_if_unused(&name);
            names.push(name);
        }
        if updates.is_empty() {
            return false;
        }
        let ticket = self.last_ticket + 1;
        self.last_ticket = ticket;
        self.counts.presence_requests += 1;
        self.requests.sent += 1;
        self.tickets.insert(ticket, Ticket::Presence(names, now));
        let (node, lease) = (self.id, self.limits.lease);
        self.outputs.push_back(Output::BrokerRequest(BrokerRequest::Presence {
            ticket,
            node,
            lease,
            rooms: updates,
            reads,
        }));
        bytes < REQUEST_BYTES_MAX
    }

    /// The reply to a request. A node that it does not name has no members, unless it was heard since.
    pub(super) fn presence_read(
        &mut self,
        names: Vec<RoomName>,
        sent_at: Instant,
        leases: Option<Vec<Vec<Lease>>>,
        now: Instant,
    ) {
        self.requests.sent -= 1;
        self.describe_next();
        let Some(leases) = leases else { return };
        for (name, leases) in names.into_iter().zip(leases) {
            let mut listed: Vec<_> = leases.iter().map(|lease| lease.node).collect();
            listed.sort_unstable();
            for Lease { node, left, list } in leases {
                let until = now.checked_add(left).unwrap_or(now + self.limits.lease);
                self.know(&name, node, list, now, until);
            }
            let Some(room) = self.rooms.get_mut(&name) else { continue };
            room.presence.nodes.retain(|(node, known)| {
                let is_known = listed.binary_search(node).is_ok() || known.heard_at >= sent_at;
                if !is_known && known.has_members {
                    self.outputs.push_back(Output::NodePresence(name.clone(), *node, None));
                }
                is_known
            });
        }
    }

    /// A change that another node reports.
    pub(super) fn presence_received(&mut self, name: &RoomName, node: NodeId, list: Bytes, now: Instant) {
        self.know(name, node, list, now, now + self.limits.lease);
    }

    fn know(&mut self, name: &RoomName, node: NodeId, list: Bytes, now: Instant, until: Instant) {
        if node == self.id {
            return;
        }
        let Some(room) = self.rooms.get_mut(name).filter(|room| room.feed.is_some()) else { return };
        let Some(list) = PresenceList::parse(list, self.limits.names_max) else {
            self.counts.foreign += 1;
            return;
        };
        let nodes = &mut room.presence.nodes;
        let is_full = nodes.len() >= self.limits.nodes_max;
        let has_members = list.members.count > 0;
        let known = KnownNode { number: list.number, heard_at: now, until, has_members };
        match nodes.binary_search_by_key(&node, |(node, _)| *node) {
            Ok(place) => {
                let before = &mut nodes[place].1;
                if before.number == list.number {
                    // The same record: it does not last longer because the broker's clock was set back.
                    (before.until, before.heard_at) = (before.until.min(until), now);
                    let until = before.until;
                    return self.plan_expiry(until, now);
                }
                if before.number > list.number {
                    return;
                }
                *before = known;
            }
            Err(_) if is_full => return,
            Err(place) => {
                if nodes.len() < FEW_NODES {
                    nodes.reserve_exact(1);
                }
                nodes.insert(place, (node, known));
            }
        }
        let members = has_members.then_some(list.members);
        self.outputs.push_back(Output::NodePresence(name.clone(), node, members));
        self.plan_expiry(until, now);
    }
}

/// Rooms of one request.
const ROOMS_PER_REQUEST: usize = 100;
/// The lists of a request end with the one that reaches so many bytes.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Requests under way at a time.
const REQUESTS_MAX: usize = 2;
/// Up to so many nodes of a room, memory grows by one at a time.
const FEW_NODES: usize = 8;
/// Renewals during a lease.
const RENEWALS: u32 = 3;
