//! The test backend of a simulated network: everything in one thread, virtual time, faults from a seed.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_buffer::{Pool, SEGMENT_BYTES};
use tidegate_sys::{Address, Driver, Socket};
use tidegate_testkit::network::{FaultCounts, FaultRates, Host, Network, NetworkFault};

use super::injected::inject;
use crate::stage::{Family, Side, Site, TestBackend, Wrap};

pub(crate) struct Simulator {
    network: Network,
    server: Host,
    server_v6: Host,
    client: Host,
    port: Cell<u16>,
    seed: u64,
    fault_counts: Rc<Cell<FaultCounts>>,
}

impl Simulator {
    /// `fault_counts` collects the faults that occurred.
    pub(crate) fn new(seed: u64, fault_counts: &Rc<Cell<FaultCounts>>) -> Self {
        let network = Network::new(seed);
        // The first seed is a network without faults: a failure there has another cause.
        network.set_faults(if seed == 0 { FaultRates::none() } else { FaultRates::benign() });
        let [server, server_v6, client] = ["10.0.0.1", "fd00::1", "10.0.0.2"].map(|ip| network.host(ip));
        Self { network, seed, server, server_v6, client, port: Cell::new(1000), fault_counts: fault_counts.clone() }
    }

    fn host(&self, side: Side) -> &Host {
        match side {
            Side::Server => &self.server,
            Side::Client => &self.client,
        }
    }

    fn next_port(&self) -> u16 {
        self.port.set(self.port.get() + 1);
        self.port.get()
    }
}

impl TestBackend for Simulator {
    fn site(&self, side: Side, wrap: Wrap) -> Site {
        Site::Simulated(Rc::new(self.host(side).node_with_driver(|driver| wrap(inject(driver)))))
    }

    fn driver(&self, side: Side, pool: &Pool) -> Box<dyn Driver> {
        inject(self.host(side).driver(pool))
    }

    fn listener(&self, family: Family) -> (Socket, Address) {
        let port = self.next_port();
        let host = match family {
            Family::V4 => &self.server,
            Family::V6 => &self.server_v6,
            Family::Unix => {
                let address = Address::Unix(format!("/run/{port}.sock").into());
                return (self.server.listener_at(&address).expect("the path is free"), address);
            }
        };
        let socket = host.listener(port).expect("the port is free");
        (socket, Address::Ip((host.ip(), port).into()))
    }

    fn nowhere(&self) -> Address {
        Address::Ip((self.server.ip(), self.next_port()).into())
    }

    fn free_port(&self) -> u16 {
        self.next_port()
    }

    fn unresponsive(&self) -> Address {
        // The driver's last completion for a closed socket comes late, as on a driver that has to cancel operations.
        self.network.set_faults(FaultRates::none().with(NetworkFault::TimedOut, 1).with(NetworkFault::LateClose, 1));
        self.nowhere()
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn delay_max(&self) -> Duration {
        self.unit() / 2
    }

    /// A late cancel brings one buffer of a ring more: `poll_endpoint` of the network.
    fn late_bytes_max(&self) -> usize {
        SEGMENT_BYTES
    }

    /// A send buffer and a receive buffer hold 112 KiB.
    fn bulk(&self) -> usize {
        144 * 1024
    }

    fn run_until(&self, patience: Duration, is_so: &mut dyn FnMut() -> bool) -> bool {
        self.network.run_until(patience, is_so)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn is_real(&self) -> bool {
        false
    }

    fn many(&self) -> usize {
        10
    }

    fn much(&self) -> usize {
        300_000
    }

    fn families(&self) -> &'static [Family] {
        &[Family::V4, Family::V6, Family::Unix]
    }

    fn turns_within(&self, site: &Site, time: Duration) -> u64 {
        let before = site.counts().turns;
        self.network.run_for(time);
        site.counts().turns - before
    }

    fn wakes(&self, _: &Site, _: Box<dyn FnOnce() + Send>) -> bool {
        unreachable!("the network turns its loops: a scenario with a sleeping loop is played in real time only")
    }

    fn sockets(&self) -> usize {
        self.network.open_endpoints()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let mut fault_counts = self.fault_counts.get();
        fault_counts += self.network.fault_counts();
        self.fault_counts.set(fault_counts);
    }
}
