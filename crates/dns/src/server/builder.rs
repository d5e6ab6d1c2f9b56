//! `DnsServer`: a server over UDP and TCP at the same addresses.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use tidegate_engine::{
    Admission, AdmissionControl, EndpointListener, Listener, ServedListener, Server, ServerHandle, StartError,
};
use tidegate_sys::{Address, DatagramOptions};

use super::counters::ServerMetrics;
use super::datagrams::DatagramServer;
use super::limits::ServerLimits;
use super::loop_handlers::LoopHandlers;
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
    listeners: Vec<ServedListener>,
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
            listeners: Vec::new(),
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

    /// One listener more, such as one [over TLS](LoopHandlers::serve) with the handlers of this server. It has the limits and the
    /// admission of the server, unless it has its own.
    pub fn listener(mut self, listener: ServedListener) -> Self {
        self.listeners.push(listener);
        self
    }

    /// The handlers of all loops, for [listeners](Self::listener) of other transports, and then for
    /// [`start_with`](Self::start_with). The limits and the metrics are those that are set before.
    #[must_use]
    pub fn handlers<H: QueryHandler + 'static>(
        &self,
        make: impl Fn(usize) -> H + Send + Sync + 'static,
    ) -> LoopHandlers<H> {
        LoopHandlers::new(self.limits, &self.metrics, make)
    }

    /// Starts the loops. `make` makes the handler of each loop, on its thread; datagrams and connections share it.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn start<H: QueryHandler + 'static>(
        self,
        make: impl Fn(usize) -> H + Send + Sync + 'static,
    ) -> Result<ServerHandle, StartError> {
        let handlers = self.handlers(make);
        self.start_with(&handlers)
    }

    /// The same with handlers of [`handlers`](Self::handlers).
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn start_with<H: QueryHandler + 'static>(self, handlers: &LoopHandlers<H>) -> Result<ServerHandle, StartError> {
        let Self { addresses, listeners, server, limits, access, metrics: _ } = self;
        let access = Admission { connections_per_address_max: Some(limits.connections_per_address_max), ..access };
        let control = AdmissionControl::new(&Admission { connections_per_address_max: None, ..access.clone() });
        let mut server = server.limits(limits.of_engine()).admission(access);
        for address in addresses {
            let address = Address::Ip(with_port(address)?);
            let (of_datagrams, control) = (handlers.clone(), control.clone());
            let options =
                DatagramOptions { receive_buffer_bytes: limits.receive_buffer_bytes, ..DatagramOptions::default() };
            let endpoint = EndpointListener::at(address.clone()).options(options).serve_woken(move |number, waker| {
                let service = of_datagrams.on_loop(number);
                DatagramServer::new(service, control.clone(), limits.rates, waker)
            });
            let listener = handlers.serve(Listener::at(address), ServerCodec::default);
            server = server.listener(listener).endpoint(endpoint);
        }
        listeners.into_iter().fold(server, Server::listener).run()
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

/// Tries for a port that is free for both protocols.
const PORT_TRIES_MAX: usize = 16;
