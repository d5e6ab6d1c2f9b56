//! `tidegate serve`: from the flags to the last connection.

use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use signal_hook::consts::SIGHUP;
use tidegate::admin::Admin;
use tidegate::codec::Filters;
use tidegate::http1::Config;
use tidegate::metrics::HttpMetrics;
use tidegate::proxy_protocol::{ProxyHeaderFilter, ReceivesHeader};
use tidegate::{Address, Over, Server, ServerHandle, StartError, http1, http2};

use crate::admin::RunningAdmin;
use crate::byte_log::ByteLogs;
use crate::chat::{Chat, ChatOptions};
use crate::findings;
use crate::gateway;
use crate::log::{self, log_to_stderr};
use crate::server::{CUT_SHORT_STATUS, CurrentServer, ServerOptions, announce, signals, supervise};
use crate::site::{Site, serve_http2};
use crate::site_codec::SiteCodec;
use crate::site_metrics;
use crate::sites::SitesOptions;
use crate::tls::Tls;

/// The flags of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    server: ServerOptions,
    /// Write the bytes of connections to a new file that Wireshark opens: a pcap file of up to 256 MiB, which only its
    /// owner may read. With TLS the decrypted bytes
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Log the bytes of connections as hex dumps: the first 64 KiB of each. With TLS the decrypted bytes
    #[arg(long, conflicts_with = "quiet")]
    log_bytes: bool,
    #[command(flatten)]
    sites: SitesOptions,
    #[command(flatten)]
    chat: ChatOptions,
}

/// Serves until SIGTERM, Ctrl-C or a takeover by another server, then drains. A second signal closes all connections.
/// SIGUSR1 prints the counts. With TLS or sites, SIGHUP reads their files again.
pub(crate) fn run(options: ServeOptions) -> Result<(), Box<dyn Error>> {
    if let Some(source) = options.sites.source(&options.server)? {
        return gateway::run(source, options.server.process);
    }
    let process = &options.server.process;
    log_to_stderr(process.quiet, options.log_bytes);
    // Before this process opens descriptors of its own.
    let inherited = Server::from_environment()?;
    // Registered before the server starts, so that no signal is missed once the start-up line is printed.
    let signals = signals()?;
    let byte_logs = ByteLogs::new(options.log_bytes, options.pcap.as_deref()).map_err(StartError::System)?;
    let tls = options.server.tls()?;
    let access_log = process.access_log.open()?;
    if tls.is_some() {
        signals.handle().add_signal(SIGHUP).map_err(StartError::System)?;
    }
    let metrics = process.admin.metrics();
    let server = start(&options, inherited, byte_logs.clone(), tls.as_ref(), metrics.as_ref())?;
    let admin = RunningAdmin::default();
    let has_takeover = process.has_takeover();
    let share = |admin: Admin| if has_takeover { admin.share_address() } else { admin };
    admin.start(&process.admin, &server, metrics.as_ref(), share)?;
    announce(&server, &[tls.is_some()]);
    findings::announce(process, Some("HTTP/1.1, HTTP/2"), tls.iter());
    admin.announce();

    let on_hangup = move || {
        if let Some(tls) = &tls {
            tls.reload();
        }
        access_log.reopen();
    };
    let is_cut_short = supervise(&CurrentServer::new(server), &admin, signals, on_hangup)?;
    if let Some(byte_logs) = byte_logs {
        byte_logs.finish();
    }
    if is_cut_short {
        log::exit(CUT_SHORT_STATUS);
    }
    Ok(())
}

fn start(
    options: &ServeOptions,
    inherited: Option<Server>,
    byte_logs: Option<ByteLogs>,
    tls: Option<&Tls>,
    metrics: Option<&HttpMetrics>,
) -> Result<ServerHandle, StartError> {
    let server = options.server.server(inherited);
    let process = &options.server.process;
    let limits_of_http = process.limits_of_http1();
    let metrics = metrics.cloned();
    let limits_of_http2 = http2::Limits {
        body_bytes_max: limits_of_http.body_bytes_max,
        body_timeout: limits_of_http.body_timeout,
        body_rate_min: limits_of_http.body_rate_min,
        head_timeout: limits_of_http.head_timeout,
        idle_timeout: limits_of_http.idle_timeout,
        ..http2::Limits::default()
    };
    let refusals = metrics.as_ref().map(|metrics| metrics.refusals().clone()).unwrap_or_default();
    let http2 = http2::Config::new(limits_of_http2).extended_connect(process.extends_connect());
    let http2 = http2.count_refusals(&refusals);
    let http2 = Arc::new(http2.strict_targets(process.strict_targets));
    let chat = options.chat.open(tls.is_some());
    let config = Config::new(limits_of_http).detect_http2(true).count_refusals(&refusals);
    let config = Arc::new(config.strict_targets(process.strict_targets));
    let http = move || http1::Server::new(config.clone());
    let policy = (options.server.has_proxy_protocol()).then(|| Arc::new(options.server.proxy_policy()));
    // A common configuration has its own pipeline type. All others share one, which finds its filters at run time.
    match (policy, tls.map(|tls| tls.config.clone()), byte_logs) {
        (None, None, None) => serve(server, (http2, chat), metrics, move |_| http()),
        (None, Some(tls), None) => serve(server, (http2, chat), metrics, move |_| Over::new(tls.accept(), http())),
        (Some(policy), None, None) => {
            serve(server, (http2, chat), metrics, move |peer| ReceivesHeader::new(&policy, ip(peer), http()))
        }
        (policy, tls, logs) => serve(server, (http2, chat), metrics, move |peer| {
            let log = |filters: Filters| logs.iter().fold(filters, |filters, logs| filters.with(logs.filter(peer)));
            let strip = |filters: Filters| {
                policy.iter().fold(filters, |filters, policy| filters.with(ProxyHeaderFilter::new(policy, ip(peer))))
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

fn ip(address: &Address) -> Option<IpAddr> {
    address.ip().map(|address| address.ip())
}

/// Serves the site with a codec for each peer.
fn serve<C: SiteCodec>(
    server: Server,
    (config, chat): (Arc<http2::Config>, Chat),
    metrics: Option<HttpMetrics>,
    codec: impl Fn(&Address) -> C + Clone + Send + Sync + 'static,
) -> Result<ServerHandle, StartError> {
    server.start_each(move |_| {
        serve_http2(&config);
        chat.serve();
        site_metrics::count(metrics.as_ref());
        let codec = codec.clone();
        move |peer: &Address| (codec(peer), Site::new())
    })
}
