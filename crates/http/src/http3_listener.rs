//! `Http3Listener`: HTTP/3 beside an HTTPS listener: the same addresses over UDP, the same application of each loop.

use std::sync::{Arc, OnceLock};

use tidegate_engine::{EndpointListener, EndpointSession, ServedListener, SessionLimits, SessionStreams};
use tidegate_http3 as http3;
use tidegate_quic as quic;
use tidegate_sys::Address;
use tidegate_tls as tls;

use crate::app_of_loop::AppOfLoop;
use crate::limits::Limits;
use crate::serving::http3::services;

/// HTTP/3 beside a listener: its UDP sockets, for a codec and a handler of one's own. [`Config::http3`](crate::Config::http3)
/// has one for functions.
#[derive(Debug, Clone)]
pub struct Http3Listener {
    quic: quic::ServerConfig,
    /// The value of `Alt-Svc`, once the port is known.
    alternatives: Arc<OnceLock<String>>,
}

impl Http3Listener {
    /// HTTP/3 with the certificates, tickets and client certificates of `tls`, which has not to name the protocol.
    ///
    /// # Errors
    /// [`quic::ConfigError`] if QUIC cannot use `tls`, which has to allow version 1.3, or a limit: a client of HTTP/3 opens
    /// three unidirectional streams (RFC 9114 §6.2).
    pub fn new(tls: &tls::ServerConfig, limits: quic::TransportLimits) -> Result<Self, quic::ConfigError> {
        if limits.unidirectional_max < http3::UNI_STREAMS_MIN {
            return Err(quic::ConfigError::Limit("unidirectional_max"));
        }
        let quic = quic::ServerConfig::new(&tls.clone().with_alpn(["h3"]), limits)?;
        Ok(Self { quic: quic.codes(quic::Codes::HTTP3), alternatives: Arc::default() })
    }

    /// The same for a listener of its own, which has its own value of `Alt-Svc`.
    pub(crate) fn for_another_listener(&self) -> Self {
        Self { quic: self.quic.clone(), alternatives: Arc::default() }
    }

    /// Each connection has a file in this folder.
    #[cfg(feature = "qlog")]
    #[must_use]
    pub fn qlog(self, folder: quic::QlogFolder) -> Self {
        Self { quic: self.quic.qlog(folder), ..self }
    }

    /// The value of `Alt-Svc` (RFC 7838) for responses over TCP; empty before the server has opened the listener. Two listeners
    /// need an `Http3Listener` each, since the value has the port of the first one.
    #[must_use]
    pub fn alternatives(&self) -> &str {
        self.alternatives.get().map_or("", String::as_str)
    }

    /// The counts of QUIC connections and packets.
    #[must_use]
    pub fn counts(&self) -> quic::Counts {
        self.quic.counts()
    }

    /// Serves HTTP/3 at the IP addresses of `listener`. `each` is called once on each loop's thread, with the loop's number,
    /// and returns a closure that makes the services of a connection: those of request streams, whose codec is
    /// [`http3::server_stream`]. Unidirectional streams need none.
    pub fn beside<S>(
        &self,
        listener: ServedListener,
        limits: SessionLimits,
        config: Arc<http3::Config>,
        each: impl Fn(usize) -> S + Send + Sync + 'static,
    ) -> ServedListener
    where
        S: FnMut(EndpointSession<http3::Endpoint<quic::Endpoint>>) -> SessionStreams + 'static,
    {
        // Without randomness, connections begin anew after a restart.
        let quic = self.quic.for_another_server().unwrap_or_else(|_| self.quic.clone());
        let mut settings = Vec::new();
        http3::Settings::of_server(&config).write(None, &mut settings);
        // QUIC has used this TLS before.
        let quic = quic.application_settings(&settings).unwrap_or(quic);
        let generation = quic.generation();
        let make = move |number| http3::Endpoint::server(config.clone(), quic.endpoint(number));
        let options = self.quic.socket_options();
        let listener_of_datagrams =
            EndpointListener::beside_listener().label("http3").options(options).generation(generation);
        let endpoint = listener_of_datagrams.serve_sessions_each(limits, make, each);
        let alternatives = self.alternatives.clone();
        listener.with_endpoint(endpoint, move |addresses| {
            alternatives.get_or_init(|| alt_svc(addresses));
        })
    }

    /// The same with the application of each loop.
    pub(crate) fn serve(
        &self,
        listener: ServedListener,
        (limits, config): (&Limits, Arc<http3::Config>),
        app: AppOfLoop,
    ) -> ServedListener {
        let of_streams = config.clone();
        let mut streams = limits.engine();
        // HTTP/3 ends old connections itself, by GOAWAY.
        streams.deadlines.age_max = None;
        let limits = SessionLimits { streams, ..SessionLimits::default() };
        self.beside(listener, limits, config, move |_| {
            let (app, config) = (app.get(), of_streams.clone());
            move |session| services(app.app(), &config, &session)
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
