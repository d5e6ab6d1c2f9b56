//! `DnsServer`: a server over UDP and TCP at the same addresses.

use std::any::Any;
use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_engine::{Admission, AdmissionControl, EndpointListener, Listener, Server, ServerHandle, StartError};
use tidegate_sys::Address;

use super::counters::ServerMetrics;
use super::datagrams::DatagramServer;
use super::handler::StreamHandler;
use super::in_flight::InFlight;
use super::limits::ServerLimits;
use super::query_handler::QueryHandler;
use crate::stream_codecs::ServerCodec;

/// A server over UDP and TCP at the same addresses.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::dns::Zone;
/// use tidegate::dns::server::DnsServer;
///
/// let zone = Arc::new(Zone::parse("tides.example. 60 SOA . . 1 2 3 4 5\n", None)?);
/// let server = DnsServer::bind("127.0.0.1:0")?.loops(1).start(move |_loop| zone.clone())?;
/// println!("serves {} over UDP and TCP", server.address());
/// # drop(server);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a server does nothing until it is started"]
pub struct DnsServer {
    addresses: Vec<SocketAddr>,
    server: Server,
    limits: ServerLimits,
    access: Admission,
    metrics: ServerMetrics,
}

impl DnsServer {
    /// A server at `address`: `IP:PORT`, `[IPV6]:PORT` or `localhost:PORT`. For port 0 the server takes one that is free for
    /// both protocols.
    ///
    /// # Errors
    /// [`StartError::Address`] if the text is not such an address.
    pub fn bind(address: &str) -> Result<Self, StartError> {
        let parsed = address.parse::<Address>().ok().and_then(|address| address.ip());
        parsed.map(Self::at).ok_or_else(|| StartError::Address(address.into()))
    }

    /// The same with an address.
    pub fn at(address: SocketAddr) -> Self {
        Self {
            addresses: vec![address],
            server: Server::new(),
            limits: ServerLimits::default(),
            access: Admission::default(),
            metrics: ServerMetrics::new(),
        }
    }

    /// One address more.
    pub fn and_at(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// How many loops; one for each core unless set.
    pub fn loops(mut self, loops: usize) -> Self {
        self.server = self.server.loops(loops);
        self
    }

    /// Changes the settings of the loops, such as their backend and their memory. The listeners, their limits and their
    /// admission are those of the other methods.
    pub fn engine(mut self, change: impl FnOnce(Server) -> Server) -> Self {
        self.server = change(self.server);
        self
    }

    /// The limits.
    pub fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Which peers have access; all unless set. A query in a datagram from another network gets REFUSED, and a connection
    /// is reset. [`ServerLimits::connections_per_address_max`] replaces its limit of connections.
    pub fn access(mut self, access: Admission) -> Self {
        self.access = access;
        self
    }

    /// Where the server counts.
    pub fn metrics(mut self, metrics: &ServerMetrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Starts the loops. `make` makes the handler of each loop, on its thread; datagrams and connections share it.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn start<H: QueryHandler + 'static>(
        self,
        make: impl Fn(usize) -> H + Send + Sync + 'static,
    ) -> Result<ServerHandle, StartError> {
        let Self { addresses, server, limits, access, metrics } = self;
        let access = Admission { connections_per_address_max: Some(limits.connections_per_address_max), ..access };
        let control = AdmissionControl::new(&Admission { connections_per_address_max: None, ..access.clone() });
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let make = Arc::new(move |number| of_loop(id, || make(number)));
        let mut server = server.limits(limits.of_engine()).admission(access);
        for address in addresses {
            let address = Address::Ip(with_port(address)?);
            let (of_datagrams, of_streams) = (make.clone(), make.clone());
            let (counted, counted_streams, control) = (metrics.clone(), metrics.clone(), control.clone());
            let endpoint = EndpointListener::at(address.clone()).serve_woken(move |number, waker| {
                let (handler, in_flight) = (of_datagrams(number), of_loop(id, || InFlight::new(&limits)));
                DatagramServer::new(handler, control.clone(), limits.rates, in_flight, counted.register(), waker)
            });
            let listener = Listener::at(address).handle_each(move |number| {
                let (handler, counters) = (of_streams(number), counted_streams.register());
                let in_flight = of_loop(id, || InFlight::new(&limits));
                let in_flight_max = limits.in_flight_per_connection_max;
                move |_: &Address| {
                    let stream =
                        StreamHandler::shared(handler.clone(), counters.clone(), in_flight.clone(), in_flight_max);
                    (ServerCodec::default(), stream)
                }
            });
            server = server.listener(listener).endpoint(endpoint);
        }
        server.run()
    }
}

/// A port that is free for both protocols, for port 0. It may be taken until the server binds it, which the server reports.
fn with_port(mut address: SocketAddr) -> Result<SocketAddr, StartError> {
    for _ in 0..PORT_TRIES_MAX {
        if address.port() != 0 {
            break;
        }
        let failed = |error| StartError::Listen(Address::Ip(address), error);
        let datagrams = UdpSocket::bind(address).map_err(failed)?;
        let port = datagrams.local_addr().map_err(failed)?.port();
        if TcpListener::bind(SocketAddr::new(address.ip(), port)).is_ok() {
            address.set_port(port);
        }
    }
    Ok(address)
}

/// The handler of this thread's loop, or its queries in flight: made once, and shared by its endpoints and listeners.
fn of_loop<H: 'static>(id: u64, make: impl FnOnce() -> H) -> Rc<H> {
    let known = HANDLERS.with_borrow_mut(|handlers| {
        handlers.retain(|(_, handler)| handler.strong_count() > 0);
        let mut of_server = handlers.iter().filter(|(other, _)| *other == id);
        of_server.find_map(|(_, handler)| handler.upgrade()?.downcast::<H>().ok())
    });
    known.unwrap_or_else(|| {
        let handler = Rc::new(make());
        let weak: Weak<dyn Any> = Rc::downgrade(&(handler.clone() as Rc<dyn Any>));
        HANDLERS.with_borrow_mut(|handlers| handlers.push((id, weak)));
        handler
    })
}

thread_local! {
    /// Handlers and queries in flight by the numbers of their servers.
    static HANDLERS: RefCell<Vec<(u64, Weak<dyn Any>)>> = const { RefCell::new(Vec::new()) };
}

/// Numbers servers of this process.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// Tries for a port that is free for both protocols.
const PORT_TRIES_MAX: usize = 16;
