//! `Users`: the connections of a user, wherever they are: a room for each user, under names that no other room has.
//!
//! A message to a user without connections on this node makes no room here: it goes to the backplane, which passes it to the
//! nodes that have some.

use std::fmt;

use bytes::Bytes;
use tidegate_codec::{Broadcast, Encoded};

use super::GroupFull;
use super::backplane::{Kick, MessageForm, RoomMessage};
use super::room::{Room, RoomLimits};
use super::rooms::{RESERVED, Rooms};

/// The limits of [`Users`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UserLimits {
    /// Users with connections on this node; a further one is refused. 100,000. It bounds memory.
    pub users_max: usize,
    /// Connections of a user on this node; a further one is refused. 32. It stops one user from taking the connections of
    /// others. A connection that a kick closes counts until it has ended, a few seconds at most for a peer that does not read:
    /// it still takes memory and a descriptor.
    pub connections_max: usize,
    /// Messages that a returning user may get first, as [`RoomLimits::history_max`]. 0: none.
    pub history_max: usize,
    /// Bytes of these messages. 64 KiB.
    pub history_bytes_max: usize,
}

impl Default for UserLimits {
    fn default() -> Self {
        Self { users_max: 100_000, connections_max: 32, history_max: 0, history_bytes_max: 64 * 1024 }
    }
}

/// Users by their names: a message to a user reaches all of the user's connections, on all nodes, and a user can be signed
/// out everywhere. Clones are the same users.
///
/// A connection [enters](Room::enter) the [room of its user](Self::room) once it is authenticated. The rooms have the encoding
/// and the backplane of other [`Rooms`], and names that [`Rooms::room`] refuses: so a client that chooses a room's name does
/// not choose a user.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{Encoded, RoomLimits, Rooms, Slow, UserLimits, Users};
///
/// let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default());
/// let users = Users::new(&rooms, &UserLimits::default());
/// // In a handler: users.room("ada") and then enter(&cx.member(), ..).
/// users.send("ada", &Encoded::of("your boat is ready\n".into()))?;
/// users.kick("ada", 4001, "signed out")?;
/// # Ok::<(), tidegate::engine::GroupFull>(())
/// ```
pub struct Users<C, P = ()> {
    pub(super) rooms: Rooms<C, P>,
}

impl<C: Broadcast, P> Users<C, P> {
    /// Users with the options of `rooms`. Two of them with the same backplane are the same users, so make one, and clone it.
    #[must_use]
    pub fn new(rooms: &Rooms<C, P>, limits: &UserLimits) -> Self {
        let room_limits = RoomLimits {
            members_max: limits.connections_max,
            history_max: limits.history_max,
            history_bytes_max: limits.history_bytes_max,
            ..RoomLimits::default()
        };
        Self { rooms: rooms.with_limits(room_limits, limits.users_max) }
    }

    /// The connections of a user. `None` if there are as many other users as may be.
    #[must_use]
    pub fn room(&self, user: &str) -> Option<Room<C, P>> {
        self.rooms.any_room(&room_name(user))
    }

    /// Sends a message to all connections of a user, on all nodes. Without any it is lost, unless it is for the history of a
    /// backplane.
    ///
    /// # Errors
    /// As for [`Room::send`].
    ///
    /// # Panics
    /// As for [`Room::send`].
    pub fn send(&self, user: &str, message: &Encoded<C>) -> Result<(), GroupFull> {
        self.with(user, (message.bytes(), MessageForm::Encoded), |room| room.send(message))
    }

    /// As [`send`](Self::send), for a message of the application, which the [encoding](Rooms::encoding) of the rooms makes one
    /// of the protocol.
    ///
    /// # Errors
    /// As for [`Room::send`].
    ///
    /// # Panics
    /// As for [`Room::publish`], if the user has connections on this node.
    pub fn publish(&self, user: &str, bytes: &Bytes) -> Result<(), GroupFull> {
        self.with(user, (bytes, MessageForm::Plain), |room| room.publish(bytes))
    }

    /// Closes all connections of a user, on all nodes, as [`Room::kick`] promises.
    ///
    /// # Errors
    /// As for [`Room::kick`].
    pub fn kick(&self, user: &str, code: u16, reason: &str) -> Result<(), GroupFull> {
        let bytes = Kick { code, reason }.to_bytes();
        self.with(user, (&bytes, MessageForm::Kick), |room| room.kick(code, reason))
    }

    /// Uses the room of a user with connections here, or gives the message to the backplane.
    fn with(
        &self,
        user: &str,
        (bytes, form): (&Bytes, MessageForm),
        call: impl FnOnce(Room<C, P>) -> Result<(), GroupFull>,
    ) -> Result<(), GroupFull> {
        let name = room_name(user);
        match self.rooms.existing(&name) {
            Some(room) => call(room),
            None => {
                let is_announcement = form == MessageForm::Kick;
                self.rooms.pass_on(&name, RoomMessage { bytes: bytes.clone(), form, is_announcement })
            }
        }
    }
}

fn room_name(user: &str) -> String {
    format!("{RESERVED}user:{user}")
}

impl<C, P> Clone for Users<C, P> {
    fn clone(&self) -> Self {
        Self { rooms: self.rooms.clone() }
    }
}

impl<C, P> fmt::Debug for Users<C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("rooms", &self.rooms).finish()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_codec::framing::Lines;

    use super::*;
    use crate::group::Slow;

    #[test]
    fn users_are_bounded_and_no_room_has_the_name_of_one() {
        let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default());
        let users = Users::new(&rooms, &UserLimits { users_max: 2, ..UserLimits::default() });
        assert!(rooms.room(&room_name("ada")).is_none());
        assert!(rooms.room("user:ada").is_some());
        let here = [users.room("ada"), users.room("")];
        assert!(here.iter().all(Option::is_some));
        assert!(users.room("grace").is_none());
        // A message to a user without connections makes no room.
        users.send("grace", &Encoded::of("high water\n".into())).expect("it is lost");
        drop(here);
        assert!(users.room("grace").is_some());
    }
}
