//! Memory that sessions keep beside streams: it counts, and the sessions with the most of it end.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_buffer::{Datagram, Transmits};
use tidegate_codec::mux::{OpenError, ResetCause};
use tidegate_codec::{
    Direction, Endpoint, ReadEnd, SessionEvent, SessionNumber, StreamEndpoint, StreamNumber, WriteRefused,
};
use tidegate_engine::{EndpointLimits, SessionLimits, SessionStreams};
use tidegate_sys::DatagramOptions;
use tidegate_testkit::network::Network;

/// A datagram has the number of a session, and how many KiB the session keeps from then on.
struct Hoard {
    kept: Rc<RefCell<BTreeMap<u64, usize>>>,
    events: VecDeque<SessionEvent>,
}

impl Endpoint for Hoard {
    fn handle_datagram(&mut self, datagram: Datagram, _: Instant) {
        let (number, bytes) = (u64::from(datagram.payload[0]), usize::from(datagram.payload[1]) << 10);
        if self.kept.borrow_mut().insert(number, bytes).is_none() {
            let session = SessionNumber(number);
            self.events.push_back(SessionEvent::Established { session, peer: datagram.source });
        }
    }

    fn poll_transmit(&mut self, _: Instant, _: &mut Transmits) {}
}

impl StreamEndpoint for Hoard {
    fn poll_event(&mut self, _: Instant) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    fn read(&mut self, _: StreamNumber, _: &mut [u8]) -> (usize, ReadEnd) {
        (0, ReadEnd::Blocked)
    }

    fn write(&mut self, _: StreamNumber, _: &[u8]) -> Result<usize, WriteRefused> {
        Err(WriteRefused)
    }

    fn finish(&mut self, _: StreamNumber) {}

    fn close(&mut self, _: StreamNumber, _: Option<ResetCause>, _: bool) {}

    fn open(&mut self, _: SessionNumber, _: Direction) -> Result<StreamNumber, OpenError> {
        Err(OpenError::Ending)
    }

    fn end_session(&mut self, session: SessionNumber, cause: Option<ResetCause>, _: Instant) {
        assert_eq!(cause, Some(ResetCause::Refused));
        self.kept.borrow_mut().remove(&session.0);
    }

    fn kept_bytes(&self) -> usize {
        self.kept.borrow().values().sum()
    }

    fn each_kept(&self, each: &mut dyn FnMut(SessionNumber, usize)) {
        self.kept.borrow().iter().for_each(|(number, bytes)| each(SessionNumber(*number), *bytes));
    }
}

/// The sessions that are left of some, with their KiB, in a loop with so many KiB, and the KiB that count.
fn left_of(sessions: &[(u8, u8)], budget: usize) -> (Vec<u64>, usize) {
    let network = Network::new(1);
    let [server, client] = ["10.0.0.1", "10.0.0.2"].map(|ip| network.host(ip).node());
    let kept = Rc::<RefCell<BTreeMap<u64, usize>>>::default();
    let mut hoard = Some(Hoard { kept: kept.clone(), events: VecDeque::new() });
    let options = DatagramOptions::default();
    let socket = network.host("10.0.0.1").datagrams(0, &options).expect("a socket");
    let bound = server.with(|event_loop| {
        let make = move || hoard.take().expect("it does not panic");
        event_loop.bind_sessions(socket, &options, SessionLimits::default(), make, |_| SessionStreams::default())
    });
    let address = bound.expect("an address").ip().expect("an IP address");
    let mut channel = client.datagrams(0, &options, EndpointLimits::default()).expect("a socket");
    let mut send = |number, kib| {
        channel.send_to(vec![number, kib], address).expect("room");
        network.run_for(Duration::from_millis(20));
    };
    // Then the loop has memory to receive into.
    send(u8::MAX, 0);
    let idle = server.pool().ledger().used();
    // An eighth of the budget is to be free after it was used up.
    server.pool().ledger().set_budget(idle + (budget << 10) + idle / 7);
    sessions.iter().for_each(|(number, kib)| send(*number, *kib));
    let left = kept.borrow().keys().copied().filter(|number| *number < u8::MAX.into()).collect();
    (left, (server.pool().ledger().used() - idle) >> 10)
}

#[test]
fn memory_of_sessions_counts_and_those_with_the_most_end() {
    let (left, kib) = left_of(&[(1, 100), (2, 10), (3, 30)], 200);
    assert!(left == [1, 2, 3] && (140..160).contains(&kib), "{left:?}, {kib} KiB");
    // Beyond the budget until an eighth of it is free.
    let (left, kib) = left_of(&[(1, 100), (2, 10), (3, 30), (4, 80)], 200);
    assert!(left == [2, 3, 4] && (120..140).contains(&kib), "{left:?}, {kib} KiB");
    // A session that has grown.
    let (left, kib) = left_of(&[(1, 60), (2, 10), (3, 60), (4, 60), (2, 250)], 200);
    assert!(!left.contains(&2) && left.len() >= 2, "{left:?}, {kib} KiB");
}

#[test]
fn sessions_that_keep_little_are_ended_one_after_the_other() {
    let sessions: Vec<(u8, u8)> = (0..60).map(|number| (number, 4)).collect();
    let (left, kib) = left_of(&sessions, 200);
    assert!((30..=50).contains(&left.len()) && kib <= 210, "{left:?}, {kib} KiB");
}
