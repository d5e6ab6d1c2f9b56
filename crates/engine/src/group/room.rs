//! `Room`: a group that knows which members are present, and greets new members with its last messages.
//!
//! A newcomer joins by a mailbox message of its loop, which has the greeting and the history. It is put in under the
//! lock under which broadcasts are: so each message reaches a newcomer once, in its history or afterwards.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidegate_codec::{Broadcast, Encoded};

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
    /// Bytes of these messages. 256 KiB. It bounds the memory of a room, and the bytes that a newcomer gets at once.
    pub history_bytes_max: usize,
}

impl Default for RoomLimits {
    fn default() -> Self {
        Self { members_max: 100_000, history_max: 0, history_bytes_max: 256 * 1024 }
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
    shared: Arc<RoomShared<C, P>>,
}

struct RoomShared<C, P> {
    group: Group<C>,
    limits: RoomLimits,
    state: Mutex<RoomState<C, P>>,
}

struct RoomState<C, P> {
    /// The last messages, oldest first.
    history: VecDeque<Encoded<C>>,
    history_bytes: usize,
    /// By the number of the visit, so in the order in which they came.
    present: BTreeMap<u64, P>,
    visits: u64,
}

/// A member is present in a room as long as this exists. Its connection gets messages until it is closed, or
/// [leaves](crate::Context::leave) the [group](Room::group).
#[must_use = "the member is no longer present when its visit is dropped"]
pub struct Visit<C, P = ()> {
    room: Room<C, P>,
    number: u64,
}

impl<C: Broadcast, P> Room<C, P> {
    /// A room without members.
    #[must_use]
    pub fn new(slow: Slow, limits: RoomLimits) -> Self {
        let state = RoomState { history: VecDeque::new(), history_bytes: 0, present: BTreeMap::new(), visits: 0 };
        Self { shared: Arc::new(RoomShared { group: Group::new(slow), limits, state: Mutex::new(state) }) }
    }

    /// Makes a connection a member, from any thread. It gets the greeting first, then the history, and then every
    /// message that is sent from now on.
    ///
    /// `greeting` is called with those present, the newcomer among them as the last, while the room is locked: it must
    /// not call methods of the room.
    ///
    /// # Errors
    /// [`RoomError`]: the room, or the loop of the connection, is full.
    pub fn enter(
        &self,
        member: &Member,
        newcomer: P,
        greeting: impl FnOnce(&mut dyn Iterator<Item = &P>) -> Option<Encoded<C>>,
    ) -> Result<Visit<C, P>, RoomError> {
        let mut state = self.state();
        if state.present.len() >= self.shared.limits.members_max {
            return Err(RoomError::MembersMax);
        }
        let number = state.visits;
        state.visits += 1;
        state.present.insert(number, newcomer);
        let greeting = greeting(&mut state.present.values());
        let first: Vec<_> = greeting.into_iter().chain(state.history.iter().cloned()).collect();
        if let Err(full) = self.shared.group.join_with(member, &first) {
            state.present.remove(&number);
            return Err(RoomError::Full(full));
        }
        Ok(Visit { room: self.clone(), number })
    }

    /// Sends a message to all members, and adds it to the history.
    ///
    /// # Errors
    /// As for [`Group::send`].
    ///
    /// # Panics
    /// If the message is 4 GiB long or longer.
    pub fn send(&self, message: &Encoded<C>) -> Result<(), GroupFull> {
        let mut state = self.state();
        state.remember(message, &self.shared.limits);
        self.shared.group.send(message)
    }

    /// Sends a message to all members that is none of the history: that a member comes or goes, for example.
    ///
    /// # Errors
    /// As for [`Group::send`].
    ///
    /// # Panics
    /// If the message is 4 GiB long or longer.
    pub fn announce(&self, message: &Encoded<C>) -> Result<(), GroupFull> {
        // Between the messages of the history, for all members alike.
        let _state = self.state();
        self.shared.group.send(message)
    }
}

impl<C, P> Room<C, P> {
    /// How many members are present.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().present.len()
    }

    /// Whether no member is present.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those present, in the order in which they came.
    #[must_use]
    pub fn present(&self) -> Vec<P>
    where
        P: Clone,
    {
        self.state().present.values().cloned().collect()
    }

    /// The group of the members.
    #[must_use]
    pub fn group(&self) -> &Group<C> {
        &self.shared.group
    }

    fn state(&self) -> MutexGuard<'_, RoomState<C, P>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C, P> RoomState<C, P> {
    fn remember(&mut self, message: &Encoded<C>, limits: &RoomLimits) {
        if limits.history_max == 0 || message.len() > limits.history_bytes_max {
            return;
        }
        self.history.push_back(message.clone());
        self.history_bytes += message.len();
        while self.history.len() > limits.history_max || self.history_bytes > limits.history_bytes_max {
            let Some(oldest) = self.history.pop_front() else { break };
            self.history_bytes -= oldest.len();
        }
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
        // The member's description is dropped after the lock.
        let gone = self.room.state().present.remove(&self.number);
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

/// Rooms by their names, which are made when they are asked for. A room ends, with its history, when neither a visit
/// nor another clone of it is left. Clones are the same rooms.
pub struct Rooms<C, P = ()> {
    shared: Arc<SharedRooms<C, P>>,
}

struct SharedRooms<C, P> {
    slow: Slow,
    limits: RoomLimits,
    rooms_max: usize,
    by_name: Mutex<ByName<C, P>>,
}

type ByName<C, P> = HashMap<Box<str>, Weak<RoomShared<C, P>>>;

impl<C: Broadcast, P> Rooms<C, P> {
    /// No rooms yet; up to 10,000 at a time, unless [`rooms_max`](Self::rooms_max) says otherwise.
    #[must_use]
    pub fn new(slow: Slow, limits: RoomLimits) -> Self {
        Self::bounded(slow, limits, ROOMS_MAX)
    }

    /// As [`new`](Self::new), with up to `rooms_max` rooms at a time.
    #[must_use]
    pub fn bounded(slow: Slow, limits: RoomLimits, rooms_max: usize) -> Self {
        Self { shared: Arc::new(SharedRooms { slow, limits, rooms_max, by_name: Mutex::default() }) }
    }

    /// The room with this name. `None` if there are as many others as may be.
    #[must_use]
    pub fn room(&self, name: &str) -> Option<Room<C, P>> {
        let mut by_name = self.by_name();
        if let Some(shared) = by_name.get(name).and_then(Weak::upgrade) {
            return Some(Room { shared });
        }
        if by_name.len() >= self.shared.rooms_max {
            // Rooms that have ended are removed when there is no place left.
            by_name.retain(|_, room| room.strong_count() > 0);
            if by_name.len() >= self.shared.rooms_max {
                return None;
            }
        }
        let room = Room::new(self.shared.slow, self.shared.limits.clone());
        by_name.insert(name.into(), Arc::downgrade(&room.shared));
        Some(room)
    }
}

impl<C, P> Rooms<C, P> {
    /// How many rooms may exist at a time.
    #[must_use]
    pub fn rooms_max(&self) -> usize {
        self.shared.rooms_max
    }

    fn by_name(&self) -> MutexGuard<'_, ByName<C, P>> {
        self.shared.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C, P> Clone for Rooms<C, P> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<C, P> fmt::Debug for Rooms<C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rooms = self.by_name().values().filter(|room| room.strong_count() > 0).count();
        f.debug_struct("Rooms").field("rooms", &rooms).finish_non_exhaustive()
    }
}

/// Rooms at a time, unless another bound is set.
const ROOMS_MAX: usize = 10_000;

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
            let state = room.state();
            let bytes: Vec<u8> = state.history.iter().flat_map(|message| message.bytes().to_vec()).collect();
            assert_eq!(state.history_bytes, bytes.len());
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

    #[test]
    fn a_room_ends_with_its_last_handle_and_gives_its_place_back() {
        let rooms = Rooms::<Lines>::bounded(Slow::Skip, RoomLimits::default(), 2);
        let (north, south) = (rooms.room("north").expect("a place"), rooms.room("south").expect("a place"));
        assert!(rooms.room("east").is_none());
        let again = rooms.room("north").expect("it exists");
        assert!(Arc::ptr_eq(&north.shared, &again.shared));
        drop(south);
        assert!(rooms.room("east").is_some());
        assert!(rooms.room("north").is_some_and(|room| Arc::ptr_eq(&north.shared, &room.shared)));
    }
}
