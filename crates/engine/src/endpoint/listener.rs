//! `EndpointListener`: the datagram sockets of a server, one a loop at each address.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tidegate_codec::{Endpoint, EndpointGeneration, StreamEndpoint};
use tidegate_sys::{Address, DatagramOptions, Side, Socket, Steering};

use super::bind::{EndpointLimits, EndpointWaker};
use super::channel::DatagramChannel;
use super::predecessors::Predecessors;
use super::session_handle::EndpointSession;
use super::session_tables::SessionStreams;
use super::sessions::SessionLimits;
use super::steered::{Generations, SteeredLoops};
use crate::event_loop::EventLoop;
use crate::start_error::StartError;

/// An address at which a server receives datagrams. Each loop has a socket of its own there, and an endpoint of its own;
/// the kernel distributes peers over them by a hash of both addresses, so that a peer that keeps its port stays at one
/// loop.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use tidegate::codec::{Datagram, Endpoint, Transmit, Transmits};
/// use tidegate::{EndpointListener, Server};
///
/// #[derive(Default)]
/// struct Echo(Vec<Transmit>);
///
/// impl Endpoint for Echo {
///     fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
///         self.0.push(Transmit::response(&datagram, datagram.payload.clone()));
///     }
///
///     fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
///         self.0.drain(..).for_each(|response| transmits.push(response));
///     }
/// }
///
/// let echo = EndpointListener::bind("127.0.0.1:0")?.serve(|_loop| Echo::default());
/// let server = Server::new().loops(2).endpoint(echo).run()?;
/// println!("echoes datagrams at {}", server.address());
/// server.drain(Duration::ZERO);
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a listener does nothing until it is added to a server"]
pub struct EndpointListener {
    address: Address,
    options: DatagramOptions,
    only_v6: bool,
    limits: EndpointLimits,
    label: String,
    generation: Option<SharedGeneration>,
}

/// The generation of the endpoints.
#[derive(Clone)]
struct SharedGeneration(Arc<dyn EndpointGeneration>);

impl fmt::Debug for SharedGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedGeneration").field(&self.0.number()).finish()
    }
}

impl EndpointListener {
    /// Datagrams at `address`: `IP:PORT`, `[IPV6]:PORT` or `localhost:PORT`. For port 0 the kernel chooses a free one. At
    /// `unix:PATH` or `unix:@NAME` there is one Unix socket, which the first loop serves: the kernel distributes no datagrams
    /// over several of them.
    ///
    /// ```
    /// use std::os::unix::net::UnixDatagram;
    /// use std::time::Duration;
    ///
    /// use tidegate::{EndpointListener, Server};
    ///
    /// let folder = std::env::temp_dir().join(format!("tidegate-endpoint-{}", std::process::id()));
    /// std::fs::create_dir_all(&folder)?;
    /// let path = folder.join("journal.sock");
    /// let (sender, received) = std::sync::mpsc::channel();
    /// let journal = EndpointListener::bind(&format!("unix:{}", path.display()))?.serve_channel(move |_loop, mut channel| {
    ///     let sender = sender.clone();
    ///     async move {
    ///         while let Ok(datagram) = channel.recv_from().await {
    ///             let _ = sender.send(datagram.payload.to_vec());
    ///         }
    ///     }
    /// });
    /// let server = Server::new().endpoint(journal).run()?;
    /// UnixDatagram::unbound()?.send_to(b"a line", &path)?;
    /// assert_eq!(received.recv()?, b"a line");
    /// server.drain(Duration::ZERO);
    /// std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StartError::Address`] if the text is not such an address.
    pub fn bind(address: &str) -> Result<Self, StartError> {
        let parsed: Option<Address> = address.parse().ok();
        let parsed = parsed.filter(is_address_of_datagrams);
        parsed.map(Self::at).ok_or_else(|| StartError::Address(address.into()))
    }

    /// The same with an address; the server does not start with one of vsock, nor with sessions at one of a Unix socket.
    pub fn at(address: Address) -> Self {
        let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
        Self { address, options, only_v6: false, limits, label: String::new(), generation: None }
    }

    /// Datagrams at the addresses of a [`ServedListener`](crate::ServedListener), with
    /// [`with_endpoint`](crate::ServedListener::with_endpoint).
    pub fn beside_listener() -> Self {
        Self::at(Address::Ip(SocketAddr::from(([0, 0, 0, 0], 0))))
    }

    /// The name in counters; empty unless set.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Accepts only IPv6 at an IPv6 address, whatever the [options](Self::options) say.
    pub fn only_v6(self, only_v6: bool) -> Self {
        Self { only_v6, ..self }
    }

    /// Options of the sockets. Loops share the address by `reuse_port`, whatever these options say.
    pub fn options(mut self, options: DatagramOptions) -> Self {
        self.options = options;
        self
    }

    /// The sessions of the endpoints outlast a restart ([`takeover`](crate::Server::takeover) and
    /// [`replaces`](crate::Server::replaces)): the successor has the same sockets, and sends the datagrams of earlier
    /// generations on to their servers while those drain. It needs a [rule](DatagramOptions::steering) that tells the sockets
    /// apart. Each server has a generation of its own.
    pub fn generation(mut self, generation: Option<Arc<dyn EndpointGeneration>>) -> Self {
        self.generation = generation.map(SharedGeneration);
        self
    }

    /// The limits of each loop's endpoint.
    pub fn limits(mut self, limits: EndpointLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves the datagrams with the protocol that `make` makes for each loop, given the loop's number. It is called on
    /// the loop's thread, and again for a protocol that has panicked.
    pub fn serve<E: Endpoint + 'static>(self, make: impl Fn(usize) -> E + Send + Sync + 'static) -> ServedEndpoint {
        let (make, options, limits) = (Arc::new(make), self.options.clone(), self.limits);
        let bind =
            move |BindPlace { loop_number: number, .. }: BindPlace, event_loop: &mut EventLoop, socket: Socket| {
                let make = make.clone();
                event_loop.bind_endpoint_with(socket, &options, limits, move || make(number)).map(drop)
            };
        ServedEndpoint { listener: self, bind: Arc::new(bind), has_sessions: false }
    }

    /// Serves the sessions of the protocol that `make` makes for each socket, given its place among those at the address. Each
    /// loop has one, and after a [takeover](crate::Server::takeover) a loop may have several. `services` is called on the
    /// loop's thread for each session that is established. QUIC is such a protocol.
    pub fn serve_sessions<E, S>(
        self,
        limits: SessionLimits,
        make: impl Fn(usize) -> E + Send + Sync + 'static,
        services: S,
    ) -> ServedEndpoint
    where
        E: StreamEndpoint + 'static,
        S: Fn(EndpointSession<E>) -> SessionStreams + Send + Sync + 'static,
    {
        let services = Arc::new(services);
        self.serve_sessions_each(limits, make, move |_| {
            let services = services.clone();
            move |session| services(session)
        })
    }

    /// The same with state for each loop: `each` is called on the loop's thread for each of its sockets, with the loop's number,
    /// and returns the closure that is called for each session there.
    pub fn serve_sessions_each<E, S>(
        self,
        limits: SessionLimits,
        make: impl Fn(usize) -> E + Send + Sync + 'static,
        each: impl Fn(usize) -> S + Send + Sync + 'static,
    ) -> ServedEndpoint
    where
        E: StreamEndpoint + 'static,
        S: FnMut(EndpointSession<E>) -> SessionStreams + 'static,
    {
        let (make, options) = (Arc::new(make), self.options.clone());
        let bind = move |BindPlace { loop_number, place }: BindPlace, event_loop: &mut EventLoop, socket: Socket| {
            let make = make.clone();
            let make = move || make(place);
            event_loop.bind_sessions(socket, &options, limits.clone(), make, each(loop_number)).map(drop)
        };
        ServedEndpoint { listener: self, bind: Arc::new(bind), has_sessions: true }
    }

    /// The same with a protocol that tasks of its loop wake when they have something to send, as
    /// [`EventLoop::bind_endpoint_woken`] describes.
    pub fn serve_woken<E: Endpoint + 'static>(
        self,
        make: impl Fn(usize, EndpointWaker) -> E + Send + Sync + 'static,
    ) -> ServedEndpoint {
        let (make, options, limits) = (Arc::new(make), self.options.clone(), self.limits);
        let bind =
            move |BindPlace { loop_number: number, .. }: BindPlace, event_loop: &mut EventLoop, socket: Socket| {
                let make = make.clone();
                event_loop.bind_endpoint_woken(socket, &options, limits, move |waker| make(number, waker)).map(drop)
            };
        ServedEndpoint { listener: self, bind: Arc::new(bind), has_sessions: false }
    }

    /// Serves the datagrams with tasks: each loop runs the future that `serve` makes of the loop's number and its socket, on
    /// its own thread. The socket closes when the future has ended.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate::codec::Transmit;
    /// use tidegate::{EndpointListener, Server};
    ///
    /// let echo = EndpointListener::bind("127.0.0.1:0")?.serve_channel(|_loop, mut channel| async move {
    ///     while let Ok(datagram) = channel.recv_from().await {
    ///         if channel.send(Transmit::response(&datagram, datagram.payload.clone())).is_err() {
    ///             return;
    ///         }
    ///     }
    /// });
    /// let server = Server::new().loops(2).endpoint(echo).run()?;
    /// server.drain(Duration::ZERO);
    /// # Ok::<(), tidegate::StartError>(())
    /// ```
    pub fn serve_channel<F: Future<Output = ()> + 'static>(
        self,
        serve: impl Fn(usize, DatagramChannel) -> F + Send + Sync + 'static,
    ) -> ServedEndpoint {
        let (serve, options, limits) = (Arc::new(serve), self.options.clone(), self.limits);
        let bind =
            move |BindPlace { loop_number: number, .. }: BindPlace, event_loop: &mut EventLoop, socket: Socket| {
                let channel = event_loop.open_datagrams(socket, &options, limits)?;
                let serve = serve.clone();
                // The function is called within the task, so that it may start others.
                drop(event_loop.spawn(async move { serve(number, channel).await }));
                Ok(())
            };
        ServedEndpoint { listener: self, bind: Arc::new(bind), has_sessions: false }
    }

    /// Its address, unless it is beside a listener.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The sockets at its address or one of a listener, one for each loop, which accept IPv4 too unless `only_v6` is set.
    /// Unless the address may be `shared` with another server, the first is bound alone for a moment: otherwise a second
    /// server could silently take half of the datagrams of the first.
    pub(crate) fn open_at(
        &self,
        (address, only_v6): (&Address, bool),
        loops: usize,
        shared: bool,
    ) -> Result<Vec<Socket>, StartError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => StartError::InUse(address.clone()),
            _ => StartError::Listen(address.clone(), error),
        };
        let Some(wanted) = address.ip() else {
            let is_served = is_address_of_datagrams(address);
            let opened = if is_served { self.open_unix(address) } else { Err(io::ErrorKind::Unsupported.into()) };
            return opened.map(|socket| vec![socket]).map_err(failed);
        };
        let is_shared = loops > 1 || shared || self.options.reuse_port;
        let mut options = DatagramOptions { only_v6, ..self.options.clone() };
        let mut at = wanted;
        if is_shared && !shared && !options.reuse_port {
            let alone = Socket::bind_datagrams(wanted, &options).map_err(failed)?;
            at = alone.address(Side::Local).map_err(failed)?.ip().unwrap_or(wanted);
        }
        options.reuse_port = is_shared;
        let mut sockets: Vec<Socket> = Vec::new();
        for _ in 0..loops {
            let socket = Socket::bind_datagrams(at, &options).map_err(failed)?;
            // The zone of the address is not in the socket's text, and the port is.
            at.set_port(socket.address(Side::Local).map_err(failed)?.ip().map_or(at.port(), |bound| bound.port()));
            sockets.push(socket);
        }
        Ok(sockets)
    }

    /// Whether its sockets accept only IPv6.
    pub(crate) fn is_only_v6(&self) -> bool {
        self.only_v6 || self.options.only_v6
    }

    /// # Errors
    /// The address is not of IP: sessions know their peers by such addresses.
    pub(crate) fn check_sessions(&self) -> Result<(), StartError> {
        match &self.address {
            Address::Ip(_) => Ok(()),
            other => Err(StartError::Listen(other.clone(), io::ErrorKind::Unsupported.into())),
        }
    }

    /// One socket, since the kernel has no groups of them.
    fn open_unix(&self, address: &Address) -> io::Result<Socket> {
        Socket::bind_unix_datagrams(address, &self.options)
    }

    /// Steers the datagrams of all loops' sockets. Those of a new group come to this server alone, and are steered now. A
    /// group that another server has is changed when this one runs.
    ///
    /// # Errors
    /// [`StartError::System`] if the process has no descriptors left.
    pub(crate) fn steer(&self, sockets: &[Socket], group: SocketGroup) -> Result<Option<GroupSteering>, StartError> {
        let program = self.options.steering.filter(|_| sockets.len() > 1).map(|steering| (steering, sockets.len()));
        let Some(first) = sockets.first() else { return Ok(None) };
        if group == SocketGroup::New {
            if let Some((steering, count)) = &program {
                // Where the system refuses, loops forward to each other.
                let _ = first.steer(steering, *count);
            }
            return Ok(None);
        }
        let socket = first.try_clone().map_err(StartError::System)?;
        Ok(Some(GroupSteering { socket, program: program.filter(|_| group == SocketGroup::Taken) }))
    }

    /// The endpoints of so many sockets that forward datagrams to each other, if a datagram has the number of its endpoint.
    /// Those before them may be there.
    pub(crate) fn steered(&self, places: usize, predecessors: Option<Predecessors>) -> Option<Arc<SteeredLoops>> {
        let steering = self.options.steering.filter(|steering| steering.tells_apart(places))?;
        let generations = self.generation_of(places).map(|own| Generations::new(own.clone(), predecessors));
        if generations.is_none() && places == 1 {
            return None;
        }
        Some(SteeredLoops::new(Some(steering), places, generations))
    }

    /// The generation of the endpoints of so many sockets, if their sessions outlast a restart.
    pub(crate) fn generation_of(&self, places: usize) -> Option<&Arc<dyn EndpointGeneration>> {
        let tells_apart = self.options.steering.is_some_and(|steering| steering.tells_apart(places));
        self.generation.as_ref().filter(|_| tells_apart).map(|generation| &generation.0)
    }

    /// Whether a socket that is bound to `bound` is at this address.
    pub(crate) fn is_at(&self, bound: &Address) -> bool {
        self.address == *bound
    }

    /// Whether this address has port 0, and a socket that is bound to `bound` is at another port of it.
    pub(crate) fn is_at_any_port_of(&self, bound: &Address) -> bool {
        let same = |wanted: SocketAddr, bound: SocketAddr| wanted.port() == 0 && wanted.ip() == bound.ip();
        self.address.ip().zip(bound.ip()).is_some_and(|(wanted, bound)| same(wanted, bound))
    }

    /// Takes over a socket of the server before.
    pub(crate) fn adopt(&self, socket: OwnedFd) -> io::Result<Socket> {
        Socket::from_datagrams(socket, &self.options)
    }

    pub(crate) fn name(&self) -> &str {
        &self.label
    }
}

/// Whether an endpoint may be there: an address of IP, or the name of a Unix socket.
fn is_address_of_datagrams(address: &Address) -> bool {
    match address {
        Address::Ip(_) | Address::Abstract(_) => true,
        Address::Unix(path) => !path.as_os_str().is_empty(),
        Address::Vsock { .. } => false,
    }
}

/// How the sockets of this server came into their group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketGroup {
    /// It has no others.
    New,
    /// Another server has the same ones.
    Taken,
    /// Those of another server are beside them, or may be.
    Beside,
}

/// A change of the program by which the kernel chooses among the sockets of a group.
#[derive(Debug)]
pub(crate) struct GroupSteering {
    socket: Socket,
    /// The rule, and the number of sockets. Without one the kernel chooses by a hash of the addresses: beside the sockets of
    /// a predecessor, two would have the same number.
    program: Option<(Steering, usize)>,
}

impl GroupSteering {
    /// Where the system refuses, loops forward to each other.
    pub(crate) fn apply(self) {
        let _ = match &self.program {
            Some((steering, sockets)) => self.socket.steer(steering, *sockets),
            None => self.socket.steer_by_hash(),
        };
    }
}

/// An [`EndpointListener`] with its protocol; for [`Server::endpoint`](crate::Server::endpoint).
#[derive(Clone)]
#[must_use = "an endpoint does nothing until it is added to a server"]
pub struct ServedEndpoint {
    pub(crate) listener: EndpointListener,
    pub(crate) bind: Arc<Bind>,
    /// A datagram is for the process that has its session.
    pub(crate) has_sessions: bool,
}

/// The place of a socket that is bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BindPlace {
    pub(crate) loop_number: usize,
    /// Among the sockets at the address.
    pub(crate) place: usize,
}

/// Binds a loop's socket.
pub(crate) type Bind = dyn Fn(BindPlace, &mut EventLoop, Socket) -> io::Result<()> + Send + Sync;

impl fmt::Debug for ServedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServedEndpoint").field(&self.listener).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_predecessors_program_is_detached_when_the_successor_runs_whatever_its_number_of_loops_is() {
        let steering = Steering { only_if: None, xor_offset: None, offset: 0, mask: 7 };
        for loops in [1, 2, 3] {
            let options = DatagramOptions { steering: Some(steering), ..DatagramOptions::default() };
            let listener = EndpointListener::bind("127.0.0.1:0").unwrap().options(options);
            let old = listener.open_at((&listener.address, false), 2, true).unwrap();
            assert!(listener.steer(&old, SocketGroup::New).unwrap().is_none());
            let new = listener.open_at((&old[0].address(Side::Local).unwrap(), false), loops, true).unwrap();
            let later = listener.steer(&new, SocketGroup::Beside).unwrap().expect("there is something to do");
            assert!(new[0].steer_by_hash().is_ok(), "the program stays until the successor runs");
            old[0].steer(&steering, 2).unwrap();
            later.apply();
            assert!(new[0].steer_by_hash().is_err(), "{loops}: there is none");
        }
    }
}
