//! Adding endpoints to a loop.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use tidegate_codec::Endpoint;
use tidegate_sys::{Address, DatagramOptions, Operation, Side, Socket, Token};

use super::{DatagramChannel, EndpointEntry};
use crate::event_loop::EventLoop;
use crate::local::Local;
use crate::loop_core::Core;
use crate::slot_entry::{SlotEntry, SlotEvent};

/// The limits that protect an endpoint.
///
/// ```
/// use tidegate::EndpointLimits;
///
/// let limits = EndpointLimits { waiting_max: 64, ..EndpointLimits::default() };
/// assert_eq!(limits.waiting_bytes_max, 4 * 1024 * 1024);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointLimits {
    /// Datagrams or runs that wait to be sent; 1,024 by default. The oldest is dropped for the next one.
    pub waiting_max: u32,
    /// The sum of their payloads in bytes; 4 MiB by default. A lower limit than [`RUN_BYTES`](Self::RUN_BYTES) counts as
    /// that.
    pub waiting_bytes_max: u32,
    /// Received datagrams that wait for the task of a [`DatagramChannel`]; 1,024 by default. The oldest is dropped for
    /// the next one.
    pub unread_max: u32,
}

impl EndpointLimits {
    /// The longest run, in bytes. A protocol that can wait with its datagrams stops when the list has no room for that
    /// many: [`Transmits::room`](tidegate_buffer::Transmits::room). The loop asks it again once the kernel has taken some.
    pub const RUN_BYTES: u32 = 64 * 1024;
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self { waiting_max: 1024, waiting_bytes_max: 4 * 1024 * 1024, unread_max: 1024 }
    }
}

impl EventLoop {
    /// Runs a protocol of datagrams on a socket that was opened with `options`. If the protocol panics, the socket is
    /// closed. Returns the address.
    ///
    /// ```
    /// use std::collections::VecDeque;
    /// use std::net::UdpSocket;
    /// use std::time::{Duration, Instant};
    ///
    /// use tidegate::codec::{Datagram, Endpoint, Transmit, Transmits};
    /// use tidegate::sys::{DatagramOptions, Socket};
    /// use tidegate::{Backend, EndpointLimits, EventLoop};
    ///
    /// #[derive(Default)]
    /// struct Echo(VecDeque<Transmit>);
    ///
    /// impl Endpoint for Echo {
    ///     fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
    ///         self.0.push_back(Transmit::response(&datagram, datagram.payload.clone()));
    ///     }
    ///
    ///     fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
    ///         self.0.drain(..).for_each(|response| transmits.push(response));
    ///     }
    /// }
    ///
    /// let mut event_loop = EventLoop::on(Backend::Auto)?;
    /// let options = DatagramOptions::default();
    /// let socket = Socket::bind_datagrams("127.0.0.1:0".parse()?, &options)?;
    /// let address = event_loop.bind_endpoint(socket, &options, EndpointLimits::default(), Echo::default())?;
    /// let peer = UdpSocket::bind("127.0.0.1:0")?;
    /// peer.send_to(b"ebb", address.ip().ok_or("an IP address")?)?;
    /// event_loop.turn(Some(Duration::from_secs(10)))?;
    /// let mut response = [0; 8];
    /// assert_eq!(peer.recv(&mut response)?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The driver's, if it does not take the socket.
    pub fn bind_endpoint<E: Endpoint + 'static>(
        &mut self,
        socket: Socket,
        options: &DatagramOptions,
        limits: EndpointLimits,
        endpoint: E,
    ) -> io::Result<Address> {
        self.bind_entry(socket, options, limits, (endpoint, None), None)
    }

    /// The same with a function that makes the protocol: first now, and again if it panics. A datagram that makes a
    /// protocol panic then costs its state, and does not close the socket.
    ///
    /// # Errors
    /// The driver's, if it does not take the socket.
    pub fn bind_endpoint_with<E: Endpoint + 'static>(
        &mut self,
        socket: Socket,
        options: &DatagramOptions,
        limits: EndpointLimits,
        mut make: impl FnMut() -> E + 'static,
    ) -> io::Result<Address> {
        let endpoint = make();
        self.bind_entry(socket, options, limits, (endpoint, Some(Box::new(make))), None)
    }

    /// The same with a protocol that has datagrams to send when a task of this loop has come to a result. `make` gets the
    /// waker that the task calls then.
    ///
    /// # Errors
    /// The driver's, if it does not take the socket.
    pub fn bind_endpoint_woken<E: Endpoint + 'static>(
        &mut self,
        socket: Socket,
        options: &DatagramOptions,
        limits: EndpointLimits,
        mut make: impl FnMut(EndpointWaker) -> E + 'static,
    ) -> io::Result<Address> {
        let waker = EndpointWaker::default();
        let own = waker.clone();
        let mut make = move || make(own.clone());
        let endpoint = make();
        self.bind_entry(socket, options, limits, (endpoint, Some(Box::new(make))), Some(waker))
    }

    fn bind_entry<E: Endpoint + 'static>(
        &mut self,
        socket: Socket,
        options: &DatagramOptions,
        limits: EndpointLimits,
        (endpoint, make): Made<E>,
        waker: Option<EndpointWaker>,
    ) -> io::Result<Address> {
        self.refresh_time();
        let (steered, successor) = self.take_endpoint();
        let _entered = self.local.enter();
        let mut core = self.local.core.borrow_mut();
        let mut entry = EndpointEntry::new(endpoint, make, limits, &core.pool);
        entry.steered = steered.clone().map(Box::new);
        entry.successor = successor.map(Box::new);
        let token = core.open_endpoint((socket, true), options, entry, waker)?;
        if let Some(steered) = steered {
            steered.join(&core.mailbox, token);
        }
        core.driver.address(token, Side::Local)
    }

    /// Takes over a datagram socket that was opened with `options`, for the tasks of this loop.
    ///
    /// # Errors
    /// The driver's, if it does not take the socket.
    pub fn open_datagrams(
        &mut self,
        socket: Socket,
        options: &DatagramOptions,
        limits: EndpointLimits,
    ) -> io::Result<DatagramChannel> {
        self.refresh_time();
        let (_, successor) = self.take_endpoint();
        let _entered = self.local.enter();
        DatagramChannel::open(self.local.clone(), socket, options, limits, successor)
    }
}

/// A protocol, and the function that makes it anew.
type Made<E> = (E, Option<Box<dyn FnMut() -> E>>);

/// Has the loop ask an endpoint for datagrams to send, when a task of the same loop has a result for it. A clone is the
/// same waker. An endpoint that has closed is not woken.
#[derive(Debug, Clone, Default)]
pub struct EndpointWaker(Rc<Cell<Option<Token>>>);

impl EndpointWaker {
    /// The loop calls [`poll_transmit`](Endpoint::poll_transmit) in this turn, once for any number of calls before it.
    pub fn wake(&self) {
        if let (Some(token), Some(local)) = (self.0.get(), Local::current()) {
            local.schedule_endpoint(token);
        }
    }
}

impl Core {
    /// Gives an endpoint a slot and its socket to the driver, which `receives` from it, and dispatches it for the first time.
    pub(super) fn open_endpoint(
        &mut self,
        (socket, receives): (Socket, bool),
        options: &DatagramOptions,
        entry: impl SlotEntry + 'static,
        waker: Option<EndpointWaker>,
    ) -> io::Result<Token> {
        let (token, _) = self.reserve(Operation::Bind { socket, options })?;
        if let Some(waker) = waker {
            waker.0.set(Some(token));
        }
        self.counters.endpoints += 1;
        self.counters.has_endpoints = true;
        self.driver.submit(token, Operation::Receive(receives));
        self.dispatch_entry(token, Box::new(entry), SlotEvent::Opened);
        self.notify_drain(token);
        Ok(token)
    }
}

impl Local {
    /// Dispatches an endpoint at the end of this pass of the loop.
    pub(super) fn schedule_endpoint(self: &Rc<Self>, token: Token) {
        self.with_core(move |core| core.queues.schedule(token));
    }
}
