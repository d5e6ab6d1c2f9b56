//! `RoomsSummary`: rooms for an operator, the largest of them by name.

use std::sync::Weak;

use tidegate_codec::Broadcast;

use super::rooms::{RESERVED, Rooms};
use super::users::Users;

/// The rooms of a process at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoomsSummary {
    /// How many there are.
    pub rooms: usize,
    /// Members of this process in all of them.
    pub members: usize,
    /// Those with the most members, the largest first.
    pub largest: Vec<RoomSummary>,
}

/// A room at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoomSummary {
    /// The name; its first 80 characters.
    pub name: String,
    /// Members of this process.
    pub members: usize,
    /// Members on other nodes.
    pub members_elsewhere: usize,
    /// Messages that the members of this process were sent.
    pub messages: u64,
}

impl RoomsSummary {
    /// These rooms and others, with up to `largest_max` of all by name: those of [`Users`] beside the other rooms.
    ///
    /// ```
    /// use tidegate::framing::Lines;
    /// use tidegate::{RoomLimits, Rooms, Slow, UserLimits, Users};
    ///
    /// let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default());
    /// let users = Users::new(&rooms, &UserLimits::default());
    /// let (room, user) = (rooms.room("tides"), users.room("ada"));
    /// let summary = rooms.summary(10).and(users.summary(10), 10);
    /// assert_eq!((summary.rooms, &*summary.largest[1].name), (2, "user:ada"));
    /// # drop((room, user));
    /// ```
    #[must_use]
    pub fn and(mut self, others: Self, largest_max: usize) -> Self {
        self.rooms += others.rooms;
        self.members += others.members;
        self.largest.extend(others.largest);
        // Equal ones keep their order.
        self.largest.sort_by_key(|room| std::cmp::Reverse(room.members + room.members_elsewhere));
        self.largest.truncate(largest_max);
        self
    }
}

impl<C: Broadcast, P> Users<C, P> {
    /// The rooms of users for an operator, with the names `user:NAME`, as [`Rooms::summary`].
    #[must_use]
    pub fn summary(&self, largest_max: usize) -> RoomsSummary {
        self.rooms.summary(largest_max)
    }
}

impl<C, P> Rooms<C, P> {
    /// The rooms for an operator, with up to `largest_max` of them by name. It locks one room after the other, so it costs
    /// little below a hundred thousand rooms, and is not for each request.
    ///
    /// ```
    /// use tidegate::framing::Lines;
    /// use tidegate::{RoomLimits, Rooms, Slow};
    ///
    /// let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default());
    /// let room = rooms.room("tides");
    /// let summary = rooms.summary(10);
    /// assert_eq!((summary.rooms, &*summary.largest[0].name), (1, "tides"));
    /// # drop(room);
    /// ```
    #[must_use]
    pub fn summary(&self, largest_max: usize) -> RoomsSummary {
        let all: Vec<_> = self.by_name().values().filter_map(Weak::upgrade).collect();
        let mut summary = RoomsSummary { rooms: all.len(), ..RoomsSummary::default() };
        let mut counted: Vec<_> = all
            .into_iter()
            .map(|room| {
                let state = room.lock();
                let (here, total, messages) = (state.present.len(), state.count(), state.messages_sent);
                drop(state);
                summary.members += here;
                (total, here, messages, room)
            })
            .collect();
        counted.sort_unstable_by(|one, other| (other.0, &one.3.name).cmp(&(one.0, &other.3.name)));
        let row = |(total, members, messages, room): &(usize, usize, u64, _)| {
            let room: &std::sync::Arc<super::room::SharedRoom<C, P>> = room;
            RoomSummary {
                name: room.name.trim_start_matches(RESERVED).chars().take(NAME_CHARACTERS_MAX).collect(),
                members: *members,
                members_elsewhere: total.saturating_sub(*members),
                messages: *messages,
            }
        };
        summary.largest = counted.iter().take(largest_max).map(row).collect();
        summary
    }
}

/// Characters of a name: names may have 64 KiB.
const NAME_CHARACTERS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_codec::framing::Lines;

    use crate::group::{RoomLimits, Rooms, Slow};

    #[test]
    fn the_largest_rooms_come_first_and_their_number_and_names_are_bounded() {
        let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default()).encoding(|_| None);
        let long = "x".repeat(1000);
        let mut kept = Vec::new();
        for (name, members) in [("north", 1), ("south", 3), ("east", 0), (&long, 1)] {
            let room = rooms.room(name).expect("there is room");
            let subscribers: Vec<_> = (0..members).map(|_| room.subscribe(None, ()).expect("there is room")).collect();
            kept.push((room, subscribers));
        }
        kept[1].0.publish(&Bytes::from_static(b"ebb")).expect("there is room");
        drop(rooms.room("gone"));
        let summary = rooms.summary(3);
        assert_eq!((summary.rooms, summary.members), (4, 5));
        let rows: Vec<_> = summary.largest.iter().map(|row| (row.name.len(), row.members, row.messages)).collect();
        assert_eq!(rows, [(5, 3, 1), (5, 1, 0), (80, 1, 0)]);
    }
}
