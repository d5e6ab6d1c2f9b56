//! `DatagramWire`: a driver without a kernel whose only socket has one peer, the socket of another such driver.
//!
//! The work that a kernel would do is not counted. A turn receives the datagrams that the peer has sent before it, as one
//! batch. The clock advances only on request.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::{Datagram, Ecn, Pool, Scratch, Transmits};
use tidegate_engine::EventLoop;
use tidegate_sys::{Address, Class, Completion, Driver, Operation, Side, Token, Transmission, Waker};

use crate::counted::leave_out;
use crate::wire::NullWake;

/// The datagrams that a side is about to receive.
type Waiting = RefCell<VecDeque<(Vec<u8>, Ecn)>>;

/// The datagrams between two drivers, and their clock.
#[derive(Debug)]
pub(crate) struct Link {
    waiting: [Waiting; 2],
    start: Instant,
    now: Cell<Instant>,
}

impl Link {
    /// Two loops whose sockets send to each other.
    pub(crate) fn of_loops() -> (Rc<Self>, [EventLoop; 2]) {
        let start = Instant::now();
        let link = Rc::new(Self { waiting: Default::default(), start, now: Cell::new(start) });
        let event_loop = |side| {
            let pool = Pool::new();
            EventLoop::new(Box::new(DatagramWire::new(&link, &pool, side)), pool)
        };
        let loops = [event_loop(0), event_loop(1)];
        (link, loops)
    }

    /// The address of a side.
    pub(crate) fn address(side: usize) -> SocketAddr {
        ([192, 0, 2, 1 + side as u8], 443).into()
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }
}

/// The driver of one side.
struct DatagramWire {
    link: Rc<Link>,
    side: usize,
    scratch: Scratch,
    socket: Option<Token>,
    /// The batch of this turn.
    batch: Vec<Datagram>,
}

impl DatagramWire {
    fn new(link: &Rc<Link>, pool: &Pool, side: usize) -> Self {
        let scratch = Scratch::with_room(pool, 0, BATCH_BYTES_MAX);
        Self { link: link.clone(), side, scratch, socket: None, batch: Vec::new() }
    }

    fn transmit(&self, transmits: &mut Transmits) -> Transmission {
        let mut transmission = Transmission::default();
        let mut waiting = self.link.waiting[1 - self.side].borrow_mut();
        while let Some(transmit) = transmits.pop() {
            let size = transmit.segment_size.map_or(usize::MAX, |size| size.get().into());
            for bytes in transmit.payload.chunks(size) {
                transmission.sent += 1;
                transmission.bytes += bytes.len() as u64;
                waiting.push_back((bytes.to_vec(), transmit.ecn));
            }
            transmits.recycle(transmit.payload);
        }
        transmission
    }

    fn receive(&mut self) {
        let mut waiting = self.link.waiting[self.side].borrow_mut();
        let mut ends = Vec::new();
        let space = self.scratch.space(BATCH_BYTES_MAX);
        let mut length = 0;
        while let Some((bytes, ecn)) = waiting.front()
            && let Some(place) = space.get_mut(length..length + bytes.len())
        {
            place.copy_from_slice(bytes);
            length += bytes.len();
            ends.push((length, *ecn));
            waiting.pop_front();
        }
        if ends.is_empty() {
            return;
        }
        let received = self.scratch.received(length);
        let (mut start, source) = (0, Link::address(1 - self.side));
        for (end, ecn) in ends {
            let payload = received.slice(start..end);
            self.batch.push(Datagram { ecn, ..Datagram::new(payload, source) });
            start = end;
        }
    }
}

impl Driver for DatagramWire {
    fn name(&self) -> &'static str {
        "datagram wire"
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::new(NullWake))
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        match operation {
            Operation::Bind { .. } => self.socket = Some(token),
            Operation::Transmit(transmits) => {
                return Some(Completion::Transmitted(leave_out(|| self.transmit(transmits))));
            }
            Operation::Close { .. } => return Some(Completion::Closed),
            _ => {}
        }
        None
    }

    fn wait(&mut self, _: Option<Duration>) -> io::Result<()> {
        leave_out(|| self.receive());
        Ok(())
    }

    fn next(&mut self, _: Class) -> Option<(Token, Completion)> {
        let socket = self.socket.filter(|_| !self.batch.is_empty())?;
        Some((socket, Completion::Datagrams(std::mem::take(&mut self.batch))))
    }

    fn give_back(&mut self, batch: Vec<Datagram>) {
        self.batch = batch;
    }

    fn has_ready(&self) -> bool {
        false
    }

    fn pause_receives(&mut self, _: bool) {}

    fn now(&self) -> Instant {
        self.link.now.get()
    }

    fn system_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now().saturating_duration_since(self.link.start)
    }

    fn address(&self, _: Token, side: Side) -> io::Result<Address> {
        let number = if side == Side::Local { self.side } else { 1 - self.side };
        Ok(Address::Ip(Link::address(number)))
    }
}

/// The bytes of one batch, at most.
const BATCH_BYTES_MAX: usize = 64 * 1024;
