//! `HostResolver`: the resolver of a host, for all loops of a process: the files of the system, and a stub for each loop.

use std::cell::RefCell;
use std::fmt;
use std::future::{pending, ready};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_engine::{NameResolver, Resolve, Resolving, ResolvingHttps, ResolvingServers, set_default_resolver, task};

use super::system_files::{FileContents, SystemFiles};
use super::{NameServer, StubResolver};
use crate::cache::CacheConfig;
use crate::resolv_conf::{ResolvConf, ServerAddress};
use crate::resolver::ResolverConfig;

/// Resolves the names of hosts by `/etc/resolv.conf` and `/etc/hosts`: a [`StubResolver`] on each loop, one cache for all.
/// Clones are the same resolver.
///
/// Both files are read again when they change; a lookup compares them once a second at most. Other servers in
/// `resolv.conf` begin with an empty cache. `localhost` and the names below it never leave the machine (RFC 6761 §6.3).
///
/// The C library's `/etc/nsswitch.conf` is not read: the order is that of `hosts: files dns`. Names that only another source
/// knows, such as `mdns4_minimal` (`.local`), `myhostname`, `mymachines`, `wins` or `ldap`, are not found; with `resolve`,
/// they are where `resolv.conf` names the stub of systemd-resolved. The system's resolver
/// ([`SystemResolver`](tidegate_engine::SystemResolver)) reads that file. Addresses are not sorted as in RFC 6724: those
/// of IPv6 and IPv4 take turns, and a client tries them so (RFC 8305).
///
/// ```
/// use tidegate::Client;
/// use tidegate::dns::HostResolver;
///
/// let resolver = HostResolver::of_system();
/// let client = Client::to("sea.example:80")?.resolver(resolver.clone());
/// // All clients and upstreams of the process that have no resolver of their own.
/// resolver.set_as_default();
/// # tidegate::engine::set_default_resolver(None);
/// # drop(client);
/// # Ok::<(), tidegate::ConnectError>(())
/// ```
#[derive(Clone)]
pub struct HostResolver(Arc<HostState>);

#[derive(Debug, Clone)]
struct HostState {
    number: u64,
    files: Arc<SystemFiles>,
    port: u16,
    /// In the place of those of the file.
    servers: Option<Vec<NameServer>>,
    config: Option<ResolverConfig>,
    cache: CacheConfig,
}

impl HostResolver {
    /// The resolver of this system: `/etc/resolv.conf` and `/etc/hosts`.
    #[must_use]
    pub fn of_system() -> Self {
        Self::of_files("/etc/resolv.conf", "/etc/hosts")
    }

    /// A resolver with other files.
    #[must_use]
    pub fn of_files(resolv_conf: impl Into<PathBuf>, hosts: impl Into<PathBuf>) -> Self {
        Self(Arc::new(HostState {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            files: Arc::new(SystemFiles::new(resolv_conf.into(), hosts.into())),
            port: DNS_PORT,
            servers: None,
            config: None,
            cache: CacheConfig::default(),
        }))
    }

    /// The port of the servers in `resolv.conf`; 53.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.with(|state| state.port = port)
    }

    /// Asks these servers, and none of `resolv.conf`; its search list holds.
    ///
    /// # Panics
    /// If there is no server.
    #[must_use]
    pub fn servers(self, servers: Vec<NameServer>) -> Self {
        assert!(!servers.is_empty(), "a resolver has at least one server");
        self.with(|state| state.servers = Some(servers))
    }

    /// Limits and times; those of [`ResolverConfig::of_system`] unless set.
    #[must_use]
    pub fn config(self, config: ResolverConfig) -> Self {
        self.with(|state| state.config = Some(config))
    }

    /// Limits and times of the cache, which all loops share.
    #[must_use]
    pub fn cache(self, cache: CacheConfig) -> Self {
        self.with(|state| state.cache = cache)
    }

    /// A resolver of its own, with other settings.
    fn with(self, change: impl FnOnce(&mut HostState)) -> Self {
        let mut state = Arc::unwrap_or_clone(self.0);
        state.number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        change(&mut state);
        Self(Arc::new(state))
    }

    /// Makes it the resolver of all clients and upstreams of this process that have none of their own.
    pub fn set_as_default(&self) {
        set_default_resolver(Some(NameResolver::new(self.clone())));
    }

    /// The resolver of this loop, with the present content of the files.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub async fn of_this_loop(&self) -> StubResolver {
        let contents = self.0.files.contents(self.0.cache).await;
        let place = self.place_of_this_loop();
        let mut place = place.borrow_mut();
        match &*place {
            Some((of, stub)) if Arc::ptr_eq(of, &contents) => stub.clone(),
            _ => {
                let stub = self.stub(&contents);
                *place = Some((contents, stub.clone()));
                stub
            }
        }
    }

    fn stub(&self, contents: &FileContents) -> StubResolver {
        let FileContents { conf, hosts, cache } = contents;
        let servers = self.0.servers.clone().unwrap_or_else(|| servers_of(conf, self.0.port));
        let config = self.0.config.unwrap_or_else(|| ResolverConfig::of_system(conf));
        StubResolver::with_files(servers, config, cache.clone(), conf.clone(), hosts.clone())
    }

    /// Its place on this loop. A task of the loop owns it, so it ends with the loop.
    fn place_of_this_loop(&self) -> Rc<LoopPlace> {
        let key = (self.0.number, task::loop_number());
        let known = PLACES.with_borrow_mut(|places| {
            places.retain(|(_, place)| place.strong_count() > 0);
            places.iter().find(|(of, _)| *of == key).and_then(|(_, place)| place.upgrade())
        });
        known.unwrap_or_else(|| {
            let place = Rc::new(LoopPlace::default());
            PLACES.with_borrow_mut(|places| places.push((key, Rc::downgrade(&place))));
            let owned = place.clone();
            drop(task::spawn(async move {
                let _owned = owned;
                pending::<()>().await;
            }));
            place
        })
    }
}

/// The servers of a `resolv.conf`. One whose interface does not exist is left out.
fn servers_of(conf: &ResolvConf, port: u16) -> Vec<NameServer> {
    let address = |server: &ServerAddress| match (server.address, &server.scope) {
        (IpAddr::V6(_), Some(scope)) => {
            let (ip, scope) = tidegate_sys::parse_zoned(&format!("{}%{scope}", server.address))?;
            Some(SocketAddr::from(SocketAddrV6::new(ip, port, 0, scope)))
        }
        (address, _) => Some(SocketAddr::new(address, port)),
    };
    let mut servers: Vec<_> = conf.servers.iter().filter_map(address).map(NameServer::at).collect();
    if servers.is_empty() {
        servers.push(NameServer::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
    }
    servers
}

impl Resolve for HostResolver {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        if let Ok(address) = host.parse() {
            return Box::pin(ready(Ok(vec![SocketAddr::new(address, port)])));
        }
        let (this, host) = (self.clone(), host.to_owned());
        Box::pin(async move { this.of_this_loop().await.resolve(&host, port).await })
    }

    fn resolve_servers(&self, host: &str, port: u16) -> ResolvingServers {
        let (this, host) = (self.clone(), host.to_owned());
        Box::pin(async move { this.of_this_loop().await.resolve_servers(&host, port).await })
    }

    fn resolve_service(&self, service: &str) -> ResolvingServers {
        let (this, service) = (self.clone(), service.to_owned());
        Box::pin(async move { this.of_this_loop().await.resolve_service(&service).await })
    }

    fn resolve_https(&self, host: &str, port: u16) -> ResolvingHttps {
        let (this, host) = (self.clone(), host.to_owned());
        Box::pin(async move { this.of_this_loop().await.resolve_https(&host, port).await })
    }
}

impl fmt::Debug for HostResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostResolver").field(&self.0).finish()
    }
}

/// The stub of one loop, with the content that it was made of.
type LoopPlace = RefCell<Option<(Arc<FileContents>, StubResolver)>>;

/// By the numbers of the resolver and of the loop.
type PlaceEntry = ((u64, u64), Weak<LoopPlace>);

thread_local! {
    /// Of all resolvers and loops of the thread.
    static PLACES: RefCell<Vec<PlaceEntry>> = const { RefCell::new(Vec::new()) };
}

/// Numbers the resolvers of this process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

const DNS_PORT: u16 = 53;
