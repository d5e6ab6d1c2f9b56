//! Sockets that are there before a server opens any: those of the server before, and those that a service manager passed.
//!
//! An address gets the sockets that are bound to it. Listeners with port 0 come last, and get sockets of the server before
//! alone: nothing says which of several passed sockets such a listener wants. Names of passed sockets (`LISTEN_FDNAMES`)
//! have no effect, since the address already names one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use tidegate_sys::{Address, Socket, handover};

use super::listener::{Listener, ServedListener};
use crate::start_error::StartError;

/// The sockets that a server may use, each with its address.
pub(super) struct FoundSockets {
    /// Listeners of the server before, except those that were passed as well.
    before: Vec<FoundSocket>,
    /// The server before is of another process. Otherwise this server replaces it, and says itself where it listens.
    is_takeover: bool,
    has_before: bool,
    passed: Vec<FoundSocket>,
    passed_datagrams: Vec<FoundSocket>,
}

pub(super) struct FoundSocket {
    address: Address,
    descriptor: OwnedFd,
}

impl FoundSockets {
    /// `taken` are listeners of a server of another process, `replaced` those of one of this process. If there are both,
    /// they are the same server.
    pub(super) fn new(
        taken: Option<Vec<OwnedFd>>,
        replaced: Option<Vec<OwnedFd>>,
        passed: Vec<OwnedFd>,
    ) -> Result<Self, StartError> {
        let is_takeover = replaced.is_none();
        let before = replaced.or(taken);
        let (datagrams, streams): (Vec<_>, Vec<_>) =
            passed.into_iter().partition(|descriptor| handover::is_datagram_socket(descriptor.as_fd()));
        let passed = streams.into_iter().map(FoundSocket::stream).collect::<io::Result<Vec<_>>>();
        let passed = passed.map_err(StartError::Inherited)?;
        let passed_datagrams = datagrams.into_iter().filter_map(FoundSocket::datagram).collect();
        let mut found =
            Self { before: Vec::new(), is_takeover, has_before: before.is_some(), passed, passed_datagrams };
        let before = before.into_iter().flatten().map(FoundSocket::stream).collect::<io::Result<Vec<_>>>();
        found.before = before.map_err(StartError::System)?;
        found.before.retain(|socket| !is_among(&found.passed, &socket.address));
        Ok(found)
    }

    /// There is a server before, which has the ports that the kernel chose for it.
    pub(super) fn has_before(&self) -> bool {
        self.has_before
    }

    /// Passed datagram sockets at an address.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub(super) fn datagrams_at(&self, address: &Address) -> Result<Vec<OwnedFd>, StartError> {
        let there = self.passed_datagrams.iter().filter(|socket| socket.address == *address);
        there.map(|socket| socket.descriptor.try_clone()).collect::<io::Result<_>>().map_err(StartError::System)
    }

    /// The sockets of all listeners, or none of them: those at their addresses, and new ones. A server with one listener, at
    /// none of whose addresses there is a socket, uses all that were passed, and all of a server of another process.
    ///
    /// # Errors
    /// All addresses that cannot be used.
    pub(super) fn open(&self, listeners: &[ServedListener], loops: usize) -> Result<Vec<Vec<Socket>>, StartError> {
        let before = if self.is_takeover { &self.before[..] } else { &[] };
        if let Some(only) = only_elsewhere(listeners, before, &self.passed) {
            let all: Vec<_> = before.iter().chain(&self.passed).collect();
            if only.is_only_v6() {
                all.iter().try_for_each(|socket| {
                    check_ip_versions(&socket.address, &socket.descriptor, true, self.origin_of(&socket.descriptor))
                })?;
            }
            let all: Vec<_> = all.into_iter().map(|socket| &socket.descriptor).collect();
            return Ok(vec![only.adopt_all(&all)?]);
        }
        let claims = self.claim(listeners);
        self.check_claims(listeners, &claims)?;
        let (mut created, mut failed) = (Vec::new(), Vec::new());
        let open = |(served, found): (&ServedListener, &Vec<Vec<&OwnedFd>>)| {
            served.listener.open(loops, found, &mut created, &mut failed)
        };
        let opened = listeners.iter().zip(&claims).map(open).collect();
        if failed.is_empty() {
            return Ok(opened);
        }
        for path in created {
            // An abstract name has no file.
            let _ = std::fs::remove_file(path);
        }
        let mut failed: Vec<_> = failed.into_iter().map(|error| self.explain(error)).collect();
        Err(if failed.len() == 1 { failed.remove(0) } else { StartError::Several(failed.into()) })
    }

    /// The sockets for each source of each listener. A socket is for one source.
    fn claim(&self, listeners: &[ServedListener]) -> Vec<Vec<Vec<&OwnedFd>>> {
        let mut left: Vec<(&FoundSocket, bool)> = self.passed.iter().map(|socket| (socket, true)).collect();
        left.extend(self.before.iter().map(|socket| (socket, false)));
        let of_listener = |served: &ServedListener| served.listener.by_source().map(|_| Vec::new()).collect();
        let mut claims: Vec<Vec<Vec<&OwnedFd>>> = listeners.iter().map(of_listener).collect();
        for is_any_port in [false, true] {
            for (served, claims) in listeners.iter().zip(&mut claims) {
                for (address, claim) in served.listener.by_source().zip(claims) {
                    let Some(address) = address.filter(|address| has_any_port(address) == is_any_port) else {
                        continue;
                    };
                    let is_here = |(socket, is_passed): &mut (&FoundSocket, bool)| {
                        is_at(&socket.address, address) && !(is_any_port && *is_passed)
                    };
                    claim.extend(left.extract_if(.., is_here).map(|(socket, _)| &socket.descriptor));
                }
            }
        }
        claims
    }

    /// Checks that the sockets at `[::]` accept IPv4 if their listeners do. A listener at `[::]` need not where another
    /// address of the server is `0.0.0.0` with its port.
    fn check_claims(&self, listeners: &[ServedListener], claims: &[Vec<Vec<&OwnedFd>>]) -> Result<(), StartError> {
        let all = || listeners.iter().flat_map(|served| served.listener.configured());
        for (served, claims) in listeners.iter().zip(claims) {
            for (address, claim) in served.listener.by_source().zip(claims) {
                let Some(address) = address else { continue };
                let only_v6 = served.listener.is_only_v6();
                let v4 = address.ip().map(|ip| Address::Ip((Ipv4Addr::UNSPECIFIED, ip.port()).into()));
                if !only_v6 && all().any(|other| v4.as_ref() == Some(other)) {
                    continue;
                }
                claim
                    .iter()
                    .try_for_each(|socket| check_ip_versions(address, socket, only_v6, self.origin_of(socket)))?;
            }
        }
        Ok(())
    }

    /// Where a claimed socket comes from.
    fn origin_of(&self, socket: &OwnedFd) -> Origin {
        match self.passed.iter().any(|passed| std::ptr::eq(&raw const passed.descriptor, socket)) {
            true => Origin::Passed,
            false => Origin::ServerBefore,
        }
    }

    /// Names the passed socket that has the address under another name.
    fn explain(&self, error: StartError) -> StartError {
        match error {
            StartError::InUse(address) => match self.passed.iter().find(|socket| overlaps(&socket.address, &address)) {
                Some(passed) => StartError::InUseByPassed { address, passed: passed.address.clone() },
                None => StartError::InUse(address),
            },
            other => other,
        }
    }

    /// Logs the addresses that have no effect, and the passed sockets that nothing serves. The addresses of
    /// the running `listeners` are `streams`, those of endpoints `datagrams`.
    pub(super) fn report(&self, listeners: &[ServedListener], streams: &[Address], datagrams: &[Address]) {
        let configured = listeners.iter().flat_map(|served| served.listener.configured());
        for address in configured.filter(|address| !streams.iter().any(|bound| is_at(bound, address))) {
            if self.passed.is_empty() {
                log_ignored(address, "the listeners of the server before are used");
            } else {
                log_passed(address, "not opened: the passed sockets take its place");
            }
        }
        if self.is_takeover {
            for socket in self.before.iter().filter(|socket| !streams.contains(&socket.address)) {
                log_ignored(&socket.address, "only the server before listened there");
            }
        }
        let unserved = |socket: &&FoundSocket, served: &[Address]| !served.contains(&socket.address);
        self.passed.iter().filter(|socket| unserved(socket, streams)).for_each(FoundSocket::log_unserved);
        self.passed_datagrams.iter().filter(|socket| unserved(socket, datagrams)).for_each(FoundSocket::log_unserved);
        if !self.passed.is_empty() {
            let opened = streams.iter().filter(|address| !is_among(&self.passed, address));
            opened.for_each(|address| log_passed(address, "opened by the server: no passed socket is bound to it"));
        }
    }
}

impl FoundSocket {
    fn stream(descriptor: OwnedFd) -> io::Result<Self> {
        Ok(Self { address: handover::listener_address(descriptor.as_fd())?, descriptor })
    }

    fn datagram(descriptor: OwnedFd) -> Option<Self> {
        Some(Self { address: handover::datagram_address(descriptor.as_fd())?, descriptor })
    }

    fn log_unserved(&self) {
        let address = &self.address;
        crate::unwind::catch_and_log(|| {
            tracing::warn!(subsystem = "server", %address, advice = UNSERVED_ADVICE, "no listener has the address of a passed socket");
        });
    }
}

/// Where a socket was opened that a server finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Passed,
    ServerBefore,
}

/// Checks that a socket that is bound to `[::]` accepts IPv4 unless its listener has `only_v6`, and not if it has: the
/// kernel does not change that any more.
///
/// # Errors
/// [`StartError::IpVersions`], or the system fails.
pub(super) fn check_ip_versions(
    address: &Address,
    socket: &OwnedFd,
    only_v6: bool,
    origin: Origin,
) -> Result<(), StartError> {
    let is_any = address.ip().is_some_and(|ip| ip.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED));
    match handover::is_only_v6(socket.as_fd()).map_err(StartError::System)? {
        Some(bound) if is_any && bound != only_v6 => {
            Err(StartError::IpVersions { address: address.clone(), only_v6, is_passed: origin == Origin::Passed })
        }
        _ => Ok(()),
    }
}

/// The only listener, if there are sockets and none of them is at one of its addresses.
fn only_elsewhere<'a>(
    listeners: &'a [ServedListener],
    before: &[FoundSocket],
    passed: &[FoundSocket],
) -> Option<&'a Listener> {
    let [ServedListener { listener, .. }] = listeners else { return None };
    if before.is_empty() && passed.is_empty() {
        return None;
    }
    let is_here =
        |address: &Address| before.iter().any(|socket| is_at(&socket.address, address)) || is_among(passed, address);
    (!listener.configured().any(is_here)).then_some(listener)
}

fn is_among(sockets: &[FoundSocket], address: &Address) -> bool {
    sockets.iter().any(|socket| socket.address == *address)
}

/// Whether `bound` is `address`, or another port of it where the kernel chooses its port.
fn is_at(bound: &Address, address: &Address) -> bool {
    match (address, bound) {
        (Address::Ip(wanted), Address::Ip(bound)) if wanted.port() == 0 => wanted.ip() == bound.ip(),
        (Address::Vsock { cid, port: Address::VSOCK_PORT_ANY }, Address::Vsock { cid: bound, .. }) => cid == bound,
        _ => address == bound,
    }
}

fn has_any_port(address: &Address) -> bool {
    match address {
        Address::Ip(ip) => ip.port() == 0,
        Address::Vsock { port, .. } => *port == Address::VSOCK_PORT_ANY,
        Address::Unix(_) | Address::Abstract(_) => false,
    }
}

/// Whether one of two different addresses covers the other: by all addresses of the machine, or by another path.
fn overlaps(one: &Address, other: &Address) -> bool {
    let file = |path: &Path| path.canonicalize().ok();
    match (one, other) {
        (Address::Ip(one), Address::Ip(other)) => {
            one.port() == other.port() && (one.ip().is_unspecified() || other.ip().is_unspecified())
        }
        (Address::Unix(one), Address::Unix(other)) => file(one).is_some_and(|one| file(other) == Some(one)),
        _ => false,
    }
}

fn log_ignored(address: &Address, reason: &'static str) {
    crate::unwind::catch_and_log(|| {
        tracing::warn!(subsystem = "takeover", %address, reason, "address ignored");
    });
}

/// Logs that no passed socket is bound to an address, and the outcome.
fn log_passed(address: &Address, outcome: &'static str) {
    crate::unwind::catch_and_log(|| {
        tracing::info!(subsystem = "server", %address, outcome, "address without a passed socket");
    });
}

const UNSERVED_ADVICE: &str =
    "peers that connect to it wait: add a listener at this address, or stop the unit that opens it";
