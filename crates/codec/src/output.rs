//! `Output`: the outbound queue of a codec, and the current time.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tidegate_buffer::{Cursor, FileRegion, Outbound, Pieces, Pool, Slice, WritePosition};

/// A codec's view of the connection's outbound queue, and of the loop's time.
///
/// Time is an argument: it is constant during one dispatch, and tests set it freely.
///
/// ```
/// use std::time::{Instant, SystemTime};
/// use tidegate::codec::{Outbound, Output, Pool, Time};
///
/// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
/// let mut queue = Outbound::new(&pool);
/// let mut out = Output::new(&mut queue, &pool, &time);
/// out.write(b"Date: ");
/// out.write(time.date());
/// queue.flush();
/// assert_eq!(queue.front(), Some(&b"Date: Thu, 01 Jan 1970 00:00:00 GMT"[..]));
/// ```
#[derive(Debug)]
pub struct Output<'a> {
    queue: &'a mut Outbound,
    pool: &'a Pool,
    time: &'a Time,
    /// Bytes that are not sent yet in the queues of the stages below.
    pending_below: u64,
}

impl<'a> Output<'a> {
    /// Writes go to `queue`, which takes its memory from `pool` if it has no pool yet.
    #[inline]
    pub fn new(queue: &'a mut Outbound, pool: &'a Pool, time: &'a Time) -> Self {
        queue.attach(pool);
        Self::attached(queue, pool, time)
    }

    /// The same for a queue that already has its pool, without a check.
    ///
    /// # Panics
    ///
    /// Every write panics if the queue has none.
    #[inline]
    pub fn attached(queue: &'a mut Outbound, pool: &'a Pool, time: &'a Time) -> Self {
        Self { queue, pool, time, pending_below: 0 }
    }

    /// Appends a copy of `bytes`.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) {
        self.queue.write(bytes);
    }

    /// Appends copies of all `pieces`, one behind the other: the cheapest way to write a message of a few short pieces;
    /// see [`Outbound::write_pieces`].
    #[inline]
    pub fn write_pieces(&mut self, pieces: impl Pieces) {
        self.queue.write_pieces(pieces);
    }

    /// A cursor over at least `length` contiguous bytes: for messages of many short pieces.
    #[inline]
    pub fn writer(&mut self, length: usize) -> Cursor<'_> {
        self.queue.writer(length)
    }

    /// Has `fill` write into `length` contiguous bytes at the end of the queue, and appends as many of them as it
    /// returns; see [`Outbound::write_with`]. A filter encrypts into it.
    ///
    /// # Errors
    /// The error of `fill`; nothing is appended then.
    ///
    /// # Panics
    /// If `fill` returns more than `length`.
    pub fn write_with<E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.queue.write_with(length, fill)
    }

    /// Appends a view, linked if it is large.
    pub fn link(&mut self, slice: Slice) {
        self.queue.link(slice);
    }

    /// Appends a view that many queues share: linked, whatever its size.
    pub fn link_shared(&mut self, slice: Slice) {
        self.queue.link_shared(slice);
    }

    /// Appends shared bytes, linked if there are many.
    pub fn link_bytes(&mut self, bytes: Bytes) {
        self.queue.link_bytes(bytes);
    }

    /// Appends static bytes, linked if there are many.
    pub fn link_static(&mut self, bytes: &'static [u8]) {
        self.queue.link_static(bytes);
    }

    /// Appends a piece of a file.
    pub fn link_file(&mut self, region: FileRegion) {
        self.queue.link_file(region);
    }

    /// Moves the flushed parts of another queue to the end of this one; only short parts are copied once more.
    pub fn take_flushed(&mut self, from: &mut Outbound) {
        self.queue.take_flushed(from);
    }

    /// The same for at most `bytes_max` bytes; returns how many it moved.
    pub fn take_flushed_up_to(&mut self, from: &mut Outbound, bytes_max: u64) -> u64 {
        self.queue.take_flushed_up_to(from, bytes_max)
    }

    /// Bytes written so far.
    #[must_use]
    pub fn written(&self) -> WritePosition {
        self.queue.written()
    }

    /// Bytes that are not sent yet: in this queue, and above a filter also in the queues of the stages below.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.pending_below + self.queue.pending()
    }

    /// The time of this dispatch.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Instant {
        self.time.now
    }

    /// The time of this dispatch with its date; it outlives this view.
    #[must_use]
    #[inline]
    pub fn time(&self) -> &'a Time {
        self.time
    }

    /// The source of the loop's memory.
    #[must_use]
    pub fn pool(&self) -> &'a Pool {
        self.pool
    }

    /// The same time and pool with another queue: a filter passes it to the codec above it.
    #[must_use]
    pub fn with_queue<'b>(&self, queue: &'b mut Outbound) -> Output<'b>
    where
        'a: 'b,
    {
        queue.attach(self.pool);
        Output { queue, pool: self.pool, time: self.time, pending_below: self.pending() }
    }

    /// A second, shorter view of the same queue.
    #[must_use]
    pub fn reborrow(&mut self) -> Output<'_> {
        Output { queue: self.queue, pool: self.pool, time: self.time, pending_below: self.pending_below }
    }
}

/// The time as a loop sees it: read once per iteration, with the HTTP date formatted once a second.
#[derive(Debug, Clone)]
pub struct Time {
    now: Instant,
    date_until: Instant,
    date: [u8; DATE_BYTES],
}

impl Time {
    /// The time `now`, at which the system time is `system_time`.
    #[must_use]
    pub fn new(now: Instant, system_time: SystemTime) -> Self {
        let mut time = Self { now, date_until: now, date: [b' '; DATE_BYTES] };
        time.set_date(system_time);
        time
    }

    /// Moves on to `now`. The system clock is read only when a second has passed.
    #[inline]
    pub fn advance(&mut self, now: Instant, system_time: impl FnOnce() -> SystemTime) {
        self.now = now;
        if now >= self.date_until {
            self.set_date(system_time());
        }
    }

    /// The time of this iteration.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The date in the form of RFC 9110 §5.6.7, `Sun, 06 Nov 1994 08:49:37 GMT`.
    #[must_use]
    #[inline]
    pub fn date(&self) -> &[u8; DATE_BYTES] {
        &self.date
    }

    fn set_date(&mut self, system_time: SystemTime) {
        let since = system_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // The format has no years beyond 9999, and a clock that far off must not cause a panic.
        let seconds = since.as_secs().min(LAST_SECOND);
        let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        self.date.copy_from_slice(text.as_bytes());
        self.date_until = self.now + Duration::from_secs(1) - Duration::from_nanos(u64::from(since.subsec_nanos()));
    }
}

const DATE_BYTES: usize = 29;

/// 9999-12-31 23:59:59.
const LAST_SECOND: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_changes_with_the_second_and_not_before() {
        let (start, system_time) = (Instant::now(), SystemTime::UNIX_EPOCH + Duration::from_millis(1_500));
        let mut time = Time::new(start, system_time);
        assert_eq!(&time.date()[17..25], b"00:00:01");
        time.advance(start + Duration::from_millis(499), || unreachable!("no second has passed"));
        time.advance(start + Duration::from_millis(500), || system_time + Duration::from_millis(500));
        assert_eq!(&time.date()[17..25], b"00:00:02");
    }

    #[test]
    fn a_clock_that_jumps_changes_the_date_alone() {
        let (mut now, noon) = (Instant::now(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        let mut time = Time::new(now, noon);
        let (day, year) = (Duration::from_secs(86_400), Duration::from_secs(365 * 86_400));
        for jumped in [noon - day, noon + 10 * year, SystemTime::UNIX_EPOCH, noon - year, noon] {
            now += Duration::from_secs(1);
            time.advance(now, || jumped);
            assert_eq!(time.date()[..], *httpdate::fmt_http_date(jumped).as_bytes());
            // The time of deadlines goes on, and the clock is read again after a second, however far it jumped.
            assert_eq!(time.now(), now);
            time.advance(now + Duration::from_millis(999), || unreachable!("no second has passed"));
            time.advance(now + Duration::from_secs(1), || jumped + Duration::from_secs(1));
            assert_eq!(time.date()[..], *httpdate::fmt_http_date(jumped + Duration::from_secs(1)).as_bytes());
            now += Duration::from_secs(1);
        }
    }

    #[test]
    fn a_wall_clock_out_of_range_is_no_panic() {
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(&Time::new(Instant::now(), far).date()[12..16], b"9999");
        let early = SystemTime::UNIX_EPOCH - Duration::from_secs(10);
        assert_eq!(&Time::new(Instant::now(), early).date()[12..16], b"1970");
    }
}
