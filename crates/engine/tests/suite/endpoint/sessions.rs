//! Sessions whose streams come many in one datagram: the order in which their endpoint is called.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::rc::Rc;
use std::time::Instant;

use tidegate_buffer::{Datagram, Outbound, Transmits};
use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::mux::{OpenError, ResetCause};
use tidegate_codec::{
    Codec, CodecStatus, Direction, Endpoint, Filter, Input, Output, Over, Pipeline, ReadEnd, SessionEvent,
    SessionNumber, Slice, Step, StreamEndpoint, StreamNumber, WriteRefused,
};
use tidegate_engine::{CloseReason, Context, EndpointLimits, Handler, Outcome, SessionStreams, Streams};

use super::stage::Stage;

const SESSION: SessionNumber = SessionNumber(1);

/// The calls, in order.
#[derive(Clone, Default)]
struct Journal(Rc<RefCell<Vec<String>>>);

impl Journal {
    fn note(&self, call: impl fmt::Display) {
        self.0.borrow_mut().push(call.to_string());
    }

    fn position(&self, call: &str) -> usize {
        let calls = self.0.borrow();
        calls.iter().position(|other| other == call).unwrap_or_else(|| panic!("no {call} in {calls:?}"))
    }
}

/// Each datagram opens a session with as many streams as its first byte says. Each stream has all its bytes: its number.
struct Burst {
    journal: Journal,
    events: VecDeque<SessionEvent>,
    /// Bytes that a stream takes before it blocks once.
    window: usize,
    blocked: Vec<StreamNumber>,
}

impl Burst {
    fn new(journal: &Journal) -> Self {
        Self { journal: journal.clone(), events: VecDeque::new(), window: usize::MAX, blocked: Vec::new() }
    }
}

impl Endpoint for Burst {
    fn handle_datagram(&mut self, datagram: Datagram, _: Instant) {
        self.events.push_back(SessionEvent::Established { session: SESSION, peer: datagram.source });
        for stream in 0..datagram.payload[0].into() {
            let stream = StreamNumber { session: SESSION, stream };
            self.events.push_back(SessionEvent::Opened { stream, direction: Direction::Bidirectional });
        }
    }

    fn poll_transmit(&mut self, _: Instant, _: &mut Transmits) {}
}

impl StreamEndpoint for Burst {
    fn poll_event(&mut self, _: Instant) -> Option<SessionEvent> {
        let unblocked = || self.blocked.pop().map(SessionEvent::Writable);
        self.events.pop_front().or_else(unblocked)
    }

    fn read(&mut self, stream: StreamNumber, space: &mut [u8]) -> (usize, ReadEnd) {
        self.journal.note(format_args!("read {}", stream.stream));
        space[0] = stream.stream as u8;
        (1, ReadEnd::Ended)
    }

    fn write(&mut self, stream: StreamNumber, bytes: &[u8]) -> Result<usize, WriteRefused> {
        let count = bytes.len().min(self.window);
        if count < bytes.len() {
            self.window = usize::MAX;
            self.blocked.push(stream);
        }
        self.journal.note(format_args!("write {} {count}", stream.stream));
        Ok(count)
    }

    fn finish(&mut self, stream: StreamNumber) {
        self.journal.note(format_args!("finish {}", stream.stream));
    }

    fn close(&mut self, stream: StreamNumber, _: Option<ResetCause>, resets: bool) {
        self.journal.note(format_args!("{} {}", if resets { "reset" } else { "close" }, stream.stream));
    }

    fn open(&mut self, _: SessionNumber, _: Direction) -> Result<StreamNumber, OpenError> {
        Err(OpenError::Ending)
    }

    fn end_session(&mut self, _: SessionNumber, _: Option<ResetCause>, _: Instant) {}
}

/// Raw bytes, of which the first message of this side is the last one.
#[derive(Default)]
struct OneAnswer {
    is_finished: bool,
}

impl Codec for OneAnswer {
    type In = Slice;
    type Out = Payload;
    type Error = Infallible;

    fn protocol(&self) -> &'static str {
        "bytes"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, Infallible> {
        Raw.decode(input, reply)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, Infallible> {
        // As with a request, the end of the peer is no event of its own.
        Raw.decode(input, reply)
    }

    fn encode(&mut self, bytes: Payload, out: &mut Output<'_>) -> Result<(), Infallible> {
        self.is_finished = true;
        Raw.encode(bytes, out)
    }

    fn status(&self) -> CodecStatus {
        CodecStatus { is_finished: self.is_finished, ..CodecStatus::default() }
    }
}

/// Passes copies of the bytes.
struct Copies;

impl Filter for Copies {
    type Error = Infallible;

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Infallible> {
        if wire.is_empty() {
            return Ok(Step::NeedMore);
        }
        plain.append(reply.pool().copy(wire.bytes()), reply.pool());
        wire.consume(wire.len());
        Ok(Step::Message(()))
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Infallible> {
        out.take_flushed(plain);
        Ok(())
    }
}

/// Responds with the message four times over, and notes its events with the number of its stream.
struct Responder {
    journal: Journal,
    number: Option<u8>,
    /// It ends the stream itself.
    ends: bool,
    /// The stream whose handler panics.
    panics_at: Option<u8>,
}

impl<C: Pipeline<In = Slice, Out = Payload>> Handler<C> for Responder {
    type Post = ();

    fn message(&mut self, message: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        self.number = Some(message[0]);
        self.journal.note(format_args!("message {}", message[0]));
        assert_ne!(self.number, self.panics_at, "as the test wants");
        cx.send(message.repeat(4).into()).unwrap();
        if self.ends { Outcome::Close } else { Outcome::Continue }
    }

    fn closed(&mut self, _: &CloseReason) {
        self.journal.note(format_args!("closed {}", self.number.unwrap()));
    }
}

/// The calls of so many streams that come in one datagram, until the last one is closed.
fn calls(count: u8, window: usize, streams: impl FnOnce(&Journal) -> Streams) -> Journal {
    let mut stage = Stage::network(1);
    let journal = Journal::default();
    let streams = streams(&journal);
    let mut endpoint = Some(Burst { window, ..Burst::new(&journal) });
    let address = stage.sessions(
        move || endpoint.take().unwrap(),
        move |_| SessionStreams { bidirectional: Some(streams.clone()), unidirectional: None },
    );
    let mut channel = stage.channel(EndpointLimits::default());
    channel.send_to(vec![count], address).unwrap();
    let calls = journal.0.clone();
    let is_closed = |call: &&String| call.starts_with("closed");
    stage.run_until(|| calls.borrow().iter().filter(is_closed).count() == usize::from(count));
    stage.run_a_little();
    assert_eq!(stage.counts(0).streams, 0);
    journal
}

fn responder(journal: &Journal) -> Responder {
    Responder { journal: journal.clone(), number: None, ends: false, panics_at: None }
}

/// The calls of a stream that is answered within the event that opens it.
fn at_once(number: u8) -> Vec<String> {
    let calls = ["read {}", "message {}", "write {} 4", "finish {}", "close {}", "closed {}"];
    calls.map(|call| call.replace("{}", &number.to_string())).into()
}

#[test]
fn a_stream_whose_codec_is_finished_is_closed_before_the_next_one_is_read() {
    let bare = |journal: &Journal| {
        let journal = journal.clone();
        Streams::handle(move || (OneAnswer::default(), responder(&journal)))
    };
    let filtered = |journal: &Journal| {
        let journal = journal.clone();
        Streams::handle(move || (Over::new(Copies, OneAnswer::default()), responder(&journal)))
    };
    let expected: Vec<String> = (0..90).flat_map(at_once).collect();
    assert_eq!(*calls(90, usize::MAX, bare).0.borrow(), expected);
    assert_eq!(*calls(90, usize::MAX, filtered).0.borrow(), expected, "over a filter");
}

#[test]
fn a_stream_that_its_handler_ends_is_closed_behind_its_last_byte() {
    let journal = calls(90, usize::MAX, |journal| {
        let journal = journal.clone();
        Streams::handle(move || (Raw, Responder { ends: true, ..responder(&journal) }))
    });
    for number in 0..90 {
        let [read, finish, closed] =
            ["read", "finish", "closed"].map(|call| journal.position(&format!("{call} {number}")));
        assert!(read < finish && closed - finish < 3, "{:?}", journal.0.borrow());
    }
    // A turn takes some streams of the endpoint, and these are closed before the next ones are read.
    assert!(journal.position("closed 0") < journal.position("read 40"));
}

#[test]
fn an_answer_that_finds_no_window_is_written_later() {
    let journal = calls(2, 3, |journal| {
        let journal = journal.clone();
        Streams::handle(move || (Over::new(Copies, OneAnswer::default()), responder(&journal)))
    });
    let calls = journal.0.borrow();
    let of_first: Vec<&str> = calls.iter().filter(|call| call.contains(" 0")).map(String::as_str).collect();
    let written = ["read 0", "message 0", "write 0 3", "write 0 1", "finish 0", "closed 0", "close 0"];
    assert_eq!(of_first, written, "{calls:?}");
}

#[test]
fn a_panic_of_a_handler_costs_its_stream_alone() {
    let journal = calls(3, usize::MAX, |journal| {
        let journal = journal.clone();
        let panics_at = Some(1);
        Streams::handle(move || {
            (Over::new(Copies, OneAnswer::default()), Responder { panics_at, ..responder(&journal) })
        })
    });
    let calls = journal.0.borrow();
    let of = |number: &str| -> Vec<String> { calls.iter().filter(|call| call.contains(number)).cloned().collect() };
    assert_eq!((of(" 0"), of(" 2")), (at_once(0), at_once(2)));
    assert_eq!(of(" 1"), ["read 1", "message 1", "closed 1", "close 1"]);
}
