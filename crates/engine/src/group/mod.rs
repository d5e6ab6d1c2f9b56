//! `Group`: connections that get the same messages. A message is encoded once, and the queue of every member, on every
//! loop, links its bytes. A member that reads too slowly is skipped or cut off.
//!
//! A broadcast travels as one mailbox message to each loop that has members. There it becomes one
//! [`Slice`](tidegate_buffer::Slice) that the members' queues share: for ten thousand members it costs ten thousand
//! entries and one segment. Each queue is flushed at the end of the turn, as after a message.
//!
//! **Order.** The mailbox messages of one broadcast are put into all mailboxes under one lock, so that members of
//! different loops see the messages of a group in the same order. A mailbox keeps the order in which one thread puts
//! messages in, broadcasts and posts alike.
//!
//! Read next: `local_members.rs`, the members on one loop, and `delivery.rs`, a message on its way to them; `room.rs`
//! for groups with presence and history, `subscriber.rs` for members that are no connections, `users.rs` for the connections of a user, and `backplane.rs` for rooms that several
//! processes share.

mod backplane;
mod delivery;
mod local_members;
mod room;
mod room_state;
mod rooms;
mod shared_room;
mod subscriber;
mod summary;
mod users;

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_buffer::Slice;
use tidegate_codec::{Broadcast, EncodeError, Encoded, Output};
use tidegate_sys::Token;

pub use self::backplane::{
    Backplane, BackplaneFull, BackplaneRoom, Kick, MemberName, MessageForm, NoPosition, NodeId, NodePresence, Position,
    RoomDelivery, RoomEvent, RoomMessage,
};
pub(crate) use self::delivery::DeliveryBudget;
pub(crate) use self::local_members::{Delivery, DeliveryOutcome, Groups};
pub use self::room::{Room, RoomError, RoomLimits, Visit};
pub use self::rooms::Rooms;
pub use self::subscriber::{RoomNotice, RoomSubscriber};
pub use self::summary::{RoomSummary, RoomsSummary};
pub use self::users::{UserLimits, Users};
use crate::mailbox::{LoopMessage, Mailbox, MailboxError};

/// Connections that get the same messages: the members of a chat, the subscribers of a topic.
///
/// Clones are the same group, and may be sent to any thread. A connection joins from its handler with
/// [`Context::join`](crate::Context::join), or from a task with [`Channel::join`](crate::Channel::join). A closed
/// connection is no member any more. A connection that has switched to another codec gets no message while it uses that
/// codec.
///
/// On each loop members are served in the order of their slots. A loop serves 16,384 members in a turn; the other
/// members of a larger group, and the messages after that one, follow in the next turn. When no clone of the group is
/// left, its members are removed.
///
/// A chat:
///
/// ```no_run
/// use tidegate::framing::Lines;
/// use tidegate::{Context, Encoded, Group, Handler, Outcome, Server, Slice, Slow};
///
/// struct Chat(Group<Lines>);
///
/// impl Handler<Lines> for Chat {
///     type Post = ();
///
///     fn open(&mut self, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         cx.join(&self.0);
///         Outcome::Continue
///     }
///
///     fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         match Encoded::new(&mut Lines::new(), line.into()) {
///             Ok(line) => self.0.send_except(&line, &cx.member()).into(),
///             Err(error) => Outcome::fail(error),
///         }
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let chat = Group::new(Slow::Skip);
/// let server = Server::bind("127.0.0.1:7000")?.start({
///     let chat = chat.clone();
///     move || (Lines::new(), Chat(chat.clone()))
/// })?;
/// chat.publish(&mut Lines::new(), "the tide turns".into())?;
/// server.wait();
/// # Ok(())
/// # }
/// ```
///
/// A protocol whose encoding depends on earlier messages is no [`Broadcast`] and has no groups:
///
/// ```compile_fail
/// use tidegate::{Group, Slow, http1};
///
/// let requests = Group::<http1::Server>::new(Slow::Skip);
/// ```
pub struct Group<C> {
    shared: Arc<GroupShared>,
    kind: PhantomData<fn(C)>,
}

/// The policy for members that read more slowly than messages come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Slow {
    /// A member that is not writable does not get the message: for messages that later ones soon replace. Messages of one
    /// turn do not make a member unwritable before it could send them: up to four times the high water mark they wait for
    /// the end of the turn, and further ones for the next turn.
    Skip,
    /// A member whose pending bytes exceed its hard cap, four times the high water mark, is cut off with
    /// [`CloseReason::TooSlow`](crate::CloseReason::TooSlow): for streams that must have no gap.
    Shed,
}

impl<C: Broadcast> Group<C> {
    /// A group without members.
    #[must_use]
    pub fn new(slow: Slow) -> Self {
        Self::reporting(slow, false)
    }

    /// A group whose members get no message behind one that they have missed, before a [notice](Self::notify_missed).
    pub(super) fn reporting(slow: Slow, reports_missed: bool) -> Self {
        let shared = GroupShared {
            number: NUMBERS.fetch_add(1, Relaxed),
            slow,
            reports_missed,
            has_missed: AtomicBool::new(false),
            kind: TypeId::of::<C>(),
            write: write_encoded::<C>,
            loops: Mutex::default(),
            members: AtomicUsize::new(0),
            skipped: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared), kind: PhantomData }
    }

    /// Sends a message to all members, from any thread. They get it when their loop reads its mailbox: after all
    /// messages that this thread has sent to the group or [posted](crate::Remote::post) before, and before all that it
    /// sends afterwards.
    ///
    /// # Errors
    /// [`GroupFull`] if some loops do not keep up; their members do not get the message.
    ///
    /// # Panics
    /// If the message is 4 GiB long or longer.
    pub fn send(&self, encoded: &Encoded<C>) -> Result<(), GroupFull> {
        self.send_to_all(encoded, None)
    }

    /// Sends a message to all members but one, for example its [author](crate::Context::member). `except` need not be a
    /// member of the group.
    ///
    /// # Errors
    /// As for [`send`](Group::send).
    ///
    /// # Panics
    /// If the message is 4 GiB long or longer.
    pub fn send_except(&self, encoded: &Encoded<C>, except: &Member) -> Result<(), GroupFull> {
        self.send_to_all(encoded, Some(except))
    }

    /// Encodes a message with `codec`, which belongs to no connection, and sends it to all members.
    ///
    /// # Errors
    /// [`PublishError::Encode`] as for [`Encoded::new`], [`PublishError::Full`] as for [`send`](Group::send).
    ///
    /// # Panics
    /// If the message is 4 GiB long or longer.
    pub fn publish(&self, codec: &mut C, message: C::Out) -> Result<(), PublishError<C::Error>> {
        let encoded = Encoded::new(codec, message).map_err(PublishError::Encode)?;
        self.send(&encoded).map_err(PublishError::Full)
    }

    /// Makes a connection a member, from any thread, and sends messages to it alone. It gets these first, then all
    /// messages that are sent to the group from now on, and none that was sent before.
    ///
    /// # Errors
    /// [`GroupFull`] if the loop of the connection does not keep up. The connection is no member then.
    ///
    /// # Panics
    /// If one of the messages is 4 GiB long or longer.
    pub fn join_with(&self, member: &Member, first: &[Encoded<C>]) -> Result<(), GroupFull> {
        assert!(first.iter().all(|encoded| encoded.len() < MESSAGE_BYTES_MAX), "a message of 4 GiB");
        let first = first.iter().map(|encoded| encoded.bytes().clone()).collect();
        let audience = Audience::Newcomer(member.clone(), first);
        let message = Arc::new(GroupMessage { group: self.shared.clone(), bytes: Bytes::new(), audience });
        let mut loops = self.shared.loops();
        match member.mailbox.send(LoopMessage::Broadcast(message)) {
            Ok(()) => {
                // From now on messages go to this loop, and find the member there, since they come later.
                loops.of(&member.mailbox).joining += 1;
                Ok(())
            }
            Err(MailboxError::Full(_)) => Err(GroupFull { loops: 1, is_backplane_full: false }),
            // The connection has ended with its loop.
            Err(MailboxError::Ended(_)) => Ok(()),
        }
    }

    /// Sends a last message to all members, and closes their connections in good order, from any thread. An empty message
    /// closes them without one. Members that read slowly get it too, and those that have another codec now are closed
    /// without it. Connections that join afterwards are not closed.
    ///
    /// # Errors
    /// [`GroupFull`] if some loops do not keep up; their members stay.
    ///
    /// # Panics
    /// If the message is 4 GiB long or longer.
    pub fn close(&self, last: &Encoded<C>) -> Result<(), GroupFull> {
        self.put(last, Audience::Closing)
    }

    /// Whether members have missed messages since the last call.
    pub(super) fn take_missed(&self) -> bool {
        self.shared.has_missed.load(Relaxed) && self.shared.has_missed.swap(false, Relaxed)
    }

    /// Sends a notice to the members that have missed messages. Those that take it get the messages behind it again. An empty notice
    /// reaches no member, and has the same effect.
    pub(super) fn notify_missed(&self, notice: &Encoded<C>) {
        let shared = &self.shared;
        for there in &mut shared.loops().0 {
            let audience = Audience::Missed { all: there.has_missed };
            let message = GroupMessage { group: shared.clone(), bytes: notice.bytes().clone(), audience };
            let is_full =
                matches!(there.mailbox.send(LoopMessage::Broadcast(Arc::new(message))), Err(MailboxError::Full(_)));
            there.has_missed &= is_full;
            shared.has_missed.fetch_or(is_full, Relaxed);
        }
    }

    fn send_to_all(&self, encoded: &Encoded<C>, except: Option<&Member>) -> Result<(), GroupFull> {
        if encoded.is_empty() {
            return Ok(());
        }
        self.put(encoded, Audience::Members { except: except.cloned() })
    }

    /// Puts a message into the mailboxes of all loops with members.
    fn put(&self, encoded: &Encoded<C>, audience: Audience) -> Result<(), GroupFull> {
        assert!(encoded.len() < MESSAGE_BYTES_MAX, "a message of {} bytes", encoded.len());
        let mut loops = self.shared.loops();
        if loops.0.is_empty() {
            return Ok(());
        }
        let message = GroupMessage { group: self.shared.clone(), bytes: encoded.bytes().clone(), audience };
        let message = Arc::new(message);
        let (mut full, reports_missed) = (0, self.shared.reports_missed);
        let is_last = matches!(message.audience, Audience::Closing);
        loops.0.retain_mut(|there| {
            if there.has_missed && !is_last {
                // A notice comes first.
                full += 1;
                return true;
            }
            match there.mailbox.send(LoopMessage::Broadcast(message.clone())) {
                Ok(()) => true,
                Err(MailboxError::Full(_)) => {
                    full += 1;
                    there.has_missed = reports_missed;
                    true
                }
                // The refused clone is not the last, so nothing of the user's is dropped under the lock.
                Err(MailboxError::Ended(_)) => false,
            }
        });
        if full > 0 && reports_missed {
            self.shared.has_missed.store(true, Relaxed);
        }
        if full == 0 { Ok(()) } else { Err(GroupFull { loops: full, is_backplane_full: false }) }
    }
}

impl<C> Group<C> {
    /// Members on all loops, roughly: a closed connection counts until a message is sent or more connections join.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.members.load(Relaxed)
    }

    /// Whether the group has no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Messages that members did not get, each counted once per member: with [`Slow::Skip`] because the member was not
    /// writable, or because its codec refused the message.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.shared.skipped.load(Relaxed)
    }

    pub(crate) fn shared(&self) -> &Arc<GroupShared> {
        &self.shared
    }
}

impl<C> Clone for Group<C> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), kind: PhantomData }
    }
}

impl<C> fmt::Debug for Group<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("number", &self.shared.number)
            .field("members", &self.len())
            .finish_non_exhaustive()
    }
}

/// Identifies a connection on any loop: for [`Group::send_except`]. It may be sent to any thread, and may outlive the
/// connection; it never matches another connection.
#[derive(Clone)]
pub struct Member {
    mailbox: Arc<Mailbox>,
    token: Token,
}

impl Member {
    pub(crate) fn new(mailbox: &Arc<Mailbox>, token: Token) -> Self {
        Self { mailbox: mailbox.clone(), token }
    }
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        self.token == other.token && Arc::ptr_eq(&self.mailbox, &other.mailbox)
    }
}

impl Eq for Member {}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({}/{})", self.token.slot, self.token.generation)
    }
}

/// The state that the clones of a group, and its messages in transit, share.
pub(crate) struct GroupShared {
    /// Unique among groups; loops look groups up by it.
    number: u64,
    slow: Slow,
    /// Members that miss a message get no further one before a notice.
    reports_missed: bool,
    /// Some members have missed messages since the last notice.
    has_missed: AtomicBool,
    /// The type of the codec.
    kind: TypeId,
    write: WriteEncoded,
    /// The loops that have members. Each adds and removes itself.
    loops: Mutex<Loops>,
    members: AtomicUsize,
    skipped: AtomicU64,
}

/// Writes encoded bytes with a codec of the group's kind, whose type the loop does not know. Returns whether the codec
/// took them.
type WriteEncoded = fn(&mut dyn Any, Slice, &mut Output<'_>) -> bool;

fn write_encoded<C: Broadcast>(codec: &mut dyn Any, bytes: Slice, out: &mut Output<'_>) -> bool {
    codec.downcast_mut::<C>().is_some_and(|codec| codec.write_encoded(bytes, out).is_ok())
}

impl GroupShared {
    fn loops(&self) -> MutexGuard<'_, Loops> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The loops that messages go to.
#[derive(Default)]
struct Loops(Vec<MemberLoop>);

/// A loop that has members, or is about to have some.
struct MemberLoop {
    mailbox: Arc<Mailbox>,
    /// It has members.
    has_members: bool,
    /// Its mailbox was full: its members have missed a message, and get a notice before the next.
    has_missed: bool,
    /// Members that [`Group::join_with`] has put into the mailbox.
    joining: usize,
}

impl Loops {
    /// The entry of a loop, which is added if there is none.
    fn of(&mut self, mailbox: &Arc<Mailbox>) -> &mut MemberLoop {
        let at = self.0.iter().position(|there| Arc::ptr_eq(&there.mailbox, mailbox)).unwrap_or_else(|| {
            // Most groups have members on one loop only.
            self.0.reserve_exact(1);
            self.0.push(MemberLoop { mailbox: mailbox.clone(), has_members: false, has_missed: false, joining: 0 });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Changes the entry of a loop, if it exists, and removes it if no message has to go there any more.
    fn update(&mut self, mailbox: &Arc<Mailbox>, update: impl Fn(&mut MemberLoop)) {
        self.0.retain_mut(|there| {
            if !Arc::ptr_eq(&there.mailbox, mailbox) {
                return true;
            }
            update(there);
            there.has_members || there.joining > 0
        });
    }
}

/// A message on its way to the loops.
pub(crate) struct GroupMessage {
    group: Arc<GroupShared>,
    bytes: Bytes,
    audience: Audience,
}

/// The connections that a message is for.
enum Audience {
    /// The members, apart from one.
    Members { except: Option<Member> },
    /// The members, whose connections close behind it.
    Closing,
    /// The members that have missed messages, or all of a loop whose mailbox was full.
    Missed { all: bool },
    /// A connection that becomes a member, and gets these messages first.
    Newcomer(Member, Vec<Bytes>),
}

/// Some loops' mailboxes are full: a million messages wait there already. The members on these loops did not get the
/// message; the members on other loops did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupFull {
    /// How many loops.
    pub loops: usize,
    /// No member got it, since as many messages wait for the broker of the [`Backplane`] as may.
    pub is_backplane_full: bool,
}

impl fmt::Display for GroupFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_backplane_full {
            return f.write_str("too many messages wait for the broker of the backplane");
        }
        write!(f, "too many messages wait for {} of the group's event loops", self.loops)
    }
}

impl std::error::Error for GroupFull {}

/// Why a message was not published to all members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError<E> {
    /// The message cannot be encoded once for many connections. No member gets it.
    Encode(EncodeError<E>),
    /// Some loops do not keep up.
    Full(GroupFull),
}

impl<E: fmt::Display> fmt::Display for PublishError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encode(error) => error.fmt(f),
            Self::Full(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for PublishError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Encode(error) => error.source(),
            Self::Full(_) => None,
        }
    }
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Messages are shorter than this: a segment of memory has no room for more.
const MESSAGE_BYTES_MAX: usize = u32::MAX as usize - 8;
