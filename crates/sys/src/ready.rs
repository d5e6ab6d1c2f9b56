//! Which socket reports next: light sockets before heavy ones.
//!
//! A socket is heavy while its operations move many bytes: a receive brings 3 KiB or more, a send takes 8 KiB or more, or
//! the kernel has no room for one. A driver keeps two queues. The loop serves all light sockets first, and heavy ones
//! in what is left of the turn ([`Driver::next`](crate::Driver::next), [`Driver::next_heavy`](crate::Driver::next_heavy)).
//! So the latency of a light connection does not depend on the number of heavy ones.
//!
//! Both types are here for drivers, and both drivers and the simulated network use them, so the policy is one.

use std::collections::VecDeque;

/// How many bytes the operations of a socket have moved lately. One byte.
///
/// ```
/// use tidegate_sys::Load;
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
    /// Takes note of a receive of so many bytes.
    pub fn note_received(&mut self, bytes: usize) {
        self.note(bytes >= HEAVY_RECEIVE_BYTES);
    }

    /// Takes note of a send of so many bytes.
    pub fn note_sent(&mut self, bytes: usize) {
        // A server may speak first: that says nothing of what it will receive.
        if !self.is_new() || bytes >= HEAVY_SEND_BYTES {
            self.note(bytes >= HEAVY_SEND_BYTES);
        }
    }

    /// Takes note that the kernel has no room for what is to be sent.
    pub fn note_blocked(&mut self) {
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

    fn note(&mut self, much: bool) {
        self.0 = if much { LIGHT + LIGHT_OPERATIONS } else { self.0.saturating_sub(1).max(LIGHT) };
    }
}

/// The sockets of a driver that have something to report. The driver sees to it that each is in here at most once.
#[derive(Debug)]
pub struct ReadyQueue<T> {
    light: Queue<T>,
    heavy: Queue<T>,
    /// The first heavy socket of this turn was asked for.
    serves_heavy: bool,
}

/// Sockets in the order in which they report, and how many of them report in this turn.
#[derive(Debug)]
struct Queue<T> {
    sockets: VecDeque<T>,
    turn: usize,
}

impl<T> Default for ReadyQueue<T> {
    fn default() -> Self {
        Self { light: Queue::new(), heavy: Queue::new(), serves_heavy: false }
    }
}

impl<T> ReadyQueue<T> {
    /// Queues a socket behind those of its weight.
    pub fn push(&mut self, socket: T, load: Load) {
        let queue = if load.is_heavy() { &mut self.heavy } else { &mut self.light };
        queue.sockets.push_back(socket);
    }

    /// Queues a socket before all others of its weight. It reports in this turn.
    pub fn push_next(&mut self, socket: T, load: Load) {
        let queue = if load.is_heavy() { &mut self.heavy } else { &mut self.light };
        queue.sockets.push_front(socket);
        queue.turn += 1;
    }

    /// Begins a turn. A light socket that is queued within the turn reports in the next one.
    pub fn begin_turn(&mut self) {
        self.light.turn = self.light.sockets.len().min(LIGHT_SOCKETS_PER_TURN_MAX);
        self.serves_heavy = false;
    }

    /// The next light socket of this turn.
    pub fn next_light(&mut self) -> Option<T> {
        self.light.next()
    }

    /// The next heavy socket of this turn: of those that were queued before the first of them was asked for.
    pub fn next_heavy(&mut self) -> Option<T> {
        if !self.serves_heavy {
            self.serves_heavy = true;
            self.heavy.turn = self.heavy.sockets.len();
        }
        self.heavy.next()
    }

    /// Whether a heavy socket has something to report.
    #[must_use]
    pub fn has_heavy(&self) -> bool {
        !self.heavy.sockets.is_empty()
    }

    /// Sockets in both queues.
    #[must_use]
    pub fn len(&self) -> usize {
        self.light.sockets.len() + self.heavy.sockets.len()
    }

    /// Whether no socket has anything to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sockets of each queue, in order: for a driver that reorders them.
    pub fn make_contiguous(&mut self) -> [&mut [T]; 2] {
        [self.light.sockets.make_contiguous(), self.heavy.sockets.make_contiguous()]
    }
}

impl<T> Queue<T> {
    const fn new() -> Self {
        Self { sockets: VecDeque::new(), turn: 0 }
    }

    fn next(&mut self) -> Option<T> {
        self.turn = self.turn.checked_sub(1)?;
        self.sockets.pop_front()
    }
}

/// A receive of so many bytes makes a socket heavy.
pub(crate) const HEAVY_RECEIVE_BYTES: usize = 3 * 1024;

/// A send of so many bytes makes a socket heavy.
pub(crate) const HEAVY_SEND_BYTES: usize = 8 * 1024;

/// So many light operations in a row make a heavy socket light again.
const LIGHT_OPERATIONS: u8 = 8;

/// Light sockets that report in one turn; the others keep their place.
const LIGHT_SOCKETS_PER_TURN_MAX: usize = 1024;

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
        assert!(load.is_new() && !load.is_heavy(), "a server spoke first");
        load.note_received(HEAVY_RECEIVE_BYTES - 1);
        assert!(!load.is_new() && !load.is_heavy());
        for much in 0..3 {
            match much {
                0 => load.note_blocked(),
                1 => load.note_sent(HEAVY_SEND_BYTES),
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
    fn a_turn_has_the_sockets_that_were_queued_before_it_came_to_them() {
        let mut ready = ReadyQueue::default();
        ready.push('h', heavy());
        ready.push('a', Load::default());
        ready.begin_turn();
        ready.push('b', Load::default());
        ready.push('i', heavy());
        ready.push_next('n', Load::default());
        assert_eq!([ready.next_light(), ready.next_light(), ready.next_light()], [Some('n'), Some('a'), None]);
        assert_eq!(ready.next_heavy(), Some('h'));
        ready.push('j', heavy());
        assert_eq!([ready.next_heavy(), ready.next_heavy()], [Some('i'), None]);
        assert_eq!(ready.len(), 2);
        ready.begin_turn();
        assert_eq!((ready.next_light(), ready.next_heavy()), (Some('b'), Some('j')));
        assert!(ready.is_empty());
    }

    #[test]
    fn the_light_sockets_of_a_turn_are_bounded() {
        let mut ready = ReadyQueue::default();
        (0..2 * LIGHT_SOCKETS_PER_TURN_MAX).for_each(|socket| ready.push(socket, Load::default()));
        ready.begin_turn();
        assert_eq!(std::iter::from_fn(|| ready.next_light()).count(), LIGHT_SOCKETS_PER_TURN_MAX);
    }
}
