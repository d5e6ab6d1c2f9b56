//! `UpstreamsHandle`: changes the servers of a set while connections go on.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::Ordering;

use super::upstreams::{ListedServer, ServerAddress, Upstreams, WEIGHT_MAX};

/// Changes the servers of [`Upstreams`] while connections and flows go on: for an application that learns them from
/// Kubernetes, Consul or a file of its own. It is used on any thread; clones change the same set.
///
/// A server that stays keeps its connections and its health. One that is removed gets no further connection; those that it
/// has go on. Names have no address until the [upkeep](Upstreams::maintain_on_thread) has resolved them, within a second.
///
/// ```
/// use tidegate::l4::Upstreams;
///
/// let upstreams = Upstreams::builder().server("tcp://10.0.0.1:5432".parse()?, 1).build();
/// let handle = upstreams.handle();
/// handle.add("tcp://10.0.0.2:5432".parse()?, 1)?;
/// assert!(handle.remove(&"tcp://10.0.0.1:5432".parse()?));
/// assert_eq!(upstreams.addresses(), ["10.0.0.2:5432".parse()?]);
/// handle.set([("tcp://10.0.0.3:5432".parse()?, 1), ("tcp://10.0.0.4:5432".parse()?, 2)])?;
/// assert_eq!(upstreams.addresses().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct UpstreamsHandle(Upstreams);

/// A set has 4,096 servers at most, since each connection looks at all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyServers;

impl Upstreams {
    /// A handle that changes the servers. Call it before [`maintain_on_thread`](Self::maintain_on_thread), which otherwise has
    /// nothing to do for a set without names and checks.
    #[must_use]
    pub fn handle(&self) -> UpstreamsHandle {
        self.0.has_handle.store(true, Ordering::Relaxed);
        UpstreamsHandle(self.clone())
    }
}

impl UpstreamsHandle {
    /// Replaces all servers, each with its weight, from 1 to 1,000. Without any, connections are reset and datagrams dropped.
    ///
    /// # Errors
    /// [`TooManyServers`]; the servers stay as they are then.
    pub fn set(&self, servers: impl IntoIterator<Item = (ServerAddress, u32)>) -> Result<(), TooManyServers> {
        let servers: Vec<_> = servers.into_iter().take(SERVERS_MAX + 1).collect();
        if servers.len() > SERVERS_MAX {
            return Err(TooManyServers);
        }
        self.0.change_servers(|listed| {
            let known = std::mem::take(listed).into_iter().map(|server| (server.address.clone(), server));
            let (known, mut seen): (HashMap<_, _>, _) = (known.collect(), HashSet::new());
            for (address, weight) in servers {
                if seen.insert(address.clone()) {
                    listed.push(kept_or_new(known.get(&address), address, weight));
                }
            }
        });
        Ok(())
    }

    /// Adds a server with a weight, from 1 to 1,000; one that is there gets the weight.
    ///
    /// # Errors
    /// [`TooManyServers`].
    pub fn add(&self, address: ServerAddress, weight: u32) -> Result<(), TooManyServers> {
        self.0.change_servers(|listed| {
            let is_full = listed.len() >= SERVERS_MAX;
            match listed.iter_mut().find(|server| server.address == address) {
                Some(server) => *server = kept_or_new(Some(server), address, weight),
                None if is_full => return Err(TooManyServers),
                None => listed.push(kept_or_new(None, address, weight)),
            }
            Ok(())
        })
    }

    /// Removes a server. Returns whether it was there.
    #[must_use = "an address in another form than it was added in removes nothing"]
    pub fn remove(&self, address: &ServerAddress) -> bool {
        self.0.change_servers(|listed| {
            let before = listed.len();
            listed.retain(|server| server.address != *address);
            listed.len() < before
        })
    }

    /// The servers with their weights.
    #[must_use]
    pub fn servers(&self) -> Vec<(ServerAddress, u32)> {
        self.0.servers().iter().map(|server| (server.address.clone(), server.weight)).collect()
    }
}

/// A server with its number, if it is known, and with this weight.
fn kept_or_new(known: Option<&ListedServer>, address: ServerAddress, weight: u32) -> ListedServer {
    match known {
        Some(server) => ListedServer { weight: weight.clamp(1, WEIGHT_MAX), ..server.clone() },
        None => ListedServer::new(address, weight),
    }
}

impl fmt::Display for TooManyServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of upstreams has 4096 servers at most")
    }
}

impl std::error::Error for TooManyServers {}

const SERVERS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_stays_keeps_its_state_and_the_bound_holds() {
        let upstreams = Upstreams::builder().server("tcp://10.0.0.1:1".parse().expect("an address"), 1).build();
        let handle = upstreams.handle();
        let id = upstreams.members()[0].id;
        handle.add("tcp://10.0.0.1:1".parse().expect("an address"), 7).expect("room");
        handle.add("tcp://db.example:1".parse().expect("an address"), 1).expect("room");
        assert_eq!((upstreams.members()[0].id, handle.servers()[0].1, upstreams.members().len()), (id, 7, 1));
        let many =
            |count: u16| (1..=count).map(|port| (format!("udp://10.0.0.1:{port}").parse().expect("an address"), 1));
        assert_eq!(handle.set(many(4_097)), Err(TooManyServers));
        assert_eq!(handle.servers().len(), 2);
        handle.set(many(4_096)).expect("room");
        assert_eq!(handle.add("tcp://10.0.0.9:1".parse().expect("an address"), 1), Err(TooManyServers));
        handle.set([]).expect("room");
        assert!(upstreams.addresses().is_empty() && upstreams.has_names());
    }
}
