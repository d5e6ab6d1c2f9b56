//! The methods of `Server` and `Config` about HTTP/3, with its sessions of WebTransport and its datagrams.
//!
//! Each of them may come first, and none takes back a limit that another one has set: the limits of QUIC follow from all.

use std::sync::Arc;

use tidegate_codec::StreamEndpoint;
use tidegate_engine::{EndpointSession, SessionStreams, Shaping};
use tidegate_http3 as http3;
use tidegate_metrics::HttpRecorder;
use tidegate_quic as quic;

use super::{Config, Server};
use crate::app::App;
use crate::app_of_loop::LoopApp;
use crate::http3_listener::Http3Listener;
use crate::router::Router;
use crate::serving::http3::services;

/// The settings of HTTP/3 beside a listener.
#[derive(Debug, Default, Clone)]
pub(super) struct Http3Settings {
    /// `None` without HTTP/3.
    pub(super) listener: Option<Http3Listener>,
    /// The limits of QUIC, unless they follow from those of the server.
    transport: Option<quic::TransportLimits>,
    webtransport: Option<http3::webtransport::WebTransportLimits>,
    datagrams: Option<http3::HttpDatagramLimits>,
    #[cfg(feature = "qlog")]
    qlog: Option<quic::QlogFolder>,
}

/// HTTP/3.
impl Server {
    /// Serves HTTP/3 as well, at the same addresses over UDP, as [`Config::http3`].
    ///
    /// # Errors
    /// As [`Config::http3`].
    pub fn http3(mut self) -> Result<Self, quic::ConfigError> {
        self.config = self.config.http3()?;
        Ok(self)
    }

    /// The same with limits of QUIC, as [`Config::http3_with`].
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use tidegate::http::{Router, Server};
    /// use tidegate::quic::TransportLimits;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let quic = TransportLimits { idle_timeout: Some(Duration::from_secs(10)), ..TransportLimits::default() };
    /// let server = Server::bind("0.0.0.0:443")?.tls_files("/etc/tide/chain.pem", "/etc/tide/key.pem")?.http3_with(quic)?;
    /// server.start(|| Router::new().get("/", || "hello"))?.wait();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Config::http3_with`].
    pub fn http3_with(mut self, limits: quic::TransportLimits) -> Result<Self, quic::ConfigError> {
        self.config = self.config.http3_with(limits)?;
        Ok(self)
    }

    /// Serves HTTP/3 with sessions of WebTransport, as [`Config::webtransport`].
    ///
    /// # Errors
    /// As [`Config::http3`].
    #[cfg(feature = "webtransport")]
    pub fn webtransport(mut self, limits: http3::webtransport::WebTransportLimits) -> Result<Self, quic::ConfigError> {
        self.config = self.config.webtransport(limits)?;
        Ok(self)
    }

    /// Accepts HTTP datagrams over HTTP/3, as [`Config::http_datagrams`].
    ///
    /// # Errors
    /// As [`Config::http3`].
    #[cfg(feature = "connect-udp")]
    pub fn http_datagrams(mut self, limits: http3::HttpDatagramLimits) -> Result<Self, quic::ConfigError> {
        self.config = self.config.http_datagrams(limits)?;
        Ok(self)
    }

    /// Each HTTP/3 connection has a file in this folder, as [`Config::qlog`].
    #[cfg(feature = "qlog")]
    pub fn qlog(mut self, folder: quic::QlogFolder) -> Self {
        self.config = self.config.qlog(folder);
        self
    }
}

/// HTTP/3.
impl Config {
    /// Serves HTTP/3 as well, at the same IP addresses over UDP, with the certificates, tickets and client certificates of
    /// [`tls`](Self::tls), which has to be set before, as have [`limits`](Self::limits). Responses over HTTP/1.1 and HTTP/2
    /// name it in `Alt-Svc` (RFC 7838), so that browsers change over. Functions are the same for all versions.
    ///
    /// The limits of QUIC follow from `limits`: streams, connections, the idle timeout.
    /// [`http3_with`](Self::http3_with) sets them all. PROXY headers are of TCP alone.
    ///
    /// ```
    /// use tidegate::http::{Config, Router};
    /// use tidegate::{Listener, Server};
    /// # fn certificates() -> Option<tidegate::tls::ServerConfig> { None }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let Some(tls) = certificates() else { return Ok(()) };
    /// let config = Config::new().tls(tls).http3()?;
    /// let https = config.serve(Listener::bind("127.0.0.1:0")?, || Router::new().get("/", || "hello"));
    /// let server = Server::new().listener(https).run()?;
    /// # server.drain(std::time::Duration::ZERO);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`quic::ConfigError`] if there is no TLS, or not one that QUIC can use: version 1.3; or if `limits` have
    /// [`shaping`](crate::Limits::shaping), which holds over TCP alone.
    pub fn http3(mut self) -> Result<Self, quic::ConfigError> {
        let tls = self.tls.as_ref().ok_or(quic::ConfigError::Tls)?;
        if self.limits.shaping != Shaping::default() {
            return Err(quic::ConfigError::Shaping);
        }
        let listener = Http3Listener::new(tls, self.transport())?;
        #[cfg(feature = "qlog")]
        let listener = match &self.http3.qlog {
            Some(folder) => listener.qlog(folder.clone()),
            None => listener,
        };
        self.http3.listener = Some(listener);
        Ok(self)
    }

    /// The same with limits of QUIC. `webtransport`, with its feature, and [`http_datagrams`](Self::http_datagrams) add room
    /// for their streams and datagrams, whether they come before or after this.
    ///
    /// # Errors
    /// As [`http3`](Self::http3), and a limit that QUIC or HTTP/3 cannot have.
    pub fn http3_with(mut self, limits: quic::TransportLimits) -> Result<Self, quic::ConfigError> {
        self.http3.transport = Some(limits);
        self.http3()
    }

    /// Serves HTTP/3 as [`http3`](Self::http3) does, and permits sessions of WebTransport within these limits: functions with
    /// a [`WebTransportUpgrade`](crate::WebTransportUpgrade) accept them. QUIC gets room for their datagrams and streams.
    ///
    /// # Errors
    /// As [`http3`](Self::http3).
    #[cfg(feature = "webtransport")]
    pub fn webtransport(mut self, limits: http3::webtransport::WebTransportLimits) -> Result<Self, quic::ConfigError> {
        self.http3.webtransport = Some(limits);
        self.http3()
    }

    /// Accepts HTTP datagrams (RFC 9297) over HTTP/3 within these limits, for tunnels of
    /// [capsules](crate::CapsuleUpgrade) and of [UDP](crate::UdpProxy): it serves HTTP/3 as [`http3`](Self::http3) does. Without it their
    /// datagrams are capsules on the stream, over HTTP/3 too.
    ///
    /// # Errors
    /// As [`http3`](Self::http3).
    #[cfg(feature = "connect-udp")]
    pub fn http_datagrams(mut self, limits: http3::HttpDatagramLimits) -> Result<Self, quic::ConfigError> {
        self.http3.datagrams = Some(limits);
        self.http3()
    }

    /// Each HTTP/3 connection has a file in this folder.
    #[cfg(feature = "qlog")]
    pub fn qlog(mut self, folder: quic::QlogFolder) -> Self {
        self.http3.listener = self.http3.listener.map(|listener| listener.qlog(folder.clone()));
        self.http3.qlog = Some(folder);
        self
    }

    /// The limits of QUIC, with those that WebTransport and HTTP datagrams need.
    fn transport(&self) -> quic::TransportLimits {
        let Http3Settings { transport, webtransport, datagrams, .. } = &self.http3;
        let transport = transport.clone().unwrap_or_else(|| self.limits.quic());
        let unidirectional = webtransport.as_ref().map_or(0, |limits| limits.unidirectional_max);
        let of_sessions = webtransport.as_ref().map(|limits| limits.datagram_bytes_max);
        let of_requests = datagrams.map(|limits| limits.request_bytes_max);
        quic::TransportLimits {
            unidirectional_max: transport.unidirectional_max.saturating_add(unidirectional),
            datagram_receive_bytes: transport.datagram_receive_bytes.max(of_sessions).max(of_requests),
            ..transport
        }
    }

    /// The services of HTTP/3 connections of one router, with the configuration of their
    /// [`http3::Endpoint`]: for a loop of one's own, or a test in a simulated network. With early data, QUIC needs
    /// [`http3::Settings::of_server`] of that configuration as its
    /// [`application_settings`](tidegate_quic::ServerConfig::application_settings).
    pub fn http3_services<S: 'static, E: StreamEndpoint + 'static>(
        self,
        router: Router<S>,
    ) -> (Arc<http3::Config>, impl FnMut(EndpointSession<E>) -> SessionStreams + 'static) {
        let (config, http2) = (self.http3_config(), self.http2());
        let app = App::new(self.limits, router.into_table()).half_close(self.half_close);
        let app = match &self.metrics {
            Some(metrics) => app.counting(HttpRecorder::new(metrics)),
            None => app,
        };
        let (app, of_streams) = (LoopApp::new(app, http2), config.clone());
        (config, move |session: EndpointSession<E>| services(app.app(), &of_streams, &session))
    }

    /// The configuration of HTTP/3 connections.
    pub(super) fn http3_config(&self) -> Arc<http3::Config> {
        let config = http3::Config::new(self.limits.http3()).continue_by_hand(true);
        let config = config.extended_connect(!self.denies_extended_connect);
        let mut config = config.strict_targets(self.strict_targets);
        if let Some(name) = &self.server_name {
            config = config.server_name(name);
        }
        if let Some(metrics) = &self.metrics {
            config = config.count_refusals(metrics.refusals());
        }
        if let Some(limits) = &self.http3.webtransport {
            config = config.webtransport(limits.clone());
        }
        if let Some(limits) = self.http3.datagrams {
            config = config.datagram_limits(limits);
        }
        Arc::new(config)
    }
}
