//! `tidegate proxy`: a reverse proxy, by flags or by a file.
//!
//! `config.rs` reads the file, `flags.rs` makes the same of flags. `routes.rs` makes routers of it, now and at each reload.

mod config;
mod flags;
mod routes;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use tidegate::{Server, StartError, http};

use self::config::Config;
pub(crate) use self::flags::ProxyOptions;
use self::routes::Routes;
use crate::log::{self, log_to_stderr};
use crate::server::{CUT_SHORT_STATUS, announce, signals, supervise};

/// Checks a file as a proxy would read it. Returns a summary.
pub(crate) fn check(file: &Path) -> Result<String, Box<dyn Error>> {
    routes::check(Config::read(file)?)
}

/// Passes requests on until SIGTERM, Ctrl-C or a takeover by another server, then drains. A second signal closes all
/// connections. SIGUSR1 prints the counts, SIGHUP reads the files again.
pub(crate) fn run(options: &ProxyOptions) -> Result<(), Box<dyn Error>> {
    log_to_stderr(options.server.quiet, false);
    // Before this process opens descriptors of its own.
    let inherited = Server::from_environment()?;
    let signals = signals()?.with_hangup().map_err(StartError::System)?;
    let tls = options.server.tls()?;
    let access_log = options.server.access_log.open()?;
    let routes = Arc::new(options.routes(access_log.lines())?);
    let mut limits = options.server.limits_of_http();
    limits.body_bytes_max = options.server.limits_of_http1().body_bytes_max;
    // Upstreams have their own times, and their own response to a client for whom one is late.
    limits.request_timeout = Routes::RESPONSE_TIMEOUT_CEILING;
    let mut config = http::Config::new().limits(limits).server_name("").reload(routes.reload_handle());
    config = config.half_close(options.server.half_close);
    config = config.extended_connect(options.server.extends_connect());
    config = config.strict_targets(options.server.strict_targets);
    let metrics = options.server.admin.metrics();
    if let Some(metrics) = &metrics {
        config = config.metrics(metrics);
    }
    if let Some(tls) = &tls {
        config = config.tls(tls.config.clone());
    }
    if options.server.has_proxy_protocol() {
        config = config.proxy_protocol(options.server.proxy_policy());
    }
    let of_loop = routes.clone();
    let server = options.server.server(inherited);
    let server = server.run_main(move |listener| config.serve(listener, move || of_loop.router()))?;
    let of_admin = routes.clone();
    let has_takeover = options.server.has_takeover();
    let admin = options.server.admin.start_with(&server, metrics.as_ref(), has_takeover, |admin| {
        admin.metrics(move |text| of_admin.write_metrics(text))
    })?;
    announce(&server, tls.is_some());
    admin.announce();
    let on_hangup = move || {
        if let Some(tls) = &tls {
            tls.reload();
        }
        routes.reload();
        access_log.reopen();
    };
    let signals = signals.on_hangup(on_hangup).map_err(StartError::System)?;
    if supervise(&server, &admin, signals)? {
        log::exit(CUT_SHORT_STATUS);
    }
    Ok(())
}
