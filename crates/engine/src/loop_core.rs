//! `Core`: the state of a loop that it lends to the entry that it dispatches.
//!
//! Its parts with invariants of their own: `loop_core/queues.rs`, `drain.rs`, `lag.rs`. The entries that a closed
//! connection leaves in its slot: `closing.rs`.

mod closing;
mod drain;
mod lag;
mod queues;

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tidegate_buffer::{Outbound, Pool, Slice};
use tidegate_codec::Time;
use tidegate_sys::{Address, Completion, Driver, Operation, Side, Socket, Token};

use self::closing::{Closing, Tombstone};
use self::drain::DrainState;
use self::lag::Lag;
pub(crate) use self::queues::DispatchQueues;
use crate::ages::Ages;
use crate::charges::Charges;
use crate::close_reason::CloseReason;
use crate::connection::Settings;
use crate::counters::Counters;
use crate::group::{Delivery, DeliveryOutcome, GroupShared, Groups};
use crate::inspection::is_session_id;
use crate::limits::Limits;
use crate::log::Log;
use crate::mailbox::Mailbox;
use crate::peer_deadlines::DeadlineStates;
use crate::remote::{Remote, RemoteTargets};
use crate::session::{Sessions, StreamId, StreamRequestKind};
use crate::shaping::ShapingStates;
use crate::slot_entry::{Disposition, ProtocolSwitch, SlotEntry, SlotEvent, SocketState};
use crate::slots::{Slots, connection_id};
use crate::task::Tasks;
use crate::unwind::{catch_and_log, discard};
use crate::wheel::{DeadlineTick, Wheel};

/// The driver, the memory, the slots and the timers of a loop.
pub(crate) struct Core {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) pool: Pool,
    pub(crate) charges: Rc<Charges>,
    pub(crate) time: Time,
    pub(crate) slots: Slots<dyn SlotEntry>,
    pub(crate) wheel: Wheel,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) tasks: Rc<Tasks>,
    reachable: RemoteTargets,
    pub(crate) counters: Counters,
    pub(crate) ages: Ages,
    pub(crate) log: Log,
    pub(crate) groups: Groups,
    pub(crate) sessions: Sessions,
    /// Entries that are dispatched without an event of the driver.
    pub(crate) queues: DispatchQueues,
    /// The loop's last delay.
    pub(crate) lag: Lag,
    /// A connection whose bytes are in the scratch until the tasks that were woken have run; then it is dispatched
    /// again. Set by [`dispatch_after_tasks`](Self::dispatch_after_tasks).
    pub(crate) pending_reader: Option<Token>,
    /// The handler that is dispatched waits for a future.
    pub(crate) has_spawned: bool,
    /// The dispatch of a handler that waits for a future may be continued once the future was polled.
    pub(crate) may_await_tasks: bool,
    /// Of the last connection that was connected from here: most have the same.
    client_settings: Option<Rc<Settings>>,
    /// The state of peers' deadlines.
    pub(crate) deadline_states: DeadlineStates,
    /// The state of shaped connections.
    pub(crate) shaping: ShapingStates,
    /// The length of the last receive.
    pub(crate) last_received: usize,
    /// Bytes that tasks have sent since the connections that they used were flushed.
    pub(crate) unflushed: u64,
    /// The drain, and the entries that it waits for.
    pub(crate) drain: DrainState,
    /// The queue of the stream that was answered last, within the dispatch of its session.
    answer_queue: Outbound,
    /// [`CloseReason::Done`], which streams share: one that waits to be closed has no copy of its own.
    pub(crate) done: Rc<CloseReason>,
}

impl Core {
    /// The settings of a connection of a client with these limits, counted. Connections that are shaped have settings
    /// of their own, and so a rate of their own.
    pub(crate) fn settings_of_client(&mut self, limits: &Limits) -> Rc<Settings> {
        if let Some(settings) = self.client_settings.as_ref().filter(|settings| settings.limits == *limits) {
            settings.live.fetch_add(1, Ordering::Relaxed);
            return settings.clone();
        }
        let settings = Settings::new(limits.clone(), Arc::new(AtomicUsize::new(1)));
        if !limits.shaping.is_set() {
            self.client_settings = Some(settings.clone());
        }
        settings
    }

    pub(crate) fn new(driver: Box<dyn Driver>, pool: Pool) -> Self {
        let now = driver.now();
        let mailbox = Mailbox::new(driver.waker());
        Self {
            time: Time::new(now, driver.system_time()),
            tasks: Rc::new(Tasks::new(mailbox.clone())),
            mailbox,
            reachable: RemoteTargets::default(),
            driver,
            charges: Charges::new(&pool),
            pool,
            slots: Slots::default(),
            wheel: Wheel::new(now),
            counters: Counters::default(),
            ages: Ages::new(now),
            log: Log::new(now),
            groups: Groups::default(),
            sessions: Sessions::default(),
            queues: DispatchQueues::default(),
            lag: Lag::default(),
            pending_reader: None,
            has_spawned: false,
            may_await_tasks: true,
            client_settings: None,
            deadline_states: DeadlineStates::default(),
            shaping: ShapingStates::new(now),
            last_received: 0,
            unflushed: 0,
            drain: DrainState::default(),
            answer_queue: Outbound::default(),
            done: Rc::new(CloseReason::Done),
        }
    }

    /// Whether the deadline of the drain has come.
    pub(crate) fn is_overdue(&self) -> bool {
        self.drain.is_overdue(self.time.now())
    }

    /// The tokens of all entries that are in their slots.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        self.slots.iter().map(|(token, _)| token).collect()
    }

    /// The next entry whose timer has come.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<Token> {
        while let Some(slot) = self.wheel.expire(&mut self.slots, now) {
            if let Some(token) = self.slots.token(slot) {
                return Some(token);
            }
        }
        None
    }

    /// Dispatches the entry of `token`, if it is there.
    #[inline]
    pub(crate) fn dispatch(&mut self, token: Token, event: SlotEvent) {
        match self.slots.take(token) {
            Some(entry) => self.dispatch_entry(token, entry, event),
            // A post to a connection that is gone has a type of the application, whose drop may panic.
            None => catch_and_log(move || drop(event)),
        }
    }

    /// Dispatches an entry that is not in its slot, and applies the disposition.
    #[inline]
    pub(crate) fn dispatch_entry(&mut self, token: Token, entry: Box<dyn SlotEntry>, event: SlotEvent) {
        self.dispatch_with(token, entry, |entry, core| entry.dispatch(core, token, event));
    }

    /// Calls `act` on an entry that is not in its slot, and applies the disposition.
    #[inline]
    fn dispatch_with(
        &mut self,
        token: Token,
        mut entry: Box<dyn SlotEntry>,
        act: impl FnOnce(&mut dyn SlotEntry, &mut Self) -> Disposition,
    ) {
        match catch_unwind(AssertUnwindSafe(|| act(&mut *entry, self))) {
            acted @ Ok(Disposition::Keep) => {
                // `Keep` has nothing to drop.
                std::mem::forget(acted);
                self.slots.put(token, entry);
            }
            acted => self.apply(token, entry, acted),
        }
    }

    /// Applies the result of a dispatch to an entry that is not in its slot.
    #[inline(never)]
    fn apply(&mut self, token: Token, mut entry: Box<dyn SlotEntry>, mut acted: std::thread::Result<Disposition>) {
        let mut was_parked = false;
        // A loop, since a peer may have sent ahead several messages that each make the connection switch.
        loop {
            let disposition = match acted {
                Ok(disposition) => disposition,
                Err(panic) => self.on_panic(token, &mut *entry, panic),
            };
            match disposition {
                Disposition::Keep | Disposition::Answered => {
                    self.slots.put(token, entry);
                    if was_parked {
                        // It waits for its window as before, and its next write may be late.
                        self.slots.reduce(token);
                    }
                    return;
                }
                Disposition::Switch(switch) => {
                    was_parked = entry.restoration().is_some();
                    match self.switch(token, entry, switch) {
                        Some(switched) => (entry, acted) = switched,
                        None => return,
                    }
                }
                Disposition::Close { reason, reset } => return self.close(token, entry, reason, reset),
                Disposition::FinishClose => return self.on_last_completion(token, entry),
            }
        }
    }

    /// Replaces an entry that is not in its slot, and dispatches the new one. `None` if that is not possible.
    #[inline(never)]
    fn switch(&mut self, token: Token, entry: Box<dyn SlotEntry>, switch: ProtocolSwitch) -> Option<SwitchResult> {
        let (state, stream) = (entry.socket_state(), entry.stream());
        match catch_unwind(AssertUnwindSafe(|| switch_protocol(entry, switch))) {
            Ok((mut entry, event)) => {
                let acted = catch_unwind(AssertUnwindSafe(|| entry.dispatch(self, token, event)));
                Some((entry, acted))
            }
            Err(panic) => {
                match stream {
                    Some(stream) => self.on_stream_switch_panic(token, stream, panic),
                    None => self.on_switch_panic(token, state, panic),
                }
                None
            }
        }
    }

    /// Calls `act` on the entry of `token`, if it is there and is an `O`. If that panics, the entry ends as if a
    /// dispatch had panicked.
    #[inline]
    pub(crate) fn with<O: SlotEntry + 'static, T>(
        &mut self,
        token: Token,
        act: impl FnOnce(&mut O, &mut Self) -> (T, Disposition),
    ) -> Option<T> {
        let mut entry = self.slots.take(token)?;
        if !entry.as_any().is::<O>() {
            self.slots.put(token, entry);
            return None;
        }
        let mut result = None;
        self.dispatch_with(token, entry, |entry, core| {
            let entry = entry.as_any().downcast_mut().expect("it was looked at a moment ago");
            let (value, disposition) = act(entry, core);
            result = Some(value);
            disposition
        });
        result
    }

    /// An entry that is not in its slot has panicked: it ends as if a dispatch had panicked.
    #[cold]
    pub(crate) fn end_panicked(&mut self, token: Token, entry: Box<dyn SlotEntry>, panic: Box<dyn Any + Send>) {
        self.dispatch_with(token, entry, |_, _| resume_unwind(panic));
    }

    /// Delivers a group's message to the entry of `token`.
    pub(crate) fn deliver(&mut self, token: Token, delivery: &Delivery) -> DeliveryOutcome {
        let Some(entry) = self.slots.take(token) else { return DeliveryOutcome::Closed };
        // An entry that panics is closed, and no member any more.
        let mut outcome = DeliveryOutcome::Closed;
        self.dispatch_with(token, entry, |entry, core| {
            let (delivered, disposition) = entry.deliver(core, token, delivery);
            outcome = delivered;
            disposition
        });
        outcome
    }

    pub(crate) fn join(&mut self, group: &Arc<GroupShared>, token: Token) {
        self.groups.join(group, &self.mailbox, &mut self.slots, token);
    }

    /// The task that serves an entry has failed. If the entry does not take the reason, nothing else needs it.
    pub(crate) fn fail(&mut self, token: Token, reason: &mut Option<CloseReason>) {
        if let Some(entry) = self.slots.take(token) {
            self.dispatch_with(token, entry, |entry, core| entry.fail(core, token, reason));
        }
    }

    /// The loop ends: an entry that is left is closed and notified.
    pub(crate) fn close_at_loop_end(&mut self, token: Token) {
        let Some(entry) = self.slots.take(token) else { return };
        match entry.socket_state() {
            SocketState::Open | SocketState::Session => {
                self.close(token, entry, Rc::new(CloseReason::LoopEnded), false);
                // The loop no longer reads the driver's last completion.
                self.close_at_loop_end(token);
            }
            SocketState::Closing => self.on_last_completion(token, entry),
            SocketState::NoSocket => self.slots.put(token, entry),
        }
    }

    /// Gives a connection a slot and its socket to the driver, and dispatches it for the first time.
    pub(crate) fn open_connection(&mut self, socket: Socket, connection: Box<dyn SlotEntry>) -> io::Result<Token> {
        let (token, _) = self.reserve(Operation::Adopt(socket))?;
        self.dispatch_entry(token, connection, SlotEvent::Opened);
        self.notify_drain(token);
        Ok(token)
    }

    /// Resets a connection that nothing serves, without reading or writing.
    pub(crate) fn reset_socket(&mut self, socket: Socket) -> io::Result<()> {
        let (token, _) = self.reserve(Operation::Adopt(socket))?;
        self.close(token, Box::new(Tombstone), Rc::new(CloseReason::Aborted), true);
        Ok(())
    }

    /// Puts a stream into the slot that was reserved for it, and dispatches it for the first time.
    pub(crate) fn open_stream(&mut self, token: Token, stream: Box<dyn SlotEntry>) {
        self.drain.on_opened();
        self.dispatch_entry(token, stream, SlotEvent::Opened);
        self.notify_drain(token);
    }

    /// The same for a stream with all bytes of its peer, whose session writes its answer at once. Returns the stream if
    /// the answer is complete: it is not in its slot, and either [closed](Self::close_answered) or dispatched again.
    #[inline]
    pub(crate) fn answer_stream(
        &mut self,
        token: Token,
        mut stream: Box<dyn SlotEntry>,
        bytes: Slice,
    ) -> Option<Box<dyn SlotEntry>> {
        self.drain.on_opened();
        let dispatch = || stream.dispatch(self, token, SlotEvent::OpenedWith(bytes));
        match catch_unwind(AssertUnwindSafe(dispatch)) {
            acted @ Ok(Disposition::Answered) => {
                // `Answered` has nothing to drop.
                std::mem::forget(acted);
                Some(stream)
            }
            acted => {
                self.apply(token, stream, acted);
                None
            }
        }
    }

    /// A queue for the answer of a stream: the one of the last stream, with its memory, or a new one.
    #[inline]
    pub(crate) fn take_answer_queue(&mut self) -> Outbound {
        let mut queue = std::mem::take(&mut self.answer_queue);
        queue.attach(&self.pool);
        queue
    }

    /// The answer that is in a queue is written: the next stream has its memory.
    #[inline]
    pub(crate) fn keep_answer_queue(&mut self, queue: &mut Outbound) {
        self.answer_queue = std::mem::take(queue);
        self.answer_queue.recycle();
    }

    /// The session that is dispatched answers no other stream.
    #[inline]
    pub(crate) fn release_answer_queue(&mut self) {
        self.answer_queue.clear();
    }

    /// The answer of a stream is written, and both sides have ended it.
    #[inline]
    pub(crate) fn close_answered(&mut self, token: Token, stream: Box<dyn SlotEntry>) {
        let reason = self.done.clone();
        self.finish_close(token, stream, reason);
    }

    /// A stream requests something of its session.
    pub(crate) fn request(&mut self, stream: StreamId, kind: StreamRequestKind) {
        if let Some(session) = self.sessions.request(stream, kind) {
            self.queues.schedule_session(session);
        }
    }

    /// The address of an entry's socket; for a stream that of its session.
    pub(crate) fn address(&mut self, token: Token, side: Side) -> io::Result<Address> {
        let stream = self.slots.get_mut(token).and_then(|entry| entry.stream());
        let session = stream.and_then(|stream| self.sessions.of(stream)).map(|(session, _)| session);
        self.driver.address(session.unwrap_or(token), side)
    }

    /// The parts that a session needs to write the bytes of its streams.
    pub(crate) fn stream_parts(&mut self) -> (&mut Slots<dyn SlotEntry>, &mut DispatchQueues, &Pool, &Time) {
        (&mut self.slots, &mut self.queues, &self.pool, &self.time)
    }

    /// Notifies a new entry of a drain that the others have been notified of already.
    pub(crate) fn notify_drain(&mut self, token: Token) {
        if self.drain.is_under_way() {
            self.dispatch(token, SlotEvent::Drain);
        }
        if self.drain.was_serving_done(|| self.tasks.serving()) {
            self.dispatch(token, SlotEvent::ServingDone);
        }
    }

    /// Returns `true` in a drain when none of the tasks that serve is left, and again whenever others have begun and
    /// ended since.
    pub(crate) fn take_serving_done(&mut self) -> bool {
        self.drain.take_serving_done(self.tasks.serving())
    }

    /// Reserves a slot for an entry that a drain waits for, and begins an operation on its socket. If that has
    /// succeeded already, the completion is returned.
    pub(crate) fn reserve(&mut self, operation: Operation<'_>) -> io::Result<(Token, Option<Completion>)> {
        let token = self.slots.reserve();
        self.ages.note(token.generation, self.time.now());
        match self.driver.submit(token, operation) {
            Some(Completion::Failed(error) | Completion::Connected(Err(error))) => {
                self.release(token);
                Err(error)
            }
            completion => {
                self.drain.on_opened();
                Ok((token, completion))
            }
        }
    }

    /// A handle to a connection for other threads.
    pub(crate) fn remote<P>(&mut self, token: Token) -> Remote<P> {
        let remote = self.reachable.remote(&self.mailbox, token);
        if !self.slots.contains(token) {
            // It did not outlive its first dispatch.
            self.reachable.forget(token);
        }
        remote
    }

    /// Notifies handlers that their dispatch is over.
    pub(crate) fn dispatch_over(&mut self) {
        for _ in 0..self.queues.after_dispatch_count() {
            let Some(token) = self.queues.next_after_dispatch() else { break };
            self.dispatch(token, SlotEvent::DispatchOver);
        }
    }

    /// Dispatches a connection once more when the tasks that were woken have run. Returns whether it does: there is
    /// one such connection at a time, and another one requests its own dispatch. One may be left from before this
    /// event, if a scheduled dispatch of its session has brought it bytes.
    #[inline]
    pub(crate) fn dispatch_after_tasks(&mut self, token: Token) -> bool {
        let is_free = self.pending_reader.is_none();
        if is_free {
            self.pending_reader = Some(token);
        }
        is_free
    }

    /// Sets, moves or clears the timer of a slot.
    #[inline]
    pub(crate) fn set_timer(&mut self, token: Token, deadline: DeadlineTick) {
        self.wheel.set(&mut self.slots, token.slot, deadline);
    }

    /// When the timer of a slot is to fire.
    pub(crate) fn timer(&mut self, token: Token) -> DeadlineTick {
        self.wheel.deadline(&mut self.slots, token.slot)
    }

    /// Frees a slot and its entry; the driver has nothing of it any more.
    pub(crate) fn release(&mut self, token: Token) {
        if self.slots.contains(token) {
            self.wheel.forget(&mut self.slots, token.slot);
            let entry = self.slots.release(token);
            catch_and_log(move || drop(entry));
        }
    }

    /// A panic ends this connection only; the protocol still sends its error response.
    fn on_panic(&mut self, token: Token, entry: &mut dyn SlotEntry, panic: Box<dyn Any + Send>) -> Disposition {
        discard(panic);
        let disposition = catch_unwind(AssertUnwindSafe(|| entry.dispatch(self, token, SlotEvent::Panicked)));
        disposition.unwrap_or_else(|panic| {
            discard(panic);
            Disposition::close(CloseReason::Panicked)
        })
    }

    /// Closes the socket first, and only then releases the queue: no writable event comes meanwhile.
    pub(crate) fn close(&mut self, token: Token, entry: Box<dyn SlotEntry>, reason: Rc<CloseReason>, reset: bool) {
        match entry.socket_state() {
            // The driver closes the socket already, and its last completion comes once.
            SocketState::Closing => return self.slots.put(token, entry),
            SocketState::Session => {
                if let Some(stream) = entry.stream() {
                    self.request(stream, StreamRequestKind::Close { cause: reason.reset_cause(), resets: reset });
                }
                return self.finish_close(token, entry, reason);
            }
            SocketState::Open | SocketState::NoSocket => {}
        }
        match self.driver.submit(token, Operation::Close { reset }) {
            Some(Completion::Closed) => self.finish_close(token, entry, reason),
            _ => {
                let closing_memory = self.drain.begin_closing(entry.memory_bytes());
                self.slots.put(token, Box::new(Closing { entry, reason, closing_memory }));
            }
        }
    }

    /// Resets a connection that an operator wants to end. Other entries stay. Returns whether it was one.
    pub(crate) fn close_by_operator(&mut self, token: Token) -> bool {
        if is_session_id(connection_id(token)) {
            return self.close_session_by_operator(connection_id(token));
        }
        let Some(entry) = self.slots.take(token) else { return false };
        let is_connection = entry.describe(self).is_some();
        if is_connection {
            self.close(token, entry, Rc::new(CloseReason::Aborted), true);
        } else {
            self.slots.put(token, entry);
        }
        is_connection
    }

    /// Ends a session of an endpoint. Returns whether there was one.
    fn close_session_by_operator(&mut self, id: u64) -> bool {
        let slots = self.slots.iter_between(0, self.slots.end());
        let endpoints: Vec<Token> = slots.filter(|(_, entry)| entry.has_sessions()).map(|(token, _)| token).collect();
        endpoints.into_iter().any(|token| {
            let Some(mut entry) = self.slots.take(token) else { return false };
            let was_there = entry.close_session(self, token, id);
            self.slots.put(token, entry);
            was_there
        })
    }

    fn on_last_completion(&mut self, token: Token, closing: Box<dyn SlotEntry>) {
        let closing = closing.into_any().downcast::<Closing>().expect("only a closing entry finishes its close");
        let Closing { entry, reason, closing_memory } = *closing;
        self.drain.finish_closing();
        drop(closing_memory);
        self.finish_close(token, entry, reason);
    }

    /// The driver has nothing of an entry any more.
    fn finish_close(&mut self, token: Token, entry: Box<dyn SlotEntry>, reason: Rc<CloseReason>) {
        self.drain.on_closed();
        self.deadline_states.remove(token.slot);
        self.shaping.remove(token.slot);
        self.reachable.forget(token);
        self.wheel.set(&mut self.slots, token.slot, DeadlineTick::NEVER);
        let left = catch_unwind(AssertUnwindSafe(|| entry.on_closed(self, reason))).unwrap_or_else(|panic| {
            discard(panic);
            None
        });
        match left {
            Some(left) => self.slots.put(token, left),
            None => self.release(token),
        }
    }

    /// A panic between two handlers: neither is left to be notified.
    fn on_switch_panic(&mut self, token: Token, state: SocketState, panic: Box<dyn Any + Send>) {
        discard(panic);
        if state == SocketState::NoSocket {
            return self.release(token);
        }
        self.counters.connections -= 1;
        self.counters.count_closed(CloseReason::Panicked.cause());
        match self.driver.address(token, Side::Peer) {
            Ok(peer) => self.log.closed(self.time.now(), &peer, &CloseReason::Panicked),
            Err(_) => self.log.closed(self.time.now(), &"unknown (already closed)", &CloseReason::Panicked),
        }
        let reason = Rc::new(CloseReason::Panicked);
        if state == SocketState::Closing {
            let closing_memory = self.drain.replace_closing();
            return self.slots.put(token, Box::new(Closing { entry: Box::new(Tombstone), reason, closing_memory }));
        }
        self.close(token, Box::new(Tombstone), reason, false);
    }

    /// The same on a stream. Its session resets it: the queue is lost, so the peer does not get all bytes.
    fn on_stream_switch_panic(&mut self, token: Token, stream: StreamId, panic: Box<dyn Any + Send>) {
        discard(panic);
        self.counters.streams -= 1;
        let reason = Rc::new(CloseReason::Panicked);
        self.request(stream, StreamRequestKind::Close { cause: reason.reset_cause(), resets: true });
        self.finish_close(token, Box::new(Tombstone), reason);
    }
}

/// A new entry, and the result of its first dispatch.
type SwitchResult = (Box<dyn SlotEntry>, std::thread::Result<Disposition>);

/// Makes the new entry of the old one. If the old one is closing, so is the new one.
fn switch_protocol(entry: Box<dyn SlotEntry>, switch: ProtocolSwitch) -> (Box<dyn SlotEntry>, SlotEvent) {
    if entry.socket_state() != SocketState::Closing {
        return switch(entry);
    }
    let closing = entry.into_any().downcast::<Closing>().expect("no other entry is closing");
    let Closing { entry, reason, closing_memory } = *closing;
    let (entry, event) = switch(entry);
    (Box::new(Closing { entry, reason, closing_memory }), event)
}
