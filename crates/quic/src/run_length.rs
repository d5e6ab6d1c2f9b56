//! `RunLength`: how many datagrams of a connection leave as one run.

use std::time::Duration;

/// The length of a connection's next run. It doubles while runs are full, up to the datagrams that congestion control permits
/// in a time: Linux sizes the runs of TCP so. A run that is not full halves it, so that an idle connection has no long buffer.
#[derive(Debug, Default)]
pub(crate) struct RunLength(u16);

impl RunLength {
    /// The most datagrams of the next run, `least` or more. A connection sends a `window` in each `round_trip`.
    pub(crate) fn datagrams_max(
        &self,
        least: u16,
        time: Duration,
        (window, round_trip): (u64, Duration),
        datagram_bytes: u16,
    ) -> usize {
        let datagram_bytes = u64::from(datagram_bytes.max(1));
        // The datagrams of a path with a large MTU: fewer fill a run.
        let least = u64::from(least).min(RUN_BYTES_MAX / datagram_bytes).max(1);
        if u64::from(self.0) <= least {
            return least as usize;
        }
        let bytes = u128::from(window).saturating_mul(time.as_nanos()) / round_trip.as_nanos().max(1);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).min(RUN_BYTES_MAX);
        let most = (bytes / datagram_bytes).clamp(least, self.0.into());
        most as usize
    }

    /// A run had `sent` datagrams, of at most `most`.
    pub(crate) fn note(&mut self, sent: usize, most: usize) {
        let next = if sent < most { most / 2 } else { most * 2 };
        self.0 = u16::try_from(next).unwrap_or(u16::MAX);
    }
}

/// The bytes of a run. The kernel splits one of a little more.
const RUN_BYTES_MAX: u64 = 64_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The lengths of full runs in a row.
    fn full_runs(time: Duration, window: u64, round_trip: Duration) -> Vec<usize> {
        let mut length = RunLength::default();
        let runs = (0..5).map(|_| {
            let most = length.datagrams_max(8, time, (window, round_trip), 1_400);
            length.note(most, most);
            most
        });
        runs.collect()
    }

    #[test]
    fn runs_grow_to_what_a_fast_connection_sends_in_a_millisecond() {
        // 512 KB a millisecond: the bytes of a run are the bound.
        assert_eq!(full_runs(MS, 512_000, MS), [8, 16, 32, 45, 45]);
        // 28 KB a millisecond.
        assert_eq!(full_runs(MS, 280_000, 10 * MS), [8, 16, 20, 20, 20]);
        assert_eq!(full_runs(MS, u64::MAX, Duration::ZERO), [8, 16, 32, 45, 45]);
    }

    #[test]
    fn runs_of_a_slow_connection_stay_short() {
        // 10 KB a millisecond.
        assert_eq!(full_runs(MS, 500_000, 50 * MS), [8; 5]);
        assert_eq!(full_runs(Duration::ZERO, 512_000, MS), [8; 5]);
    }

    #[test]
    fn a_run_has_fewer_datagrams_if_they_are_long() {
        for (length, datagram_bytes) in [(0, 9_000), (45, 9_000), (0, 65_527)] {
            let most = RunLength(length).datagrams_max(8, MS, (512_000, MS), datagram_bytes);
            assert_eq!(most, if datagram_bytes == 9_000 { 7 } else { 1 }, "{length}, {datagram_bytes}");
        }
    }

    #[test]
    fn a_run_that_is_not_full_makes_the_next_one_shorter() {
        let mut length = RunLength::default();
        length.note(40, 40);
        let mut next = || {
            let most = length.datagrams_max(8, MS, (512_000, MS), 1_400);
            length.note(3, most);
            most
        };
        assert_eq!([next(), next(), next(), next()], [45, 22, 11, 8]);
    }
}
