//! `Router`: which of several servers each command goes to, for clusters and for masters with sentinels.
//!
//! Each server has a queue and a connection of its own, from the first command for it until it leaves the map. Handles on any
//! thread append a command to the queue of its server. Commands without a server wait in the `front` queue, until the task
//! that finds the servers (`topology.rs`) has a map.
//!
//! Invariants: a command is in one queue at a time. Only a command that no server has executed, or that may be executed
//! twice, enters a second one. The lock of the router is taken before that of a queue, never after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::client::command_keys::{CommandKeys, keys_of};
use crate::client::config::ClientLimits;
use crate::client::counts::ClientCounts;
use crate::client::error::{ClientError, ErrorReply, Failure};
use crate::client::pending::{CommandRoute, PendingCommand};
use crate::client::queue::{CommandQueue, ConnectionRequest, NodeAddress};
use crate::client::redirect::Redirect;
use crate::client::slot::lock;
use crate::client::slots::{Slots, slot_of};
use crate::outgoing_command::CommandBuffer;

/// The servers of a client.
#[derive(Debug)]
pub(crate) struct Router {
    /// The servers divide the keys among themselves.
    pub(crate) is_cluster: bool,
    reads_replicas: bool,
    limits: ClientLimits,
    /// Commands that have no server yet.
    pub(crate) front: Arc<CommandQueue>,
    state: Mutex<RouterState>,
}

#[derive(Debug, Default)]
struct RouterState {
    slots: Option<Slots>,
    nodes: BTreeMap<NodeAddress, Arc<CommandQueue>>,
    needs_refresh: bool,
    /// The task that finds the servers.
    finder: Option<Waker>,
    /// Tasks that wait for another map.
    readers: Vec<Waker>,
    version: u64,
    /// Servers that have the same answer are used in turn.
    turn: usize,
    /// Of servers that have left.
    past: ClientCounts,
}

impl Router {
    pub(crate) fn new(is_cluster: bool, reads_replicas: bool, limits: ClientLimits) -> Self {
        let front = Arc::new(CommandQueue::new(limits));
        Self { is_cluster, reads_replicas, limits, front, state: Mutex::default() }
    }

    /// The route of commands that one server executes. `slot` is the caller's choice.
    pub(crate) fn route<'a>(
        &self,
        commands: impl IntoIterator<Item = &'a CommandBuffer>,
        slot: Option<u16>,
    ) -> Result<CommandRoute, Failure> {
        let mut route = CommandRoute { slot, may_use_replica: self.reads_replicas, is_asking: false, redirects: 0 };
        if !self.is_cluster && !self.reads_replicas {
            return Ok(route);
        }
        for command in commands {
            match keys_of(command) {
                CommandKeys::Known(keys, reads) => {
                    route.may_use_replica &= reads;
                    for slot in keys.into_iter().map(slot_of) {
                        if self.is_cluster && *route.slot.get_or_insert(slot) != slot {
                            return Err(Failure::CrossSlot);
                        }
                    }
                }
                CommandKeys::Unknown if !self.is_cluster || slot.is_some() => route.may_use_replica = false,
                CommandKeys::Unknown => return Err(Failure::NoKey),
            }
        }
        Ok(route)
    }

    /// Appends a command to the queue of its server.
    pub(crate) fn send(&self, command: PendingCommand) {
        let mut state = lock(&self.state);
        match command.route.and_then(|route| self.queue_for(&mut state, route)) {
            Some(queue) => queue.push(command),
            None => self.wait(state, command),
        }
    }

    /// Keeps a command until there is another map.
    fn wait(&self, mut state: std::sync::MutexGuard<'_, RouterState>, command: PendingCommand) {
        self.front.push(command);
        state.request_refresh();
    }

    /// Sends a command again that its server has refused with this error.
    pub(crate) fn redirect(&self, mut command: PendingCommand, redirect: Redirect, error: ErrorReply) {
        let Some(route) = &mut command.route else { return command.finish(Err(ClientError::Reply(error))) };
        route.redirects = route.redirects.saturating_add(1);
        let redirects = route.redirects;
        // The server has not executed it. An earlier one may have, if it was sent twice.
        command.is_sent &= command.is_idempotent;
        if let Some(group) = &mut command.group {
            group.replies.clear();
        }
        match redirect {
            Redirect::Later if redirects >= RETRIES_MAX => command.finish(Err(ClientError::Reply(error))),
            Redirect::Later => self.wait(lock(&self.state), command),
            _ if redirects > REDIRECTS_MAX => command.fail(Failure::TooManyRedirects),
            // ASKING counts for one command, and MULTI begins several.
            Redirect::Ask(_) if command.group.is_some() => self.wait(lock(&self.state), command),
            Redirect::Ask(address) => {
                route.is_asking = true;
                self.queue_of(&mut lock(&self.state), address, false).push(command);
            }
            Redirect::Moved(slot, address) => {
                (route.is_asking, route.may_use_replica) = (false, false);
                let mut state = lock(&self.state);
                if let Some(slots) = &mut state.slots {
                    slots.move_to(slot, &address);
                }
                self.queue_of(&mut state, address, false).push(command);
                state.request_refresh();
            }
            Redirect::ToMaster => {
                route.may_use_replica = false;
                self.send(command);
            }
        }
    }

    /// Another map. Servers that have left close their connections after their last reply, and commands that wait for a
    /// server without a connection look for one again.
    pub(crate) fn set_slots(&self, slots: Slots) {
        let mut state = lock(&self.state);
        let mut again = Vec::new();
        let is_known = |node: &NodeAddress| {
            slots.shards.iter().any(|shard| {
                if node.is_replica { shard.replicas.contains(&node.address) } else { shard.master == node.address }
            })
        };
        for (node, queue) in std::mem::take(&mut state.nodes) {
            if !is_known(&node) {
                again.extend(queue.take_waiting());
                let mut counts = queue.client_counts();
                (counts.pending_commands, counts.pending_bytes) = (0, 0);
                state.past.add(&counts);
                queue.end_handles();
                continue;
            }
            if !queue.is_connected() {
                again.extend(queue.take_waiting());
            }
            state.nodes.insert(node, queue);
        }
        state.slots = Some(slots);
        state.version += 1;
        let readers = std::mem::take(&mut state.readers);
        drop(state);
        again.into_iter().for_each(|command| self.send(command));
        readers.into_iter().for_each(Waker::wake);
    }

    /// Sends the commands that wait for a server. Returns whether there were any; those that have none still ask for another
    /// map.
    pub(crate) fn send_waiting(&self) -> bool {
        let waiting = self.front.take_waiting();
        let has_waited = !waiting.is_empty();
        for mut command in waiting {
            let mut state = lock(&self.state);
            let has_map = state.slots.is_some();
            let Some(route) = &mut command.route else { continue };
            if let Some(queue) = self.queue_for(&mut state, *route) {
                queue.push(command);
                continue;
            }
            route.redirects = route.redirects.saturating_add(u8::from(has_map));
            if route.redirects >= RETRIES_MAX {
                command.fail(Failure::NoMaster);
                continue;
            }
            self.wait(state, command);
        }
        has_waited
    }

    /// The queue of the server of a slot, or of any.
    fn queue_for(&self, state: &mut RouterState, route: CommandRoute) -> Option<Arc<CommandQueue>> {
        let slots = state.slots.as_ref()?;
        state.turn = state.turn.wrapping_add(1);
        let turn = state.turn;
        let shard = match route.slot {
            Some(slot) => slots.shard(slot)?,
            None => slots.shards.get(turn % slots.shards.len().max(1))?,
        };
        if route.may_use_replica {
            let count = shard.replicas.len();
            let mut in_turn = (0..count).filter_map(|place| shard.replicas.get((turn.wrapping_add(place)) % count));
            let is_usable = |address: &str| {
                let node = NodeAddress { address: address.into(), is_replica: true };
                state.nodes.get(&node).is_none_or(|queue| queue.is_connected() || queue.last_failure().is_none())
            };
            let replica = in_turn.find(|address| is_usable(address)).cloned();
            if let Some(address) = replica {
                return Some(self.queue_of(state, address, true));
            }
        }
        let master = shard.master.clone();
        Some(self.queue_of(state, master, false))
    }

    /// The queue of a server, which gets a connection now if it has none.
    fn queue_of(&self, state: &mut RouterState, address: Box<str>, is_replica: bool) -> Arc<CommandQueue> {
        let node = NodeAddress { address, is_replica };
        if let Some(queue) = state.nodes.get(&node) {
            return queue.clone();
        }
        let queue = Arc::new(CommandQueue::new(self.limits));
        state.nodes.insert(node.clone(), queue.clone());
        self.front.request_connection(ConnectionRequest { queue: queue.clone(), node: Some(node) });
        queue
    }

    /// The queue of the master of a slot, or of any master; none while there is no map.
    pub(crate) fn master_queue(&self, slot: Option<u16>) -> Option<Arc<CommandQueue>> {
        let route = CommandRoute { slot, may_use_replica: false, is_asking: false, redirects: 0 };
        self.queue_for(&mut lock(&self.state), route)
    }

    /// The queues of all masters.
    pub(crate) fn master_queues(&self) -> Vec<Arc<CommandQueue>> {
        let mut state = lock(&self.state);
        state.masters().into_iter().map(|address| self.queue_of(&mut state, address, false)).collect()
    }

    /// The addresses of all masters.
    pub(crate) fn masters(&self) -> Vec<Box<str>> {
        lock(&self.state).masters()
    }

    /// The address of the master of a slot, or of any; and the version of the map. Wakes the task when there is another map.
    pub(crate) fn poll_master(&self, slot: Option<u16>, cx: &Context<'_>) -> (Option<Box<str>>, u64) {
        let mut state = lock(&self.state);
        if !state.readers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.readers.push(cx.waker().clone());
        }
        state.turn = state.turn.wrapping_add(1);
        let turn = state.turn;
        let shard = state.slots.as_ref().and_then(|slots| match slot {
            Some(slot) => slots.shard(slot),
            None => slots.shards.get(turn % slots.shards.len().max(1)),
        });
        let master = shard.map(|shard| shard.master.clone());
        if master.is_none() {
            state.request_refresh();
        }
        (master, state.version)
    }

    /// The version of the map.
    pub(crate) fn version(&self) -> u64 {
        lock(&self.state).version
    }

    /// The map may be out of date.
    pub(crate) fn request_refresh(&self) {
        lock(&self.state).request_refresh();
    }

    /// Ready if the map may be out of date.
    pub(crate) fn poll_refresh(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if std::mem::take(&mut state.needs_refresh) {
            return Poll::Ready(());
        }
        state.finder = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether commands wait for a server that has no connection.
    pub(crate) fn has_stranded(&self) -> bool {
        lock(&self.state).nodes.values().any(|queue| !queue.is_connected() && queue.has_waiting())
    }

    /// All queues: the front first.
    pub(crate) fn queues(&self) -> Vec<Arc<CommandQueue>> {
        std::iter::once(self.front.clone()).chain(lock(&self.state).nodes.values().cloned()).collect()
    }

    /// The numbers of the servers that have left.
    pub(crate) fn past_counts(&self) -> ClientCounts {
        lock(&self.state).past
    }

    /// Slots without a server, and slots that several claim; none while there is no map.
    pub(crate) fn slot_faults(&self) -> Option<(usize, usize)> {
        lock(&self.state).slots.as_ref().map(|slots| (slots.holes(), slots.overlaps))
    }

    /// No handle is left, or the loop has ended: the connections close.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.slots = None;
        std::mem::take(&mut state.nodes).values().for_each(|queue| queue.end_handles());
        let readers = std::mem::take(&mut state.readers);
        drop(state);
        readers.into_iter().for_each(Waker::wake);
        self.front.end(Failure::LoopEnded);
    }
}

impl RouterState {
    fn masters(&self) -> Vec<Box<str>> {
        self.slots.iter().flat_map(|slots| &slots.shards).map(|shard| shard.master.clone()).collect()
    }

    fn request_refresh(&mut self) {
        self.needs_refresh = true;
        if let Some(finder) = self.finder.take() {
            finder.wake();
        }
    }
}

/// MOVED and ASK for one command.
const REDIRECTS_MAX: u8 = 8;
/// Attempts of a command that no server executes at present. Its deadline bounds them as well.
const RETRIES_MAX: u8 = 24;
