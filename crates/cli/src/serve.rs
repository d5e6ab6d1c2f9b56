//! `tidegate serve`: from the flags to the last connection.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use clap::Args;
use signal_hook::consts::SIGHUP;
use tidegate::admin::{Admin, BackplaneFigures};
use tidegate::backplane::Backplane;
use tidegate::http::Http3Listener;
use tidegate::metrics::{HttpMetrics, Kind};
use tidegate::{Server, ServerHandle, Shaping, StartError, http3, quic};
use tidegate_site::{ByteLogs, Chat, ChatOptions, SiteConfig};

use crate::acme;
use crate::admin::RunningAdmin;
use crate::complain::complain;
use crate::findings;
use crate::gateway;
use crate::log::{self, log_to_stderr};
use crate::server::{CUT_SHORT_STATUS, CurrentServer, ServerOptions, announce, signals, supervise};
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
    if process.telemetry.settings()?.is_some() {
        return Err("--otlp needs --root or --config: requests of the demonstration have no spans".into());
    }
    log_to_stderr(process.quiet, options.log_bytes);
    process.set_resolver();
    // Before this process opens descriptors of its own.
    let passed = Server::sockets_from_environment()?;
    // Registered before the server starts, so that no signal is missed once the start-up line is printed.
    let signals = signals()?;
    let byte_logs = ByteLogs::new(options.log_bytes, options.pcap.as_deref()).map_err(StartError::System)?;
    let tls = options.server.tls()?;
    let access_log = process.access_log.open()?;
    if tls.is_some() {
        signals.handle().add_signal(SIGHUP).map_err(StartError::System)?;
    }
    let metrics = process.admin.metrics();
    let backplane = options.chat.backplane()?;
    let chat = options.chat.open(tls.is_some(), backplane.as_ref());
    let shown = chat.clone();
    let server = start(&options, passed, byte_logs.clone(), tls.as_ref(), (chat, metrics.as_ref()))?;
    acme::start()?;
    let admin = RunningAdmin::default();
    let has_takeover = process.has_takeover();
    let extend = |admin: Admin| {
        let admin = if has_takeover { admin.share_address() } else { admin };
        let shown = shown.clone();
        let admin = admin.rooms(move || shown.summary(ROOMS_SHOWN_MAX));
        match backplane.clone() {
            Some(backplane) => show_backplane(backplane, admin),
            None => admin,
        }
    };
    admin.start(&process.admin, Admin::new(&server), metrics.as_ref(), extend)?;
    announce(&server, &[if tls.is_some() { "https://" } else { "http://" }]);
    let has_http3 = tls.as_ref().is_some_and(|tls| tls.http3);
    let versions = if has_http3 { "HTTP/1.1, HTTP/2, HTTP/3" } else { "HTTP/1.1, HTTP/2" };
    findings::announce(process, Some(versions), tls.iter());
    admin.announce();

    let on_hangup = move || {
        if let Some(tls) = &tls {
            tls.reload();
        }
        access_log.reopen();
    };
    let is_cut_short = supervise(&CurrentServer::new(server), &admin, signals, on_hangup)?;
    if let Some(line) = byte_logs.and_then(|byte_logs| byte_logs.finish()) {
        complain(format_args!("{line}"));
    }
    if is_cut_short {
        log::exit(CUT_SHORT_STATUS);
    }
    Ok(())
}

fn start(
    options: &ServeOptions,
    passed: Vec<OwnedFd>,
    byte_logs: Option<ByteLogs>,
    tls: Option<&Tls>,
    (chat, metrics): (Chat, Option<&HttpMetrics>),
) -> Result<ServerHandle, Box<dyn Error>> {
    let process = &options.server.process;
    let site = SiteConfig {
        limits: process.limits_of_http1(),
        extended_connect: process.extends_connect(),
        strict_targets: process.strict_targets,
        proxy: options.server.has_proxy_protocol().then(|| options.server.proxy_policy()),
        tls: tls.map(|tls| tls.config.clone()),
        http3: http3(options, tls)?.map(|listener| (listener, process.limits())),
        limits_of_http3: tls.map_or_else(http3::Limits::default, |tls| tls.qpack.limits_of_http3()),
        byte_logs,
        metrics: metrics.cloned(),
        chat,
    };
    Ok(site.start(options.server.server(passed))?)
}

/// HTTP/3 beside the listener, if there is some.
fn http3(options: &ServeOptions, tls: Option<&Tls>) -> Result<Option<Http3Listener>, quic::ConfigError> {
    let Some(tls) = tls.filter(|tls| tls.http3) else { return Ok(None) };
    let process = &options.server.process;
    if process.limits().shaping != Shaping::default() {
        return Err(quic::ConfigError::Shaping);
    }
    let limits = quic::TransportLimits {
        idle_timeout: Some(process.limits_of_http1().idle_timeout),
        early_data: tls.early_data,
        ..quic::TransportLimits::default()
    };
    let listener = Http3Listener::new(&tls.config, limits)?;
    #[cfg(feature = "qlog")]
    if let Some(folder) = &tls.qlog {
        return Ok(Some(listener.qlog(quic::QlogFolder::new(folder))));
    }
    Ok(Some(listener))
}

/// Rooms of the live page.
const ROOMS_SHOWN_MAX: usize = 20;

/// Shows a backplane in the metrics, on the page and in the readiness.
fn show_backplane(backplane: Backplane, admin: Admin) -> Admin {
    let (seen, figures) = (backplane.clone(), backplane.clone());
    let admin = admin.backplane(move || {
        let counts = figures.counts();
        BackplaneFigures {
            is_up: counts.is_up,
            fault: figures.fault().map(|fault| fault.to_string()),
            refused_rooms: counts.refused_rooms,
            lag_micros: counts.lag_micros,
            queued_messages: counts.queued_messages,
            rooms: counts.rooms,
            unconfirmed: counts.unconfirmed,
            refused: counts.refused,
            gaps: counts.gaps,
            lost: counts.lost,
            recovered: counts.recovered,
            resubscribes: counts.resubscribes,
            downs: counts.downs,
        }
    });
    let admin = admin.metrics(move |text| {
        for metric in backplane.counts().metrics() {
            let kind = if metric.is_counter { Kind::Counter } else { Kind::Gauge };
            text.family(metric.name, kind, metric.help);
            text.sample(&[], metric.value);
        }
    });
    admin.ready_unless(move || Some(format!("backplane: {}", seen.fault()?)))
}
