//! `StartTls`: TLS that begins after INFO.
//!
//! A NATS server sends INFO as plain text, and both sides begin the TLS handshake behind it. The filter passes that one line
//! on, and is the TLS filter from then on. A server that is configured for *handshake first* needs the TLS filter alone.
//!
//! Invariant: no byte of the client but those of TLS leaves before or behind INFO.

use tidegate_buffer::{Input, Outbound, ReceiveHint};
use tidegate_codec::{Blame, Fault, Filter, Output, Step};

use crate::error::NatsError;
use crate::limits::ProtocolLimits;

/// The filter `F`, such as TLS, behind the line of INFO.
///
/// ```no_run
/// use tidegate::Over;
/// use tidegate::nats::{Client, ClientCodec, StartTls};
/// use tidegate::tls::{ClientConfig, Provider};
///
/// # fn example(provider: &Provider) -> Result<(), Box<dyn std::error::Error>> {
/// let tls = ClientConfig::builder_with_platform_roots(provider)?.build()?;
/// let client = Client::to("nats.example.org:4222")?.start_with(move |server| {
///     Ok(Over::new(StartTls::client(tls.connect(server.host())?), ClientCodec::default()))
/// });
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StartTls<F> {
    state: StartState,
    filter: F,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartState {
    /// The client waits for INFO, of which this many bytes have no end.
    AwaitsInfo {
        scanned: usize,
    },
    /// The server has not sent INFO.
    SendsInfo,
    Begun,
}

/// The error of [`StartTls`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartTlsError<E> {
    /// The error of the filter.
    Filter(E),
    /// The first line is no INFO, or is too long.
    Info(NatsError),
    /// INFO does not offer TLS. A client that demands TLS must not go on without.
    NotOffered,
}

impl<F: Filter> StartTls<F> {
    /// The filter of a client.
    #[must_use]
    pub fn client(filter: F) -> Self {
        Self { state: StartState::AwaitsInfo { scanned: 0 }, filter }
    }

    /// The filter of a server.
    #[must_use]
    pub fn server(filter: F) -> Self {
        Self { state: StartState::SendsInfo, filter }
    }

    fn receive_info(
        &mut self,
        scanned: usize,
        wire: &mut Input,
        plain: &mut Input,
        reply: &Output<'_>,
    ) -> Result<Step<()>, StartTlsError<F::Error>> {
        let (bytes, bytes_max) = (wire.bytes(), ProtocolLimits::default().json_bytes_max);
        let found = memchr::memchr(b'\n', &bytes[scanned..]).map(|at| scanned + at + 1);
        if found.unwrap_or(bytes.len()) > bytes_max {
            return Err(StartTlsError::Info(NatsError::LineTooLong { bytes_max }));
        }
        let Some(end) = found else {
            self.state = StartState::AwaitsInfo { scanned: bytes.len() };
            return Ok(Step::NeedMore);
        };
        let json = bytes[..end].strip_prefix(b"INFO").ok_or(StartTlsError::Info(NatsError::Operation))?;
        let info = crate::ServerInfo::from_json(json).map_err(|_| StartTlsError::Info(NatsError::Operation))?;
        if !info.tls_required && !info.tls_available {
            return Err(StartTlsError::NotOffered);
        }
        plain.append(wire.take(end), reply.pool());
        self.state = StartState::Begun;
        Ok(Step::Message(()))
    }
}

impl<F: Filter> Filter for StartTls<F> {
    type Error = StartTlsError<F::Error>;

    fn protocol(&self) -> &'static str {
        self.filter.protocol()
    }

    fn inbound(
        &mut self,
        wire: &mut Input,
        plain: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<()>, Self::Error> {
        match self.state {
            StartState::AwaitsInfo { scanned } => self.receive_info(scanned, wire, plain, reply),
            StartState::SendsInfo => Ok(Step::NeedMore),
            StartState::Begun => self.filter.inbound(wire, plain, reply).map_err(StartTlsError::Filter),
        }
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Self::Error> {
        match self.state {
            StartState::AwaitsInfo { .. } => Ok(()),
            StartState::SendsInfo => {
                if plain.has_flushed() {
                    out.take_flushed(plain);
                    self.state = StartState::Begun;
                }
                Ok(())
            }
            StartState::Begun => self.filter.outbound(plain, out).map_err(StartTlsError::Filter),
        }
    }

    fn decode_eof(&mut self, wire: &mut Input, reply: &mut Output<'_>) -> Result<(), Self::Error> {
        match self.state {
            StartState::Begun => self.filter.decode_eof(wire, reply).map_err(StartTlsError::Filter),
            _ => Err(StartTlsError::Info(NatsError::Truncated)),
        }
    }

    fn flush(&mut self, out: &mut Output<'_>) -> Result<(), Self::Error> {
        if self.state == StartState::Begun { self.filter.flush(out).map_err(StartTlsError::Filter) } else { Ok(()) }
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), Self::Error> {
        if self.state == StartState::Begun { self.filter.close(out).map_err(StartTlsError::Filter) } else { Ok(()) }
    }

    fn buffered_bytes(&self) -> usize {
        self.filter.buffered_bytes()
    }

    fn kept_bytes(&self) -> usize {
        self.filter.kept_bytes()
    }

    fn is_established(&self) -> bool {
        self.state == StartState::Begun && self.filter.is_established()
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        self.filter.receive_hint()
    }

    fn poll_timeout(&self) -> Option<std::time::Instant> {
        self.filter.poll_timeout()
    }

    fn handle_timeout(&mut self, reply: &mut Output<'_>) -> Result<(), Self::Error> {
        self.filter.handle_timeout(reply).map_err(StartTlsError::Filter)
    }
}

impl<E: Fault> Fault for StartTlsError<E> {
    fn blame(&self) -> Blame {
        match self {
            Self::Filter(error) => error.blame(),
            Self::Info(error) => error.blame(),
            Self::NotOffered => Blame::Peer,
        }
    }
}

impl<E: Fault> std::fmt::Display for StartTlsError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Filter(error) => std::fmt::Display::fmt(error, f),
            Self::Info(error) => write!(f, "before TLS: {error}"),
            Self::NotOffered => f.write_str(
                "the server offers no TLS: configure `tls` at the server, or start the client without StartTls",
            ),
        }
    }
}

impl<E: Fault + 'static> std::error::Error for StartTlsError<E> {}
