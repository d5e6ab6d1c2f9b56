//! `LocalMembers`: the members of groups on one loop. Read next: `delivery.rs`, a message on its way to them.
//!
//! A connection does not store of which groups it is a member, to save memory. So this module detects members whose
//! connections are closed: while a message is delivered, whenever a group has doubled since the last sweep, and when
//! the loop frees memory after a burst. A group without members is removed here, and the loop is removed from the
//! group. So is a group of which only members are left: no handle remains that could send to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use tidegate_buffer::Slice;
use tidegate_codec::Output;
use tidegate_sys::Token;

use super::{Audience, GroupMessage, GroupShared, Slow};
use crate::mailbox::Mailbox;
use crate::slots::Slots;

/// The groups that have members on this loop, by number.
#[derive(Default)]
pub(crate) struct Groups {
    pub(super) groups: BTreeMap<u64, LocalMembers>,
    /// The number of groups after the last sweep.
    swept: usize,
}

/// The members of one group.
pub(super) struct LocalMembers {
    group: Weak<GroupShared>,
    pub(super) mailbox: Arc<Mailbox>,
    /// By slot: a delivery that continues in the next turn finds the next member whatever has joined or left meanwhile.
    /// The set is as small as a list, and a list would have to be searched when a connection joins a second time.
    pub(super) members: BTreeSet<u64>,
    /// Those that have missed messages, and no notice of it yet.
    #[expect(clippy::box_collection, reason = "few groups have some, and a box is a third of a set")]
    pub(super) missed: Option<Box<BTreeSet<u64>>>,
    /// The number of members after the last sweep.
    swept: usize,
}

impl Groups {
    pub(crate) fn join(
        &mut self,
        group: &Arc<GroupShared>,
        mailbox: &Arc<Mailbox>,
        slots: &mut Slots<impl ?Sized>,
        token: Token,
    ) {
        if !self.groups.contains_key(&group.number) {
            if self.groups.len() >= 2 * self.swept.max(SWEPT_MIN) {
                self.sweep(slots);
            }
            self.groups.insert(group.number, LocalMembers::new(group, mailbox));
        }
        let local = self.groups.get_mut(&group.number).expect("inserted above");
        if local.members.insert(key(token)) {
            group.members.fetch_add(1, Relaxed);
            if local.members.len() >= 2 * local.swept.max(SWEPT_MIN) {
                local.sweep(slots);
            }
        }
    }

    pub(crate) fn leave(&mut self, group: &GroupShared, token: Token) {
        let Some(local) = self.groups.get_mut(&group.number) else { return };
        if local.members.remove(&key(token)) {
            group.members.fetch_sub(1, Relaxed);
            local.is_missing_none(key(token));
        }
        if local.members.is_empty() {
            self.groups.remove(&group.number);
        }
    }

    /// Removes members whose connections are closed, and groups without members or without handles.
    pub(crate) fn sweep(&mut self, slots: &mut Slots<impl ?Sized>) {
        self.groups.retain(|_, local| {
            let kept = local.group.strong_count() > 0;
            if kept {
                local.sweep(slots);
            }
            kept && !local.members.is_empty()
        });
        self.swept = self.groups.len();
    }
}

impl LocalMembers {
    fn new(group: &Arc<GroupShared>, mailbox: &Arc<Mailbox>) -> Self {
        group.loops().of(mailbox).has_members = true;
        Self {
            group: Arc::downgrade(group),
            mailbox: mailbox.clone(),
            members: BTreeSet::new(),
            missed: None,
            swept: 0,
        }
    }

    /// The member misses messages from now on, until it has a notice.
    pub(super) fn is_missing_some(&mut self, member: u64) {
        self.missed.get_or_insert_default().insert(member);
    }

    pub(super) fn is_missing_none(&mut self, member: u64) {
        if let Some(missed) = &mut self.missed {
            missed.remove(&member);
            if missed.is_empty() {
                self.missed = None;
            }
        }
    }

    fn sweep(&mut self, slots: &mut Slots<impl ?Sized>) {
        let before = self.members.len();
        self.members.retain(|&key| slots.contains(token(key)));
        self.swept = self.members.len();
        if let Some(missed) = &mut self.missed {
            missed.retain(|key| self.members.contains(key));
        }
        if let Some(group) = self.group.upgrade() {
            group.members.fetch_sub(before - self.swept, Relaxed);
        }
    }
}

impl Drop for LocalMembers {
    /// Removes this loop from the group.
    fn drop(&mut self) {
        if let Some(group) = self.group.upgrade() {
            group.members.fetch_sub(self.members.len(), Relaxed);
            group.loops().update(&self.mailbox, |there| there.has_members = false);
        }
    }
}

/// The delivery of a message to one member after the other.
pub(crate) struct Delivery {
    pub(super) message: Arc<GroupMessage>,
    /// The bytes in this loop's memory; the queues of all members share them.
    pub(super) bytes: Slice,
    /// The first member that may not have the message yet; `None` when all have it.
    pub(super) next: Option<u64>,
}

/// The result of delivering a message to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryOutcome {
    /// The message was queued.
    Delivered,
    /// The connection could not take the message: it is unwritable, or its codec refused it.
    Dropped,
    /// The connection has taken so much in this turn that it has to send before it takes more.
    Deferred,
    /// The message does not apply to the connection now: it closes, or has another codec.
    NotApplicable,
    /// The connection no longer exists.
    Closed,
}

impl Delivery {
    /// Writes the message with a codec of its kind. Returns whether the codec took it.
    pub(crate) fn write<C: 'static>(&self, codec: &mut C, out: &mut Output<'_>) -> bool {
        (self.message.group.write)(codec, self.bytes.clone(), out)
    }

    /// The type of codec that the message was encoded for.
    pub(crate) fn kind(&self) -> std::any::TypeId {
        self.message.group.kind
    }

    pub(crate) fn slow(&self) -> Slow {
        self.message.group.slow
    }

    /// Whether the member's connection closes behind the message.
    pub(crate) fn closes(&self) -> bool {
        matches!(self.message.audience, Audience::Closing)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A token as a number that is ordered by slot.
pub(super) fn key(token: Token) -> u64 {
    u64::from(token.slot) << 32 | u64::from(token.generation)
}

pub(super) fn token(key: u64) -> Token {
    Token { slot: (key >> 32) as u32, generation: key as u32 }
}

/// Fewer members, or groups, are not worth a sweep.
const SWEPT_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use tidegate_buffer::Pool;
    use tidegate_codec::framing::Lines;
    use tidegate_sys::readiness::Readiness;

    use super::*;
    use crate::group::Group;
    use crate::loop_core::Core;

    fn core() -> Core {
        let pool = Pool::new();
        Core::new(Box::new(Readiness::new(&pool).unwrap()), pool)
    }

    #[test]
    fn groups_without_a_handle_are_removed() {
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
    fn the_loop_is_removed_from_the_group_with_its_last_member() {
        let (mut core, group) = (core(), Group::<Lines>::new(Slow::Skip));
        let tokens = [core.slots.reserve(), core.slots.reserve()];
        for token in tokens {
            core.join(group.shared(), token);
        }
        assert_eq!((group.len(), group.shared().loops().0.len()), (2, 1));
        core.groups.leave(group.shared(), tokens[0]);
        core.groups.leave(group.shared(), tokens[0]);
        assert_eq!((group.len(), group.shared().loops().0.len()), (1, 1));
        core.groups.leave(group.shared(), tokens[1]);
        assert_eq!((group.len(), group.shared().loops().0.len()), (0, 0));
        assert!(core.groups.groups.is_empty());
    }
}
