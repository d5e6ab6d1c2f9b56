//! The members of groups on one loop, and a message on its way from one to the next.
//!
//! A connection does not know of which groups it is a member: that would cost it memory. So it is here that those who
//! are gone are found out: while a message is sent, whenever a group has doubled since it was last looked through, and
//! when the loop gives memory back after a burst. A group without members is forgotten here, and this loop by the
//! group; so is one of which only members are left, since nobody can send to it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use tidegate_buffer::Slice;
use tidegate_sys::Token;

use super::{Broadcast, Shared, Slow};
use crate::limits::{DELIVERIES_PER_TURN_MAX, HEARERS_PER_TURN_MAX, MESSAGE_TIME};
use crate::loop_core::Core;
use crate::mailbox::Mailbox;
use crate::phase::Phase;
use crate::slots::Slots;

/// The groups that have members on this loop, by their numbers.
#[derive(Default)]
pub(crate) struct Groups {
    groups: BTreeMap<u64, LocalMembers>,
    /// So many groups there were when all were last looked through.
    swept: usize,
}

/// The members of one group.
struct LocalMembers {
    group: Weak<Shared>,
    mailbox: Arc<Mailbox>,
    /// By slot, so that whoever is served next can be found whatever happened since the last turn. It is as small as a
    /// list, which would have to be searched when somebody joins for a second time.
    members: BTreeSet<u64>,
    /// So many members there were when all were last looked through.
    swept: usize,
}

impl Groups {
    pub(crate) fn join(&mut self, group: &Arc<Shared>, mailbox: &Arc<Mailbox>, slots: &mut Slots, token: Token) {
        if !self.groups.contains_key(&group.number) {
            if self.groups.len() >= 2 * self.swept.max(SWEPT_MIN) {
                self.sweep(slots);
            }
            self.groups.insert(group.number, LocalMembers::new(group, mailbox));
        }
        let room = self.groups.get_mut(&group.number).expect("it is there by now");
        if room.members.insert(key(token)) {
            group.members.fetch_add(1, Relaxed);
            if room.members.len() >= 2 * room.swept.max(SWEPT_MIN) {
                room.sweep(slots);
            }
        }
    }

    pub(crate) fn leave(&mut self, group: &Shared, token: Token) {
        let Some(room) = self.groups.get_mut(&group.number) else { return };
        if room.members.remove(&key(token)) {
            group.members.fetch_sub(1, Relaxed);
        }
        if room.members.is_empty() {
            self.groups.remove(&group.number);
        }
    }

    /// Forgets members who are gone, and groups that have none or are forgotten themselves.
    pub(crate) fn sweep(&mut self, slots: &mut Slots) {
        self.groups.retain(|_, room| {
            let kept = room.group.strong_count() > 0;
            if kept {
                room.sweep(slots);
            }
            kept && !room.members.is_empty()
        });
        self.swept = self.groups.len();
    }
}

impl LocalMembers {
    fn new(group: &Arc<Shared>, mailbox: &Arc<Mailbox>) -> Self {
        group.loops().push(mailbox.clone());
        Self { group: Arc::downgrade(group), mailbox: mailbox.clone(), members: BTreeSet::new(), swept: 0 }
    }

    fn sweep(&mut self, slots: &mut Slots) {
        let before = self.members.len();
        self.members.retain(|&key| slots.contains(token(key)));
        self.swept = self.members.len();
        if let Some(group) = self.group.upgrade() {
            group.members.fetch_sub(before - self.swept, Relaxed);
        }
    }
}

impl Drop for LocalMembers {
    /// The group forgets this loop.
    fn drop(&mut self) {
        if let Some(group) = self.group.upgrade() {
            group.members.fetch_sub(self.members.len(), Relaxed);
            group.loops().retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
        }
    }
}

/// How far messages may get in one turn.
pub(crate) struct DeliveryBudget {
    deliveries: usize,
    /// How long the line of those who want another visit may get. Whoever is in it costs no further send.
    line: usize,
    phase: Phase,
}

impl DeliveryBudget {
    pub(crate) fn new(core: &Core) -> Self {
        // One delivery a turn is made although the line is as long as it may get.
        let line = HEARERS_PER_TURN_MAX.max(core.scheduled_count() + 1);
        Self { deliveries: DELIVERIES_PER_TURN_MAX, line, phase: Phase::of(MESSAGE_TIME) }
    }

    /// Takes one delivery out of it, if there is one left.
    fn take(&mut self, core: &Core) -> bool {
        let left = self.deliveries > 0 && core.scheduled_count() < self.line && !self.phase.is_over();
        if left {
            self.deliveries -= 1;
            self.phase.is_over_after(1, &*core.driver);
        }
        left
    }

    /// Takes note of a message that was read. Returns whether no further one is read in this turn.
    pub(crate) fn is_over_after_message(&mut self, core: &Core) -> bool {
        self.phase.is_over_after(1, &*core.driver)
    }
}

/// A message on its way from one member to the next.
pub(crate) struct Delivery {
    broadcast: Arc<Broadcast>,
    /// The bytes in this loop's memory, which all queues share.
    bytes: Slice,
    /// The first member who may not have it yet; `None` when all have.
    next: Option<u64>,
}

/// What came of bringing a message to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryOutcome {
    /// It was queued.
    Delivered,
    /// It should have been, and was not.
    Dropped,
    /// There is no sense in it now: the connection closes, or has another codec.
    NotApplicable,
    /// There is nobody any more.
    Closed,
}

impl Delivery {
    /// Copies a message into the loop's memory, if it has members of that group.
    pub(crate) fn begin(broadcast: &Arc<Broadcast>, core: &Core) -> Option<Self> {
        if !core.groups.groups.contains_key(&broadcast.group.number) {
            return None;
        }
        Some(Self { broadcast: broadcast.clone(), bytes: core.pool.copy(&broadcast.bytes), next: Some(0) })
    }

    /// Brings the message to members, as far as the budget goes. Says whether all have it.
    pub(crate) fn go_on(&mut self, core: &mut Core, budget: &mut DeliveryBudget) -> bool {
        let group = &self.broadcast.group;
        // The groups are left to whoever is visited.
        let Some(mut room) = core.groups.groups.remove(&group.number) else { return true };
        let except = self.broadcast.except.as_ref().filter(|except| Arc::ptr_eq(&except.mailbox, &room.mailbox));
        let except = except.map(|except| except.token);
        let (mut skipped, mut gone) = (0, Vec::new());
        let mut members = self.next.into_iter().flat_map(|next| room.members.range(next..)).copied();
        self.next = loop {
            let Some(member) = members.next() else { break None };
            if !budget.take(core) {
                break Some(member);
            }
            let token = token(member);
            if Some(token) == except {
                continue;
            }
            match core.deliver(token, self) {
                DeliveryOutcome::Delivered | DeliveryOutcome::NotApplicable => {}
                DeliveryOutcome::Dropped => skipped += 1,
                DeliveryOutcome::Closed => gone.push(member),
            }
        };
        drop(members);
        for member in &gone {
            room.members.remove(member);
        }
        group.members.fetch_sub(gone.len(), Relaxed);
        group.skipped.fetch_add(skipped, Relaxed);
        if !room.members.is_empty() {
            core.groups.groups.insert(group.number, room);
        }
        self.next.is_none()
    }

    pub(crate) fn bytes(&self) -> &Slice {
        &self.bytes
    }

    /// What a codec has to be for it.
    pub(crate) fn kind(&self) -> std::any::TypeId {
        self.broadcast.group.kind
    }

    pub(crate) fn slow(&self) -> Slow {
        self.broadcast.group.slow
    }
}

/// A token as a number that is ordered by slot.
fn key(token: Token) -> u64 {
    u64::from(token.slot) << 32 | u64::from(token.generation)
}

fn token(key: u64) -> Token {
    Token { slot: (key >> 32) as u32, generation: key as u32 }
}

/// Fewer members, or groups, are not worth looking through.
const SWEPT_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use tidegate_buffer::Pool;
    use tidegate_codec::framing::Lines;
    use tidegate_sys::readiness::Readiness;

    use super::*;
    use crate::group::Group;

    fn core() -> Core {
        let pool = Pool::new();
        Core::new(Box::new(Readiness::new(&pool).unwrap()), pool)
    }

    #[test]
    fn groups_of_which_only_members_are_left_are_forgotten() {
        let mut core = core();
        let token = core.slots.reserve();
        let kept: Vec<Group<Lines>> = (0..10).map(|_| Group::new(Slow::Skip)).collect();
        for group in &kept {
            core.join(group.shared(), token);
        }
        for _ in 0..10_000 {
            core.join(Group::<Lines>::new(Slow::Skip).shared(), token);
            assert!(core.groups.groups.len() <= 2 * SWEPT_MIN);
        }
        core.groups.sweep(&mut core.slots);
        assert_eq!(core.groups.groups.len(), kept.len());
        assert!(kept.iter().all(|group| group.len() == 1));
    }

    #[test]
    fn the_last_member_to_leave_takes_the_loop_along() {
        let (mut core, group) = (core(), Group::<Lines>::new(Slow::Skip));
        let tokens = [core.slots.reserve(), core.slots.reserve()];
        for token in tokens {
            core.join(group.shared(), token);
        }
        assert_eq!((group.len(), group.shared().loops().len()), (2, 1));
        core.groups.leave(group.shared(), tokens[0]);
        core.groups.leave(group.shared(), tokens[0]);
        assert_eq!((group.len(), group.shared().loops().len()), (1, 1));
        core.groups.leave(group.shared(), tokens[1]);
        assert_eq!((group.len(), group.shared().loops().len()), (0, 0));
        assert!(core.groups.groups.is_empty());
    }
}
