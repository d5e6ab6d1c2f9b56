//! `RefusedRequests`: requests that the server did not process, so that they are sent again (RFC 9113 §8.7, RFC 9114 §4.1.1).
//!
//! Such a request is no error: its latency starts when it was sent first, and it counts as in flight until it is over. Each loop
//! has its own queue, and the next connection of that loop with a free stream takes the request.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// A request before it is sent on a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DueRequest {
    /// When it was due with a rate, or was sent first. `None` for a first sending without a rate: latency starts then.
    pub(crate) begun: Option<Instant>,
    /// The place in the list of requests, of one that is sent again. `None`: the next request in turn.
    pub(crate) place: Option<usize>,
    /// How often the server has refused it.
    pub(crate) refusals: u32,
}

impl DueRequest {
    /// The next request in turn.
    pub(crate) fn at(begun: Option<Instant>) -> Self {
        Self { begun, ..Self::default() }
    }

    /// The server has not processed it: the request to send again. `None` if the server has refused it too often, which is an
    /// error.
    pub(crate) fn again(self, begun: Instant, place: usize) -> Option<Self> {
        let again = Self { begun: Some(begun), place: Some(place), refusals: self.refusals + 1 };
        (again.refusals <= REFUSALS_MAX).then_some(again)
    }

    /// Whether it was sent before.
    pub(crate) fn is_again(&self) -> bool {
        self.refusals > 0
    }
}

/// The requests of one loop that are to be sent again, oldest first: otherwise new requests could get the streams that the server
/// serves before each GOAWAY.
#[derive(Debug, Default)]
pub(crate) struct RefusedRequests(RefCell<BinaryHeap<Reverse<DueRequest>>>);

impl RefusedRequests {
    pub(crate) fn push(&self, request: DueRequest) {
        self.0.borrow_mut().push(Reverse(request));
    }

    pub(crate) fn pop(&self) -> Option<DueRequest> {
        self.0.borrow_mut().pop().map(|Reverse(request)| request)
    }
}

/// A request that is refused more often is an error. A restart refuses a request once; a server that refuses everything stays
/// visible.
const REFUSALS_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_request_is_sent_again_until_it_was_refused_too_often() {
        let begun = Instant::now();
        let later = begun + Duration::from_secs(1);
        let mut request = DueRequest::at(None);
        assert!(!request.is_again());
        for refusals in 1..=REFUSALS_MAX {
            request = request.again(begun, 3).expect("it may be sent again");
            assert_eq!(request, DueRequest { begun: Some(begun), place: Some(3), refusals });
        }
        assert_eq!(request.again(begun, 3), None);
        let queue = RefusedRequests::default();
        [later, begun].into_iter().for_each(|at| queue.push(DueRequest::at(Some(at))));
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()].map(|request| request?.begun),
            [Some(begun), Some(later), None]
        );
    }
}
