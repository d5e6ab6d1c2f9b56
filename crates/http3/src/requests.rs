//! `Requests`: the requests of a connection whose streams are open, and when each of them came.

use std::time::{Duration, Instant};

/// The requests of a connection, in the order of their streams: 12 bytes each, since a connection may have many that wait.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    list: Vec<OpenRequest>,
    /// When the first one came. Times are counted from then.
    begun: Option<Instant>,
}

/// A request whose stream is open.
#[derive(Debug, Clone, Copy)]
struct OpenRequest {
    /// The number of its stream: the upper half, then the lower one.
    stream: [u32; 2],
    /// The milliseconds from the first request to this one, modulo 2³², or [`ANSWERED`].
    came: u32,
}

impl OpenRequest {
    fn number(&self) -> u64 {
        u64::from(self.stream[0]) << 32 | u64::from(self.stream[1])
    }
}

impl Requests {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn contains(&self, stream: u64) -> bool {
        self.find(stream).is_ok()
    }

    /// The streams from this number on, in their order.
    pub(crate) fn from(&self, stream: u64) -> impl Iterator<Item = u64> {
        let (Ok(first) | Err(first)) = self.find(stream);
        self.list[first..].iter().map(OpenRequest::number)
    }

    /// A request comes, or is opened. The first one takes the `spare` list.
    pub(crate) fn insert(&mut self, stream: u64, now: Instant, spare: &mut SpareList) {
        if self.list.capacity() == 0 {
            self.list = std::mem::take(&mut spare.0);
        }
        let begun = *self.begun.get_or_insert(now);
        let came = millis(begun, now);
        let request = OpenRequest { stream: [(stream >> 32) as u32, stream as u32], came };
        match self.find(stream) {
            Ok(at) => self.list[at] = request,
            Err(at) => self.list.insert(at, request),
        }
    }

    /// The response of a request is complete. Returns whether that was not known.
    pub(crate) fn answer(&mut self, stream: u64) -> bool {
        match self.find(stream) {
            Ok(at) => std::mem::replace(&mut self.list[at].came, ANSWERED) != ANSWERED,
            Err(_) => false,
        }
    }

    /// A request is over. Returns its age, unless its response was complete; `None` if it was not there. A short list without
    /// requests becomes the `spare` one.
    pub(crate) fn remove(
        &mut self,
        stream: u64,
        now: Option<Instant>,
        spare: &mut SpareList,
    ) -> Option<Option<Duration>> {
        let at = self.find(stream).ok()?;
        let OpenRequest { came, .. } = self.list.remove(at);
        let age = self.begun.filter(|_| came != ANSWERED).map(|begun| {
            let now = now.map_or(came, |now| millis(begun, now));
            Duration::from_millis(now.wrapping_sub(came).into())
        });
        if self.list.is_empty() {
            // An idle connection keeps no memory for them.
            let list = std::mem::take(self).list;
            if list.capacity() <= SPARE_REQUESTS_MAX {
                spare.0 = list;
            }
        }
        Some(age)
    }

    /// Where a request is, or where it belongs.
    fn find(&self, stream: u64) -> Result<usize, usize> {
        // New requests have the highest number, and most questions are about new ones.
        match self.list.last().map(OpenRequest::number) {
            Some(last) if last == stream => Ok(self.list.len() - 1),
            Some(last) if last > stream => self.list.binary_search_by_key(&stream, OpenRequest::number),
            _ => Err(self.list.len()),
        }
    }
}

/// A short list without requests, which the connections of an endpoint have in turn: most requests are answered before the next
/// one of any connection is read.
#[derive(Debug, Default)]
pub(crate) struct SpareList(Vec<OpenRequest>);

/// The capacity of a list with one request. A longer one is not kept, so that no connection gets more than it needs.
const SPARE_REQUESTS_MAX: usize = 4;

/// The milliseconds from one time to another, which are compared modulo 2³²: 49 days.
fn millis(from: Instant, to: Instant) -> u32 {
    let millis = to.saturating_duration_since(from).as_millis() as u32;
    if millis == ANSWERED { ANSWERED - 1 } else { millis }
}

/// In place of the time: the response is complete. A tunnel that this side has finished with may go on.
const ANSWERED: u32 = u32::MAX;

const _: () = assert!(size_of::<OpenRequest>() == 12);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_by_their_streams_in_whatever_order_they_come_and_go() {
        let begun = Instant::now();
        let at = |millis: u64| begun + Duration::from_millis(millis);
        let (mut requests, mut spare) = (Requests::default(), SpareList::default());
        for (stream, millis) in [(8, 0), (0, 5), (1 << 40, 7), (4, 9)] {
            requests.insert(stream, at(millis), &mut spare);
        }
        assert_eq!(requests.from(0).collect::<Vec<_>>(), [0, 4, 8, 1 << 40]);
        assert_eq!(requests.from(5).collect::<Vec<_>>(), [8, 1 << 40]);
        assert!(requests.contains(4) && !requests.contains(12));
        assert!(requests.answer(8) && !requests.answer(8) && !requests.answer(12));
        assert_eq!(requests.remove(8, Some(at(20)), &mut spare), Some(None), "it was answered");
        assert_eq!(requests.remove(8, Some(at(20)), &mut spare), None);
        assert_eq!(requests.remove(1 << 40, Some(at(20)), &mut spare), Some(Some(Duration::from_millis(13))));
        assert_eq!(requests.remove(0, Some(at(20)), &mut spare), Some(Some(Duration::from_millis(15))));
        assert_eq!(requests.remove(4, None, &mut spare), Some(Some(Duration::ZERO)));
        assert!(requests.is_empty() && requests.list.capacity() == 0);
    }

    #[test]
    fn the_age_of_a_request_outlasts_the_numbers_of_milliseconds() {
        let begun = Instant::now();
        let late = begun + Duration::from_millis(u64::from(u32::MAX) - 3);
        let (mut requests, mut spare) = (Requests::default(), SpareList::default());
        requests.insert(0, begun, &mut spare);
        requests.insert(4, late, &mut spare);
        let age = requests.remove(4, Some(late + Duration::from_secs(1)), &mut spare);
        assert_eq!(age, Some(Some(Duration::from_secs(1))));
    }

    #[test]
    fn a_short_list_without_requests_is_the_next_one_and_a_long_one_is_not_kept() {
        let now = Instant::now();
        let (mut one, mut other, mut spare) = (Requests::default(), Requests::default(), SpareList::default());
        one.insert(0, now, &mut spare);
        let memory = one.list.as_ptr();
        assert_eq!(one.remove(0, None, &mut spare), Some(Some(Duration::ZERO)));
        assert!(one.list.capacity() == 0 && spare.0.capacity() > 0);
        other.insert(4, now, &mut spare);
        assert!(other.list.as_ptr() == memory && spare.0.capacity() == 0);
        (2..=SPARE_REQUESTS_MAX as u64 + 1).for_each(|number| other.insert(4 * number, now, &mut spare));
        for number in 1..=SPARE_REQUESTS_MAX as u64 + 1 {
            assert!(other.remove(4 * number, None, &mut spare).is_some());
        }
        assert!(other.is_empty() && spare.0.capacity() == 0);
    }
}
