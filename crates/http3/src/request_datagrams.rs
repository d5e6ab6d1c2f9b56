//! HTTP datagrams (RFC 9297 §2) of requests that are no sessions of WebTransport: their queues, and the methods of `Endpoint`
//! about them.
//!
//! A task that wants the datagrams of a request begins to read them. Those that come before wait with a bound for all requests
//! of the connection: a client may send them with its request, and the function that accepts it may take a while.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use tidegate_codec::{DatagramQueue, DatagramRefused, SessionNumber, StreamEndpoint, StreamNumber};

use crate::endpoint::Endpoint;
use crate::error::ErrorCode;
use crate::limits::HttpDatagramLimits;
use crate::{datagram, varint};

/// The datagrams of a connection's requests.
#[derive(Debug)]
pub(crate) struct RequestDatagrams {
    /// Those of requests with a reader.
    queues: HashMap<u64, RequestQueue>,
    /// Those of requests without one.
    early: VecDeque<(u64, Bytes)>,
    early_bytes: usize,
    /// Those of the queues.
    queued_bytes: usize,
    /// Bytes in the sum of the endpoint.
    pub(crate) counted: usize,
}

#[derive(Debug, Default)]
struct RequestQueue {
    datagrams: DatagramQueue,
    waker: Option<Waker>,
}

impl RequestQueue {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Default for RequestDatagrams {
    fn default() -> Self {
        let (queues, early) = (HashMap::new(), VecDeque::new());
        Self { queues, early, early_bytes: 0, queued_bytes: 0, counted: 0 }
    }
}

impl RequestDatagrams {
    /// A task reads the datagrams of a request from now on. Returns how many were dropped.
    fn begin(&mut self, stream: u64, limits: HttpDatagramLimits) -> u64 {
        let early = self.take_early(stream);
        self.queues.entry(stream).or_default();
        early.map(|payload| self.push(stream, &payload, limits)).sum()
    }

    /// Bytes of all datagrams.
    pub(crate) fn bytes(&self) -> usize {
        self.queued_bytes + self.early_bytes
    }

    /// Drops all datagrams. Returns how many there were.
    pub(crate) fn clear(&mut self) -> u64 {
        let early = std::mem::take(&mut self.early).len() as u64;
        (self.early_bytes, self.queued_bytes) = (0, 0);
        early + self.queues.values_mut().map(|queue| queue.datagrams.clear()).sum::<u64>()
    }

    /// Adds a datagram to the queue of a reader. Returns how many were dropped.
    fn push(&mut self, stream: u64, payload: &[u8], limits: HttpDatagramLimits) -> u64 {
        let others = self.bytes();
        let Some(queue) = self.queues.get_mut(&stream) else { return 1 };
        let before = queue.datagrams.bytes();
        let room = (limits.connection_bytes_max as usize).saturating_sub(others - before);
        let dropped = queue.datagrams.push(payload, room.min(limits.request_bytes_max as usize));
        self.queued_bytes = self.queued_bytes - before + queue.datagrams.bytes();
        dropped
    }

    /// The oldest datagram of a reader. `None` without one.
    fn pop(&mut self, stream: u64) -> Option<Option<Bytes>> {
        let queue = self.queues.get_mut(&stream)?;
        let before = queue.datagrams.bytes();
        let datagram = queue.datagrams.pop();
        self.queued_bytes = self.queued_bytes - before + queue.datagrams.bytes();
        Some(datagram)
    }

    /// The datagrams of a request that came before their reader.
    pub(crate) fn take_early(&mut self, stream: u64) -> impl Iterator<Item = Bytes> + use<> {
        let (of_request, others) = std::mem::take(&mut self.early).into_iter().partition(|(of, _)| *of == stream);
        self.early = others;
        let of_request: VecDeque<(u64, Bytes)> = of_request;
        self.early_bytes -= of_request.iter().map(|(_, payload)| payload.len() + EARLY_ENTRY_BYTES).sum::<usize>();
        of_request.into_iter().map(|(_, payload)| payload)
    }

    /// A request is over, or no task reads its datagrams.
    fn end(&mut self, stream: u64) {
        self.early.retain(|(of, payload)| {
            let stays = *of != stream;
            if !stays {
                self.early_bytes -= payload.len() + EARLY_ENTRY_BYTES;
            }
            stays
        });
        if let Some(mut queue) = self.queues.remove(&stream) {
            self.queued_bytes -= queue.datagrams.bytes();
            queue.wake();
        }
    }

    /// Adds a datagram of a request that `may_be_read`. Returns how many were dropped.
    fn add(&mut self, stream: u64, payload: &[u8], limits: HttpDatagramLimits, may_be_read: bool) -> u64 {
        if let Some(queue) = self.queues.get_mut(&stream) {
            queue.wake();
            return self.push(stream, payload, limits);
        }
        let of_connection = (limits.connection_bytes_max as usize).saturating_sub(self.queued_bytes);
        let (bytes, bytes_max) =
            (payload.len() + EARLY_ENTRY_BYTES, of_connection.min(limits.early_bytes_max as usize));
        if !may_be_read || bytes > bytes_max {
            return 1;
        }
        let mut dropped = 0;
        while self.early_bytes + bytes > bytes_max
            && let Some((_, oldest)) = self.early.pop_front()
        {
            self.early_bytes -= oldest.len() + EARLY_ENTRY_BYTES;
            dropped += 1;
        }
        self.early_bytes += bytes;
        self.early.push_back((stream, Bytes::copy_from_slice(payload)));
        dropped
    }
}

impl Drop for RequestDatagrams {
    fn drop(&mut self) {
        self.queues.values_mut().for_each(RequestQueue::wake);
    }
}

/// The HTTP datagrams of requests. The configuration has to [accept](crate::Config::datagrams) them.
impl<E: StreamEndpoint> Endpoint<E> {
    /// A task reads the datagrams of a request from now on, until the stream of the request closes, or
    /// [`end_datagrams`](Self::end_datagrams).
    ///
    /// # Errors
    /// The code of a request that is over, or whose connection has no datagrams.
    pub fn begin_datagrams(&mut self, request: StreamNumber) -> Result<(), ErrorCode> {
        if !self.config.accepts_datagrams() {
            return Err(ErrorCode::REQUEST_REJECTED);
        }
        let limits = self.config.limits_of_datagrams();
        let session = self.sessions.get_mut(&request.session).ok_or(ErrorCode::REQUEST_CANCELLED)?;
        if !session.requests.contains(request.stream) {
            return Err(ErrorCode::REQUEST_CANCELLED);
        }
        self.datagrams_dropped += session.datagrams.get_or_insert_default().begin(request.stream, limits);
        self.count_datagrams(request.session);
        Ok(())
    }

    /// No task reads the datagrams of a request any more: later ones wait as those that come before a reader do.
    pub fn end_datagrams(&mut self, request: StreamNumber) {
        if let Some(datagrams) = self.request_datagrams(request.session) {
            datagrams.end(request.stream);
            self.count_datagrams(request.session);
        }
    }

    /// The oldest datagram of a request that was not read, or a promise to wake the task; one task of a request waits at a time.
    /// `None` once the request is over.
    pub fn poll_datagram_of_request(&mut self, request: StreamNumber, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let Some(datagrams) = self.request_datagrams(request.session) else { return Poll::Ready(None) };
        let Some(popped) = datagrams.pop(request.stream) else { return Poll::Ready(None) };
        if popped.is_some() {
            self.count_datagrams(request.session);
            return Poll::Ready(popped);
        }
        if let Some(queue) = datagrams.queues.get_mut(&request.stream) {
            queue.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Sends a datagram of a request, whose payload is these parts in a row; see [`StreamEndpoint::send_datagram`].
    ///
    /// # Errors
    /// [`DatagramRefused`]; [`DatagramRefused::Unsupported`] as well until the peer's SETTINGS have come (RFC 9297 §2.1.1).
    pub fn send_datagram_of_request(
        &mut self,
        request: StreamNumber,
        payload: &[&[u8]],
    ) -> Result<(), DatagramRefused> {
        if !self.exchanges_datagrams(request.session) {
            return Err(DatagramRefused::Unsupported);
        }
        self.send_parts(request, payload)
    }

    /// How many bytes a datagram of a request may have now. `None` if one of the two sides does not accept datagrams, and until
    /// the peer's SETTINGS have come.
    pub fn datagram_bytes_max_of_request(&mut self, request: StreamNumber) -> Option<usize> {
        if self.exchanges_datagrams(request.session) { self.payload_bytes_max(request) } else { None }
    }

    /// Whether both sides have said in SETTINGS that they accept datagrams.
    fn exchanges_datagrams(&self, session: SessionNumber) -> bool {
        self.config.accepts_datagrams() && self.peer_settings(session).is_some_and(|settings| settings.datagrams)
    }

    pub(crate) fn send_parts(&mut self, request: StreamNumber, payload: &[&[u8]]) -> Result<(), DatagramRefused> {
        let mut bytes = Vec::with_capacity(8 + payload.iter().map(|part| part.len()).sum::<usize>());
        datagram::write(request.stream, &[], &mut bytes);
        payload.iter().for_each(|part| bytes.extend_from_slice(part));
        self.quic.send_datagram(request.session, bytes.into())
    }

    pub(crate) fn payload_bytes_max(&mut self, request: StreamNumber) -> Option<usize> {
        let bytes = self.quic.datagram_bytes_max(request.session)?;
        bytes.checked_sub(varint::encoded_bytes(request.stream / 4))
    }

    fn request_datagrams(&mut self, session: SessionNumber) -> Option<&mut RequestDatagrams> {
        self.sessions.get_mut(&session)?.datagrams.as_deref_mut()
    }

    /// Datagrams of a connection: each is for a request stream, and those of streams without a reader are dropped, or wait for
    /// one.
    pub(crate) fn on_datagrams(&mut self, session: SessionNumber, now: Instant) {
        self.take_datagrams(session, now);
        self.count_datagrams(session);
    }

    fn take_datagrams(&mut self, session: SessionNumber, now: Instant) {
        let of_sessions = self.config.webtransport_limits().map(|limits| limits.datagram_bytes_max);
        let (limits, accepts) = (self.config.limits_of_datagrams(), self.config.accepts_datagrams());
        while let Some(datagram) = self.quic.read_datagram(session) {
            let (stream, payload) = match datagram::read(&datagram) {
                Ok(read) => read,
                Err(error) => return self.fail(session, error, now),
            };
            let Some(connection) = self.sessions.get_mut(&session) else { return };
            if let (Some(webtransport), Some(bytes_max)) = (&mut connection.webtransport, of_sessions)
                && webtransport.has_session(stream)
            {
                self.datagrams_dropped += webtransport.add_datagram(stream, payload, bytes_max);
                continue;
            }
            let may_be_read = connection.requests.contains(stream) || connection.connection.may_come(stream);
            self.datagrams_dropped += if accepts {
                connection.datagrams.get_or_insert_default().add(stream, payload, limits, may_be_read)
            } else {
                1
            };
        }
    }
}

/// Bytes that a datagram without a reader counts for beside its own.
const EARLY_ENTRY_BYTES: usize = 48;

const _: () = assert!(size_of::<(u64, Bytes)>() <= EARLY_ENTRY_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HttpDatagramLimits =
        HttpDatagramLimits { request_bytes_max: 1_000, early_bytes_max: 200, connection_bytes_max: 1_200 };

    fn read(datagrams: &mut RequestDatagrams, stream: u64) -> Vec<Bytes> {
        std::iter::from_fn(|| datagrams.pop(stream).expect("a reader")).collect()
    }

    #[test]
    fn early_datagrams_wait_for_the_reader_of_their_request() {
        let mut datagrams = RequestDatagrams::default();
        for (stream, payload) in [(0, &b"ebb"[..]), (4, b"flow"), (0, b"slack")] {
            assert_eq!(datagrams.add(stream, payload, LIMITS, true), 0);
        }
        assert_eq!(datagrams.begin(0, LIMITS), 0);
        assert_eq!(datagrams.add(0, b"neap", LIMITS, true), 0);
        assert_eq!(read(&mut datagrams, 0), [&b"ebb"[..], b"slack", b"neap"]);
        datagrams.end(4);
        assert_eq!((datagrams.early.len(), datagrams.early_bytes), (0, 0));
    }

    #[test]
    fn early_datagrams_have_a_bound_and_those_of_no_request_are_dropped() {
        let mut datagrams = RequestDatagrams::default();
        let dropped: u64 = (0..100).map(|_| datagrams.add(8, b"", LIMITS, true)).sum();
        assert_eq!((datagrams.early.len(), dropped), (200 / EARLY_ENTRY_BYTES, 100 - 4));
        assert_eq!(datagrams.add(8, &[0; 200], LIMITS, true), 1, "a long one keeps the others");
        assert_eq!(datagrams.add(0, b"late", LIMITS, false), 1);
        assert_eq!(datagrams.early.len(), 4);
    }

    #[test]
    fn the_datagrams_of_a_connection_have_a_bound_and_its_requests_keep_their_newest() {
        let mut datagrams = RequestDatagrams::default();
        assert_eq!(datagrams.add(12, b"early", LIMITS, true), 0);
        (0..3).for_each(|number| assert_eq!(datagrams.begin(4 * number, LIMITS), 0));
        // 1,200 bytes, of which 53 wait without a reader: 23 of 50 for the first two requests.
        for stream in [0, 4] {
            for number in 0..15_u8 {
                datagrams.add(stream, &[number; 18], LIMITS, true);
            }
        }
        assert!((1_100..=1_200).contains(&datagrams.bytes()), "{}", datagrams.bytes());
        assert_eq!(datagrams.add(8, b"new", LIMITS, true), 0, "there is room for a short one");
        let (first, second) = (read(&mut datagrams, 0), read(&mut datagrams, 4));
        assert_eq!((first.len(), second.len(), &second[second.len() - 1][..]), (15, 7, &[14; 18][..]));
        assert_eq!(datagrams.bytes(), 5 + EARLY_ENTRY_BYTES + 3 + DatagramQueue::ENTRY_BYTES);
        assert_eq!((datagrams.clear(), datagrams.bytes()), (2, 0));
        assert_eq!((read(&mut datagrams, 8), datagrams.add(8, b"next", LIMITS, true)), (vec![], 0));
    }
}
