//! `SiteConfig`: from the settings of the site to its connections.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use tidegate::codec::Filters;
use tidegate::engine::{Limits, ServedListener, SessionLimits, SessionStreams};
use tidegate::http::Http3Listener;
use tidegate::http1::Config;
use tidegate::metrics::HttpMetrics;
use tidegate::proxy_protocol::{Policy, ProxyHeaderFilter, ReceivesHeader};
use tidegate::{Address, Deadlines, Over, Server, ServerHandle, StartError, http1, http2, http3, tls};

use crate::byte_log::ByteLogs;
use crate::chat::Chat;
use crate::handler::{Site, serve_http2, serve_http3};
use crate::metrics;
use crate::site_codec::SiteCodec;

/// The settings of a site.
pub struct SiteConfig {
    /// The limits of HTTP/1.1; those of HTTP/2 follow them.
    pub limits: http1::Limits,
    /// Whether HTTP/2 clients may open WebSockets (RFC 8441).
    pub extended_connect: bool,
    /// Whether request targets that no URI has are refused.
    pub strict_targets: bool,
    /// Which PROXY headers count; `None` without the PROXY protocol.
    pub proxy: Option<Policy>,
    /// `None` for http.
    pub tls: Option<tls::ServerConfig>,
    /// HTTP/3 beside the listener, with the limits of its streams: those of the server's connections.
    pub http3: Option<(Http3Listener, Limits)>,
    /// HTTP/3 limits, of which those that HTTP/1.1 has as well follow `limits`.
    pub limits_of_http3: http3::Limits,
    /// Logs of the bytes of connections.
    pub byte_logs: Option<ByteLogs>,
    /// Counts requests.
    pub metrics: Option<HttpMetrics>,
    /// The rooms of /chat.
    pub chat: Chat,
}

impl SiteConfig {
    /// Starts a server of the site.
    ///
    /// # Errors
    /// [`StartError`], with a remedy.
    pub fn start(self, server: Server) -> Result<ServerHandle, StartError> {
        let http3 = self.http3.clone().map(|(listener, mut streams)| {
            let config = self.config_of_http3(streams.deadlines);
            // HTTP/3 ends old connections itself.
            streams.deadlines.age_max = None;
            Http3 { listener, limits: SessionLimits { streams, ..SessionLimits::default() }, config }
        });
        let Self { limits, tls, byte_logs, metrics, chat, .. } = self;
        let limits_of_http2 = http2::Limits {
            body_bytes_max: limits.body_bytes_max,
            body_timeout: limits.body_timeout,
            body_rate_min: limits.body_rate_min,
            head_timeout: limits.head_timeout,
            idle_timeout: limits.idle_timeout,
            ..http2::Limits::default()
        };
        let refusals = metrics.as_ref().map(|metrics| metrics.refusals().clone()).unwrap_or_default();
        let http2 = http2::Config::new(limits_of_http2).extended_connect(self.extended_connect);
        let http2 = http2.count_refusals(&refusals);
        let http2 = http2.strict_targets(self.strict_targets);
        let config = Config::new(limits).detect_http2(true).count_refusals(&refusals);
        let config = config.strict_targets(self.strict_targets);
        // `Alt-Svc` names the port, which is known once the listener is open.
        let alternatives = self.http3.map(|(listener, _)| listener);
        let config = Arc::new(LazyLock::new(move || {
            Arc::new(config.alt_svc(alternatives.as_ref().map_or("", Http3Listener::alternatives)))
        }));
        let http = move || http1::Server::new(Arc::clone(&**config));
        let of_loops = SiteOfLoop { http2, http3, chat, metrics };
        // A common configuration has its own pipeline type. All others share one, which finds its filters at run time.
        match (self.proxy.map(Arc::new), tls, byte_logs) {
            (None, None, None) => serve(server, of_loops, move |_| http()),
            (None, Some(tls), None) => serve(server, of_loops, move |_| Over::new(tls.accept(), http())),
            (Some(policy), None, None) => {
                serve(server, of_loops, move |peer| ReceivesHeader::new(&policy, ip(peer), http()))
            }
            (policy, tls, logs) => serve(server, of_loops, move |peer| {
                let log = |filters: Filters| logs.iter().fold(filters, |filters, logs| filters.with(logs.filter(peer)));
                let strip = |filters: Filters| {
                    policy
                        .iter()
                        .fold(filters, |filters, policy| filters.with(ProxyHeaderFilter::new(policy, ip(peer))))
                };
                // A PROXY header comes before the handshake. With TLS the log is above it, where bytes are plain.
                let filters = match &tls {
                    Some(tls) => log(strip(Filters::default()).with(tls.accept())),
                    None => strip(log(Filters::default())),
                };
                filters.stack(http())
            }),
        }
    }
}

impl SiteConfig {
    fn config_of_http3(&self, deadlines: Deadlines) -> Arc<http3::Config> {
        let limits = http3::Limits {
            body_bytes_max: self.limits.body_bytes_max,
            head_timeout: self.limits.head_timeout,
            body_timeout: self.limits.body_timeout,
            body_rate_min: self.limits.body_rate_min,
            idle_timeout: self.limits.idle_timeout,
            age_max: deadlines.age_max,
            age_grace: deadlines.age_grace,
            ..self.limits_of_http3.clone()
        };
        let config = http3::Config::new(limits).extended_connect(self.extended_connect);
        let config = match &self.metrics {
            Some(metrics) => config.count_refusals(metrics.refusals()),
            None => config,
        };
        Arc::new(config.strict_targets(self.strict_targets))
    }
}

fn ip(address: &Address) -> Option<IpAddr> {
    address.ip().map(|address| address.ip())
}

/// The state of each loop.
struct SiteOfLoop {
    http2: http2::Config,
    http3: Option<Http3>,
    chat: Chat,
    metrics: Option<HttpMetrics>,
}

/// HTTP/3 beside the listener.
#[derive(Clone)]
struct Http3 {
    listener: Http3Listener,
    limits: SessionLimits,
    config: Arc<http3::Config>,
}

impl Http3 {
    /// Serves HTTP/3 beside a listener.
    fn beside(&self, listener: ServedListener) -> ServedListener {
        let of_streams = self.config.clone();
        self.listener.beside(listener, self.limits.clone(), self.config.clone(), move |_| {
            let requests = serve_http3(&of_streams);
            move |_| SessionStreams { bidirectional: Some(requests.clone()), unidirectional: None }
        })
    }
}

/// Serves the site with a codec for each peer.
fn serve<C: SiteCodec>(
    server: Server,
    SiteOfLoop { http2, http3, chat, metrics }: SiteOfLoop,
    codec: impl Fn(&Address) -> C + Clone + Send + Sync + 'static,
) -> Result<ServerHandle, StartError> {
    let beside = http3.clone();
    let each = move |_| {
        let alternatives = http3.as_ref().map_or("", |http3| http3.listener.alternatives());
        serve_http2(&Arc::new(http2.clone().alt_svc(alternatives)));
        chat.serve();
        metrics::count(metrics.as_ref());
        let codec = codec.clone();
        move |peer: &Address| (codec(peer), Site::new())
    };
    server.run_main(|listener| {
        let listener = listener.handle_each(each);
        match beside {
            Some(http3) => http3.beside(listener),
            None => listener,
        }
    })
}
