//! `WebTransportClient`: opens sessions to servers, each on a QUIC connection of its own.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_engine::{ChannelError, SessionError, task};
use tidegate_http1::client::Request;
use tidegate_http3 as http3;
use tidegate_http3::CapsuleCodec;
use tidegate_http3::webtransport::WebTransportLimits;
use tidegate_quic as quic;
use tidegate_tls as tls;

use super::CAPSULE_BYTES_MAX;
use super::serve::{begin, drive};
use super::session::WebTransportSession;
use crate::extended_client::{Http3Connector, RESPONSE_TIMEOUT, RequestFailure, authority, from_request_failure};

/// A client of WebTransport, for tasks of one loop. Its sockets close behind the last session.
///
/// ```
/// use std::net::SocketAddr;
///
/// use tidegate::http::WebTransportClient;
///
/// /// Sends a datagram, and waits for one.
/// async fn ask(client: &WebTransportClient, server: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
///     let session = client.open(server, "sea.example", "/echo").await?;
///     session.send_datagram(b"high water")?;
///     println!("{:?}", session.recv_datagram().await);
///     session.close(0, "done");
///     Ok(())
/// }
/// # drop(ask);
/// ```
pub struct WebTransportClient {
    http3: Http3Connector,
    response_timeout: Duration,
}

/// Why no session was opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum WebTransportError {
    /// There is no connection.
    Connection(quic::ConnectionError),
    /// SETTINGS of the server, or the response, took longer than [`WebTransportClient::response_timeout`].
    Timeout,
    /// The server permits no session.
    Unsupported,
    /// The server has responded with another status than one of success.
    Refused(u16),
    /// The path, or the name of the server, cannot be part of a request.
    Request,
    /// The request was reset, or the connection is over.
    Closed(ChannelError),
    /// No stream was opened for the request.
    Session(SessionError),
}

impl WebTransportClient {
    /// Opens a socket at `address`, most often port 0, on the loop that runs on this thread. `tls` has the trust in servers;
    /// `limits` bound the servers.
    ///
    /// # Errors
    /// Those of the system; `InvalidInput` if QUIC cannot use `tls`, which has to allow version 1.3, or a limit.
    ///
    /// # Panics
    /// If no event loop runs on this thread, and within a handler: a task calls it.
    pub fn bind(address: SocketAddr, tls: &tls::ClientConfig, limits: WebTransportLimits) -> io::Result<Self> {
        let transport = quic::TransportLimits {
            unidirectional_max: quic::TransportLimits::default()
                .unidirectional_max
                .saturating_add(limits.unidirectional_max),
            datagram_receive_bytes: Some(limits.datagram_bytes_max),
            ..quic::TransportLimits::default()
        };
        let http3 = Http3Connector::bind(address, tls, transport, http3::Config::default().webtransport(limits))?;
        Ok(Self { http3, response_timeout: RESPONSE_TIMEOUT })
    }

    /// How long SETTINGS of the server may take, and then the response to the request of a session. 30 seconds. It stops a server
    /// that accepts a request and never answers, or that permits no stream.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate::http::WebTransportClient;
    ///
    /// fn impatient(client: WebTransportClient) -> WebTransportClient {
    ///     client.response_timeout(Duration::from_secs(5))
    /// }
    /// # drop(impatient);
    /// ```
    #[must_use]
    pub fn response_timeout(self, response_timeout: Duration) -> Self {
        Self { response_timeout, ..self }
    }

    /// Opens a session for a path of a server whose certificate has this name. It lasts until one of the two sides closes it, so
    /// a task that needs it no more [closes](WebTransportSession::close) it. Dropping the future closes the connection.
    ///
    /// # Errors
    /// [`WebTransportError`].
    pub async fn open(
        &self,
        server: SocketAddr,
        name: &str,
        path: &str,
    ) -> Result<WebTransportSession, WebTransportError> {
        let request = Request::get(path).and_then(|request| request.host(&authority(server, name)));
        let request = request.map_err(|_| WebTransportError::Request)?.upgrade("webtransport");
        let permits = |settings: &http3::Settings| settings.webtransport_sessions_max > 0;
        let connection = self.http3.connect(server, name, permits, self.response_timeout).await?;
        let opening = connection.open(request, CapsuleCodec::new(CAPSULE_BYTES_MAX).for_session());
        let opened = task::timeout(self.response_timeout, opening).await;
        let channel = opened.unwrap_or(Err(RequestFailure::Timeout))?;
        let (session, reader) = begin(channel).map_err(WebTransportError::Session)?;
        let driven = session.clone();
        drop(task::spawn(async move {
            // The connection ends behind the session.
            let _connection = connection;
            drive(&driven, reader).await;
        }));
        Ok(session)
    }
}

from_request_failure!(WebTransportError);

impl fmt::Debug for WebTransportClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebTransportClient").finish_non_exhaustive()
    }
}

impl fmt::Display for WebTransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => error.fmt(f),
            Self::Timeout => f.write_str("the server took too long"),
            Self::Unsupported => f.write_str("the server permits no session of WebTransport"),
            Self::Refused(status) => write!(f, "the server has refused the session with {status}"),
            Self::Request => f.write_str("the path or the name of the server cannot be part of a request"),
            Self::Closed(error) => error.fmt(f),
            Self::Session(error) => error.fmt(f),
        }
    }
}

impl Error for WebTransportError {}
