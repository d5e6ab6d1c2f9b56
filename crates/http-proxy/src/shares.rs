//! `Shares`: the requests that an upstream has in progress for each client address.
//!
//! A table costs each request a lock and two look-ups, which matter only near a limit. So the first requests in progress, an
//! eighth of a share, are in no table. Each client has to count them as its own: no client gets more than its share, and one
//! gets an eighth less at worst.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    clients: HashMap<u64, u32, RandomState>,
    /// Of all clients.
    total: u32,
}

impl Shares {
    /// Whether a request that begins while so many others are in progress is in the table.
    #[inline]
    pub(super) fn counts(others: u32, share: u32) -> bool {
        others >= share / UNCOUNTED_PER_SHARE
    }

    #[cold]
    pub(super) fn add(&self, client: u64) {
        let mut table = self.lock();
        *table.clients.entry(client).or_default() += 1;
        table.total += 1;
    }

    #[cold]
    pub(super) fn remove(&self, client: u64) {
        let mut table = self.lock();
        let Entry::Occupied(mut count) = table.clients.entry(client) else { return };
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
        table.total -= 1;
    }

    /// The most requests that a client may have among `active` ones.
    #[cold]
    pub(super) fn of_client_at_most(&self, client: u64, active: u32) -> u32 {
        let table = self.lock();
        active.saturating_sub(table.total) + table.clients.get(&client).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const UNCOUNTED_PER_SHARE: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins requests of a client while there is room, in a share of so many, and returns how many did.
    fn fill(shares: &Shares, active: &mut u32, client: u64, share: u32) -> u32 {
        let begun = (0..).take_while(|_| {
            let has_room = *active < share || shares.of_client_at_most(client, *active) < share;
            if has_room {
                if Shares::counts(*active, share) {
                    shares.add(client);
                }
                *active += 1;
            }
            has_room
        });
        begun.count() as u32
    }

    #[test]
    fn no_client_gets_more_than_its_share_and_each_gets_most_of_it() {
        for (share, least) in [(1, 1), (4, 4), (7, 7), (16, 14), (512, 448)] {
            let (shares, mut active) = (Shares::default(), 0);
            let got: Vec<_> = (1..=3).map(|client| fill(&shares, &mut active, client, share)).collect();
            assert_eq!(got, [share, least, least], "a share of {share}");
        }
    }

    #[test]
    fn the_table_keeps_nothing_of_clients_without_requests() {
        let shares = Shares::default();
        (0..4).for_each(|client| shares.add(client % 2));
        (0..4).for_each(|client| shares.remove(client % 2));
        let table = shares.lock();
        assert_eq!((table.clients.len(), table.total), (0, 0));
    }
}
