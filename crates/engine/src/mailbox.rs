//! `Mailbox`: the messages and wake-ups of other threads for a loop.
//!
//! It has two queues: messages, and the ids of woken tasks. Both are behind one lock; three bits in one atomic
//! variable record which queues have items, and whether the loop sleeps.
//!
//! **No wake-up is lost.** A sender puts its item in, then sets the queue's bit; that same operation returns
//! whether the loop sleeps. The loop falls asleep by one exchange that succeeds only if no bit is set. All operations
//! on one variable have one order, so either the sender's came first, and then the loop does not fall asleep; or the
//! loop's did, and then the sender sees it sleep. And the loop clears a bit before it takes the items of the
//! queue: a sender that sets the bit before that has put its item in before; a sender that sets it after that
//! leaves it set.
//!
//! **One waker call per sleep.** A sender that finds the loop asleep ends that state, and only the sender that ended
//! it uses the driver's waker, which is a system call. A burst costs one, however often the loop collects meanwhile;
//! while the loop is awake, as it is whenever it wakes a task itself, nothing costs any. That the waker may act late
//! does no harm: until it does no other sender uses it, and if the loop woke up by itself in between, its next sleep
//! is cut short.
//!
//! `tests/wake_up.rs` checks these claims with every interleaving of few threads.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use tidegate_buffer::injected::{self, Bug};
use tidegate_sys::{Token, Waker};

use crate::inspection::{CloseRequest, InspectRequest};
use crate::limits::MAILBOX_MESSAGES_MAX;
use crate::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard};

/// Where messages and the ids of woken tasks wait for a loop.
pub(crate) struct Mailbox {
    /// [`MESSAGES`], [`WOKEN`], [`ASLEEP`].
    bits: AtomicU32,
    /// `None` once the loop has ended.
    queues: Mutex<Option<Queues>>,
    waker: Waker,
}

/// The waiting messages.
#[derive(Default)]
struct Queues {
    messages: Vec<LoopMessage>,
    woken: Vec<Token>,
    /// When the loop is to have ended, if a message requested that.
    end_deadline: Option<Instant>,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { bits: AtomicU32::new(0), queues: Mutex::new(Some(Queues::default())), waker })
    }

    /// Puts a message in, from any thread.
    pub(crate) fn send(&self, message: LoopMessage) -> Result<(), MailboxError> {
        self.put(message, MAILBOX_MESSAGES_MAX)
    }

    /// Puts a message in although the mailbox is full: the caller sends few, and none may be lost.
    pub(crate) fn send_beyond_bound(&self, message: LoopMessage) -> Result<(), MailboxError> {
        self.put(message, usize::MAX)
    }

    fn put(&self, message: LoopMessage, messages_max: usize) -> Result<(), MailboxError> {
        match &mut *self.lock() {
            Some(Queues { messages, end_deadline, .. }) => match message {
                // However many messages wait, the message that ends the loop is accepted.
                LoopMessage::Drain(by) => {
                    *end_deadline = Some(end_deadline.map_or(by, |before| before.min(by)));
                    messages.push(message);
                }
                message if messages.len() >= messages_max => return Err(MailboxError::Full(message)),
                message => messages.push(message),
            },
            None => return Err(MailboxError::Ended(message)),
        }
        self.notify(MESSAGES);
        Ok(())
    }

    /// Whether there is a message to collect.
    pub(crate) fn has_messages(&self) -> bool {
        self.has(MESSAGES)
    }

    /// Whether the loop is to have ended by now; it may not have read that message yet.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.lock().as_ref().is_some_and(|queues| queues.end_deadline.is_some_and(|by| by <= now))
    }

    /// Takes every message that is there.
    pub(crate) fn collect(&self) -> Vec<LoopMessage> {
        if !self.clear(MESSAGES) {
            return Vec::new();
        }
        let mut messages = self.lock().as_mut().map(|queues| mem::take(&mut queues.messages)).unwrap_or_default();
        if injected::is_injected(Bug::PostsReversed) {
            messages.reverse();
        }
        messages
    }

    /// Accepts nothing more, neither messages nor tasks. The messages that wait are dropped by the caller, outside
    /// the lock.
    pub(crate) fn close(&self) -> Option<Vec<LoopMessage>> {
        let queues = self.lock().take();
        queues.map(|queues| queues.messages)
    }

    /// Records that a task is to be polled, from any thread; once the loop has ended it does nothing. The number of
    /// waiting ids is bounded by the number of tasks: see [`TaskWaker`].
    pub(crate) fn wake(&self, task: Token) {
        match &mut *self.lock() {
            Some(queues) => queues.woken.push(task),
            None => return,
        }
        self.notify(WOKEN);
    }

    /// Whether there is a woken task to collect: one load, since a loop checks after every completion.
    pub(crate) fn has_woken(&self) -> bool {
        self.has(WOKEN)
    }

    /// Takes the ids of all woken tasks, in the order in which they were woken, into an empty buffer. The buffers are
    /// exchanged, so nothing is allocated once both are large enough; a buffer that a burst made very large is freed
    /// when it is passed in again.
    pub(crate) fn collect_woken(&self, into: &mut Vec<Token>) {
        debug_assert!(into.is_empty(), "its tasks would be woken again");
        if into.capacity() > WOKEN_KEPT_MAX {
            *into = Vec::new();
        }
        if !self.clear(WOKEN) {
            return;
        }
        if let Some(queues) = &mut *self.lock() {
            mem::swap(&mut queues.woken, into);
        }
    }

    /// The loop is about to wait. If this returns `false`, something has come, and the wait must not block.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.bits.compare_exchange(0, ASLEEP, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The loop has waited, for any reason.
    pub(crate) fn wake_up(&self) {
        // Only the loop sets the bit, so it knows whether there may be something to clear.
        if self.has(ASLEEP) {
            self.bits.fetch_and(!ASLEEP, Ordering::Relaxed);
        }
    }

    /// Records that the queue of this bit has items, and ends the loop's sleep.
    fn notify(&self, bit: u32) {
        // Released, so that the loop, which clears the bit, finds the item.
        let before = self.bits.fetch_or(bit, Ordering::Release);
        if before & ASLEEP != 0 && self.bits.fetch_and(!ASLEEP, Ordering::Relaxed) & ASLEEP != 0 {
            self.waker.wake();
        }
    }

    fn has(&self, bit: u32) -> bool {
        // A caller that acts on the answer clears the bit first, and synchronizes there.
        self.bits.load(Ordering::Relaxed) & bit != 0
    }

    /// Clears a bit, which has to happen before its queue is read. Returns whether it was set.
    fn clear(&self, bit: u32) -> bool {
        self.bits.fetch_and(!bit, Ordering::Acquire) & bit != 0
    }

    fn lock(&self) -> MutexGuard<'_, Option<Queues>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

/// A message of another thread to a loop.
pub(crate) enum LoopMessage {
    /// To one connection.
    Post { token: Token, post: Box<dyn Any + Send> },
    /// To the members of a group.
    Broadcast(Arc<dyn Any + Send + Sync>),
    /// Stop accepting, let connections finish, and end by then.
    Drain(Instant),
    /// Describe some of the loop's connections.
    Inspect(InspectRequest),
    /// Reset a connection.
    Close(CloseRequest),
}

impl LoopMessage {
    /// The post, taken back out of its message.
    pub(crate) fn into_post<P: 'static>(self) -> P {
        match self {
            Self::Post { post, .. } => *post.downcast().expect("a mailbox refuses the message that it was given"),
            _ => unreachable!("a mailbox refuses the message that it was given"),
        }
    }
}

/// Why a mailbox did not take a message.
pub(crate) enum MailboxError {
    Ended(LoopMessage),
    Full(LoopMessage),
}

/// Wakes one task of a loop, from any thread and at any time, also when the loop has long ended. Between two polls
/// the task is put into the mailbox once, however often it is woken.
pub(crate) struct TaskWaker {
    mailbox: Arc<Mailbox>,
    task: Token,
    queued: AtomicBool,
}

impl TaskWaker {
    pub(crate) fn new(mailbox: Arc<Mailbox>, task: Token) -> Arc<Self> {
        Arc::new(Self { mailbox, task, queued: AtomicBool::new(false) })
    }

    /// The task is about to be polled: a wake-up from now on, also during the poll, puts it into the mailbox again.
    pub(crate) fn begin(&self) {
        // A store would not do: a thread that found the task queued relies on this poll to see its earlier writes, so
        // this has to acquire that thread's release.
        self.queued.swap(false, Ordering::Acquire);
    }
}

impl std::task::Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Release) {
            self.mailbox.wake(self.task);
        }
    }
}

/// There are messages.
const MESSAGES: u32 = 1;

/// There are woken tasks.
const WOKEN: u32 = 2;

/// The loop is about to wait, or waits: a sender has to use the waker. Only the loop sets the bit, and only if no
/// other is set.
const ASLEEP: u32 = 4;

/// Ids that a buffer of woken tasks may have room for and be kept.
const WOKEN_KEPT_MAX: usize = 4096;

// Each task has one: two words beside the flag, and with its counts 40 bytes.
const _: () = assert!(size_of::<TaskWaker>() <= 16 + size_of::<AtomicBool>().next_multiple_of(8));
