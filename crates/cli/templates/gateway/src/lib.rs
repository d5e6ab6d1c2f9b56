//! A gateway in front of a service: it balances requests over several servers, limits each client, retries, and adds a
//! field to each response.
//!
//! A gateway that needs no code of its own is a file: `tidegate run --config FILE`.
//!
//! `settings.rs` reads the configuration, `main.rs` starts the gateway. `tests/gateway.rs` tests it on a simulated network.

#![forbid(unsafe_code)]

pub mod settings;

use std::error::Error;

use tidegate::ConnectionRate;
use tidegate::http::proxy::{Balance, Edit, Proxy, RateLimit, Upstreams};
use tidegate::http::{AccessLog, LogFormat, RequestIds, Router};

use crate::settings::Settings;

/// The upstreams of the settings. Their health is noticed: one that fails gets no requests for a while.
///
/// # Errors
/// A URL is not valid, or a name has no address.
pub fn upstreams(settings: &Settings) -> Result<Upstreams, Box<dyn Error>> {
    let mut upstreams = Upstreams::builder().balance(Balance::LeastConnections);
    for url in &settings.upstreams {
        upstreams = upstreams.server(url.parse().map_err(|error| format!("{url}: {error}"))?);
    }
    Ok(upstreams.build()?)
}

/// Makes the routes of a loop. All loops share upstreams and rates.
pub fn routers(
    settings: &Settings,
    upstreams: &Upstreams,
) -> impl Fn() -> Router + Clone + Send + Sync + use<> {
    let limit = RateLimit::new(ConnectionRate::per_second(settings.rate).burst(settings.burst));
    let upstreams = upstreams.clone();
    move || {
        let field = Edit::set("X-Gateway", env!("CARGO_PKG_NAME")).expect("the field is valid");
        let proxy = Proxy::new(&upstreams).edit_response(field);
        Router::new()
            .fallback(proxy.rate_limit(&limit))
            .with(RequestIds::new())
            .with(AccessLog::new(LogFormat::Json))
    }
}
