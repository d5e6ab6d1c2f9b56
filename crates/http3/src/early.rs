//! `EarlyRequests`: requests in early data (0-RTT, RFC 8470), which an attacker may have sent again.
//!
//! A request of a safe method without a body is served at once, with `Early-Data: 1` as a gateway would add it (RFC 8470
//! §5.1), so that an application, or the server behind a gateway, may refuse it with 425. Every other request waits until
//! the handshake is complete, which a copy of an earlier connection never achieves.

mod endpoint;

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};
use tidegate_codec::{ReadEnd, SessionNumber, StreamEndpoint, StreamNumber};

use crate::frame::{FrameHead, kind};
use crate::qpack;

/// The early requests whose bytes the caller has not read, by connection.
#[derive(Default)]
pub(crate) struct EarlyRequests {
    sessions: HashMap<SessionNumber, EarlySession>,
    /// Memory of all connections.
    kept: usize,
}

/// The early requests of one connection.
#[derive(Default)]
struct EarlySession {
    streams: BTreeMap<u64, EarlyRequest>,
    /// Bytes of all streams. They have a bound, since QUIC's windows count no byte that was read.
    bytes: usize,
    /// Memory of all streams, for the ledger of the loop.
    kept: usize,
    /// The handshake is complete: none is held.
    is_released: bool,
}

/// A stream that came in early data.
#[derive(Default)]
struct EarlyRequest {
    /// Bytes that were read to find out its method. The caller reads them first.
    bytes: Vec<u8>,
    /// It waits for the handshake.
    is_held: bool,
}

/// The decision on an early request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlyDecision {
    /// It is served at once.
    Serve,
    /// It waits for the handshake, or for more bytes.
    Hold,
    /// The client has given it up.
    Drop,
}

impl EarlyRequests {
    /// A stream waits for a decision.
    pub(crate) fn add(&mut self, stream: StreamNumber) {
        let session = self.sessions.entry(stream.session).or_default();
        let before = session.kept;
        session.add(stream.stream);
        self.kept = self.kept - before + session.kept;
    }

    /// Whether a stream waits.
    pub(crate) fn holds(&self, stream: StreamNumber) -> bool {
        // Almost always there are none.
        !self.sessions.is_empty()
            && self
                .sessions
                .get(&stream.session)
                .and_then(|session| session.streams.get(&stream.stream))
                .is_some_and(|request| request.is_held)
    }

    /// Whether streams of a connection may wait.
    pub(crate) fn holds_any(&self, session: SessionNumber) -> bool {
        !self.sessions.is_empty() && self.sessions.get(&session).is_some_and(|session| !session.is_released)
    }

    /// Reads the bytes of a stream that waits.
    pub(crate) fn decide(&mut self, stream: StreamNumber, quic: &mut impl StreamEndpoint) -> EarlyDecision {
        let Some(session) = self.sessions.get_mut(&stream.session) else { return EarlyDecision::Hold };
        let before = session.kept;
        let decision = session.decide(stream, quic);
        self.kept = self.kept - before + session.kept;
        if decision == EarlyDecision::Drop {
            self.remove(stream);
        }
        decision
    }

    /// The handshake of a connection is complete. Returns the streams that have waited, in their order.
    pub(crate) fn release(&mut self, number: SessionNumber) -> Vec<StreamNumber> {
        let Some(session) = self.sessions.get_mut(&number) else { return Vec::new() };
        session.is_released = true;
        let held = session.streams.iter_mut().filter_map(|(stream, request)| {
            std::mem::take(&mut request.is_held).then_some(StreamNumber { session: number, stream: *stream })
        });
        held.collect()
    }

    /// Reads bytes that were read before. `None` if there are none, and QUIC has those that follow.
    pub(crate) fn read(&mut self, stream: StreamNumber, space: &mut [u8]) -> Option<usize> {
        // Almost always.
        if self.sessions.is_empty() {
            return None;
        }
        let session = self.sessions.get_mut(&stream.session)?;
        let request = session.streams.get_mut(&stream.stream)?;
        let count = space.len().min(request.bytes.len());
        space.get_mut(..count)?.copy_from_slice(request.bytes.get(..count)?);
        request.bytes.drain(..count);
        session.bytes -= count;
        if request.bytes.is_empty() {
            self.remove(stream);
        }
        (count > 0).then_some(count)
    }

    /// A stream is over.
    pub(crate) fn remove(&mut self, stream: StreamNumber) {
        if self.sessions.is_empty() {
            return;
        }
        let Some(session) = self.sessions.get_mut(&stream.session) else { return };
        let before = session.kept;
        session.remove(stream.stream);
        self.kept = self.kept - before + session.kept;
        if session.streams.is_empty() {
            self.remove_session(stream.session);
        }
    }

    /// A connection is over.
    pub(crate) fn remove_session(&mut self, session: SessionNumber) {
        let Some(removed) = self.sessions.remove(&session) else { return };
        self.kept -= removed.kept;
        if self.sessions.is_empty() {
            // Without early requests there is no memory for them.
            self.sessions = HashMap::new();
        }
    }

    /// Memory of the early requests of all connections.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept
    }

    /// Calls `each` with the memory of each connection that has early requests.
    pub(crate) fn each_kept(&self, each: &mut dyn FnMut(SessionNumber, usize)) {
        self.sessions.iter().for_each(|(number, session)| each(*number, session.kept));
    }
}

impl EarlySession {
    fn add(&mut self, stream: u64) {
        let request = EarlyRequest { is_held: true, ..EarlyRequest::default() };
        self.kept += request.memory_bytes();
        if let Some(before) = self.streams.insert(stream, request) {
            self.forget(&before);
        }
    }

    fn decide(&mut self, stream: StreamNumber, quic: &mut impl StreamEndpoint) -> EarlyDecision {
        let held = self.streams.get_mut(&stream.stream).filter(|request| request.is_held);
        let Some(request) = held else { return EarlyDecision::Hold };
        let (length, memory) = (request.bytes.len(), request.memory_bytes());
        let decision = request.decide(CONNECTION_BYTES_MAX.saturating_sub(self.bytes), (stream, quic));
        self.bytes = self.bytes - length + request.bytes.len();
        self.kept = self.kept - memory + request.memory_bytes();
        decision
    }

    fn remove(&mut self, stream: u64) {
        if let Some(request) = self.streams.remove(&stream) {
            self.forget(&request);
        }
    }

    fn forget(&mut self, request: &EarlyRequest) {
        self.bytes -= request.bytes.len();
        self.kept -= request.memory_bytes();
    }
}

impl EarlyRequest {
    /// Reads its bytes, until `room` of them are used up.
    fn decide(&mut self, room: usize, (stream, quic): (StreamNumber, &mut impl StreamEndpoint)) -> EarlyDecision {
        let mut space = [0; READ_BYTES];
        let until = self.bytes.len().saturating_add(room).min(BYTES_MAX);
        loop {
            if self.bytes.len() >= until {
                // Such a head is not worth the memory: it waits, and QUIC has the rest.
                return EarlyDecision::Hold;
            }
            let (count, end) = quic.read(stream, &mut space);
            self.bytes.extend_from_slice(space.get(..count).unwrap_or_default());
            match end {
                ReadEnd::More => {}
                ReadEnd::Blocked => return EarlyDecision::Hold,
                ReadEnd::Reset(_) => return EarlyDecision::Drop,
                ReadEnd::Ended => break,
            }
        }
        let Some(marked) = marked(&self.bytes) else { return EarlyDecision::Hold };
        *self = Self { bytes: marked, is_held: false };
        EarlyDecision::Serve
    }

    fn memory_bytes(&self) -> usize {
        REQUEST_MEMORY + self.bytes.capacity()
    }
}

/// The bytes of a request that is safe (RFC 9110 §9.2.1) and has no body, with `Early-Data: 1`; `None` for any other.
fn marked(bytes: &[u8]) -> Option<Vec<u8>> {
    let (head, head_bytes) = FrameHead::read(bytes)?;
    let section = bytes.get(head_bytes..)?;
    if head.kind != kind::HEADERS || head.length != section.len() as u64 {
        return None;
    }
    let (mut is_safe, mut has_body) = (false, false);
    let decoded = qpack::decode(section, &mut Vec::new(), |name, value| match name {
        b":method" => is_safe = matches!(value, b"GET" | b"HEAD" | b"OPTIONS"),
        b"content-length" => has_body |= value != b"0",
        _ => {}
    });
    if decoded.is_err() || !is_safe || has_body {
        return None;
    }
    let mut section = section.to_vec();
    qpack::encode(b"early-data", b"1", false, &mut section);
    let mut marked = Vec::new();
    FrameHead { kind: kind::HEADERS, length: section.len() as u64 }.write(&mut marked);
    marked.append(&mut section);
    Some(marked)
}

const READ_BYTES: usize = 2048;

/// Memory of a request beside its bytes.
const REQUEST_MEMORY: usize = size_of::<(u64, EarlyRequest)>();

/// Bytes of a request that are kept before its handshake is complete. A longer request waits.
const BYTES_MAX: usize = 16 * 1024;

/// Bytes that are kept for all early requests of a connection. Beyond them bytes stay in QUIC, whose windows bound them.
const CONNECTION_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &[u8], more: &[(&[u8], &[u8])], behind: &[u8]) -> Vec<u8> {
        let mut section = Vec::new();
        qpack::encode_prefix(&mut section);
        qpack::encode(b":method", method, false, &mut section);
        more.iter().for_each(|(name, value)| qpack::encode(name, value, false, &mut section));
        let mut bytes = Vec::new();
        FrameHead { kind: kind::HEADERS, length: section.len() as u64 }.write(&mut bytes);
        [bytes, section, behind.to_vec()].concat()
    }

    #[test]
    fn a_safe_request_without_a_body_is_marked() {
        for method in [&b"GET"[..], b"HEAD", b"OPTIONS"] {
            let marked = marked(&request(method, &[(b"content-length", b"0")], b"")).expect("it is safe");
            let (head, head_bytes) = FrameHead::read(&marked).unwrap();
            assert_eq!(head.length as usize, marked.len() - head_bytes);
            let mut fields = Vec::new();
            let decoded = qpack::decode(&marked[head_bytes..], &mut Vec::new(), |name, value| {
                fields.push((name.to_vec(), value.to_vec()));
            });
            assert_eq!((decoded, fields.last()), (Ok(()), Some(&(b"early-data".to_vec(), b"1".to_vec()))));
        }
    }

    #[test]
    fn other_requests_are_not() {
        for (name, bytes) in [
            ("a method that is not safe", request(b"POST", &[], b"")),
            ("a body", request(b"GET", &[], b"\x00\x01x")),
            ("the length of a body", request(b"GET", &[(b"content-length", b"1")], b"")),
            ("a second method", request(b"GET", &[(b":method", b"POST")], b"")),
            ("a head in pieces", request(b"GET", &[], b"")[..3].to_vec()),
            ("another frame in front", [b"\x21\x00", &request(b"GET", &[], b"")[..]].concat()),
            ("a section that cannot be decoded", vec![1, 2, 0, 0xff]),
            ("nothing", Vec::new()),
        ] {
            assert_eq!(marked(&bytes), None, "{name}");
        }
    }
}
