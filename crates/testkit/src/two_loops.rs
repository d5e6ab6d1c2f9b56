//! `TwoLoops`: a loop of a server and one of its client, on one thread.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_engine::{Backend, EventLoop};
use tidegate_sys::uring::Uring;
use tidegate_sys::{DatagramOptions, Socket};

use crate::network::{Network, SimNode};

/// Two loops on one thread: over a driver of the kernel, or on two hosts of a simulated network. A scenario runs the same way
/// on each.
///
/// # Panics
/// If the kernel refuses a loop or a socket, as do all functions here.
pub struct TwoLoops(Hosts);

enum Hosts {
    Kernel(Vec<EventLoop>),
    Network(Network, Vec<SimNode>),
}

impl TwoLoops {
    /// The addresses of the two hosts of a network.
    pub const IPS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

    /// Loops on epoll.
    #[must_use]
    pub fn epoll() -> Self {
        Self::on(Backend::Epoll)
    }

    /// Loops on io_uring; `None`, with a printed line, where the kernel does not have it.
    #[must_use]
    pub fn uring() -> Option<Self> {
        match Uring::probe() {
            Ok(_) => Some(Self::on(Backend::Uring)),
            Err(error) => {
                println!("skipped: there is no io_uring here: {error}");
                None
            }
        }
    }

    /// Loops in a network whose faults have this seed.
    #[must_use]
    pub fn network(seed: u64) -> Self {
        let network = Network::new(seed);
        let nodes = Self::IPS.map(|ip| network.host(ip).node());
        Self(Hosts::Network(network, nodes.into()))
    }

    /// Loops of each kind that there is.
    pub fn each() -> impl Iterator<Item = Self> {
        [Some(Self::epoll()), Self::uring(), Some(Self::network(1))].into_iter().flatten()
    }

    fn on(backend: Backend) -> Self {
        Self(Hosts::Kernel((0..2).map(|_| EventLoop::on(backend).expect("a loop")).collect()))
    }

    /// The driver of the loops.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match &self.0 {
            Hosts::Kernel(loops) => loops[0].backend(),
            Hosts::Network(..) => "network",
        }
    }

    /// The simulated network, if the loops are in one.
    #[must_use]
    pub fn simulated(&self) -> Option<&Network> {
        match &self.0 {
            Hosts::Network(network, _) => Some(network),
            Hosts::Kernel(_) => None,
        }
    }

    /// The time of the loops.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.simulated().map_or_else(Instant::now, Network::now)
    }

    /// Acts on a loop: 0 is the first one, 1 the second one.
    pub fn with<T>(&mut self, number: usize, act: impl FnOnce(&mut EventLoop) -> T) -> T {
        match &mut self.0 {
            Hosts::Kernel(loops) => act(&mut loops[number]),
            Hosts::Network(_, nodes) => nodes[number].with(act),
        }
    }

    /// A datagram socket of the host of a loop, at a port of its own.
    #[must_use]
    pub fn datagrams(&self, number: usize, options: &DatagramOptions) -> Socket {
        let socket = match &self.0 {
            Hosts::Kernel(_) => Socket::bind_datagrams(SocketAddr::from(([127, 0, 0, 1], 0)), options),
            Hosts::Network(network, _) => network.host(Self::IPS[number]).datagrams(0, options),
        };
        socket.expect("a socket")
    }

    /// Runs both loops until `is_so`.
    ///
    /// # Panics
    /// If that takes longer than two minutes.
    pub fn run_until(&mut self, mut is_so: impl FnMut() -> bool) {
        match &mut self.0 {
            Hosts::Kernel(loops) => {
                let deadline = Instant::now() + PATIENCE;
                while !is_so() {
                    assert!(Instant::now() < deadline, "it takes too long");
                    for event_loop in loops.iter_mut() {
                        event_loop.turn(Some(Duration::from_millis(1))).expect("a turn");
                    }
                }
            }
            Hosts::Network(network, _) => assert!(network.run_until(PATIENCE, is_so), "it takes too long"),
        }
    }

    /// Runs for so many turns, or for some time of the network.
    pub fn run_for(&mut self, turns: usize, time: Duration) {
        let mut done = 0;
        match &self.0 {
            Hosts::Network(network, _) => network.run_for(time),
            Hosts::Kernel(_) => self.run_until(|| {
                done += 1;
                done > turns
            }),
        }
    }

    /// Runs a task on the second loop to its end.
    ///
    /// # Panics
    /// If it panics, or takes longer than two minutes.
    pub fn task<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        let mut task = self.with(1, |event_loop| event_loop.spawn(future));
        self.run_until(|| task.is_finished());
        match Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output.expect("an output"),
            Poll::Pending => unreachable!("it has ended"),
        }
    }
}

/// How long a scenario may take.
const PATIENCE: Duration = Duration::from_secs(120);
