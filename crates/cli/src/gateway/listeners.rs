//! From the listeners of a configuration to a running server.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tidegate::engine::{RunningListener, ServedListener};
use tidegate::http::{self, Request};
use tidegate::http3::HttpDatagramLimits;
use tidegate::metrics::HttpMetrics;
use tidegate::{Address, Admission, EndpointListener, ListenOptions, Listener, Server, ServerHandle, quic};

use super::forwarding::{Forwarder, Forwarding};
use super::routes::RouteTable;
use crate::acme;
use crate::config::{Config, Forwards, HeaderMode, Listen, ListenLimits, RESPONSE_TIMEOUT_MAX, RedirectHttps};
use crate::qpack::QpackTables;
use crate::server::ProcessOptions;
use crate::tls::Tls;
use crate::to_https::to_https;

/// The settings of a server's listeners. A reload that changes none of them leaves the server as it is.
#[derive(Debug, PartialEq)]
pub(super) struct ListenPlan {
    pub(super) listens: Vec<Listen>,
    /// Responses of upstreams have the `Server` field of those.
    is_proxy: bool,
    /// HTTP/3 accepts HTTP datagrams, for UDP tunnels of a route.
    accepts_datagrams: bool,
}

/// Shared parts of a server's listeners.
pub(super) struct ServerParts<'a> {
    pub(super) process: &'a ProcessOptions,
    pub(super) metrics: Option<&'a HttpMetrics>,
    pub(super) table: &'a Arc<RouteTable>,
    pub(super) forwarding: &'a Forwarding,
}

impl ListenPlan {
    pub(super) fn new(config: &Config) -> Self {
        let listens = config.listen.iter().map(Listen::without_upstreams).collect();
        let accepts_datagrams = config.routes.iter().any(|route| route.has_udp_proxy() || route.passes_udp_on());
        Self { listens, is_proxy: !config.upstreams.is_empty(), accepts_datagrams }
    }

    /// The https configuration of each listener; `None` for http.
    pub(super) fn tls(&self, process: &ProcessOptions) -> Result<Vec<Option<Tls>>, Box<dyn Error>> {
        self.listens.iter().map(|listen| Tls::of(listen, process.handshake_timeout())).collect()
    }

    /// Gives the https listeners of a later plan the keys of session tickets that those of this one have made, so that clients
    /// resume their sessions: each gets those of the listener that had one of its addresses.
    pub(super) fn hand_tickets_over(&self, before_tls: &[Option<Tls>], later: &Self, later_tls: &[Option<Tls>]) {
        for (listen, tls) in later.listens.iter().zip(later_tls) {
            let mut before =
                self.listens.iter().zip(before_tls).filter_map(|(before, tls)| Some((before, tls.as_ref()?)));
            if let (Some(tls), Some((_, before))) = (tls, before.find(|(before, _)| before.has_address_of(listen))) {
                // Those of files stay.
                tls.config.adopt_ticket_state(&before.config.ticket_state());
            }
        }
    }

    /// Starts the server: on the `passed` sockets of a service manager that are bound to its addresses, or in place of
    /// another one.
    pub(super) fn start(
        &self,
        parts: &ServerParts<'_>,
        tls: &[Option<Tls>],
        passed: &[OwnedFd],
        replaced: Option<&ServerHandle>,
    ) -> Result<ServerHandle, Box<dyn Error>> {
        let passed = passed.iter().map(OwnedFd::try_clone).collect::<Result<_, _>>()?;
        let mut server = parts.process.apply(Server::new()).replaceable().passed(passed);
        if let Some(replaced) = replaced {
            server = server.replaces(replaced)?;
        }
        for (number, (listen, tls)) in self.listens.iter().zip(tls).enumerate() {
            if let Some(Forwarder::Udp(forwarder)) = parts.forwarding.of(number) {
                for address in listen.addresses.iter().map(|address| &address.value) {
                    let listener = EndpointListener::at(address.clone()).only_v6(listen.ipv6_only);
                    server = server.endpoint(forwarder.serve(listener));
                }
                continue;
            }
            let options = ListenOptions { only_v6: listen.ipv6_only, ..ListenOptions::default() };
            let listener = listen.addresses.iter().map(|address| address.value.clone()).collect::<Listener>();
            let listener = with_admission(listener.options(options), parts, listen);
            let config = self.config(parts, listen, tls.as_ref())?;
            server = server.listener(self.serve_streams(parts, (number, listen), config, listener));
        }
        Ok(server.run()?)
    }

    /// The schemes of the addresses of a running server: one for each listener, then one for each address of `udp`.
    pub(super) fn schemes(&self) -> Vec<&'static str> {
        let is_udp = |listen: &&Listen| listen.forwards == Some(Forwards::Udp);
        let (udp, others): (Vec<_>, Vec<_>) = self.listens.iter().partition(is_udp);
        let of_udp = udp.iter().flat_map(|listen| listen.addresses.iter().map(|_| listen.scheme()));
        others.iter().map(|listen| listen.scheme()).chain(of_udp).collect()
    }

    /// A listener of connections, by its number.
    fn serve_streams(
        &self,
        parts: &ServerParts<'_>,
        (number, listen): (usize, &Listen),
        config: http::Config,
        listener: Listener,
    ) -> ServedListener {
        if let Some(Forwarder::Tcp(forwarder)) = parts.forwarding.of(number) {
            let mut limits = parts.process.limits();
            limits.connections_max = listen.limits.connections.map_or(limits.connections_max, |count| count as usize);
            limits.write_timeout = ListenLimits::seconds(listen.limits.write_timeout).unwrap_or(limits.write_timeout);
            return forwarder.serve(listener.limits(limits));
        }
        self.serve(parts, listen, config, listener)
    }

    fn serve(
        &self,
        parts: &ServerParts<'_>,
        listen: &Listen,
        config: http::Config,
        listener: Listener,
    ) -> ServedListener {
        let http01 = if listen.is_https { Vec::new() } else { acme::http01(&self.listens) };
        match listen.redirect_https {
            Some(rule) => {
                let (port, table) = (self.https_port(rule), parts.table.clone());
                let redirect = move |request: Request| to_https(&request, port);
                config.serve(listener, move || table.router_of(redirect, &http01))
            }
            None => {
                let table = parts.table.clone();
                config.serve(listener, move || table.router(&http01))
            }
        }
    }

    /// The port of a redirect to https; `None` for the default one.
    fn https_port(&self, rule: RedirectHttps) -> Option<u16> {
        let port = match rule {
            RedirectHttps::Port(port) => Some(port),
            RedirectHttps::First => {
                let first = self.listens.iter().find(|listen| listen.is_https);
                let address = first.and_then(|listen| listen.addresses.first());
                address.and_then(|address| address.value.ip()).map(|address| address.port())
            }
        };
        port.filter(|port| *port != HTTPS_PORT)
    }

    /// How the connections of a listener are served.
    fn config(
        &self,
        parts: &ServerParts<'_>,
        listen: &Listen,
        tls: Option<&Tls>,
    ) -> Result<http::Config, quic::ConfigError> {
        let process = parts.process;
        let mut limits = limits(process, &listen.limits);
        // Upstreams have their own times, and their own response to a client for whom one is late.
        limits.request_timeout = Duration::from_secs(2 * u64::from(RESPONSE_TIMEOUT_MAX));
        let quic_limits = limits.quic();
        let mut config = http::Config::new().limits(limits).reload(parts.table.reload_handle());
        config = config.half_close(process.half_close).extended_connect(process.extends_connect());
        config = config.strict_targets(process.strict_targets);
        if self.is_proxy {
            config = config.server_name("");
        }
        if let Some(metrics) = parts.metrics {
            config = config.metrics(metrics);
        }
        if let Some(tls) = tls {
            config = config.tls(tls.config.clone());
            if tls.http3 {
                config = config.http3_with(quic::TransportLimits { early_data: tls.early_data, ..quic_limits })?;
                if self.accepts_datagrams {
                    config = config.http_datagrams(HttpDatagramLimits::default())?;
                }
                #[cfg(feature = "qlog")]
                if let Some(folder) = &tls.qlog {
                    config = config.qlog(quic::QlogFolder::new(folder));
                }
            }
        }
        if listen.proxy_protocol != HeaderMode::Off {
            config = config.proxy_protocol(listen.proxy_protocol.policy(listen.proxy_trusted.as_ref()));
        }
        Ok(config)
    }
}

/// The limits of the flags, and those that the listener has of its own.
fn limits(process: &ProcessOptions, own: &ListenLimits) -> http::Limits {
    let mut limits = process.limits_of_http();
    let or = |set: Option<u32>, default: Duration| ListenLimits::seconds(set).unwrap_or(default);
    limits.connections_max = own.connections.map_or(limits.connections_max, |count| count as usize);
    limits.body_bytes_max = own.body_bytes.unwrap_or(limits.body_bytes_max);
    limits.head_bytes_max = own.head_bytes.unwrap_or(limits.head_bytes_max);
    limits.headers_max = own.headers.unwrap_or(limits.headers_max);
    limits.streams_max = own.streams.unwrap_or(limits.streams_max);
    limits.head_timeout = or(own.head_timeout, limits.head_timeout);
    limits.body_timeout = or(own.body_timeout, limits.body_timeout);
    limits.idle_timeout = or(own.idle_timeout, limits.idle_timeout);
    limits.write_timeout = or(own.write_timeout, limits.write_timeout);
    QpackTables::of(own).set_in(&mut limits);
    limits
}

/// The listener with rules of its own about who may connect, if it has some.
fn with_admission(listener: Listener, parts: &ServerParts<'_>, listen: &Listen) -> Listener {
    let has_own = !listen.allow.is_empty()
        || !listen.deny.is_empty()
        || listen.connections_per_address.is_some()
        || listen.connection_rate_per_address.is_some();
    if !has_own {
        return listener;
    }
    let flags = parts.process.admission();
    let or = |own: &Vec<_>, flags: Vec<_>| if own.is_empty() { flags } else { own.clone() };
    listener.admission(Admission {
        allow: or(&listen.allow, flags.allow),
        deny: or(&listen.deny, flags.deny),
        connections_per_address_max: listen.connections_per_address.or(flags.connections_per_address_max),
        rate_per_address: listen.connection_rate_per_address.or(flags.rate_per_address),
        ..flags
    })
}

/// The addresses of a server, for the log.
pub(super) fn addresses(server: &ServerHandle) -> Vec<&Address> {
    server.listeners().iter().flat_map(RunningListener::addresses).collect()
}

const HTTPS_PORT: u16 = 443;
