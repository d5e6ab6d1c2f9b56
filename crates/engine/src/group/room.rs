//! `Room`: a group that knows which members are present, and greets new members with its last messages.
//!
//! A newcomer joins by a mailbox message of its loop, which has the greeting and the history. It is put in under the
//! lock under which broadcasts are: so each message reaches a newcomer once, in its history or afterwards.
//!
//! With a backplane, `send` gives the message to it, and `shared_room.rs` sends those that come back. A newcomer that enters
//! before the history is read gets it once it is.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_codec::{Broadcast, Encoded};

use super::backplane::{Kick, MessageForm, Position, RoomEvent, RoomMessage};
use super::room_state::{RoomState, WaitingMember};
use super::rooms::RoomLink;
use super::{Group, GroupFull, Member, Slow};

/// The limits of a room.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RoomLimits {
    /// Members of a room; a further one is refused. 100,000. It bounds the list of those present.
    pub members_max: usize,
    /// Messages that a newcomer gets first, the last ones that were [sent](Room::send). 0 unless set: a room has no
    /// history.
    pub history_max: usize,
    /// Bytes of these messages. 256 KiB. It bounds the memory of a room, and the bytes that a newcomer gets at once. A message
    /// that was [published](Room::publish) is kept in two forms, and the longer one counts.
    pub history_bytes_max: usize,
    /// Events that wait for a [subscriber](Room::subscribe) which reads slowly. 256.
    pub waiting_messages_max: usize,
    /// Bytes of these. 256 KiB. It bounds the memory of a slow subscriber.
    pub waiting_bytes_max: usize,
}

impl Default for RoomLimits {
    fn default() -> Self {
        Self {
            members_max: 100_000,
            history_max: 0,
            history_bytes_max: 256 * 1024,
            waiting_messages_max: 256,
            waiting_bytes_max: 256 * 1024,
        }
    }
}

/// Connections that get the same messages, as a [`Group`], with a list of those present and with the last messages.
///
/// Clones are the same room, and may be sent to any thread. `P` describes a member to the others: its name, for
/// example. A connection [enters](Room::enter) with its [`Member`](crate::Context::member), and is present until its
/// [`Visit`] is dropped.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{Context, Encoded, Handler, Outcome, Room, RoomLimits, Slice, Slow, Visit};
///
/// struct Guest {
///     room: Room<Lines, &'static str>,
///     visit: Option<Visit<Lines, &'static str>>,
/// }
///
/// fn line(text: String) -> Encoded<Lines> {
///     Encoded::of(format!("{text}\n").into())
/// }
///
/// impl Handler<Lines> for Guest {
///     type Post = ();
///
///     fn open(&mut self, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         let greeting = |present: &mut dyn Iterator<Item = &&str>| Some(line(format!("{} here", present.count())));
///         match self.room.enter(&cx.member(), "a gull", greeting) {
///             Ok(visit) => self.visit = Some(visit),
///             Err(error) => return Outcome::fail(error),
///         }
///         Outcome::Continue
///     }
///
///     fn message(&mut self, text: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         self.room.send(&line(String::from_utf8_lossy(&text).into_owned())).into()
///     }
/// }
///
/// let room = Room::new(Slow::Skip, RoomLimits::default());
/// # let guest = Guest { room: room.clone(), visit: None };
/// # drop(guest);
/// room.send(&line("high water".to_owned()))?;
/// # Ok::<(), tidegate::engine::GroupFull>(())
/// ```
pub struct Room<C, P = ()> {
    pub(super) shared: Arc<SharedRoom<C, P>>,
}

/// The state that the clones of a room share.
pub(super) struct SharedRoom<C, P> {
    pub(super) name: Arc<str>,
    pub(super) group: Group<C>,
    pub(super) limits: RoomLimits,
    /// The options of its [`Rooms`](super::Rooms); none for a room of its own.
    pub(super) link: Option<Arc<RoomLink<C, P>>>,
    pub(super) state: Mutex<RoomState<C, P>>,
}

/// A member is present in a room as long as this exists. Its connection gets messages until it is closed, or
/// [leaves](crate::Context::leave) the [group](Room::group).
#[must_use = "the member is no longer present when its visit is dropped"]
pub struct Visit<C, P = ()> {
    pub(super) room: Room<C, P>,
    pub(super) number: u64,
}

impl<C: Broadcast, P> Room<C, P> {
    /// A room without members.
    #[must_use]
    pub fn new(slow: Slow, limits: RoomLimits) -> Self {
        Self::with_link("".into(), slow, limits, None)
    }

    pub(super) fn with_link(name: Arc<str>, slow: Slow, limits: RoomLimits, link: Option<Arc<RoomLink<C, P>>>) -> Self {
        let is_open = link.as_ref().is_none_or(|link| link.backplane.is_none());
        let reports_gaps = link.as_ref().is_some_and(|link| link.reports_gaps);
        let (group, state) = (Group::reporting(slow, reports_gaps), Mutex::new(RoomState::new(is_open)));
        Self { shared: Arc::new(SharedRoom { name, group, limits, link, state }) }
    }

    /// Makes a connection a member, from any thread. It gets the greeting first, then the history, and then every
    /// message that is sent from now on.
    ///
    /// `greeting` is called with those present, the newcomer among them, while the room is locked: it must
    /// not call methods of the room. Without a backplane the newcomer is the last of them.
    ///
    /// # Errors
    /// [`RoomError`]: the room, or the loop of the connection, is full.
    pub fn enter(
        &self,
        member: &Member,
        newcomer: P,
        greeting: impl FnOnce(&mut dyn Iterator<Item = &P>) -> Option<Encoded<C>>,
    ) -> Result<Visit<C, P>, RoomError> {
        self.enter_from(member, newcomer, None, greeting)
    }

    /// As [`enter`](Self::enter), for a client that returns, and has seen all messages up to `after`: of the history it gets
    /// those that follow. If some of these are gone, or the epoch is another one, it gets the encoding of
    /// [`RoomEvent::Gap`], and then the whole history.
    ///
    /// # Errors
    /// As for [`enter`](Self::enter).
    pub fn enter_after(
        &self,
        after: Position,
        member: &Member,
        newcomer: P,
        greeting: impl FnOnce(&mut dyn Iterator<Item = &P>) -> Option<Encoded<C>>,
    ) -> Result<Visit<C, P>, RoomError> {
        self.enter_from(member, newcomer, Some(after), greeting)
    }

    fn enter_from(
        &self,
        member: &Member,
        newcomer: P,
        after: Option<Position>,
        greeting: impl FnOnce(&mut dyn Iterator<Item = &P>) -> Option<Encoded<C>>,
    ) -> Result<Visit<C, P>, RoomError> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let number = shared.admit(&mut state, newcomer)?;
        let greeting = greeting(&mut state.everyone());
        let mut first: Vec<_> = greeting.into_iter().collect();
        if state.is_open {
            first.extend(shared.first_messages(&state, after));
        }
        if let Err(full) = shared.group.join_with(member, &first) {
            state.present.remove(&number);
            return Err(RoomError::Full(full));
        }
        if !state.is_open && shared.limits.history_max > 0 {
            state.waiting.insert(number, WaitingMember { member: member.clone(), after });
        }
        if let Some(link) = &shared.link {
            (link.entered)(shared, state.present.len());
        }
        Ok(Visit { room: self.clone(), number })
    }

    /// Sends a message to all members, and adds it to the history.
    ///
    /// With a backplane, the members of all nodes get it, those of this one as well, once the broker has returned it.
    ///
    /// # Errors
    /// As for [`Group::send`]. With a backplane, if as many messages wait for the broker as may.
    ///
    /// # Panics
    /// If the message is 4 GiB long or longer.
    pub fn send(&self, message: &Encoded<C>) -> Result<(), GroupFull> {
        match self.pass_on(message.bytes(), MessageForm::Encoded, false) {
            Some(result) => result,
            None => self.shared.send_here(message, false),
        }
    }

    /// Sends a message of the application to all members, and adds it to the history. The [encoding](super::Rooms::encoding)
    /// of the rooms makes the protocol's message of it, once on each node, and may add its position.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    ///
    /// # Panics
    /// If the rooms have no encoding, and if the encoded message is 4 GiB long or longer.
    pub fn publish(&self, bytes: &Bytes) -> Result<(), GroupFull> {
        self.publish_plain(bytes, false)
    }

    /// As [`publish`](Self::publish), for a message that is not part of the history.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    ///
    /// # Panics
    /// As for [`publish`](Self::publish).
    pub fn publish_announcement(&self, bytes: &Bytes) -> Result<(), GroupFull> {
        self.publish_plain(bytes, true)
    }

    fn publish_plain(&self, bytes: &Bytes, is_announcement: bool) -> Result<(), GroupFull> {
        assert!(self.shared.has_encoding(), "Room::publish needs Rooms::encoding");
        match self.pass_on(bytes, MessageForm::Plain, is_announcement) {
            Some(result) => result,
            None => self.shared.publish_here(bytes, is_announcement),
        }
    }

    /// Sends a message to all members that is none of the history: that a member comes or goes, for example.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    ///
    /// # Panics
    /// If the message is 4 GiB long or longer.
    pub fn announce(&self, message: &Encoded<C>) -> Result<(), GroupFull> {
        match self.pass_on(message.bytes(), MessageForm::Encoded, true) {
            Some(result) => result,
            None => self.shared.send_here(message, true),
        }
    }

    /// Closes the connections of all members in good order, on all nodes. The [encoding](super::Rooms::encoding) makes their
    /// last message of [`RoomEvent::Kicked`], such as a WebSocket's close frame.
    ///
    /// Members of this node are closed at once, so messages that wait for the broker do not reach them any more. Those of
    /// other nodes are closed once the broker has passed it on. The broker remembers the last kick of a room for a while (10
    /// minutes, unless the backplane's limits have another time): a node that was not connected closes its members when it
    /// returns, also those that have entered meanwhile. A kick that the broker has not stored is lost
    /// with it. So record first that the client may not return, and check that once the member has entered.
    ///
    /// ```
    /// use tidegate::codec::{DynOver, Filters};
    /// use tidegate::websocket::{Close, CloseCode, Config, Message, WebSocket};
    /// use tidegate::{Encoded, RoomEvent, RoomLimits, Rooms, Slow};
    ///
    /// fn encode(event: RoomEvent<'_>) -> Option<Encoded<DynOver<WebSocket>>> {
    ///     let message = match event {
    ///         RoomEvent::Kicked(kick) => Message::Close(Some(Close::new(CloseCode(kick.code), kick.reason))),
    ///         _ => return None,
    ///     };
    ///     let mut codec = Filters::default().stack(WebSocket::server(Config::default().into(), None));
    ///     Encoded::new(&mut codec, message).ok()
    /// }
    ///
    /// let rooms = Rooms::<_>::new(Slow::Skip, RoomLimits::default()).encoding(encode);
    /// rooms.room("tides").ok_or("too many rooms")?.kick(4001, "the tide is out")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`send`](Self::send). Members of this node are closed also if the backplane is full.
    pub fn kick(&self, code: u16, reason: &str) -> Result<(), GroupFull> {
        let kick = Kick { code, reason }.cut();
        let passed_on = self.pass_on(&kick.to_bytes(), MessageForm::Kick, true);
        self.shared.kick_here(kick).and(passed_on.unwrap_or(Ok(())))
    }

    /// Gives a message to the backplane, if there is one.
    fn pass_on(&self, bytes: &Bytes, form: MessageForm, is_announcement: bool) -> Option<Result<(), GroupFull>> {
        let shared = &self.shared;
        let backplane = shared.link.as_ref()?.backplane.as_ref()?;
        let message = RoomMessage { bytes: bytes.clone(), form, is_announcement };
        let result = backplane.publish(&shared.name, &shared.limits, message);
        Some(result.map_err(|_| GroupFull { loops: 0, is_backplane_full: true }))
    }
}

impl<C: Broadcast, P> SharedRoom<C, P> {
    /// Sends a message to the members of this process.
    fn send_here(&self, message: &Encoded<C>, is_announcement: bool) -> Result<(), GroupFull> {
        let mut state = self.lock();
        self.report_missed(&state);
        state.messages_sent += 1;
        // Announcements stand between the messages of the history, for all members alike.
        if !is_announcement && self.limits.history_max > 0 {
            let position = state.next_position();
            state.remember(position, message, None, &self.limits);
        }
        self.group.send(message)
    }

    fn publish_here(&self, bytes: &Bytes, is_announcement: bool) -> Result<(), GroupFull> {
        let mut state = self.lock();
        self.report_missed(&state);
        state.messages_sent += 1;
        let has_position = !is_announcement && self.limits.history_max > 0;
        let position = has_position.then(|| state.next_position());
        let event = RoomEvent::Message { bytes, position };
        let message = self.encoded(event).unwrap_or_else(|| Encoded::of(Bytes::new()));
        if let Some(position) = position {
            state.remember(position, &message, Some(bytes), &self.limits);
        }
        self.notify_subscribers(&state, event);
        self.group.send(&message)
    }

    /// Members that have missed messages learn of it before the next one.
    pub(super) fn report_missed(&self, state: &RoomState<C, P>) {
        if self.group.take_missed() {
            let gap = self.encoded(RoomEvent::Gap { position: state.position() });
            self.group.notify_missed(&gap.unwrap_or_else(|| Encoded::of(Bytes::new())));
        }
    }

    /// Closes the members of this process.
    pub(super) fn kick_here(&self, kick: Kick<'_>) -> Result<(), GroupFull> {
        let mut state = self.lock();
        // They get no history.
        state.waiting.clear();
        let event = RoomEvent::Kicked(kick);
        self.notify_subscribers(&state, event);
        let last = self.encoded(event).filter(|last| last.len() < super::MESSAGE_BYTES_MAX);
        self.group.close(&last.unwrap_or_else(|| Encoded::of(Bytes::new())))
    }

    /// The messages of the history that a newcomer gets.
    pub(super) fn first_messages(&self, state: &RoomState<C, P>, after: Option<Position>) -> Vec<Encoded<C>> {
        let Some(after) = after else { return state.history().collect() };
        match state.history_after(after) {
            Some(missing) => missing.collect(),
            None => {
                let gap = self.encoded(RoomEvent::Gap { position: state.position_before_history() });
                gap.into_iter().chain(state.history()).collect()
            }
        }
    }
}

impl<C, P> SharedRoom<C, P> {
    /// Adds a member. Returns the number of its visit.
    pub(super) fn admit(&self, state: &mut RoomState<C, P>, newcomer: P) -> Result<u64, RoomError> {
        if state.present.len() >= self.limits.members_max {
            return Err(RoomError::MembersMax);
        }
        let number = state.visits;
        state.visits += 1;
        state.present.insert(number, newcomer);
        Ok(number)
    }

    /// An event as a message to members. The encoding runs while the room is locked.
    pub(super) fn encoded(&self, event: RoomEvent<'_>) -> Option<Encoded<C>> {
        let encode = self.link.as_ref()?.encode.as_ref()?;
        encode(event)
    }

    fn has_encoding(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.encode.is_some())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RoomState<C, P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C, P> Room<C, P> {
    /// How many members are present, on all nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.lock().count()
    }

    /// Whether no member is present.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those present: first those of this node, in the order in which they came. Other nodes name up to as many members as
    /// the backplane allows.
    #[must_use]
    pub fn present(&self) -> Vec<P>
    where
        P: Clone,
    {
        self.shared.lock().everyone().cloned().collect()
    }

    /// The position of the last message; none in a room without history, and before its first message. With a backplane, none
    /// either while the room has no member on this node.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.shared.lock().position()
    }

    /// The group of the members of this process.
    #[must_use]
    pub fn group(&self) -> &Group<C> {
        &self.shared.group
    }
}

impl<C, P> Visit<C, P> {
    /// The room.
    #[must_use]
    pub fn room(&self) -> &Room<C, P> {
        &self.room
    }
}

impl<C, P> Drop for Visit<C, P> {
    fn drop(&mut self) {
        let shared = &self.room.shared;
        let mut state = shared.lock();
        let waiting = (state.waiting.remove(&self.number), state.subscribers.remove(&self.number));
        let gone = (state.present.remove(&self.number), waiting);
        if let Some(link) = &shared.link {
            link.left(&shared.name, state.present.len());
        }
        drop(state);
        // The member's description is dropped after the lock.
        drop(gone);
    }
}

impl<C, P> Clone for Room<C, P> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<C, P> fmt::Debug for Room<C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("present", &self.len()).finish_non_exhaustive()
    }
}

impl<C, P> fmt::Debug for Visit<C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visit").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Why a connection could not enter a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoomError {
    /// It has [`RoomLimits::members_max`] members.
    MembersMax,
    /// The loop of the connection does not keep up.
    Full(GroupFull),
}

impl fmt::Display for RoomError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MembersMax => f.write_str("the room has as many members as RoomLimits::members_max allows"),
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl std::error::Error for RoomError {}

#[cfg(test)]
mod tests {
    use tidegate_codec::framing::Lines;

    use super::*;

    fn message(text: &str) -> Encoded<Lines> {
        Encoded::of(text.to_owned().into())
    }

    #[test]
    fn a_history_is_bounded_in_messages_and_bytes() {
        let limits = RoomLimits { history_max: 3, history_bytes_max: 10, ..RoomLimits::default() };
        let room = Room::<Lines>::new(Slow::Skip, limits);
        let history = |room: &Room<Lines>| {
            let state = room.shared.lock();
            let bytes: Vec<u8> = state.history().flat_map(|message| message.bytes().to_vec()).collect();
            assert_eq!(state.history_bytes(), bytes.len());
            String::from_utf8(bytes).expect("a text")
        };
        for (text, expected) in [
            ("ab", "ab"),
            ("cd", "abcd"),
            ("ef", "abcdef"),
            ("gh", "cdefgh"),
            ("ijklmno", "ghijklmno"),
            ("more than ten", "ghijklmno"),
        ] {
            room.send(&message(text)).expect("there is room");
            assert_eq!(history(&room), expected);
        }
        let without = Room::<Lines>::new(Slow::Skip, RoomLimits::default());
        without.send(&message("ab")).expect("there is room");
        assert_eq!(history(&without), "");
    }
}
