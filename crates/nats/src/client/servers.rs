//! `ServerPool`: the servers that a client may connect to, and which one is next.
//!
//! Invariant: the servers of the configuration are never forgotten. Those that INFO names are, when a later INFO does not name
//! them any more.

use std::fmt;

use tidegate_engine::ConnectError;

use crate::client::credentials::Credentials;

/// A server: a name or an address, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    target: Box<str>,
}

impl ServerAddress {
    /// Reads `HOST:PORT`, `HOST`, or the same behind `nats://`, and the user information of such a URL.
    pub(crate) fn parse(text: &str) -> Result<(Self, Option<Credentials>), ConnectError> {
        let wrong = || ConnectError::Target(text.into());
        let rest = match text.split_once("://") {
            Some(("nats", rest)) => rest.strip_suffix('/').unwrap_or(rest),
            // TLS is a matter of the pipeline.
            Some(_) => return Err(wrong()),
            None => text,
        };
        let (user, host) = rest.rsplit_once('@').map_or((None, rest), |(user, host)| (Some(user), host));
        let credentials = user.filter(|user| !user.is_empty()).map(|user| match user.split_once(':') {
            Some((user, password)) => Credentials::password(user, password),
            None => Credentials::token(user),
        });
        let has_port = host.starts_with("unix:") || host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let target: Box<str> = if has_port { host.into() } else { format!("{host}:{PORT}").into() };
        drop(tidegate_engine::Client::to(&target)?);
        Ok((Self { target }, credentials))
    }

    /// The name or address without its port, for TLS.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.target.rsplit_once(':').map_or(&*self.target, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// The address with its port.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.target
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target)
    }
}

/// The servers of a client.
#[derive(Debug)]
pub(crate) struct ServerPool {
    servers: Vec<PoolEntry>,
    next: usize,
    max: usize,
}

#[derive(Debug)]
struct PoolEntry {
    address: ServerAddress,
    is_configured: bool,
}

impl ServerPool {
    pub(crate) fn new(addresses: Vec<ServerAddress>, max: usize) -> Self {
        let servers = addresses.into_iter().map(|address| PoolEntry { address, is_configured: true }).collect();
        Self { servers, next: 0, max }
    }

    /// The next server, in turn.
    pub(crate) fn next(&mut self) -> Option<ServerAddress> {
        let address = self.servers.get(self.next % self.servers.len().max(1))?.address.clone();
        self.next = (self.next + 1) % self.servers.len();
        Some(address)
    }

    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }

    /// INFO names these servers.
    pub(crate) fn discover(&mut self, urls: &[String], connected: &ServerAddress) {
        if urls.is_empty() {
            return;
        }
        let found: Vec<_> = urls.iter().filter_map(|url| Some(ServerAddress::parse(url).ok()?.0)).collect();
        let next = self.servers.get(self.next).map(|server| server.address.clone());
        let is_kept = |server: &PoolEntry| {
            server.is_configured || server.address == *connected || found.contains(&server.address)
        };
        self.servers.retain(is_kept);
        for address in found {
            if self.servers.len() < self.max && self.servers.iter().all(|server| server.address != address) {
                self.servers.push(PoolEntry { address, is_configured: false });
            }
        }
        // The turn goes on where it was.
        let at = next.and_then(|next| self.servers.iter().position(|server| server.address == next));
        self.next = at.unwrap_or(0);
        if self.servers.get(self.next).is_some_and(|server| server.address == *connected) && self.len() > 1 {
            self.next = (self.next + 1) % self.len();
        }
    }
}

/// The port of NATS.
const PORT: u16 = 4222;
