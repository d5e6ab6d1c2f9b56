//! `DatagramChannel`: a datagram socket for tasks.
//!
//! The channel and its endpoint share a state. The endpoint puts received datagrams there and wakes the task, and takes
//! the datagrams to send; a send schedules the endpoint, which sends all of a turn with one call.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tidegate_buffer::{Ancillary, Datagram, DatagramError, Membership, Payload, Transmit, Transmits};
use tidegate_codec::Endpoint;
use tidegate_sys::{Address, DatagramOptions, Side, Socket, Token};

use super::{EndpointEntry, EndpointLimits};
use crate::local::{HandleLocal, Local};
use crate::slot_entry::SlotEvent;
use crate::successor::Successor;
use crate::task::NO_LOOP;

/// A datagram socket for the tasks of one loop.
///
/// Received datagrams wait until a task takes them: at most [`EndpointLimits::unread_max`], beyond it the oldest is dropped.
/// Dropping the channel sends the datagrams that the kernel takes at once, and closes the socket.
///
/// ```
/// use tidegate::sys::DatagramOptions;
/// use tidegate::{Backend, DatagramChannel, EndpointLimits, EventLoop};
///
/// let sent = EventLoop::on(Backend::Auto)?.block_on(async {
///     let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
///     let mut one = DatagramChannel::bind("127.0.0.1:0".parse()?, &options, limits)?;
///     let mut other = DatagramChannel::bind("127.0.0.1:0".parse()?, &options, limits)?;
///     one.send_to(b"flow".to_vec(), other.local_address()?)?;
///     let datagram = other.recv_from().await?;
///     assert_eq!(datagram.source, one.local_address()?);
///     Ok::<_, Box<dyn std::error::Error>>(datagram.payload.to_vec())
/// })??;
/// assert_eq!(sent, b"flow");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DatagramChannel {
    local: HandleLocal,
    token: Token,
    state: Rc<RefCell<ChannelState>>,
}

/// The state that a channel shares with its endpoint.
#[derive(Default)]
struct ChannelState {
    unread: VecDeque<Datagram>,
    /// How many of them, from the front, own their memory: those of earlier batches.
    detached: usize,
    unread_max: usize,
    dropped: u64,
    outgoing: VecDeque<Transmit>,
    outgoing_max: usize,
    /// Network errors, newest last.
    errors: VecDeque<DatagramError>,
    waker: Option<Waker>,
    /// The endpoint was scheduled, and has not been dispatched since.
    is_scheduled: bool,
    /// The channel is dropped, or the socket closed.
    is_closed: bool,
}

/// The endpoint's side.
struct ChannelEndpoint(Rc<RefCell<ChannelState>>);

impl DatagramChannel {
    /// Opens a socket at `address` on the loop that runs on this thread.
    ///
    /// # Errors
    /// Those of the system, most often `AddrInUse`.
    ///
    /// # Panics
    /// If no event loop runs on this thread, and within a handler: a task calls it.
    pub fn bind(address: SocketAddr, options: &DatagramOptions, limits: EndpointLimits) -> io::Result<Self> {
        let local = Local::current().expect(NO_LOOP);
        Self::open(local, Socket::bind_datagrams(address, options)?, options, limits, None)
    }

    /// Opens a Unix datagram socket on the loop that runs on this thread: at a path, at an abstract name, or without a name
    /// if the path is empty. Such a datagram has its source in [`Datagram::peer`].
    ///
    /// ```
    /// use tidegate::sys::DatagramOptions;
    /// use tidegate::{Backend, DatagramChannel, EndpointLimits, EventLoop};
    ///
    /// let client = format!("unix:@tidegate-client-{}", std::process::id()).parse()?;
    /// let received = EventLoop::on(Backend::Auto)?.block_on(async {
    ///     let (limits, options) = (EndpointLimits::default(), DatagramOptions::default());
    ///     // The kernel names the process that sends.
    ///     let receives = DatagramOptions { credentials: true, ..DatagramOptions::default() };
    ///     let journal = format!("unix:@tidegate-journal-{}", std::process::id()).parse()?;
    ///     let mut server = DatagramChannel::bind_unix(&journal, &receives, limits)?;
    ///     let mut client = DatagramChannel::bind_unix(&client, &options, limits)?;
    ///     client.send_to_unix(b"ready".to_vec(), journal)?;
    ///     Ok::<_, Box<dyn std::error::Error>>(server.recv_from().await?)
    /// })??;
    /// assert_eq!((&*received.payload, received.peer()), (&b"ready"[..], client));
    /// let credentials = received.ancillary.and_then(|ancillary| ancillary.credentials);
    /// assert_eq!(credentials.map(|process| process.process as u32), Some(std::process::id()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the system, most often `AddrInUse`; `InvalidInput` if the address is none of a Unix socket.
    ///
    /// # Panics
    /// As [`bind`](Self::bind).
    pub fn bind_unix(address: &Address, options: &DatagramOptions, limits: EndpointLimits) -> io::Result<Self> {
        let local = Local::current().expect(NO_LOOP);
        Self::open(local, Socket::bind_unix_datagrams(address, options)?, options, limits, None)
    }

    /// Takes over a socket that was opened with `options`, on the loop that runs on this thread: one that is set up in
    /// another way than [`bind`](Self::bind) does, or one of a simulated network.
    ///
    /// # Errors
    /// The driver's, if it does not take the socket.
    ///
    /// # Panics
    /// As [`bind`](Self::bind).
    pub fn on(socket: Socket, options: &DatagramOptions, limits: EndpointLimits) -> io::Result<Self> {
        Self::open(Local::current().expect(NO_LOOP), socket, options, limits, None)
    }

    pub(super) fn open(
        local: Rc<Local>,
        socket: Socket,
        options: &DatagramOptions,
        limits: EndpointLimits,
        successor: Option<Successor>,
    ) -> io::Result<Self> {
        let state = Rc::new(RefCell::new(ChannelState {
            unread_max: limits.unread_max.max(1) as usize,
            outgoing_max: limits.waiting_max.max(1) as usize,
            ..ChannelState::default()
        }));
        let token = {
            let mut core = local.core.borrow_mut();
            let mut entry = EndpointEntry::new(ChannelEndpoint(state.clone()), None, limits, &core.pool);
            entry.successor = successor.map(Box::new);
            core.open_endpoint((socket, true), options, entry, None)?
        };
        Ok(Self { local: HandleLocal::new(local), token, state })
    }

    /// The address of the socket.
    ///
    /// # Errors
    /// Those of the system; `NotConnected` if the socket is closed.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let address = self.local.core.borrow().driver.address(self.token, Side::Local)?;
        address.ip().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// The same as an address of any family.
    ///
    /// # Errors
    /// Those of the system; `NotConnected` if the socket is closed.
    pub fn address(&self) -> io::Result<Address> {
        self.local.core.borrow().driver.address(self.token, Side::Local)
    }

    /// The next datagram. A task that keeps the payload for long [detaches](tidegate_buffer::Slice::detach) it. The future
    /// may be dropped at any time, and loses nothing.
    ///
    /// Reports of the network do not fail it; [`next_error`](Self::next_error) returns them.
    ///
    /// # Errors
    /// `NotConnected` if the socket is closed: the deadline of a drain has passed, or the loop has ended.
    pub fn recv_from(&mut self) -> RecvFrom<'_> {
        RecvFrom(self)
    }

    /// The next datagram, if it has arrived: a task that was woken by one takes the others of the batch so.
    pub fn try_recv_from(&mut self) -> Option<Datagram> {
        self.state.borrow_mut().take()
    }

    /// The datagram of [`recv_from`](Self::recv_from), for a future of the caller. A report of the network wakes it as well:
    /// a caller to whom they matter calls [`next_error`](Self::next_error) first.
    ///
    /// # Errors
    /// `NotConnected` if the socket is closed.
    pub fn poll_recv_from(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Datagram>> {
        let mut state = self.state.borrow_mut();
        if let Some(datagram) = state.take() {
            return Poll::Ready(Ok(datagram));
        }
        if state.is_closed {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Sends a datagram to a peer.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to(&mut self, payload: impl Into<Payload>, destination: SocketAddr) -> io::Result<()> {
        self.send(Transmit::new(payload, destination))
    }

    /// Sends a datagram to a Unix socket. If the queue of that socket is full, the datagram is lost, and counted in
    /// [`Counts::datagrams_lost`](crate::Counts::datagrams_lost); a socket that is connected to its peer waits instead.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to_unix(&mut self, payload: impl Into<Payload>, destination: Address) -> io::Result<()> {
        self.send(Transmit::with_ancillary(payload, Ancillary::of(destination)))
    }

    /// Sends a datagram or a run. It leaves with the others of this turn. Where too many wait, the oldest is dropped:
    /// [`dropped`](Self::dropped) counts them.
    ///
    /// # Errors
    /// `NotConnected` if the socket is closed. An error of the system comes later, by [`next_error`](Self::next_error).
    pub fn send(&mut self, transmit: Transmit) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if state.is_closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if state.outgoing.len() >= state.outgoing_max {
            state.dropped += state.outgoing.pop_front().map_or(0, |oldest| oldest.count() as u64);
        }
        state.outgoing.push_back(transmit);
        if !std::mem::replace(&mut state.is_scheduled, true) {
            drop(state);
            self.local.schedule_endpoint(self.token);
        }
        Ok(())
    }

    /// Joins or leaves a multicast group. Joining a second time changes nothing.
    ///
    /// ```
    /// use std::net::IpAddr;
    ///
    /// use tidegate::codec::Membership;
    /// use tidegate::sys::DatagramOptions;
    /// use tidegate::{Backend, DatagramChannel, EndpointLimits, EventLoop};
    ///
    /// let group: IpAddr = "239.255.7.9".parse()?;
    /// EventLoop::on(Backend::Auto)?.block_on(async {
    ///     let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
    ///     let mut channel = DatagramChannel::bind("0.0.0.0:0".parse()?, &options, limits)?;
    ///     channel.set_membership(&Membership::join(group).on_interface(1))?;
    ///     channel.set_membership(&Membership::leave(group).on_interface(1))?;
    ///     assert!(channel.set_membership(&Membership::leave(group).on_interface(1)).is_err());
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the system: `AddrNotAvailable` for a group that the socket has not joined. `InvalidInput` if the group and
    /// the source are of two families, `Unsupported` in a simulated network,
    /// [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) from within a handler.
    pub fn set_membership(&mut self, membership: &Membership) -> io::Result<()> {
        match self.local.core.try_borrow_mut() {
            Ok(mut core) => core.driver.set_membership(self.token, membership),
            Err(_) => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }

    /// The oldest report that a datagram was not delivered or not sent. The last 16 are kept. A report of the network may
    /// be forged.
    pub fn next_error(&mut self) -> Option<DatagramError> {
        self.state.borrow_mut().errors.pop_front()
    }

    /// Datagrams that the channel has dropped: received ones that no task took in time, and ones to send of which too many
    /// waited within a turn.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.state.borrow().dropped
    }
}

impl Drop for DatagramChannel {
    fn drop(&mut self) {
        self.state.borrow_mut().is_closed = true;
        let token = self.token;
        self.local.with_core(move |core| core.dispatch(token, SlotEvent::Drain));
    }
}

impl fmt::Debug for DatagramChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramChannel").field("address", &self.address().ok()).finish_non_exhaustive()
    }
}

/// The future of [`DatagramChannel::recv_from`].
#[must_use = "a future does nothing until it is awaited"]
#[derive(Debug)]
pub struct RecvFrom<'a>(&'a mut DatagramChannel);

impl Future for RecvFrom<'_> {
    type Output = io::Result<Datagram>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_recv_from(cx)
    }
}

impl ChannelState {
    fn take(&mut self) -> Option<Datagram> {
        let datagram = self.unread.pop_front()?;
        self.detached = self.detached.saturating_sub(1);
        Some(datagram)
    }

    fn close(&mut self) {
        self.is_closed = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Endpoint for ChannelEndpoint {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        let state = &mut *self.0.borrow_mut();
        if state.unread.len() >= state.unread_max {
            state.take();
            state.dropped += 1;
        }
        state.unread.push_back(datagram);
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        let state = &mut *self.0.borrow_mut();
        state.is_scheduled = false;
        state.outgoing.drain(..).for_each(|transmit| transmits.push(transmit));
        // Those of an earlier batch would keep its memory; those of this one are taken next.
        let (old, fresh) = (state.detached, state.unread.len());
        if old < fresh
            && let Some(waker) = state.waker.take()
        {
            waker.wake();
        } else {
            for datagram in state.unread.iter_mut().skip(old) {
                datagram.payload = datagram.payload.clone().detach();
            }
            state.detached = fresh;
        }
    }

    fn failed(&mut self, error: DatagramError, _now: Instant) {
        let state = &mut *self.0.borrow_mut();
        if state.errors.len() >= ERRORS_MAX {
            state.errors.pop_front();
        }
        state.errors.push_back(error);
        // A task that polls looks for errors as well.
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    // A drain: the task serves until it drops the channel, or until the deadline.
    fn is_drained(&self) -> bool {
        self.0.borrow().is_closed
    }
}

impl Drop for ChannelEndpoint {
    /// The socket is closed.
    fn drop(&mut self) {
        self.0.borrow_mut().close();
    }
}

/// Kept reports.
const ERRORS_MAX: usize = 16;
