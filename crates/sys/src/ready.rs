//! Which socket reports next: light sockets before new ones, and those before heavy ones.
//!
//! A socket is heavy while its operations move many bytes: a receive brings 3 KiB or more, a send takes 8 KiB or more,
//! or the kernel has no room for one. It is heavy as well while its bytes cause much work, such as decompression. A driver keeps a queue for each [`Class`], and the loop serves one after the
//! other, each for a bounded time ([`Driver::next`](crate::Driver::next)). So the latency of a light connection depends
//! neither on the number of heavy ones nor on a crowd that connects.
//!
//! The types are here for drivers, and both drivers and the simulated network use them, so the policy is one.

use std::collections::VecDeque;

/// Whether the recent operations of a socket moved many bytes. One byte.
///
/// ```
/// use tidegate::sys::Load;
///
/// let mut load = Load::default();
/// load.note_received(100);
/// assert!(!load.is_heavy());
/// load.note_sent(64 * 1024);
/// assert!(load.is_heavy());
/// for _ in 0..8 {
///     load.note_received(100);
/// }
/// assert!(!load.is_heavy());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load(u8);

impl Load {
    /// A light one.
    pub const LIGHT: Self = Self(LIGHT);

    /// Records a receive of so many bytes.
    pub fn note_received(&mut self, bytes: usize) {
        self.note(bytes >= HEAVY_RECEIVE_BYTES);
    }

    /// Records a send of so many bytes.
    pub fn note_sent(&mut self, bytes: usize) {
        // A server may send first, which does not show how much it will receive.
        if !self.is_new() || bytes >= HEAVY_SEND_BYTES {
            self.note(bytes >= HEAVY_SEND_BYTES);
        }
    }

    /// Records that the kernel has no room for a send.
    pub fn note_blocked(&mut self) {
        self.note(true);
    }

    /// Records that the last bytes that were received have caused much work.
    pub fn note_work(&mut self) {
        self.note(true);
    }

    /// Whether the socket waits behind light ones.
    #[must_use]
    pub const fn is_heavy(self) -> bool {
        self.0 > LIGHT
    }

    /// Whether nothing was received yet, and no large send made the socket heavy.
    #[must_use]
    pub const fn is_new(self) -> bool {
        self.0 == NEW
    }

    /// The class of a connection of this load.
    #[must_use]
    pub const fn class(self) -> Class {
        match self.0 {
            NEW => Class::New,
            LIGHT => Class::Light,
            _ => Class::Heavy,
        }
    }

    fn note(&mut self, heavy: bool) {
        self.0 = if heavy { LIGHT + LIGHT_OPERATIONS } else { self.0.saturating_sub(1).max(LIGHT) };
    }
}

/// The part of a turn in which a socket reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Connections that move few bytes, and everything that is not about the bytes of a connection.
    Light,
    /// Listeners: a bounded number of connections is accepted in a turn.
    Listener,
    /// Connections that have not received yet. A crowd that connects does not delay the established connections.
    New,
    /// Connections that move many bytes.
    Heavy,
}

impl Class {
    /// All of them, in the order in which a turn serves them.
    pub const ALL: [Self; 4] = [Self::Light, Self::Listener, Self::New, Self::Heavy];
}

/// The sockets of a driver that have something to report. The driver ensures that each is in here at most once.
#[derive(Debug)]
pub struct ReadyQueue<T>([Queue<T>; Class::ALL.len()]);

/// Sockets in the order in which they report, and the number of reports left in this turn, which is `None` before the
/// first.
#[derive(Debug)]
struct Queue<T> {
    sockets: VecDeque<T>,
    left: Option<usize>,
}

impl<T> Default for ReadyQueue<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Queue { sockets: VecDeque::new(), left: None }))
    }
}

impl<T> ReadyQueue<T> {
    /// Queues a connection behind those of its class.
    pub fn push(&mut self, socket: T, load: Load) {
        self.0[load.class() as usize].sockets.push_back(socket);
    }

    /// Queues a listener.
    pub fn push_listener(&mut self, socket: T) {
        self.0[Class::Listener as usize].sockets.push_back(socket);
    }

    /// Queues a connection before all others of its class. It reports in this turn.
    pub fn push_next(&mut self, socket: T, load: Load) {
        let queue = &mut self.0[load.class() as usize];
        queue.sockets.push_front(socket);
        if let Some(left) = &mut queue.left {
            *left += 1;
        }
    }

    /// Begins a turn.
    pub fn begin_turn(&mut self) {
        self.0.iter_mut().for_each(|queue| queue.left = None);
    }

    /// The next socket of a class in this turn. A connection that is queued after the first call for its class reports
    /// in the next turn. For listeners the number of reports in a turn is bounded instead.
    pub fn next(&mut self, class: Class) -> Option<T> {
        let queue = &mut self.0[class as usize];
        let count = queue.sockets.len();
        let left = queue.left.get_or_insert(match class {
            Class::Light => count.min(LIGHT_SOCKETS_PER_TURN_MAX),
            Class::Listener => ACCEPTS_PER_TURN_MAX,
            Class::New | Class::Heavy => count,
        });
        *left = left.checked_sub(1)?;
        queue.sockets.pop_front()
    }

    /// Whether a heavy socket has something to report.
    #[must_use]
    pub fn has_heavy(&self) -> bool {
        !self.0[Class::Heavy as usize].sockets.is_empty()
    }

    /// The number of sockets of all classes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|queue| queue.sockets.len()).sum()
    }

    /// Whether no socket has anything to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|queue| queue.sockets.is_empty())
    }

    /// The sockets of each class, in order: for a driver that reorders them.
    pub fn orders(&mut self) -> impl Iterator<Item = &mut [T]> {
        self.0.iter_mut().map(|queue| queue.sockets.make_contiguous())
    }
}

/// A receive of this many bytes makes a socket heavy.
pub(crate) const HEAVY_RECEIVE_BYTES: usize = 3 * 1024;

/// A send of this many bytes makes a socket heavy.
pub(crate) const HEAVY_SEND_BYTES: usize = 8 * 1024;

/// This many light operations in a row make a heavy socket light again.
const LIGHT_OPERATIONS: u8 = 8;

/// The most light sockets that report in one turn; the others keep their place.
const LIGHT_SOCKETS_PER_TURN_MAX: usize = 1024;

/// The most connections that are accepted in one turn, from all listeners.
const ACCEPTS_PER_TURN_MAX: usize = 64;

const NEW: u8 = 0;
const LIGHT: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn heavy() -> Load {
        let mut load = Load::default();
        load.note_blocked();
        load
    }

    #[test]
    fn a_socket_is_heavy_until_eight_light_operations_in_a_row() {
        let mut load = Load::default();
        load.note_sent(HEAVY_SEND_BYTES - 1);
        assert!(load.is_new() && !load.is_heavy(), "a server sent first");
        load.note_received(HEAVY_RECEIVE_BYTES - 1);
        assert!(!load.is_new() && !load.is_heavy());
        for much in 0..4 {
            match much {
                0 => load.note_blocked(),
                1 => load.note_sent(HEAVY_SEND_BYTES),
                2 => load.note_work(),
                _ => load.note_received(HEAVY_RECEIVE_BYTES),
            }
            for _ in 1..LIGHT_OPERATIONS {
                load.note_received(1);
                assert!(load.is_heavy());
            }
            load.note_sent(1);
            assert!(!load.is_heavy() && !load.is_new());
        }
    }

    #[test]
    fn a_turn_serves_the_sockets_queued_before_the_first_call_for_their_class() {
        let mut ready = ReadyQueue::default();
        ready.push('h', heavy());
        ready.push('a', Load::LIGHT);
        ready.begin_turn();
        assert_eq!(ready.next(Class::Light), Some('a'));
        ready.push('b', Load::LIGHT);
        ready.push('i', heavy());
        ready.push_next('n', Load::LIGHT);
        assert_eq!([ready.next(Class::Light), ready.next(Class::Light)], [Some('n'), None]);
        assert_eq!(ready.next(Class::Heavy), Some('h'));
        ready.push('j', heavy());
        assert_eq!([ready.next(Class::Heavy), ready.next(Class::Heavy)], [Some('i'), None]);
        assert_eq!(ready.len(), 2);
        ready.begin_turn();
        assert_eq!(Class::ALL.map(|class| ready.next(class)), [Some('b'), None, None, Some('j')]);
        assert!(ready.is_empty());
    }

    #[test]
    fn a_socket_is_new_until_something_was_received() {
        let mut ready = ReadyQueue::default();
        ready.push('n', Load::default());
        ready.push_listener('l');
        assert_eq!(Class::ALL.map(|class| ready.next(class)), [None, Some('l'), Some('n'), None]);
    }

    #[test]
    fn light_sockets_and_accepts_of_a_turn_are_bounded_and_listeners_take_turns() {
        let mut ready = ReadyQueue::default();
        (0..2 * LIGHT_SOCKETS_PER_TURN_MAX).for_each(|socket| ready.push(socket, Load::LIGHT));
        ready.begin_turn();
        assert_eq!(std::iter::from_fn(|| ready.next(Class::Light)).count(), LIGHT_SOCKETS_PER_TURN_MAX);
        ready.push_listener(1);
        ready.push_listener(2);
        let accepts = std::iter::from_fn(|| {
            let listener = ready.next(Class::Listener)?;
            ready.push_listener(listener);
            Some(listener)
        });
        assert!(accepts.take(1000).eq([1, 2].into_iter().cycle().take(ACCEPTS_PER_TURN_MAX)));
    }
}
