//! `Rooms`: rooms by their names, and the options that they share: the encoding of messages, and a backplane.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tidegate_codec::{Broadcast, Encoded};

use super::backplane::{Backplane, BackplaneRoom, MemberName, RoomEvent, RoomMessage};
use super::room::{Room, RoomLimits, SharedRoom};
use super::{GroupFull, Slow};

/// Rooms by their names, which are made when they are asked for. A room ends, with its history, when neither a visit
/// nor another clone of it is left; with a backplane, a second later. Clones are the same rooms.
pub struct Rooms<C, P = ()> {
    shared: Arc<SharedRooms<C, P>>,
}

struct SharedRooms<C, P> {
    slow: Slow,
    limits: RoomLimits,
    rooms_max: usize,
    link: Option<Arc<RoomLink<C, P>>>,
    by_name: Mutex<ByName<C, P>>,
}

pub(super) type ByName<C, P> = HashMap<Arc<str>, Weak<SharedRoom<C, P>>>;

/// Makes a message to members of an event.
type EncodeEvent<C> = dyn Fn(RoomEvent<'_>) -> Option<Encoded<C>> + Send + Sync;

/// The options of rooms, which each of them refers to.
pub(super) struct RoomLink<C, P> {
    pub(super) encode: Option<Arc<EncodeEvent<C>>>,
    /// The encoding has one of gaps.
    pub(super) reports_gaps: bool,
    pub(super) backplane: Option<Arc<dyn Backplane>>,
    /// A member has entered: it may have to be reported to the backplane. Knows the traits that `P` needs for that.
    pub(super) entered: fn(&Arc<SharedRoom<C, P>>, usize),
    pub(super) describe: fn(&P) -> Bytes,
    pub(super) read_name: fn(&[u8]) -> Option<P>,
}

impl<C, P> RoomLink<C, P> {
    fn new() -> Self {
        Self {
            encode: None,
            reports_gaps: false,
            backplane: None,
            entered: |_, _| {},
            describe: |_| Bytes::new(),
            read_name: |_| None,
        }
    }

    /// A member has left, and so many are present.
    pub(super) fn left(&self, name: &Arc<str>, present: usize) {
        if let Some(backplane) = &self.backplane {
            if present == 0 {
                backplane.detach(name);
            }
            backplane.presence_changed(name);
        }
    }
}

impl<C, P> Clone for RoomLink<C, P> {
    fn clone(&self) -> Self {
        Self {
            encode: self.encode.clone(),
            reports_gaps: self.reports_gaps,
            backplane: self.backplane.clone(),
            entered: self.entered,
            describe: self.describe,
            read_name: self.read_name,
        }
    }
}

impl<C: Broadcast, P> Rooms<C, P> {
    /// No rooms yet; up to 10,000 at a time, unless [`rooms_max`](Self::rooms_max) says otherwise.
    #[must_use]
    pub fn new(slow: Slow, limits: RoomLimits) -> Self {
        Self::bounded(slow, limits, ROOMS_MAX)
    }

    /// As [`new`](Self::new), with up to `rooms_max` rooms at a time.
    #[must_use]
    pub fn bounded(slow: Slow, limits: RoomLimits, rooms_max: usize) -> Self {
        Self { shared: Arc::new(SharedRooms { slow, limits, rooms_max, link: None, by_name: Mutex::default() }) }
    }

    /// Sets how events of a room become messages to its members: for [`Room::publish`], and for clients that learn of lost
    /// messages. It runs once a node and event, while the room is locked: it must not call methods of the room. An event
    /// without encoding reaches no member.
    ///
    /// If [`RoomEvent::Gap`] has an encoding, a member that has missed messages, since it reads slowly ([`Slow::Skip`]) or since its
    /// loop did not keep up, gets that before its next message. `encode` is asked once here whether there is one.
    ///
    /// The result is other rooms than `self`: set it before the first room is made.
    #[must_use]
    pub fn encoding(self, encode: impl Fn(RoomEvent<'_>) -> Option<Encoded<C>> + Send + Sync + 'static) -> Self {
        self.linked(|link| {
            link.reports_gaps = encode(RoomEvent::Gap { position: None }).is_some();
            link.encode = Some(Arc::new(encode));
        })
    }

    /// Shares the rooms with the other nodes of a backplane: members of a room on any node get the same messages. Rooms with
    /// [`history_max`](RoomLimits::history_max) are ordered, and their limits are the same on all nodes.
    ///
    /// The result is other rooms than `self`: set it before the first room is made.
    ///
    /// ```
    /// use tidegate::backplane::{Backplane, MemoryBroker};
    /// use tidegate::framing::Lines;
    /// use tidegate::{RoomLimits, Rooms, Slow};
    ///
    /// let backplane = Backplane::memory(&MemoryBroker::new()).spawn()?;
    /// let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default()).with(&backplane);
    /// # drop(rooms);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn with(self, backplane: &(impl Backplane + Clone)) -> Self
    where
        P: MemberName,
    {
        let backplane = Arc::new(backplane.clone());
        self.linked(|link| {
            link.backplane = Some(backplane);
            link.entered = report_entered::<C, P>;
            link.describe = P::to_bytes;
            link.read_name = P::from_bytes;
        })
    }

    /// Other rooms with the same encoding and the same backplane.
    pub(super) fn with_limits(&self, limits: RoomLimits, rooms_max: usize) -> Self {
        let SharedRooms { slow, link, .. } = &*self.shared;
        let (slow, link) = (*slow, link.clone());
        Self { shared: Arc::new(SharedRooms { slow, limits, rooms_max, link, by_name: Mutex::default() }) }
    }

    fn linked(self, change: impl FnOnce(&mut RoomLink<C, P>)) -> Self {
        let mut link = self.shared.link.as_ref().map_or_else(RoomLink::new, |link| (**link).clone());
        change(&mut link);
        let SharedRooms { slow, limits, rooms_max, .. } = &*self.shared;
        let link = Some(Arc::new(link));
        let (slow, limits, rooms_max) = (*slow, limits.clone(), *rooms_max);
        Self { shared: Arc::new(SharedRooms { slow, limits, rooms_max, link, by_name: Mutex::default() }) }
    }

    /// The room with this name. `None` if there are as many others as may be, and for a name that begins with the character
    /// U+0001: the rooms of [`Users`](super::Users) have such names.
    #[must_use]
    pub fn room(&self, name: &str) -> Option<Room<C, P>> {
        if name.starts_with(RESERVED) { None } else { self.any_room(name) }
    }

    pub(super) fn any_room(&self, name: &str) -> Option<Room<C, P>> {
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
        let name: Arc<str> = name.into();
        let (slow, limits) = (self.shared.slow, self.shared.limits.clone());
        let room = Room::with_link(name.clone(), slow, limits, self.shared.link.clone());
        by_name.insert(name, Arc::downgrade(&room.shared));
        Some(room)
    }
}

/// The first member attaches the room to its backplane.
fn report_entered<C: Broadcast, P: MemberName>(room: &Arc<SharedRoom<C, P>>, present: usize) {
    let Some(backplane) = room.link.as_ref().and_then(|link| link.backplane.as_ref()) else { return };
    if present == 1 {
        let shared: Arc<dyn BackplaneRoom> = room.clone();
        backplane.attach(&room.name, &room.limits, shared);
    }
    backplane.presence_changed(&room.name);
}

impl<C, P> Rooms<C, P> {
    /// The room with this name, if it has a handle.
    pub(super) fn existing(&self, name: &str) -> Option<Room<C, P>> {
        let shared = self.by_name().get(name)?.upgrade()?;
        Some(Room { shared })
    }

    /// Gives a message for a room without members of this node to the backplane, if there is one.
    pub(super) fn pass_on(&self, name: &str, message: RoomMessage) -> Result<(), GroupFull> {
        let backplane = self.shared.link.as_ref().and_then(|link| link.backplane.as_ref());
        let result =
            backplane.map_or(Ok(()), |backplane| backplane.publish(&name.into(), &self.shared.limits, message));
        result.map_err(|_| GroupFull { loops: 0, is_backplane_full: true })
    }

    /// How many rooms may exist at a time.
    #[must_use]
    pub fn rooms_max(&self) -> usize {
        self.shared.rooms_max
    }

    pub(super) fn by_name(&self) -> MutexGuard<'_, ByName<C, P>> {
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

/// Names of rooms that are those of users begin with it.
pub(super) const RESERVED: char = '\u{1}';
/// Rooms at a time, unless another bound is set.
const ROOMS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use tidegate_codec::framing::Lines;

    use super::*;

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
