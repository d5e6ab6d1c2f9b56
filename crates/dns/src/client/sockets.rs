//! The datagram sockets of a resolver: opened with their first query, closed after [`IDLE`] without one.
//!
//! Each has a port of the system's choice, and is connected to its server: the system drops datagrams of other addresses,
//! and reports that no server is there. After [`AGE_MAX`] another one at another port takes its place, and it stays for
//! late responses. A task for each receives.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_buffer::Datagram;
use tidegate_codec::later;
use tidegate_engine::{DatagramChannel, EndpointLimits, task};
use tidegate_sys::DatagramOptions;

use super::{IDLE, Shared};
use crate::message_writer::EncodedMessage;
use crate::resolver::Transport;

/// The sockets by server and number.
#[derive(Default)]
pub(super) struct Sockets {
    /// Sorted, so that they close in the same order in each run of a simulation.
    table: RefCell<BTreeMap<(usize, u16), SocketState>>,
    /// Those that others have replaced.
    replaced: RefCell<Vec<Rc<QuerySocket>>>,
    /// Opens a socket for a server at this address, in another way than the system does.
    open: Option<Rc<OpenSocket>>,
}

/// Opens a socket that reaches the server at an address.
pub(super) type OpenSocket = dyn Fn(SocketAddr) -> io::Result<DatagramChannel>;

enum SocketState {
    /// A task opens it. The queries wait: at most one an attempt.
    Opening(Vec<EncodedMessage>),
    Open(Rc<QuerySocket>),
}

struct QuerySocket {
    channel: RefCell<DatagramChannel>,
    opened: Instant,
    last_used: Cell<Instant>,
    /// The time at which one that was replaced closes.
    closes: Cell<Option<Instant>>,
}

/// The next event of a socket.
enum SocketEvent {
    Received(Datagram),
    /// A query was not delivered.
    Failed,
    /// The loop begins to drain.
    Drain,
    Idle,
    Closed,
}

impl Sockets {
    pub(super) fn opened_by(open: Rc<OpenSocket>) -> Self {
        Self { open: Some(open), ..Self::default() }
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.table.borrow().len() + self.replaced.borrow().len()
    }

    /// Closes one that was replaced.
    fn forget(&self, socket: &Rc<QuerySocket>) {
        self.replaced.borrow_mut().retain(|replaced| !Rc::ptr_eq(replaced, socket));
    }

    fn open(&self, server: SocketAddr) -> io::Result<DatagramChannel> {
        if let Some(open) = &self.open {
            return open(server);
        }
        let unspecified = match server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let options = DatagramOptions { peer: Some(server), ..DatagramOptions::default() };
        DatagramChannel::bind(unspecified, &options, EndpointLimits::default())
    }
}

/// Sends a query. A handler may call this, so a task opens the socket.
pub(super) fn send(this: &Rc<Shared>, server: usize, number: u16, message: EncodedMessage) {
    let Some(address) = this.servers[server].address else { return };
    match this.sockets.table.borrow_mut().entry((server, number)) {
        Entry::Occupied(mut entry) => match entry.get_mut() {
            SocketState::Opening(queue) => return queue.push(message),
            SocketState::Open(socket) if task::now() < socket.opened + AGE_MAX => {
                return socket.send(message, address);
            }
            state => {
                let old = std::mem::replace(state, SocketState::Opening(vec![message]));
                if let SocketState::Open(old) = old {
                    let server_timeout = this.resolver.borrow().server_timeout();
                    old.closes.set(Some(later(task::now(), server_timeout)));
                    this.sockets.replaced.borrow_mut().push(old);
                }
            }
        },
        Entry::Vacant(entry) => {
            entry.insert(SocketState::Opening(vec![message]));
        }
    }
    drop(task::spawn(run(Rc::downgrade(this), server, number, address)));
}

/// Opens a socket, and receives from it until it is idle.
async fn run(this: Weak<Shared>, server: usize, number: u16, address: SocketAddr) {
    let Some(shared) = this.upgrade() else { return };
    let Ok(channel) = shared.sockets.open(address) else { return close(&shared, server, number) };
    let socket = Rc::new(QuerySocket::new(channel));
    let opening = shared.sockets.table.borrow_mut().insert((server, number), SocketState::Open(socket.clone()));
    if let Some(SocketState::Opening(queue)) = opening {
        queue.into_iter().for_each(|message| socket.send(message, address));
    }
    // The task keeps neither: the resolver ends with its last handle.
    let weak = Rc::downgrade(&socket);
    drop((shared, socket));
    let mut is_draining = false;
    loop {
        let event = next(&weak, is_draining).await;
        let (Some(shared), Some(socket)) = (this.upgrade(), weak.upgrade()) else { return };
        match event {
            SocketEvent::Received(datagram) => {
                receive(&shared, (server, number), address, datagram, &socket);
                Shared::pump(&shared);
            }
            SocketEvent::Failed => {
                shared.resolver.borrow_mut().handle_socket_closed(server, number, task::now());
                Shared::pump(&shared);
            }
            // It was used since the task began to wait, or was replaced.
            SocketEvent::Idle if socket.ends_at() > task::now() => {}
            SocketEvent::Idle | SocketEvent::Closed if socket.closes.get().is_some() => {
                return shared.sockets.forget(&socket);
            }
            SocketEvent::Idle if shared.resolver.borrow().is_waiting(server, Transport::Datagram(number)) => {
                socket.last_used.set(task::now());
            }
            SocketEvent::Idle | SocketEvent::Closed => return close(&shared, server, number),
            SocketEvent::Drain => is_draining = true,
        }
        // A drain waits for no idle socket.
        if is_draining && !shared.resolver.borrow().is_waiting(server, Transport::Datagram(number)) {
            return match socket.closes.get() {
                Some(_) => shared.sockets.forget(&socket),
                None => close(&shared, server, number),
            };
        }
    }
}

async fn next(socket: &Weak<QuerySocket>, is_draining: bool) -> SocketEvent {
    let Some(ends_at) = socket.upgrade().map(|socket| socket.ends_at()) else { return SocketEvent::Closed };
    let (mut sleep, mut draining) = (pin!(task::sleep_until(ends_at)), pin!(task::draining()));
    let event = poll_fn(|cx| {
        let Some(socket) = socket.upgrade() else { return Poll::Ready(SocketEvent::Closed) };
        let mut channel = socket.channel.borrow_mut();
        match channel.poll_recv_from(cx) {
            Poll::Ready(Ok(datagram)) => Poll::Ready(SocketEvent::Received(datagram)),
            Poll::Ready(Err(_)) => Poll::Ready(SocketEvent::Closed),
            // Several reports at once are one failure.
            Poll::Pending if std::iter::from_fn(|| channel.next_error()).count() > 0 => {
                Poll::Ready(SocketEvent::Failed)
            }
            Poll::Pending if !is_draining && draining.as_mut().poll(cx).is_ready() => Poll::Ready(SocketEvent::Drain),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| SocketEvent::Idle),
        }
    });
    event.await
}

/// Takes the first datagram and those that came with it.
fn receive(this: &Shared, key: (usize, u16), address: SocketAddr, first: Datagram, socket: &QuerySocket) {
    let (now, mut next) = (task::now(), Some(first));
    // The channel keeps a bounded number of them, so the loop ends.
    while let Some(datagram) = next {
        let mut resolver = this.resolver.borrow_mut();
        if is_from(&datagram, address) {
            resolver.handle_datagram(key.0, key.1, &datagram.payload, now);
        } else {
            resolver.handle_foreign_datagram();
        }
        drop(resolver);
        next = socket.channel.borrow_mut().try_recv_from();
    }
}

fn is_from(datagram: &Datagram, address: SocketAddr) -> bool {
    let source = datagram.source;
    source.port() == address.port() && source.ip().to_canonical() == address.ip().to_canonical()
}

fn close(this: &Rc<Shared>, server: usize, number: u16) {
    let closed = this.sockets.table.borrow_mut().remove(&(server, number));
    drop(closed);
    this.resolver.borrow_mut().handle_socket_closed(server, number, task::now());
    Shared::pump(this);
    this.rest();
}

impl QuerySocket {
    fn new(channel: DatagramChannel) -> Self {
        let now = task::now();
        Self { channel: RefCell::new(channel), opened: now, last_used: Cell::new(now), closes: Cell::new(None) }
    }

    /// The time at which it closes, or is looked at again.
    fn ends_at(&self) -> Instant {
        self.closes.get().unwrap_or(self.last_used.get() + IDLE)
    }

    /// A query that the socket does not take is lost, as datagrams are, and the resolver tries again.
    fn send(&self, message: EncodedMessage, address: SocketAddr) {
        self.last_used.set(task::now());
        let _ = self.channel.borrow_mut().send_to(message.into_bytes(), address);
    }
}

/// The age at which another socket takes the place of one: a forger has that long to find its port.
const AGE_MAX: Duration = Duration::from_secs(30);

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("open", &self.len()).finish_non_exhaustive()
    }
}
