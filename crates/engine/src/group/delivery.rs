//! A message of a group on its way to one member of a loop after the other, within the limits of a turn.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use super::local_members::{Delivery, DeliveryOutcome, LocalMembers, key, token};
use super::{Audience, GroupMessage, Member};
use crate::limits::{DELIVERIES_PER_TURN_MAX, MESSAGE_TIME, RECIPIENTS_PER_TURN_MAX};
use crate::loop_core::Core;
use crate::phase::Phase;

/// How many deliveries may happen in one turn.
pub(crate) struct DeliveryBudget {
    deliveries: usize,
    /// How many connections may be scheduled. A scheduled connection costs one send, however many messages it gets.
    scheduled_max: usize,
    phase: Phase,
}

impl DeliveryBudget {
    pub(crate) fn new(core: &Core) -> Self {
        // One delivery a turn is made even if the queue of scheduled connections has reached its bound.
        let scheduled_max = RECIPIENTS_PER_TURN_MAX.max(core.queues.scheduled_count() + 1);
        Self { deliveries: DELIVERIES_PER_TURN_MAX, scheduled_max, phase: Phase::of(MESSAGE_TIME) }
    }

    /// Takes one delivery from the budget. Returns whether one was left.
    fn take(&mut self, core: &Core) -> bool {
        let left = self.deliveries > 0 && core.queues.scheduled_count() < self.scheduled_max && !self.phase.is_over();
        if left {
            self.deliveries -= 1;
            self.phase.is_over_after(1, &*core.driver);
        }
        left
    }

    /// Counts a message that was read. Returns whether the turn's time is over, so that no further one is read.
    pub(crate) fn is_over_after_message(&mut self, core: &Core) -> bool {
        self.phase.is_over_after(1, &*core.driver)
    }
}

impl Delivery {
    /// Copies a message into the loop's memory, if the group has members on the loop. A newcomer joins the group, and
    /// gets its messages.
    pub(crate) fn begin(message: &Arc<GroupMessage>, core: &mut Core) -> Option<Self> {
        if let Audience::Newcomer(member, first) = &message.audience {
            Self::admit(message, member, first, core);
            return None;
        }
        if !core.groups.groups.contains_key(&message.group.number) {
            return None;
        }
        Some(Self { message: message.clone(), bytes: core.pool.copy(&message.bytes), next: Some(0) })
    }

    fn admit(message: &Arc<GroupMessage>, newcomer: &Member, first: &[Bytes], core: &mut Core) {
        let (group, token) = (&message.group, newcomer.token);
        if core.slots.contains(token) {
            core.join(group, token);
            for bytes in first.iter().filter(|bytes| !bytes.is_empty()) {
                let delivery = Self { message: message.clone(), bytes: core.pool.copy(bytes), next: None };
                match core.deliver(token, &delivery) {
                    DeliveryOutcome::Delivered | DeliveryOutcome::NotApplicable => {}
                    DeliveryOutcome::Dropped | DeliveryOutcome::Deferred => {
                        group.skipped.fetch_add(1, Relaxed);
                        if group.reports_missed
                            && let Some(local) = core.groups.groups.get_mut(&group.number)
                        {
                            local.is_missing_some(key(token));
                            group.has_missed.store(true, Relaxed);
                            break;
                        }
                    }
                    DeliveryOutcome::Closed => break,
                }
            }
        }
        group.loops().update(&newcomer.mailbox, |there| there.joining = there.joining.saturating_sub(1));
    }

    /// Delivers the message to members until the budget is used up. Returns whether all members have it.
    pub(crate) fn deliver_to_members(&mut self, core: &mut Core, budget: &mut DeliveryBudget) -> bool {
        let group = &self.message.group;
        // Taken out, because the dispatched connections may change the groups.
        let Some(mut local) = core.groups.groups.remove(&group.number) else { return true };
        let except = match &self.message.audience {
            Audience::Members { except } => except.as_ref(),
            Audience::Newcomer(..) | Audience::Closing | Audience::Missed { .. } => None,
        };
        let except = except.filter(|except| Arc::ptr_eq(&except.mailbox, &local.mailbox));
        let except = except.map(|except| except.token);
        let (mut skipped, mut gone, mut missed) = (0, Vec::new(), Vec::new());
        if let Audience::Missed { all } = self.message.audience {
            gone = self.deliver_notice(all, &mut local, core, budget);
            self.restore(local, &gone, core);
            return self.next.is_none();
        }
        let mut members = self.next.into_iter().flat_map(|next| local.members.range(next..)).copied();
        self.next = loop {
            let Some(member) = members.next() else { break None };
            if !budget.take(core) {
                break Some(member);
            }
            let token = token(member);
            if Some(token) == except {
                continue;
            }
            if local.missed.as_ref().is_some_and(|missed| missed.contains(&member)) && !self.closes() {
                skipped += 1;
                continue;
            }
            match core.deliver(token, self) {
                // A connection that closes gets no further message.
                DeliveryOutcome::Delivered if self.closes() => gone.push(member),
                DeliveryOutcome::Delivered | DeliveryOutcome::NotApplicable => {}
                DeliveryOutcome::Dropped => {
                    skipped += 1;
                    missed.push(member);
                }
                // Connections send at the end of the turn, and the next one continues here.
                DeliveryOutcome::Deferred => break Some(member),
                DeliveryOutcome::Closed => gone.push(member),
            }
        };
        drop(members);
        group.skipped.fetch_add(skipped, Relaxed);
        if group.reports_missed {
            missed.into_iter().for_each(|member| local.is_missing_some(member));
        }
        self.restore(local, &gone, core);
        self.next.is_none()
    }

    /// Puts the members back, but for those that are gone.
    fn restore(&self, mut local: LocalMembers, gone: &[u64], core: &mut Core) {
        let group = &self.message.group;
        for member in gone {
            local.members.remove(member);
            local.is_missing_none(*member);
        }
        group.members.fetch_sub(gone.len(), Relaxed);
        group.has_missed.fetch_or(local.missed.is_some(), Relaxed);
        if !local.members.is_empty() {
            core.groups.groups.insert(group.number, local);
        }
    }

    /// Delivers a notice to members that have missed messages. Returns those that are gone.
    #[cold]
    fn deliver_notice(
        &mut self,
        all: bool,
        local: &mut LocalMembers,
        core: &mut Core,
        budget: &mut DeliveryBudget,
    ) -> Vec<u64> {
        let first = self.next.take().unwrap_or(0);
        if all && first == 0 {
            local.missed = Some(Box::new(local.members.clone()));
        }
        if self.is_empty() {
            local.missed = None;
        }
        let missed: Vec<u64> = local.missed.iter().flat_map(|missed| missed.range(first..)).copied().collect();
        let mut gone = Vec::new();
        for member in missed {
            if !budget.take(core) {
                self.next = Some(member);
                break;
            }
            match core.deliver(token(member), self) {
                DeliveryOutcome::Delivered | DeliveryOutcome::NotApplicable => local.is_missing_none(member),
                // It reads slowly still.
                DeliveryOutcome::Dropped => {}
                DeliveryOutcome::Deferred => {
                    self.next = Some(member);
                    break;
                }
                DeliveryOutcome::Closed => gone.push(member),
            }
        }
        gone
    }
}
