//! `Subscribers`: those of one channel in eight bytes; `GroupTable`: the groups of channels that have several.

use tidegate_engine::Group;

/// The only subscriber of a channel or pattern, or the number of its groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscribers(u64);

impl Subscribers {
    /// A connection alone. Numbers of connections count from 1, so they never reach the bit.
    pub(super) fn sole(client_id: u64) -> Self {
        debug_assert!(client_id & IN_GROUPS == 0);
        Self(client_id)
    }

    /// The subscribers are in these groups.
    pub(super) fn in_groups(number: usize) -> Self {
        Self(number as u64 | IN_GROUPS)
    }

    /// The number of the groups, if there are some.
    pub(super) fn groups(self) -> Option<usize> {
        (self.0 & IN_GROUPS != 0).then_some((self.0 & !IN_GROUPS) as usize)
    }

    /// The only subscriber, if there are no groups.
    pub(super) fn client_id(self) -> Option<u64> {
        (self.0 & IN_GROUPS == 0).then_some(self.0)
    }
}

const IN_GROUPS: u64 = 1 << 63;

/// The subscribers of a channel or a pattern that has, or had, several.
pub(super) struct SubscriberGroups<C> {
    /// The connection that was the first, and is in no group.
    pub(super) sole: Option<u64>,
    /// The connections in the groups.
    pub(super) count: usize,
    pub(super) resp2: Option<Group<C>>,
    pub(super) resp3: Option<Group<C>>,
}

impl<C> Default for SubscriberGroups<C> {
    fn default() -> Self {
        Self { sole: None, count: 0, resp2: None, resp3: None }
    }
}

/// Groups by number.
pub(super) struct GroupTable<C> {
    places: Vec<SubscriberGroups<C>>,
    free: Vec<usize>,
}

impl<C> Default for GroupTable<C> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<C> GroupTable<C> {
    /// Adds groups, and returns their number.
    pub(super) fn add(&mut self, groups: SubscriberGroups<C>) -> usize {
        if let Some(number) = self.free.pop() {
            self.places[number] = groups;
            return number;
        }
        self.places.push(groups);
        self.places.len() - 1
    }

    /// The groups with this number, which [`add`](Self::add) has returned.
    pub(super) fn of(&mut self, number: usize) -> &mut SubscriberGroups<C> {
        &mut self.places[number]
    }

    pub(super) fn get(&self, number: usize) -> Option<&SubscriberGroups<C>> {
        self.places.get(number)
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.places[number] = SubscriberGroups::default();
        self.free.push(number);
        if self.free.len() == self.places.len() {
            *self = Self::default();
        }
    }
}
