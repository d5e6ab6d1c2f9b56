//! `Listener`: addresses, and the service of their connections. A server has any number of them on one set of loops.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tidegate_codec::Pipeline;
use tidegate_codec::mux::{Mux, StreamEvent};
use tidegate_sys::{Address, ListenOptions, Side, Socket, handover, inherited};

use crate::admission::Admission;
use crate::channel::Channel;
use crate::endpoint::ServedEndpoint;
use crate::event_loop::EventLoop;
use crate::handler::Handler;
use crate::limits::Limits;
use crate::protocols::Protocols;
use crate::start_error::StartError;

/// Addresses whose connections are served alike: by one protocol, with one set of limits.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{Channel, ChannelError, Listener, Server};
///
/// async fn echo(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok(())
/// }
///
/// async fn discard(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
///     while channel.recv().await?.is_some() {}
///     Ok(())
/// }
///
/// // Two protocols on one set of loops; the first has two addresses.
/// let server = Server::new()
///     .loops(1)
///     .listener(Listener::bind("127.0.0.1:0")?.and_bind("127.0.0.1:0")?.label("echo").serve(Lines::new, echo))
///     .listener(Listener::bind("127.0.0.1:0")?.label("discard").serve(Lines::new, discard))
///     .run()?;
/// for listener in server.listeners() {
///     println!("{}: {:?}, {} connections", listener.label(), listener.addresses(), listener.counts().connections());
/// }
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a listener does nothing until it is added to a server"]
pub struct Listener {
    sources: Vec<Source>,
    options: ListenOptions,
    pub(super) limits: Option<Limits>,
    pub(super) admission: Option<Admission>,
    label: String,
}

#[derive(Debug)]
enum Source {
    Address(Address),
    Descriptor(OwnedFd),
}

impl FromIterator<Address> for Listener {
    /// A listener at all these addresses.
    fn from_iter<A: IntoIterator<Item = Address>>(addresses: A) -> Self {
        addresses.into_iter().fold(Self::default(), Self::and_at)
    }
}

impl Listener {
    /// A listener at `address`: `IP:PORT`, `[IPV6]:PORT`, `localhost:PORT`, `unix:PATH`, or `unix:@NAME` for a name in
    /// the abstract namespace of Linux. For port 0 the kernel chooses a free one. `[::]:PORT` accepts IPv4 too, unless
    /// [`ListenOptions::only_v6`] is set or the listener has `0.0.0.0:PORT` as well. `[IPV6%INTERFACE]:PORT` is an address
    /// of a link.
    ///
    /// # Errors
    /// [`StartError::Address`] if the text is not an address.
    pub fn bind(address: &str) -> Result<Self, StartError> {
        Self::default().and_bind(address)
    }

    /// A listener at an address.
    pub fn at(address: Address) -> Self {
        Self::default().and_at(address)
    }

    /// A listener on listening stream sockets that the caller opened. Every one of them is accepted from, for any number
    /// of loops: by one loop, or by several if it is the only one at its address.
    pub fn on(descriptors: Vec<OwnedFd>) -> Self {
        Self { sources: descriptors.into_iter().map(Source::Descriptor).collect(), ..Self::default() }
    }

    /// A listener on the sockets that a service manager has passed to this process, as
    /// [`Server::from_environment`](crate::Server::from_environment); `None` if it has passed none.
    ///
    /// # Errors
    /// [`StartError::Inherited`] if the variables are malformed, or a passed descriptor is not a listener.
    pub fn from_environment() -> Result<Option<Self>, StartError> {
        let Some(listeners) = inherited::take().map_err(StartError::Inherited)? else { return Ok(None) };
        listeners.iter().map(AsFd::as_fd).try_for_each(handover::check).map_err(StartError::Inherited)?;
        Ok(Some(Self::on(listeners)))
    }

    /// One address more.
    ///
    /// # Errors
    /// [`StartError::Address`] if the text is not an address.
    pub fn and_bind(self, address: &str) -> Result<Self, StartError> {
        address.parse().map(|address| self.and_at(address)).map_err(|_| StartError::Address(address.into()))
    }

    /// One address more.
    pub fn and_at(mut self, address: Address) -> Self {
        self.sources.push(Source::Address(address));
        self
    }

    /// The name of the listener in counters; empty unless set.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Options of the sockets and their streams. Loops share a TCP address by `reuse_port`, whatever these options say. A
    /// socket that a service manager or a running server has opened keeps its backlog, `reuse_port` and the mode of its
    /// file; with other versions of IP than `only_v6` wants the server does not start ([`StartError::IpVersions`]).
    pub fn options(mut self, options: ListenOptions) -> Self {
        self.options = options;
        self
    }

    /// The limits of these connections. A listener without limits of its own has those of the server, and its
    /// connections count together with those of all other such listeners.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Which peers may connect, and how many connections each may have. A listener without admission of its own has that
    /// of the server, and its connections count together with those of all other such listeners.
    pub fn admission(mut self, admission: Admission) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Serves each connection with the codec and the handler that `make` makes.
    pub fn handle<C, H>(self, make: impl Fn() -> (C, H) + Send + Sync + 'static) -> ServedListener
    where
        C: Pipeline,
        H: Handler<C>,
    {
        let make = Arc::new(make);
        self.handle_each(move |_| {
            let make = make.clone();
            move |_: &Address| make()
        })
    }

    /// The same with state for each loop. `each` is called once on each loop's thread, with the loop's number. It
    /// returns a closure that makes a codec and a handler for each connection there, given the peer's address; so
    /// handlers of one loop can share values that are not `Send`. `each` may start tasks, which end with the loop.
    pub fn handle_each<C, H, M>(self, each: impl Fn(usize) -> M + Send + Sync + 'static) -> ServedListener
    where
        C: Pipeline,
        H: Handler<C>,
        M: FnMut(&Address) -> (C, H) + 'static,
    {
        self.served(move |number, event_loop, sockets, limits, live| {
            let make = Rc::new(RefCell::new(each(number)));
            sockets.into_iter().try_for_each(|socket| {
                let make = make.clone();
                event_loop.listen(socket, limits.clone(), live.clone(), move |peer| (make.borrow_mut())(peer))
            })
        })
    }

    /// Serves each connection by a task that runs `serve` on its channel; `codec` makes the codec. As
    /// [`Server::serve`](crate::Server::serve) otherwise.
    pub fn serve<C, F, E>(
        self,
        codec: impl Fn() -> C + Send + Sync + 'static,
        serve: impl Fn(Channel<C>) -> F + Send + Sync + 'static,
    ) -> ServedListener
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        let (codec, serve) = (Arc::new(codec), Arc::new(serve));
        self.serve_each(move |_| {
            let (codec, serve) = (codec.clone(), serve.clone());
            (move |_: &Address| codec(), move |channel| serve(channel))
        })
    }

    /// The same with state for each loop: `each` is called once on each loop's thread, with the loop's number, and
    /// returns a function that makes a codec for the peer's address, and one that serves channels there.
    pub fn serve_each<C, F, E, M, S>(self, each: impl Fn(usize) -> (M, S) + Send + Sync + 'static) -> ServedListener
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
        M: FnMut(&Address) -> C + 'static,
        S: Fn(Channel<C>) -> F + 'static,
    {
        self.served(move |number, event_loop, sockets, limits, live| {
            let (codec, serve) = each(number);
            let both = Rc::new((RefCell::new(codec), serve));
            sockets.into_iter().try_for_each(|socket| {
                let (first, second) = (both.clone(), both.clone());
                let (codec, serve) =
                    (move |peer: &Address| (first.0.borrow_mut())(peer), move |channel| second.1(channel));
                event_loop.serve_each(socket, limits.clone(), live.clone(), codec, serve)
            })
        })
    }

    /// Makes a session of each connection, with the multiplexing codec that `mux` makes, and serves each stream that the
    /// peer opens with the codec and the handler that `make` makes. A stream is like a connection of its own, with the
    /// same limits.
    pub fn handle_streams<P, C, H>(
        self,
        mux: impl Fn() -> P + Send + Sync + 'static,
        make: impl Fn() -> (C, H) + Send + Sync + 'static,
    ) -> ServedListener
    where
        P: Pipeline<In = StreamEvent, Codec: Mux>,
        C: Pipeline,
        H: Handler<C>,
    {
        let both = Arc::new((mux, make));
        self.served(move |_, event_loop, sockets, limits, live| {
            sockets.into_iter().try_for_each(|socket| {
                let (first, second) = (both.clone(), both.clone());
                event_loop.listen_streams(socket, limits.clone(), live.clone(), move || first.0(), move || second.1())
            })
        })
    }

    /// The same with tasks: each stream gets a codec that `codec` makes, and a task that runs `serve` on its channel.
    pub fn serve_streams<P, C, F, E>(
        self,
        mux: impl Fn() -> P + Send + Sync + 'static,
        codec: impl Fn() -> C + Send + Sync + 'static,
        serve: impl Fn(Channel<C>) -> F + Send + Sync + 'static,
    ) -> ServedListener
    where
        P: Pipeline<In = StreamEvent, Codec: Mux>,
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        let all = Arc::new((mux, codec, serve));
        self.served(move |_, event_loop, sockets, limits, live| {
            sockets.into_iter().try_for_each(|socket| {
                let (mux, codec, serve) = (all.clone(), all.clone(), all.clone());
                let (mux, codec) = (move || mux.0(), move || codec.1());
                event_loop
                    .serve_streams(socket, limits.clone(), live.clone(), mux, codec, move |channel| serve.2(channel))
            })
        })
    }

    /// Serves several protocols, which the first bytes of each connection choose. `each` is called once on each loop's
    /// thread, with the loop's number, so the applications of one loop can share values that are not `Send`.
    pub fn sniff(self, each: impl Fn(usize) -> Protocols + Send + Sync + 'static) -> ServedListener {
        self.handle_each(move |number| {
            let protocols = each(number).share();
            move |_: &Address| (protocols.sniffer(), protocols.handler())
        })
    }

    fn served(
        self,
        listen: impl Fn(usize, &mut EventLoop, Vec<Socket>, &Limits, &Arc<AtomicUsize>) -> io::Result<()>
        + Send
        + Sync
        + 'static,
    ) -> ServedListener {
        ServedListener { listener: self, listen: Arc::new(listen), beside: None }
    }

    /// The sockets to accept from: at each address those that were `found`, or new ones. On TCP each loop has a new one of
    /// its own, and the kernel distributes connections over them; other sockets are shared. Every address that cannot be
    /// used is added to `failed`, every path of a new Unix socket to `created`.
    pub(super) fn open(
        &self,
        loops: usize,
        found: &[Vec<&OwnedFd>],
        created: &mut Vec<PathBuf>,
        failed: &mut Vec<StartError>,
    ) -> Vec<Socket> {
        let mut sockets = Vec::new();
        for (source, found) in self.sources.iter().zip(found) {
            let opened = match source {
                Source::Descriptor(descriptor) => self.adopt(descriptor).map(|socket| vec![socket]),
                Source::Address(_) if !found.is_empty() => self.adopt_all(found),
                Source::Address(address) => {
                    let opened = self.listen_at(address, loops);
                    if let (Ok(_), Address::Unix(path)) = (&opened, address) {
                        created.push(path.clone());
                    }
                    opened
                }
            };
            match opened {
                Ok(opened) => sockets.extend(opened),
                Err(error) => failed.push(error),
            }
        }
        sockets
    }

    /// Takes over sockets that were opened elsewhere.
    pub(super) fn adopt_all(&self, descriptors: &[&OwnedFd]) -> Result<Vec<Socket>, StartError> {
        descriptors.iter().map(|descriptor| self.adopt(descriptor)).collect()
    }

    /// Takes over a socket that was opened elsewhere.
    fn adopt(&self, descriptor: &OwnedFd) -> Result<Socket, StartError> {
        let socket = handover::check(descriptor.as_fd())
            .and_then(|()| Socket::from_listener(descriptor.try_clone()?, &self.options));
        socket.map_err(StartError::System)
    }

    fn listen_at(&self, address: &Address, loops: usize) -> Result<Vec<Socket>, StartError> {
        let first = self.first(address, loops)?;
        let address = first.address(Side::Local).map_err(StartError::System)?;
        let mut sockets = vec![first];
        if address.ip().is_some() {
            for _ in 1..loops {
                let options = ListenOptions { reuse_port: true, ..self.options_at(&address) };
                sockets.push(Socket::listen(&address, &options).map_err(StartError::System)?);
            }
        }
        Ok(sockets)
    }

    /// The first socket at an address. Where loops share the address, a socket that does not share is bound to it first:
    /// otherwise a second server could silently take half of the connections of the first. That socket does not listen,
    /// since it would reset the peers that connect to it.
    fn first(&self, address: &Address, loops: usize) -> Result<Socket, StartError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => StartError::InUse(address.clone()),
            _ => StartError::Listen(address.clone(), error),
        };
        let options = self.options_at(address);
        if loops == 1 || address.ip().is_none() || options.reuse_port {
            return Socket::listen(address, &options).map_err(failed);
        }
        let address = Socket::find_address(address, &options).map_err(failed)?;
        Socket::listen(&address, &ListenOptions { reuse_port: true, ..options }).map_err(failed)
    }

    /// The options of a socket at an address. `[::]` has IPv6 alone if this listener has `0.0.0.0` with the same port too.
    fn options_at(&self, address: &Address) -> ListenOptions {
        let is = |address: &Address, any: IpAddr, port: u16| {
            address.ip().is_some_and(|ip| ip.ip() == any && ip.port() == port && port > 0)
        };
        let has_both = address.ip().is_some_and(|ip| {
            is(address, Ipv6Addr::UNSPECIFIED.into(), ip.port())
                && self.configured().any(|other| is(other, Ipv4Addr::UNSPECIFIED.into(), ip.port()))
        });
        ListenOptions { only_v6: self.options.only_v6 || has_both, ..self.options.clone() }
    }

    /// Whether it accepts only IPv6 at all its IPv6 addresses.
    pub(super) fn is_only_v6(&self) -> bool {
        self.options.only_v6
    }

    /// Its label.
    pub(super) fn name(&self) -> &str {
        &self.label
    }

    /// The addresses that it was configured with.
    pub(super) fn configured(&self) -> impl Iterator<Item = &Address> {
        self.by_source().flatten()
    }

    /// The address of each of its sources; `None` for a socket that the caller opened.
    pub(super) fn by_source(&self) -> impl Iterator<Item = Option<&Address>> {
        self.sources.iter().map(|source| match source {
            Source::Address(address) => Some(address),
            Source::Descriptor(_) => None,
        })
    }
}

pub(super) type Listen =
    dyn Fn(usize, &mut EventLoop, Vec<Socket>, &Limits, &Arc<AtomicUsize>) -> io::Result<()> + Send + Sync;

/// A [`Listener`] with the service of its connections; for [`Server::listener`](crate::Server::listener).
#[must_use = "a listener does nothing until it is added to a server"]
pub struct ServedListener {
    pub(super) listener: Listener,
    pub(super) listen: Arc<Listen>,
    pub(super) beside: Option<BesideEndpoint>,
}

/// An endpoint at the addresses of a listener.
#[derive(Clone)]
pub(super) struct BesideEndpoint {
    pub(super) endpoint: ServedEndpoint,
    /// Learns the addresses.
    pub(super) bound: Arc<Bound>,
}

/// Learns the addresses of a listener.
type Bound = dyn Fn(&[Address]) + Send + Sync;

impl ServedListener {
    /// Serves datagrams as well, at the IP addresses and ports of this listener, under its [`Admission`]. `bound` learns
    /// the addresses before the first connection comes: for port 0 the kernel has chosen one that is free for both. The
    /// address of the endpoint has no effect: see [`EndpointListener::beside_listener`](crate::EndpointListener::beside_listener).
    pub fn with_endpoint(
        mut self,
        endpoint: ServedEndpoint,
        bound: impl Fn(&[Address]) + Send + Sync + 'static,
    ) -> Self {
        self.beside = Some(BesideEndpoint { endpoint, bound: Arc::new(bound) });
        self
    }
}

impl fmt::Debug for ServedListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServedListener").field(&self.listener).finish()
    }
}
