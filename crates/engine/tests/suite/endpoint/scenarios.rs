//! Scenarios that hold on every stage. No datagram is lost on loopback while few are under way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_buffer::{Datagram, DatagramError, DatagramErrorReason, Transmit, Transmits};
use tidegate_codec::Endpoint;
use tidegate_engine::EndpointLimits;

use super::stage::Stage;

/// Calls of an endpoint, for the test to read.
#[derive(Default)]
struct Seen {
    datagrams: Cell<usize>,
    polls: Cell<usize>,
    errors: RefCell<Vec<DatagramError>>,
    timeouts: RefCell<Vec<Instant>>,
    drains: Cell<usize>,
}

/// Echoes each datagram. Some payloads are commands.
#[derive(Default)]
struct Echo {
    seen: Rc<Seen>,
    responses: Vec<Transmit>,
    deadline: Option<Instant>,
    /// A drain ends when this is true.
    may_end: Rc<Cell<bool>>,
}

impl Echo {
    fn new(seen: &Rc<Seen>) -> Self {
        Self { seen: seen.clone(), may_end: Rc::new(Cell::new(true)), ..Self::default() }
    }
}

fn add(count: &Cell<usize>) {
    count.set(count.get() + 1);
}

impl Endpoint for Echo {
    fn handle_datagram(&mut self, datagram: Datagram, now: Instant) {
        add(&self.seen.datagrams);
        match &*datagram.payload {
            b"panic" => panic!("the test wants it"),
            b"later" => self.deadline = Some(now + Duration::from_millis(50)),
            b"many" => {
                for number in 0..100_u8 {
                    self.responses.push(Transmit::response(&datagram, vec![number]));
                }
            }
            command if command.starts_with(b"to ") => {
                let to: SocketAddr = std::str::from_utf8(&command[3..]).unwrap().parse().unwrap();
                self.responses.push(Transmit::new(b"hello".to_vec(), to));
            }
            _ => self.responses.push(Transmit::response(&datagram, datagram.payload.clone())),
        }
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        add(&self.seen.polls);
        self.responses.drain(..).for_each(|response| transmits.push(response));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.seen.timeouts.borrow_mut().push(now);
        }
    }

    fn failed(&mut self, error: DatagramError, _now: Instant) {
        self.seen.errors.borrow_mut().push(error);
    }

    fn drain(&mut self, _now: Instant) {
        add(&self.seen.drains);
    }

    fn is_drained(&self) -> bool {
        self.may_end.get()
    }
}

fn limits() -> EndpointLimits {
    EndpointLimits::default()
}

pub(crate) fn each_datagram_is_echoed_to_its_source(stage: &mut Stage) {
    let seen = Rc::<Seen>::default();
    let echo = stage.endpoint(limits(), Echo::new(&seen));
    let mut channel = stage.channel(limits());
    stage.task(async move {
        for length in [0_usize, 1, 100, 1_472].repeat(50) {
            let payload = vec![length as u8; length];
            channel.send_to(payload.clone(), echo).unwrap();
            let response = channel.recv_from().await.unwrap();
            assert_eq!((response.source, &*response.payload), (echo, &*payload));
            assert!(channel.next_error().is_none());
        }
    });
    let counts = [stage.counts(0), stage.counts(1)];
    assert_eq!(counts.map(|counts| (counts.datagrams_received, counts.datagrams_sent)), [(200, 200); 2]);
    assert_eq!(counts.map(|counts| counts.received_bytes), [50 * 1_573; 2]);
    assert_eq!(counts.map(|counts| counts.datagrams_dropped + counts.datagrams_lost), [0; 2]);
    assert_eq!((counts[0].endpoints, counts[0].connections), (1, 0));
}

pub(crate) fn a_batch_is_followed_by_one_call_for_datagrams_to_send(stage: &mut Stage) {
    let seen = Rc::<Seen>::default();
    let echo = stage.endpoint(limits(), Echo::new(&seen));
    let mut channel = stage.channel(limits());
    stage.task(async move {
        (0..100_u8).for_each(|number| channel.send_to(vec![number], echo).unwrap());
        let mut numbers = BTreeSet::new();
        while numbers.len() < 100 {
            numbers.insert(channel.recv_from().await.unwrap().payload[0]);
        }
    });
    assert_eq!(seen.datagrams.get(), 100);
    // In the network each of them arrives at a time of its own; the first call is for the new endpoint.
    let calls_max = if stage.is_simulated() { 101 } else { 60 };
    assert!(seen.polls.get() <= calls_max, "{} calls", seen.polls.get());
}

pub(crate) fn an_endpoint_is_called_at_its_time(stage: &mut Stage) {
    let seen = Rc::<Seen>::default();
    let echo = stage.endpoint(limits(), Echo::new(&seen));
    let mut channel = stage.channel(limits());
    let start = stage.now();
    channel.send_to(b"later".to_vec(), echo).unwrap();
    let timeouts = seen.clone();
    stage.run_until(|| !timeouts.timeouts.borrow().is_empty());
    assert!(seen.timeouts.borrow()[0] >= start + Duration::from_millis(50));
}

pub(crate) fn a_port_without_a_socket_is_reported_to_the_endpoint_that_goes_on(stage: &mut Stage) {
    let seen = Rc::<Seen>::default();
    let echo = stage.endpoint(limits(), Echo::new(&seen));
    let (mut channel, other) = (stage.channel(limits()), stage.channel(limits()));
    let closed = other.local_address().unwrap();
    drop(other);
    stage.run_a_little();
    channel.send_to(format!("to {closed}").into_bytes(), echo).unwrap();
    let errors = seen.clone();
    stage.run_until(|| !errors.errors.borrow().is_empty());
    let error = DatagramError { destination: Some(closed), reason: DatagramErrorReason::PortUnreachable };
    assert_eq!(*seen.errors.borrow(), [error]);
    stage.task(async move {
        channel.send_to(b"still".to_vec(), echo).unwrap();
        assert_eq!(&*channel.recv_from().await.unwrap().payload, b"still");
    });
    assert_eq!(stage.counts(0).datagram_errors, 1);
}

pub(crate) fn a_full_list_drops_its_oldest_datagrams_and_counts_them(stage: &mut Stage) {
    let seen = Rc::<Seen>::default();
    let echo = stage.endpoint(EndpointLimits { waiting_max: 10, ..limits() }, Echo::new(&seen));
    let mut channel = stage.channel(limits());
    stage.task(async move {
        channel.send_to(b"many".to_vec(), echo).unwrap();
        for number in 90..100_u8 {
            assert_eq!(&*channel.recv_from().await.unwrap().payload, [number]);
        }
    });
    assert_eq!((stage.counts(0).datagrams_sent, stage.counts(0).datagrams_dropped), (10, 90));
}

pub(crate) fn a_run_arrives_as_single_datagrams(stage: &mut Stage) {
    let (mut sender, mut receiver) = (stage.channel(limits()), stage.channel(limits()));
    stage.task(async move {
        let bytes: Vec<u8> = (0..=255).cycle().take(2_600).collect();
        let mut run = Transmit::new(bytes.clone(), receiver.local_address().unwrap());
        run.segment_size = NonZeroU16::new(1_000);
        sender.send(run).unwrap();
        for part in bytes.chunks(1_000) {
            assert_eq!(&*receiver.recv_from().await.unwrap().payload, part);
        }
    });
    assert_eq!(stage.counts(1).datagrams_sent, 3);
}

pub(crate) fn a_panic_costs_the_protocols_state_and_not_its_socket(stage: &mut Stage) {
    let (seen, made) = (Rc::<Seen>::default(), Rc::new(Cell::new(0)));
    let of_make = (seen.clone(), made.clone());
    let echo = stage.endpoint_with(move || {
        add(&of_make.1);
        Echo::new(&of_make.0)
    });
    let mut channel = stage.channel(limits());
    stage.task(async move {
        for round in 0..3 {
            channel.send_to(b"panic".to_vec(), echo).unwrap();
            // The datagrams of its batch are lost with the protocol's state, so others follow. Their echoes may come in later
            // rounds.
            let go_on = format!("go on {round}").into_bytes();
            channel.send_to(go_on.clone(), echo).unwrap();
            while channel.try_recv_from().is_none_or(|datagram| *datagram.payload != *go_on) {
                channel.send_to(go_on.clone(), echo).unwrap();
                tidegate_engine::task::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    assert_eq!((made.get(), stage.counts(0).endpoints_panicked, stage.counts(0).endpoints), (4, 3, 1));
}

pub(crate) fn a_panic_without_a_maker_closes_the_socket(stage: &mut Stage) {
    let seen = Rc::<Seen>::default();
    let echo = stage.endpoint(limits(), Echo::new(&seen));
    let mut channel = stage.channel(limits());
    stage.task(async move {
        channel.send_to(b"panic".to_vec(), echo).unwrap();
        while channel.next_error().is_none() {
            channel.send_to(b"?".to_vec(), echo).unwrap();
            tidegate_engine::task::sleep(Duration::from_millis(5)).await;
        }
    });
    assert_eq!((stage.counts(0).endpoints_panicked, stage.counts(0).endpoints), (1, 0));
}

pub(crate) fn a_drain_closes_an_endpoint_once_it_is_done(stage: &mut Stage) {
    let seen = Rc::<Seen>::default();
    let echo = Echo { may_end: Rc::new(Cell::new(false)), ..Echo::new(&seen) };
    let may_end = echo.may_end.clone();
    let echo = stage.endpoint(limits(), echo);
    let mut channel = stage.channel(limits());
    stage.with(0, |event_loop| event_loop.drain(Duration::from_secs(600)));
    let mut channel = stage.task(async move {
        channel.send_to(b"late".to_vec(), echo).unwrap();
        assert_eq!(&*channel.recv_from().await.unwrap().payload, b"late");
        channel
    });
    assert!(!stage.with(0, |event_loop| event_loop.is_drained()));
    may_end.set(true);
    channel.send_to(b"last".to_vec(), echo).unwrap();
    for _ in 0..50 {
        if !stage.with(0, |event_loop| event_loop.is_drained()) {
            stage.run_a_little();
        }
    }
    assert!(stage.with(0, |event_loop| event_loop.is_drained()));
    assert_eq!((seen.drains.get(), stage.counts(0).endpoints), (1, 0));
}

pub(crate) fn a_drain_ends_an_endpoint_at_its_deadline(stage: &mut Stage) {
    let seen = Rc::<Seen>::default();
    let echo = Echo { may_end: Rc::new(Cell::new(false)), ..Echo::new(&seen) };
    stage.endpoint(limits(), echo);
    stage.with(0, |event_loop| event_loop.drain(Duration::from_millis(30)));
    for _ in 0..200 {
        if !stage.with(0, |event_loop| event_loop.is_drained()) {
            stage.run_a_little();
        }
    }
    assert!(stage.with(0, |event_loop| event_loop.is_drained()));
}

pub(crate) fn a_task_that_reads_too_slowly_loses_the_oldest_datagrams(stage: &mut Stage) {
    let mut sender = stage.channel(limits());
    let mut receiver = stage.channel(EndpointLimits { unread_max: 5, ..limits() });
    let to = receiver.local_address().unwrap();
    for number in 0..20_u8 {
        sender.send_to(vec![number; 10], to).unwrap();
        stage.run_a_little();
    }
    let unread: Vec<u8> = std::iter::from_fn(|| receiver.try_recv_from()).map(|datagram| datagram.payload[0]).collect();
    assert_eq!((unread, receiver.dropped()), ((15..20).collect(), 15));
}

pub(crate) fn a_dropped_channel_frees_its_port(stage: &mut Stage) {
    let before = stage.counts(1).endpoints;
    let mut channel = stage.channel(limits());
    let to = stage.channel(limits()).local_address().unwrap();
    channel.send_to(b"last".to_vec(), to).unwrap();
    drop(channel);
    stage.run_a_little();
    assert_eq!((before, stage.counts(1).endpoints), (0, 0));
    assert_eq!(stage.counts(1).datagrams_sent, 1, "it sends what waits before it closes");
}

pub(crate) fn payloads_that_a_task_keeps_stay_as_they_are(stage: &mut Stage) {
    let (mut sender, mut receiver) = (stage.channel(limits()), stage.channel(limits()));
    let to = receiver.local_address().unwrap();
    stage.task(async move {
        let mut kept = Vec::new();
        for number in 0..200_u8 {
            sender.send_to(vec![number; 64], to).unwrap();
            kept.push(receiver.recv_from().await.unwrap());
        }
        for (number, datagram) in kept.iter().enumerate() {
            assert_eq!(*datagram.payload, [number as u8; 64]);
        }
    });
}
