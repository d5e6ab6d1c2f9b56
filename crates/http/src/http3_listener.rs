//! `Http3Listener`: HTTP/3 beside an HTTPS listener: the same addresses over UDP, the same application of each loop.

use std::sync::{Arc, OnceLock};

use tidegate_engine::{EndpointListener, EndpointSession, ServedListener, SessionLimits};
use tidegate_http3 as http3;
use tidegate_quic as quic;
use tidegate_sys::Address;
use tidegate_tls as tls;

use crate::app_of_loop::AppOfLoop;
use crate::limits::Limits;
use crate::serving::http3::services;

/// The configuration of HTTP/3 at a listener.
#[derive(Debug, Clone)]
pub(crate) struct Http3Listener {
    quic: quic::ServerConfig,
    /// The value of `Alt-Svc`, once the port is known.
    alternatives: Arc<OnceLock<String>>,
}

impl Http3Listener {
    pub(crate) fn new(tls: &tls::ServerConfig, limits: quic::Limits) -> Result<Self, quic::ConfigError> {
        let quic = quic::ServerConfig::new(&tls.clone().with_alpn(["h3"]), limits)?;
        Ok(Self { quic: quic.codes(quic::Codes::HTTP3), alternatives: Arc::default() })
    }

    /// The value of `Alt-Svc` (RFC 7838); empty before the listener is open.
    pub(crate) fn alternatives(&self) -> &str {
        self.alternatives.get().map_or("", String::as_str)
    }

    /// Serves HTTP/3 beside `listener`, with the applications of its loops.
    pub(crate) fn serve(
        &self,
        listener: ServedListener,
        (limits, config): (&Limits, Arc<http3::Config>),
        app: AppOfLoop,
    ) -> ServedListener {
        let of_sessions = SessionLimits { streams: limits.engine(), ..SessionLimits::default() };
        let (quic, of_endpoint) = (self.quic.clone(), config.clone());
        let make = move |number| http3::Endpoint::server(of_endpoint.clone(), quic.endpoint(number));
        let each = move |_| {
            let (app, config) = (app.get(), config.clone());
            move |session: EndpointSession<_>| services(app.app(), &config, &session)
        };
        let endpoint = EndpointListener::beside_listener().label("http3").serve_sessions_each(of_sessions, make, each);
        let alternatives = self.alternatives.clone();
        listener.with_endpoint(endpoint, move |addresses| {
            alternatives.get_or_init(|| alt_svc(addresses));
        })
    }
}

/// HTTP/3 at the ports of these addresses.
fn alt_svc(addresses: &[Address]) -> String {
    let mut ports: Vec<_> = addresses.iter().filter_map(|address| Some(address.ip()?.port())).collect();
    ports.dedup();
    let services: Vec<_> = ports.iter().map(|port| format!("h3=\":{port}\"; ma={FRESH_SECONDS}")).collect();
    services.join(", ")
}

/// How long clients may remember that there is HTTP/3.
const FRESH_SECONDS: u32 = 86_400;
