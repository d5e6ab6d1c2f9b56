//! Listening and connecting.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_sys::{Address, Completion};

use super::event_queue::Event;
use super::faults::NetworkFault;
use super::stream::{BACKLOG_MAX, Endpoint, Listener, Owner};
use super::world::{PORT_FIRST, SocketRef, World};

impl World {
    /// Listens on a host. Unix paths, abstract names and vsock addresses are shared by the whole network.
    pub(super) fn listen(&mut self, ip: IpAddr, address: &Address) -> io::Result<u64> {
        match address {
            Address::Ip(there) if there.ip() != ip => return Err(io::ErrorKind::AddrNotAvailable.into()),
            Address::Unix(path) if path.as_os_str().is_empty() => return Err(io::ErrorKind::InvalidInput.into()),
            _ if self.listener_at(address).is_some() => return Err(io::ErrorKind::AddrInUse.into()),
            Address::Ip(_) | Address::Unix(_) | Address::Abstract(_) | Address::Vsock { .. } => {}
        }
        let id = self.listeners.insert(Listener::new(address.clone(), ip));
        self.addresses.insert(address.clone(), id);
        Ok(id)
    }

    fn listener_at(&self, address: &Address) -> Option<u64> {
        self.addresses.get(address).copied().filter(|id| self.listeners.get(*id).is_some())
    }

    /// Closes a listener, and resets the connections in its backlog.
    pub(super) fn close_listener(&mut self, id: u64) {
        let Some(listener) = self.listeners.remove(id) else { return };
        if !matches!(listener.address, Address::Unix(_)) {
            // A socket file stays in the file system.
            self.addresses.remove(&listener.address);
        }
        for end in listener.backlog {
            self.close(end, true);
        }
    }

    /// Starts a connect.
    pub(super) fn connect(&mut self, owner: Owner, to: &Address, local: Option<&Address>) -> Option<Completion> {
        match to {
            Address::Ip(to) => {
                self.connect_to_ip(owner, *to, local.and_then(Address::ip));
                None
            }
            Address::Unix(_) | Address::Abstract(_) | Address::Vsock { .. } => {
                Some(Completion::Connected(self.connect_to_name(owner, to, local)))
            }
        }
    }

    /// Starts a connect over IP: the request takes the link's latency.
    fn connect_to_ip(&mut self, owner: Owner, to: SocketAddr, local: Option<SocketAddr>) {
        let here = self.driver_states[owner.driver].ip;
        let ip = local.map_or(here, |local| local.ip());
        let port = local.map_or(0, |local| local.port());
        let port = if port == 0 { self.free_port() } else { port };
        let local = Address::Ip(SocketAddr::new(ip, port));
        let mut end = Endpoint::new(local, Address::Ip(to), (here, to.ip()));
        end.connecting = true;
        let id = self.place(owner, end);
        if self.occurs(NetworkFault::TimedOut) {
            return self.time_out_later(id);
        }
        let at = self.arrival(id, 0);
        if self.occurs(NetworkFault::Refused) {
            self.put_at(at, Event::ConnectDone { end: id, outcome: Err(io::ErrorKind::ConnectionRefused) });
        } else {
            self.put_at(at, Event::Syn { from: id });
        }
    }

    /// Connects to a Unix path, an abstract name or a vsock address. As on Linux this succeeds or fails at once.
    fn connect_to_name(&mut self, owner: Owner, address: &Address, local: Option<&Address>) -> io::Result<()> {
        if matches!(address, Address::Unix(_)) && !self.addresses.contains_key(address) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let listener = self.listener_at(address).and_then(|id| Some((id, self.listeners.get(id)?)));
        let Some((listener, found)) = listener else { return Err(io::ErrorKind::ConnectionRefused.into()) };
        let (there, is_full) = (found.ip, found.backlog.len() >= BACKLOG_MAX);
        if self.occurs(NetworkFault::Refused) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        if is_full {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let local = match (local, address) {
            (Some(local), _) => local.clone(),
            (None, Address::Vsock { .. }) => Address::Vsock { cid: VSOCK_CID, port: self.free_port().into() },
            (None, _) => Address::Unix(PathBuf::new()),
        };
        let here = self.driver_states[owner.driver].ip;
        let id = self.place(owner, Endpoint::new(local, address.clone(), (here, there)));
        self.add_to_backlog(listener, id);
        Ok(())
    }

    /// Assigns a new end to a driver.
    fn place(&mut self, owner: Owner, mut end: Endpoint) -> u64 {
        end.owner = Some(owner);
        let id = self.open(end);
        self.driver_states[owner.driver].sockets.put(owner.token, SocketRef::Endpoint(id));
        id
    }

    /// A connection request has arrived at its host.
    pub(super) fn handle_syn(&mut self, from: u64) {
        let Some(client) = self.ends.get(from).filter(|client| client.is_connect_pending()) else { return };
        let (here, there) = client.route;
        let listener = self.listener_at(&client.remote);
        let is_full = |id: u64| self.listeners.get(id).is_none_or(|found| found.backlog.len() >= BACKLOG_MAX);
        let Some(listener) = listener.filter(|id| !is_full(*id)) else {
            let outcome = Err(io::ErrorKind::ConnectionRefused);
            let back = self.link_between((there, here)).latency;
            return self.put(back, Event::ConnectDone { end: from, outcome });
        };
        let id = self.add_to_backlog(listener, from);
        let at = self.arrival(id, 0);
        self.put_at(at, Event::ConnectDone { end: from, outcome: Ok(()) });
    }

    /// Schedules the kernel's connect time-out, since no answer will arrive.
    pub(super) fn time_out_later(&mut self, end: u64) {
        self.put(CONNECT_TIMEOUT, Event::ConnectDone { end, outcome: Err(io::ErrorKind::TimedOut) });
    }

    /// A connect has succeeded or failed.
    pub(super) fn connect_done(&mut self, end: u64, outcome: Result<(), io::ErrorKind>) {
        if let Some(found) = self.ends.get_mut(end).filter(|found| found.is_connect_pending()) {
            found.outcome = Some(outcome);
            self.enqueue(SocketRef::Endpoint(end));
        }
    }

    /// Creates the other end of a stream, and adds it to the listener's backlog.
    fn add_to_backlog(&mut self, listener: u64, from: u64) -> u64 {
        let client = self.ends.get(from).expect("the caller has just found it");
        let (here, there) = client.route;
        let mut end = Endpoint::new(client.remote.clone(), client.local.clone(), (there, here));
        end.peer = Some(from);
        let id = self.open(end);
        if let Some(client) = self.ends.get_mut(from) {
            client.peer = Some(id);
        }
        if let Some(found) = self.listeners.get_mut(listener) {
            found.backlog.push_back(id);
        }
        self.enqueue(SocketRef::Listener(listener));
        id
    }

    fn free_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(PORT_FIRST);
        port
    }
}

/// How long a kernel tries to connect to a host that does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(127);

/// The context identifier of each simulated host: that of its own machine.
const VSOCK_CID: u32 = 1;
