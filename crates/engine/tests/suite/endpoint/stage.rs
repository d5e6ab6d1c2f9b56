//! Two loops on one thread, over a driver or in a network.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate_codec::{Endpoint, StreamEndpoint};
use tidegate_engine::{
    Counts, DatagramChannel, EndpointLimits, EndpointSession, EventLoop, SessionLimits, SessionStreams,
};
use tidegate_sys::{Address, DatagramOptions, Socket};
use tidegate_testkit::TwoLoops;

/// The loops; `None` where the driver is not there.
pub(crate) struct Stage(Option<TwoLoops>);

impl Stage {
    pub(crate) fn epoll() -> Self {
        Self(Some(TwoLoops::epoll()))
    }

    pub(crate) fn uring() -> Self {
        Self(TwoLoops::uring())
    }

    pub(crate) fn network(seed: u64) -> Self {
        Self(Some(TwoLoops::network(seed)))
    }

    pub(crate) fn run(mut self, scenario: fn(&mut Self)) {
        if self.0.is_some() {
            scenario(&mut self);
        }
    }

    fn get(&self) -> &TwoLoops {
        self.0.as_ref().expect("the stage runs")
    }

    fn loops(&mut self) -> &mut TwoLoops {
        self.0.as_mut().expect("the stage runs")
    }

    /// The driver of the loops.
    pub(crate) fn name(&self) -> &'static str {
        self.get().name()
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.get().simulated().is_some()
    }

    pub(crate) fn with<T>(&mut self, number: usize, act: impl FnOnce(&mut EventLoop) -> T) -> T {
        self.loops().with(number, act)
    }

    fn socket(&self, number: usize, options: &DatagramOptions) -> Socket {
        self.get().datagrams(number, options)
    }

    /// A Unix datagram socket, which no loop has.
    pub(crate) fn unix_socket(&self, name: &Address, options: &DatagramOptions) -> Socket {
        let network = self.0.as_ref().and_then(TwoLoops::simulated);
        let socket = network.map(|network| network.host("10.0.0.1").unix_datagrams(name, options));
        socket.unwrap_or_else(|| Socket::bind_unix_datagrams(name, options)).unwrap()
    }

    /// Runs a protocol on the first loop.
    pub(crate) fn endpoint(&mut self, limits: EndpointLimits, endpoint: impl Endpoint + 'static) -> SocketAddr {
        let options = DatagramOptions::default();
        let socket = self.socket(0, &options);
        self.with(0, |event_loop| event_loop.bind_endpoint(socket, &options, limits, endpoint)).unwrap().ip().unwrap()
    }

    pub(crate) fn endpoint_with<E: Endpoint + 'static>(&mut self, make: impl FnMut() -> E + 'static) -> SocketAddr {
        let (options, limits) = (DatagramOptions::default(), EndpointLimits::default());
        let socket = self.socket(0, &options);
        self.with(0, |event_loop| event_loop.bind_endpoint_with(socket, &options, limits, make)).unwrap().ip().unwrap()
    }

    /// Runs a protocol whose sessions carry streams on the first loop.
    pub(crate) fn sessions<E: StreamEndpoint + 'static>(
        &mut self,
        make: impl FnMut() -> E + 'static,
        services: impl FnMut(EndpointSession<E>) -> SessionStreams + 'static,
    ) -> SocketAddr {
        let (options, limits) = (DatagramOptions::default(), SessionLimits::default());
        let socket = self.socket(0, &options);
        let bound = self.with(0, |event_loop| event_loop.bind_sessions(socket, &options, limits, make, services));
        bound.unwrap().ip().unwrap()
    }

    /// A channel for tasks, on the second loop.
    pub(crate) fn channel(&mut self, limits: EndpointLimits) -> DatagramChannel {
        let options = DatagramOptions::default();
        let socket = self.socket(1, &options);
        self.with(1, |event_loop| event_loop.open_datagrams(socket, &options, limits)).unwrap()
    }

    pub(crate) fn counts(&mut self, number: usize) -> Counts {
        self.with(number, |event_loop| event_loop.counts())
    }

    pub(crate) fn now(&self) -> Instant {
        self.get().now()
    }

    pub(crate) fn run_until(&mut self, is_so: impl FnMut() -> bool) {
        self.loops().run_until(is_so);
    }

    /// Runs for a few turns, or for some time of the network.
    pub(crate) fn run_a_little(&mut self) {
        self.loops().run_for(10, Duration::from_millis(20));
    }

    pub(crate) fn task<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        self.loops().task(future)
    }
}
