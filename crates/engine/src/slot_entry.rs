//! `SlotEntry`: the content of a loop's slot: a connection, a stream, a listener, a task's timer.
//!
//! The loop takes the entry of a slot out of it and *dispatches* a [`SlotEvent`] to the entry; the dispatch ends with
//! a [`Disposition`]. The entry borrows the loop's [`Core`] meanwhile. Read next: `loop_core.rs`, which dispatches.

use std::any::Any;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use tidegate_buffer::{Datagram, DatagramError, Outbound, Slice};
use tidegate_sys::{Accepted, Token};

use crate::close_reason::CloseReason;
use crate::group::{Delivery, DeliveryOutcome};
use crate::inspection::{Description, SessionInfo};
use crate::loop_core::Core;
use crate::session::StreamId;
use crate::slots::Slots;

/// The entry of a slot: a connection, a listener, a task's timer.
pub(crate) trait SlotEntry {
    /// Something happened. Meanwhile the slot is empty.
    fn dispatch(&mut self, core: &mut Core, token: Token, event: SlotEvent) -> Disposition;

    /// The queue of a stream.
    fn outbound(&mut self) -> Option<&mut Outbound> {
        None
    }

    /// A message comes to a group of which it is a member. Meanwhile the slot is empty.
    fn deliver(&mut self, _core: &mut Core, _token: Token, _delivery: &Delivery) -> (DeliveryOutcome, Disposition) {
        (DeliveryOutcome::Closed, Disposition::Keep)
    }

    /// Its socket is closed. The entry that it leaves behind, if any, keeps the slot.
    fn on_closed(self: Box<Self>, _core: &mut Core, _reason: Rc<CloseReason>) -> Option<Box<dyn SlotEntry>> {
        None
    }

    /// Bytes of memory that wait with it, in either direction: the loop sheds the connection with most of them first.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// Its description for an operator, if it is an open connection.
    fn describe(&self, _core: &Core) -> Option<Description> {
        None
    }

    /// Of a stream: its description, of which an operator sees the sums of its session.
    fn describe_stream(&self, _core: &Core) -> Option<Description> {
        None
    }

    /// Whether it is an endpoint with sessions.
    fn has_sessions(&self) -> bool {
        false
    }

    /// Of an endpoint: describes those of its sessions that have these numbers among the sessions of the loop.
    fn describe_sessions(&self, _core: &Core, _links: Range<u32>, _each: &mut dyn FnMut(SessionInfo)) {}

    /// Of an endpoint: ends the session that an operator knows by this number. Returns whether it has one.
    fn close_session(&mut self, _core: &mut Core, _token: Token, _id: u64) -> bool {
        false
    }

    /// The task that serves it has failed: that becomes the reason why it is closed, unless there is another one.
    fn fail(&mut self, _core: &mut Core, _token: Token, _reason: &mut Option<CloseReason>) -> Disposition {
        Disposition::Keep
    }

    /// The stream that it is, if it is one: it has no socket.
    fn stream(&self) -> Option<StreamId> {
        None
    }

    /// The session of a stream writes from its queue: `act` gets the queue, and whether the stream ends behind it, and
    /// returns whether all was written. Returns whether the stream has to be dispatched for that.
    fn transmit(&mut self, _act: &mut dyn FnMut(&mut Outbound, bool) -> bool) -> bool {
        false
    }

    /// Of a stream: whether its application sends no more.
    fn is_ending(&self) -> bool {
        false
    }

    /// Of a stream that waits for the window of its peer: the function that gives up memory without a use.
    fn reduction(&self) -> Option<Reduction> {
        None
    }

    /// Of a stream that has given up its queue: the function that makes it again, before the stream writes.
    fn restoration(&self) -> Option<Reduction> {
        None
    }

    /// Of a stream: the urgency that its peer has asked for in its bytes.
    fn urgency(&self) -> Option<u8> {
        None
    }

    /// Of a stream: the bytes whose window is not granted again yet.
    fn unread_bytes(&self) -> u32 {
        0
    }

    /// Whether the driver has something of it.
    fn socket_state(&self) -> SocketState {
        SocketState::Open
    }

    fn as_any(&mut self) -> &mut dyn Any;

    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// The driver's share of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketState {
    /// A socket.
    Open,
    /// That of its session.
    Session,
    /// A socket that is being closed.
    Closing,
    /// Nothing; and no drain waits for it.
    NoSocket,
}

/// Why an entry is dispatched.
pub(crate) enum SlotEvent {
    /// It is new.
    Opened,
    /// It is a new stream, with all bytes of its peer: `Opened` and `ReceivedLast` in one. Its session writes the answer at
    /// once, if that is complete.
    OpenedWith(Slice),
    /// It has a new codec and a new application.
    Switched,
    /// It has a new application; its codec stays.
    ApplicationReplaced,
    Received(Slice),
    /// Bytes of a stream, which are the peer's last: `Received` and `Ended` in one.
    ReceivedLast(Slice),
    /// The peer sends no more.
    Ended,
    /// The peer sends no more, and the driver does not receive: bytes before the end may be unread.
    HungUp,
    /// The peer has reset the stream, with this number.
    StreamReset(u64),
    /// The session of the stream is closed, or will receive nothing more. This is the stream's own reason, which all streams
    /// of the session share.
    SessionClosed(Rc<CloseReason>),
    Sent(io::Result<usize>),
    Failed(io::Error),
    Accepted(io::Result<Accepted>),
    Connected(io::Result<()>),
    Datagrams(Vec<Datagram>),
    /// There is room to send datagrams again.
    TransmitRoom,
    DatagramErrors(Vec<DatagramError>),
    /// The driver's last completion for the socket.
    Closed,
    /// The slot's timer fired.
    Timer,
    Posted(Box<dyn Any + Send>),
    /// The future that its handler waits for is complete.
    TaskFinished,
    /// It requested another dispatch.
    Scheduled,
    /// The dispatch within which its handler asked for this is over.
    DispatchOver,
    Drain,
    /// The loop drains, and none of the tasks that serve is left.
    ServingDone,
    /// The deadline of the drain has come.
    DrainTimeout,
    Shed,
    /// The last dispatch panicked.
    Panicked,
}

/// The result of a dispatch.
pub(crate) enum Disposition {
    Keep,
    /// Of a stream that has come with all bytes of its peer: the session sends its queue, and then the stream is over.
    Answered,
    /// Another entry takes the place.
    Switch(ProtocolSwitch),
    Close {
        reason: Rc<CloseReason>,
        reset: bool,
    },
    /// The driver's last completion has come for an entry that an earlier dispatch closed.
    FinishClose,
}

impl Disposition {
    /// Close in good order.
    pub(crate) fn close(reason: CloseReason) -> Self {
        Self::Close { reason: Rc::new(reason), reset: false }
    }

    /// Close by a reset.
    pub(crate) fn reset(reason: CloseReason) -> Self {
        Self::Close { reason: Rc::new(reason), reset: true }
    }
}

/// A part of a dispatch. An error ends the dispatch with that disposition.
pub(crate) type Dispatched<T = ()> = Result<T, Disposition>;

/// Makes the new entry of a place out of the old one, and the event that the new one gets first.
pub(crate) type ProtocolSwitch = Box<dyn FnOnce(Box<dyn SlotEntry>) -> (Box<dyn SlotEntry>, SlotEvent)>;

/// Makes an entry smaller, or whole again. It stays in its slot.
pub(crate) type Reduction = fn(Box<dyn SlotEntry>) -> Box<dyn SlotEntry>;

impl Slots<dyn SlotEntry> {
    /// A stream waits for the window of its peer, for an unknown time: it gives up memory without a use.
    pub(crate) fn reduce(&mut self, token: Token) {
        self.replace(token, |entry| entry.reduction());
    }

    /// The stream whose turn it is to write, with its queue.
    #[inline]
    pub(crate) fn restored(&mut self, token: Token) -> Option<&mut (dyn SlotEntry + 'static)> {
        self.replace(token, |entry| entry.restoration());
        self.get_mut(token)
    }

    #[inline]
    fn replace(&mut self, token: Token, by: impl FnOnce(&(dyn SlotEntry + 'static)) -> Option<Reduction>) {
        if let Some(function) = self.get(token).and_then(by)
            && let Some(entry) = self.take(token)
        {
            self.put(token, function(entry));
        }
    }
}
