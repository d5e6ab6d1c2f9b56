//! `CommandQueue`: the commands that wait to be sent, shared by all handles of a client and its loop.
//!
//! A handle on any thread appends a command, and wakes the loop if it has not been woken yet. The connection takes
//! commands in that order, all that came since its last turn at once. While there is no connection, the commands stay
//! here, and the supervisor lets them expire.
//!
//! Invariant: `commands` and `bytes` count the commands here and those that the connection has in flight; each is
//! subtracted once, by [`CommandQueue::release`] or where it expires.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tidegate_engine::Remote;

use crate::client::config::ClientLimits;
use crate::client::counts::ClientCounts;
use crate::client::error::Failure;
use crate::client::pending::PendingCommand;
pub(crate) use crate::client::slot::WakeUp;
use crate::client::slot::lock;

/// A connection that the supervisor is to start.
#[derive(Debug)]
pub(crate) struct ConnectionRequest {
    /// The queue that it serves.
    pub(crate) queue: Arc<CommandQueue>,
    /// Its server, of several; none for a connection of its own.
    pub(crate) node: Option<NodeAddress>,
}

/// A server of several, and how the client uses it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeAddress {
    pub(crate) address: Box<str>,
    /// For reads only.
    pub(crate) is_replica: bool,
}

/// The queue of a client.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    limits: ClientLimits,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<PendingCommand>,
    /// So many at the end have no deadline yet.
    unstamped: usize,
    /// No command that waits has an earlier deadline.
    earliest: Option<Instant>,
    commands: usize,
    bytes: usize,
    /// Tasks that wait for room.
    room_wakers: Vec<Waker>,
    /// The connection, once it takes commands.
    link: Option<Remote<WakeUp>>,
    /// The loop was woken, and has not come yet.
    is_woken: bool,
    supervisor: Option<Waker>,
    has_no_handle: bool,
    /// Why no command is taken any more.
    ended: Option<Failure>,
    /// Connections that handles have requested.
    requests: Vec<ConnectionRequest>,
    last_failure: Option<Box<str>>,
    counts: ClientCounts,
}

impl QueueState {
    fn has_room(&self, limits: &ClientLimits, charge: usize) -> bool {
        self.commands == 0
            || (self.commands < limits.commands_max && self.bytes.saturating_add(charge) <= limits.bytes_max)
    }

    /// Wakes the loop, unless it was woken already.
    fn wake_loop(&mut self) {
        if self.is_woken {
            return;
        }
        self.is_woken = match (&self.link, self.supervisor.take()) {
            // The connection is gone, or the mailbox is full: the supervisor tries again in the next turn of the loop.
            (Some(link), supervisor) => {
                let is_posted = link.post(WakeUp).is_ok();
                match supervisor {
                    Some(supervisor) if !is_posted => supervisor.wake(),
                    supervisor => self.supervisor = supervisor,
                }
                is_posted
            }
            (None, Some(supervisor)) => {
                supervisor.wake();
                true
            }
            (None, None) => false,
        };
    }

    fn subtract(&mut self, charge: usize) {
        self.commands = self.commands.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(charge);
    }

    /// The tasks that wait for room, once half of the queue is free.
    fn woken_by_room(&mut self, limits: &ClientLimits) -> Vec<Waker> {
        let has_room = self.commands <= limits.commands_max / 2 && self.bytes <= limits.bytes_max / 2;
        if has_room && !self.room_wakers.is_empty() { std::mem::take(&mut self.room_wakers) } else { Vec::new() }
    }

    fn stamp(&mut self, now: Instant) {
        let from = self.waiting.len() - self.unstamped;
        for command in self.waiting.range_mut(from..) {
            // A command of another queue keeps its deadline.
            command.deadline = command.deadline.or_else(|| now.checked_add(command.timeout));
            self.earliest = earlier(self.earliest, command.deadline);
        }
        self.unstamped = 0;
    }
}

impl CommandQueue {
    pub(crate) fn new(limits: ClientLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Appends a command. If there is no room, it has its result at once.
    pub(crate) fn push(&self, mut command: PendingCommand) {
        let mut state = lock(&self.state);
        let refused = if state.ended.is_some() {
            state.ended
        } else if !state.has_room(&self.limits, command.charge) {
            Some(Failure::QueueFull)
        } else {
            None
        };
        if let Some(failure) = refused {
            state.counts.add_failure(command.is_sent);
            drop(state);
            return command.fail(failure);
        }
        state.counts.commands += u64::from(!std::mem::replace(&mut command.is_counted, true));
        state.commands += 1;
        state.bytes += command.charge;
        state.waiting.push_back(command);
        state.unstamped += 1;
        state.wake_loop();
    }

    /// Ready once there is room, or the loop has ended.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.ended.is_some() || state.has_room(&self.limits, 0) {
            return Poll::Ready(());
        }
        state.room_wakers.retain(|waker| !waker.will_wake(cx.waker()));
        state.room_wakers.push(cx.waker().clone());
        Poll::Pending
    }

    /// The next command to send. Commands that nothing waits for any more are dropped, and so are those whose time has
    /// passed.
    pub(crate) fn pop(&self, now: Instant) -> Option<PendingCommand> {
        loop {
            let mut state = lock(&self.state);
            state.is_woken = false;
            state.stamp(now);
            let Some(command) = state.waiting.pop_front() else {
                state.earliest = None;
                return None;
            };
            let has_expired = command.deadline.is_some_and(|deadline| deadline <= now);
            if !has_expired && !command.is_abandoned() {
                return Some(command);
            }
            state.subtract(command.charge);
            state.counts.add_failure(command.is_sent);
            let wakers = state.woken_by_room(&self.limits);
            drop(state);
            command.fail(Failure::Deadline);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns commands to the front, in their order. They fail if no command is taken any more: a loop that ends drops its
    /// tasks before its connections.
    pub(crate) fn put_back(&self, commands: impl DoubleEndedIterator<Item = PendingCommand>) {
        let mut state = lock(&self.state);
        if let Some(failure) = state.ended {
            return self.fail_removed(state, commands.collect(), failure);
        }
        for command in commands.rev() {
            state.earliest = earlier(state.earliest, command.deadline);
            state.waiting.push_front(command);
        }
    }

    /// A command has its result, and its room is free.
    pub(crate) fn release(&self, charge: usize) {
        self.release_counted(charge, |_| {});
    }

    /// As [`release`](Self::release); `count` counts the outcome of the command.
    pub(crate) fn release_counted(&self, charge: usize, count: impl FnOnce(&mut ClientCounts)) {
        let mut state = lock(&self.state);
        state.subtract(charge);
        count(&mut state.counts);
        let wakers = state.woken_by_room(&self.limits);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Fails the commands whose time has passed. Returns when the next one's time passes.
    pub(crate) fn expire(&self, now: Instant) -> Option<Instant> {
        let mut state = lock(&self.state);
        state.is_woken = false;
        state.stamp(now);
        if state.earliest.is_none_or(|earliest| earliest > now) {
            return state.earliest;
        }
        let has_expired = |command: &PendingCommand| command.deadline.is_some_and(|deadline| deadline <= now);
        let all = std::mem::take(&mut state.waiting);
        let (mut expired, mut left) = (Vec::new(), VecDeque::with_capacity(all.len()));
        for command in all {
            if has_expired(&command) { expired.push(command) } else { left.push_back(command) }
        }
        state.earliest = left.iter().filter_map(|command| command.deadline).min();
        state.waiting = left;
        let next = state.earliest;
        self.fail_removed(state, expired, Failure::Deadline);
        next
    }

    /// Removes all commands that wait.
    pub(crate) fn take_waiting(&self) -> Vec<PendingCommand> {
        let mut state = lock(&self.state);
        let all: Vec<_> = std::mem::take(&mut state.waiting).into();
        (state.unstamped, state.earliest) = (0, None);
        all.iter().for_each(|command| state.subtract(command.charge));
        let wakers = state.woken_by_room(&self.limits);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        all
    }

    /// Fails all commands that wait.
    pub(crate) fn fail_waiting(&self, failure: Failure) {
        let mut state = lock(&self.state);
        let all = std::mem::take(&mut state.waiting).into();
        (state.unstamped, state.earliest) = (0, None);
        self.fail_removed(state, all, failure);
    }

    fn fail_removed(
        &self,
        mut state: std::sync::MutexGuard<'_, QueueState>,
        commands: Vec<PendingCommand>,
        failure: Failure,
    ) {
        for command in &commands {
            state.subtract(command.charge);
            state.counts.add_failure(command.is_sent);
        }
        let wakers = state.woken_by_room(&self.limits);
        drop(state);
        commands.into_iter().for_each(|command| command.fail(failure));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// From now on this connection takes commands, or none does.
    pub(crate) fn set_link(&self, link: Option<Remote<WakeUp>>) {
        let mut state = lock(&self.state);
        if link.is_some() {
            state.counts.reconnects += u64::from(state.counts.connections > 0);
            state.counts.connections += 1;
        }
        state.link = link;
        state.is_woken = false;
        if state.link.is_none() {
            state.wake_loop();
        }
        // Those of a client with several servers look again which of them can be reached.
        let wakers = std::mem::take(&mut state.room_wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes the loop for commands that the connection has not seen, if that has failed.
    pub(crate) fn wake_again(&self) {
        let mut state = lock(&self.state);
        if state.unstamped > 0 && state.link.is_some() {
            state.wake_loop();
        }
    }

    /// The supervisor waits to be woken.
    pub(crate) fn set_supervisor(&self, waker: &Waker) {
        lock(&self.state).supervisor = Some(waker.clone());
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !lock(&self.state).waiting.is_empty()
    }

    pub(crate) fn has_no_handle(&self) -> bool {
        lock(&self.state).has_no_handle
    }

    /// The last handle is gone: the connection and the supervisor end.
    pub(crate) fn end_handles(&self) {
        let mut state = lock(&self.state);
        state.has_no_handle = true;
        if let Some(link) = &state.link {
            // A connection that does not learn of it ends with the next ping.
            link.post(WakeUp).ok();
        }
        if let Some(supervisor) = state.supervisor.take() {
            supervisor.wake();
        }
    }

    /// No command is taken any more, for this reason. The first reason counts.
    pub(crate) fn end(&self, failure: Failure) {
        let mut state = lock(&self.state);
        let failure = *state.ended.get_or_insert(failure);
        let wakers = std::mem::take(&mut state.room_wakers);
        let requests = std::mem::take(&mut state.requests);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        requests.iter().for_each(|request| request.queue.end(failure));
        self.fail_waiting(failure);
    }

    /// Asks the supervisor for a connection.
    pub(crate) fn request_connection(&self, request: ConnectionRequest) {
        let mut state = lock(&self.state);
        if let Some(failure) = state.ended {
            drop(state);
            return request.queue.end(failure);
        }
        state.requests.push(request);
        if let Some(supervisor) = state.supervisor.take() {
            supervisor.wake();
        }
    }

    pub(crate) fn take_requests(&self) -> Vec<ConnectionRequest> {
        std::mem::take(&mut lock(&self.state).requests)
    }

    pub(crate) fn is_connected(&self) -> bool {
        lock(&self.state).link.is_some()
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.commands, state.bytes)
    }

    pub(crate) fn client_counts(&self) -> ClientCounts {
        let state = lock(&self.state);
        let mut counts = state.counts;
        (counts.pending_commands, counts.pending_bytes) = (state.commands as u64, state.bytes as u64);
        counts
    }

    /// Whether the last attempt to connect has not failed.
    pub(crate) fn is_reachable(&self) -> bool {
        let state = lock(&self.state);
        state.link.is_some() || state.last_failure.is_none()
    }

    pub(crate) fn set_last_failure(&self, text: impl Into<Box<str>>) {
        let mut state = lock(&self.state);
        state.last_failure = Some(text.into());
        let wakers = std::mem::take(&mut state.room_wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn last_failure(&self) -> Option<String> {
        lock(&self.state).last_failure.as_deref().map(str::to_owned)
    }
}

/// The earlier of two times; none is later than any.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::slot::reply_slot;
    use crate::outgoing_command::CommandBuffer;

    #[test]
    fn a_task_that_waits_for_room_is_noted_once_however_often_it_is_polled() {
        let queue = CommandQueue::new(ClientLimits { commands_max: 1, ..ClientLimits::default() });
        let (slot, _waiting) = reply_slot();
        queue.push(PendingCommand {
            wire: Some(CommandBuffer::new("PING")),
            charge: 1,
            timeout: Duration::from_secs(5),
            deadline: None,
            is_idempotent: false,
            is_detached: false,
            slot: Some(slot.into()),
            is_sent: false,
            cache_key: None,
            group: None,
            is_counted: false,
            route: None,
        });
        let cx = Context::from_waker(Waker::noop());
        (0..1_000).for_each(|_| assert!(queue.poll_room(&cx).is_pending()));
        assert_eq!(lock(&queue.state).room_wakers.len(), 1);
    }
}
