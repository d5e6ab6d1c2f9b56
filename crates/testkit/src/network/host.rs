//! `Host` and `SimNode`: an address, and the event loops that run there.

use std::cell::RefCell;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tidegate_buffer::Pool;
use tidegate_codec::{Endpoint, Pipeline};
use tidegate_engine::task::Task;
use tidegate_engine::{Channel, Counts, DatagramChannel, EndpointLimits, EventLoop, Handler, Limits};
use tidegate_sys::{Address, DatagramOptions, Driver, Socket};

use super::Network;
use super::driver::SimDriver;
use super::world::SimDriverState;

/// A host of a [`Network`]: an IP address at which loops listen and from which they connect.
#[derive(Debug, Clone)]
pub struct Host {
    pub(super) network: Network,
    pub(super) ip: IpAddr,
}

impl Host {
    /// Its address.
    #[must_use]
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// A driver on this host, which receives into memory of `pool`. It never blocks, and its wait time-outs do not move
    /// the clock: the caller turns its loop. [`node`](Host::node) makes a loop that the network turns.
    #[must_use]
    pub fn driver(&self, pool: &Pool) -> Box<dyn Driver> {
        Box::new(self.new_driver(pool).0)
    }

    /// An event loop on this host, turned by the network.
    #[must_use]
    pub fn node(&self) -> SimNode {
        self.node_with_driver(|driver| driver)
    }

    /// An event loop on this host over a driver of the test. That driver wraps the given one and forwards to it: a shim
    /// that counts, or that injects errors.
    #[must_use]
    pub fn node_with_driver(&self, wrap: impl FnOnce(Box<dyn Driver>) -> Box<dyn Driver>) -> SimNode {
        let pool = Pool::new();
        let (driver, number) = self.new_driver(&pool);
        self.network.world.borrow_mut().driver_states[number].is_turned = true;
        let event_loop = Rc::new(RefCell::new(EventLoop::new(wrap(Box::new(driver)), pool.clone())));
        self.network.loops.borrow_mut().push((number, event_loop.clone()));
        SimNode { host: self.clone(), event_loop, driver: number, pool }
    }

    /// A listener at a port of this host, for a loop on this host.
    ///
    /// # Errors
    /// `AddrInUse` if there is one.
    pub fn listener(&self, port: u16) -> io::Result<Socket> {
        self.listener_at(&Address::Ip(SocketAddr::new(self.ip, port)))
    }

    /// A listener at an address of this host or at a Unix path, for a loop on this host. All hosts of a network share
    /// the paths. A path stays when its listener closes, as a socket file does: a connect to it is then refused. A
    /// connect to a path that never had a listener fails with `NotFound`.
    ///
    /// # Errors
    /// `AddrInUse` if there is a listener, `AddrNotAvailable` if the address is another host's, and `InvalidInput` if
    /// the path is empty.
    pub fn listener_at(&self, address: &Address) -> io::Result<Socket> {
        Ok(Socket::Simulated(self.network.world.borrow_mut().listen(self.ip, address)?))
    }

    /// A datagram socket at a port of this host, for a loop on this host; any free port for 0. Ports of datagrams and of
    /// listeners are apart. Of `options`, the simulated kernel has the peer, the longest payload, the receive buffer
    /// (208 KiB by default) and `reuse_port`.
    ///
    /// # Errors
    /// `AddrInUse` if the port has a socket, and one of both does not share.
    pub fn datagrams(&self, port: u16, options: &DatagramOptions) -> io::Result<Socket> {
        Ok(Socket::Simulated(self.network.world.borrow_mut().bind_datagrams(self.ip, port, options)?))
    }

    /// A Unix datagram socket for a loop of any host: at a path, at an abstract name, or without a name if the path is empty. All
    /// hosts of a network share the names.
    ///
    /// # Errors
    /// `AddrInUse`; `InvalidInput` if the address is none of a Unix socket.
    pub fn unix_datagrams(&self, name: &Address, options: &DatagramOptions) -> io::Result<Socket> {
        Ok(Socket::Simulated(self.network.world.borrow_mut().bind_unix_datagrams(name, options)?))
    }

    fn new_driver(&self, pool: &Pool) -> (SimDriver, usize) {
        let mut world = self.network.world.borrow_mut();
        let number = world.driver_states.len();
        world.driver_states.push(SimDriverState::new(self.ip));
        drop(world);
        (SimDriver::new(self.network.world.clone(), number, pool), number)
    }
}

/// An event loop on a host of a [`Network`], which turns it. A method acts at the current time of the network; its
/// consequences occur when the network runs.
#[derive(Debug)]
pub struct SimNode {
    host: Host,
    event_loop: Rc<RefCell<EventLoop>>,
    driver: usize,
    pool: Pool,
}

impl SimNode {
    /// Listens at a port, with a handler for each connection: [`EventLoop::listen`]. Returns the address.
    ///
    /// # Errors
    /// `AddrInUse` if the port has a listener.
    ///
    /// # Panics
    /// As [`with`](Self::with), and so do the methods below.
    pub fn listen<C, H, M>(&self, port: u16, limits: Limits, make: M) -> io::Result<Address>
    where
        C: Pipeline,
        H: Handler<C>,
        M: FnMut(&Address) -> (C, H) + 'static,
    {
        let listener = self.host.listener(port)?;
        self.with(|event_loop| event_loop.listen(listener, limits, Arc::new(AtomicUsize::new(0)), make))?;
        Ok(self.address(port))
    }

    /// Listens at a port, with a task for each connection: [`EventLoop::serve`]. Returns the address.
    ///
    /// # Errors
    /// `AddrInUse` if the port has a listener.
    pub fn serve<C, F, E, M, S>(&self, port: u16, limits: Limits, codec: M, serve: S) -> io::Result<Address>
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
        M: FnMut() -> C + 'static,
        S: Fn(Channel<C>) -> F + 'static,
    {
        let listener = self.host.listener(port)?;
        self.with(|event_loop| event_loop.serve(listener, limits, Arc::new(AtomicUsize::new(0)), codec, serve))?;
        Ok(self.address(port))
    }

    /// Runs a protocol of datagrams at a port: [`EventLoop::bind_endpoint`]. Returns the address.
    ///
    /// # Errors
    /// `AddrInUse` if the port has a datagram socket.
    pub fn endpoint<E: Endpoint + 'static>(
        &self,
        port: u16,
        options: &DatagramOptions,
        limits: EndpointLimits,
        endpoint: E,
    ) -> io::Result<SocketAddr> {
        let socket = self.host.datagrams(port, options)?;
        let address = self.with(|event_loop| event_loop.bind_endpoint(socket, options, limits, endpoint))?;
        Ok(address.ip().unwrap_or_else(|| SocketAddr::new(self.host.ip, port)))
    }

    /// A datagram socket for tasks, at a port: [`EventLoop::open_datagrams`].
    ///
    /// # Errors
    /// `AddrInUse` if the port has a datagram socket.
    pub fn datagrams(
        &self,
        port: u16,
        options: &DatagramOptions,
        limits: EndpointLimits,
    ) -> io::Result<DatagramChannel> {
        let socket = self.host.datagrams(port, options)?;
        self.with(|event_loop| event_loop.open_datagrams(socket, options, limits))
    }

    /// Starts a task: for example a client, which connects with [`Client`](tidegate_engine::Client).
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.with(|event_loop| event_loop.spawn(future))
    }

    /// Begins to drain.
    pub fn drain(&self, deadline: Duration) {
        self.with(|event_loop| event_loop.drain(deadline));
    }

    /// Stops the loop as SIGSTOP stops a process, or lets it continue. While it is stopped, its kernel accepts connections and
    /// takes bytes as far as there is room, and its timers become late.
    pub fn set_stopped(&self, is_stopped: bool) {
        let mut world = self.host.network.world.borrow_mut();
        let state = &mut world.driver_states[self.driver];
        (state.is_stopped, state.may_have_work) = (is_stopped, true);
    }

    /// Ends the loop as SIGKILL ends a process: the loop drops its tasks as they are, and the kernel closes its sockets.
    ///
    /// # Panics
    /// If a [`Task`] of the loop or another handle that keeps it is left.
    pub fn kill(self) {
        let Self { host, event_loop, driver, .. } = self;
        host.network.loops.borrow_mut().retain(|(number, _)| *number != driver);
        drop(event_loop);
        let has_ended = !host.network.world.borrow().driver_states[driver].is_turned;
        assert!(has_ended, "a handle keeps the loop");
    }

    /// Whether a drain is complete.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.event_loop.borrow().is_drained()
    }

    /// The loop's counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.event_loop.borrow().counts()
    }

    /// The loop's memory.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Calls `act` with the loop, for operations without a method here.
    ///
    /// # Panics
    /// If the loop is being turned: only a test may call this, not code that runs on the loop.
    pub fn with<T>(&self, act: impl FnOnce(&mut EventLoop) -> T) -> T {
        self.host.network.world.borrow_mut().driver_states[self.driver].may_have_work = true;
        act(&mut self.event_loop.borrow_mut())
    }

    fn address(&self, port: u16) -> Address {
        Address::Ip(SocketAddr::new(self.host.ip, port))
    }
}
