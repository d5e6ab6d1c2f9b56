//! Multicast groups that endpoints and tasks join while they run.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::Instant;

use tidegate_buffer::{Datagram, DatagramError, DatagramErrorReason, Membership, Transmits};
use tidegate_codec::Endpoint;
use tidegate_engine::{DatagramChannel, EndpointLimits};
use tidegate_sys::{DatagramOptions, Socket};

use super::stage::Stage;

/// Events of the members of a test.
#[derive(Default)]
struct Log {
    payloads: RefCell<Vec<Vec<u8>>>,
    errors: RefCell<Vec<DatagramError>>,
    /// Changes of groups that the loop has not taken.
    changes: RefCell<VecDeque<Membership>>,
}

/// Joins a group for a datagram `join`, and leaves it for `leave`.
struct Listener {
    log: Rc<Log>,
    group: IpAddr,
}

impl Endpoint for Listener {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        let (join, leave) = (Membership::join(self.group), Membership::leave(self.group));
        let (change, count) = match &*datagram.payload {
            b"join" => (join, 1),
            // More than the loop takes in one turn.
            b"many" => (join, 200),
            b"leave" => (leave, 1),
            _ => (leave, 0),
        };
        self.log.changes.borrow_mut().extend(std::iter::repeat_n(change.on_interface(LOOPBACK), count));
        self.log.payloads.borrow_mut().push(datagram.payload.to_vec());
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.log.changes.borrow_mut().pop_front()
    }

    fn poll_transmit(&mut self, _now: Instant, _transmits: &mut Transmits) {}

    fn failed(&mut self, error: DatagramError, _now: Instant) {
        self.log.errors.borrow_mut().push(error);
    }
}

/// Sends to a group over the loopback interface. Returns whether that is possible here.
fn send_to_group(group: IpAddr, port: u16, payload: &[u8]) -> bool {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    match UdpSocket::from(socket).send_to(payload, SocketAddr::new(group, port)) {
        Ok(_) => true,
        Err(error) => {
            println!("skipped: no multicast over loopback here: {error}");
            false
        }
    }
}

pub(crate) fn an_endpoint_joins_and_leaves_a_group_while_it_runs(stage: &mut Stage) {
    let (log, group) = (Rc::<Log>::default(), IpAddr::from([239, 255, 7, 11]));
    let options = DatagramOptions::default();
    let socket = Socket::bind_datagrams("0.0.0.0:0".parse().unwrap(), &options).unwrap();
    let endpoint = Listener { log: log.clone(), group };
    let limits = EndpointLimits::default();
    let bound = stage.with(0, |event_loop| event_loop.bind_endpoint(socket, &options, limits, endpoint)).unwrap();
    let port = bound.ip().unwrap().port();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut send = |payload: &[u8], count: usize| {
        client.send_to(payload, ("127.0.0.1", port)).unwrap();
        stage.run_until(|| log.payloads.borrow().len() == count && log.changes.borrow().is_empty());
    };
    if !send_to_group(group, port, b"before") {
        return;
    }
    send(b"join", 1);
    assert!(send_to_group(group, port, b"joined"));
    send(b"many", 3);
    send(b"leave", 4);
    assert!(send_to_group(group, port, b"after"));
    send(b"leave", 5);
    send(b"end", 6);
    let payloads = log.payloads.borrow().clone();
    assert_eq!(payloads, [&b"join"[..], b"joined", b"many", b"leave", b"leave", b"end"]);
    let expected = DatagramErrorReason::Membership(ErrorKind::AddrNotAvailable);
    let errors = log.errors.borrow().clone();
    assert_eq!(errors, [DatagramError { destination: Some(SocketAddr::new(group, 0)), reason: expected }]);
}

pub(crate) fn a_task_joins_a_group_from_one_source(stage: &mut Stage) {
    let (group, source) = (IpAddr::from([239, 255, 7, 12]), IpAddr::from([127, 0, 0, 1]));
    let member = Membership::join(group).from_source(source).on_interface(LOOPBACK);
    stage.task(async move {
        let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
        let mut channel = DatagramChannel::bind("0.0.0.0:0".parse().unwrap(), &options, limits).unwrap();
        let port = channel.local_address().unwrap().port();
        // A second join changes nothing.
        for _ in 0..2 {
            channel.set_membership(&member).unwrap();
        }
        if send_to_group(group, port, b"flow") {
            assert_eq!(*channel.recv_from().await.unwrap().payload, *b"flow");
        }
        let leave = Membership { joins: false, ..member };
        channel.set_membership(&leave).unwrap();
        assert_eq!(channel.set_membership(&leave).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
        let mixed = member.from_source("::1".parse().unwrap());
        assert_eq!(channel.set_membership(&mixed).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

/// The index of the loopback interface.
const LOOPBACK: u32 = 1;
