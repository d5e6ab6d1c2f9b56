//! Two loops on one thread, over a driver or in a network.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_codec::Endpoint;
use tidegate_engine::{Backend, Counts, DatagramChannel, EndpointLimits, EventLoop};
use tidegate_sys::{Address, DatagramOptions, Socket};
use tidegate_testkit::network::{Network, SimNode};

pub(crate) enum Stage {
    Loops(Vec<EventLoop>),
    Network(Network, Vec<SimNode>),
    Unavailable,
}

impl Stage {
    pub(crate) fn epoll() -> Self {
        Self::Loops((0..2).map(|_| EventLoop::readiness().unwrap()).collect())
    }

    pub(crate) fn uring() -> Self {
        if let Err(error) = tidegate_sys::uring::Uring::probe() {
            println!("skipped: there is no io_uring here: {error}");
            return Self::Unavailable;
        }
        Self::Loops((0..2).map(|_| EventLoop::on(Backend::Uring).unwrap()).collect())
    }

    pub(crate) fn network(seed: u64) -> Self {
        let network = Network::new(seed);
        let nodes = ["10.0.0.1", "10.0.0.2"].map(|ip| network.host(ip).node());
        Self::Network(network, nodes.into())
    }

    /// The driver of the loops.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Loops(loops) => loops[0].backend(),
            Self::Network(..) => "network",
            Self::Unavailable => unreachable!(),
        }
    }

    pub(crate) fn run(mut self, scenario: fn(&mut Self)) {
        if !matches!(self, Self::Unavailable) {
            scenario(&mut self);
        }
    }

    pub(crate) fn with<T>(&mut self, number: usize, act: impl FnOnce(&mut EventLoop) -> T) -> T {
        match self {
            Self::Loops(loops) => act(&mut loops[number]),
            Self::Network(_, nodes) => nodes[number].with(act),
            Self::Unavailable => unreachable!(),
        }
    }

    fn socket(&self, number: usize, options: &DatagramOptions) -> Socket {
        match self {
            Self::Loops(_) => Socket::bind_datagrams("127.0.0.1:0".parse().unwrap(), options).unwrap(),
            Self::Network(network, _) => network.host(["10.0.0.1", "10.0.0.2"][number]).datagrams(0, options).unwrap(),
            Self::Unavailable => unreachable!(),
        }
    }

    /// A Unix datagram socket, which no loop has.
    pub(crate) fn unix_socket(&self, name: &Address, options: &DatagramOptions) -> Socket {
        match self {
            Self::Loops(_) => Socket::bind_unix_datagrams(name, options).unwrap(),
            Self::Network(network, _) => network.host("10.0.0.1").unix_datagrams(name, options).unwrap(),
            Self::Unavailable => unreachable!(),
        }
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
        match self {
            Self::Network(network, _) => network.now(),
            _ => Instant::now(),
        }
    }

    /// Runs until `is_so`, for at most a minute.
    pub(crate) fn run_until(&mut self, mut is_so: impl FnMut() -> bool) {
        match self {
            Self::Loops(loops) => {
                let deadline = Instant::now() + PATIENCE;
                while !is_so() {
                    assert!(Instant::now() < deadline, "it takes too long");
                    for event_loop in loops.iter_mut() {
                        event_loop.turn(Some(Duration::from_millis(1))).unwrap();
                    }
                }
            }
            Self::Network(network, _) => assert!(network.run_until(PATIENCE, is_so), "it takes too long"),
            Self::Unavailable => unreachable!(),
        }
    }

    /// Runs for a few turns, or for some time of the network.
    pub(crate) fn run_a_little(&mut self) {
        let mut turns = 0;
        match self {
            Self::Network(network, _) => network.run_for(Duration::from_millis(20)),
            _ => self.run_until(|| {
                turns += 1;
                turns > 10
            }),
        }
    }

    /// Runs a task on the second loop to its end.
    pub(crate) fn task<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        let mut task = self.with(1, |event_loop| event_loop.spawn(future));
        self.run_until(|| task.is_finished());
        match Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output.unwrap(),
            Poll::Pending => unreachable!("it has ended"),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
