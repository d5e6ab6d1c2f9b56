//! `Client`: the target of a connection and its options; the connection is a channel, or has a handler.
//!
//! `connect.rs` tries several addresses, `resolver.rs` resolves a name to addresses, `resolve.rs` by the system, and
//! `connect_error.rs` explains why there is no connection.

mod connect;
mod connect_error;
mod resolve;
mod resolver;

use std::str::FromStr;
use std::time::Duration;

use tidegate_codec::Pipeline;
use tidegate_codec::mux::{Mux, StreamEvent};
use tidegate_sys::{Address, SocketOptions};

pub use self::connect::{Connect, ConnectWith, OpenSession};
pub use self::connect_error::ConnectError;
pub use self::resolver::{
    DefaultResolver, HttpsEndpoint, HttpsEndpoints, NameResolver, Resolve, ResolvedServer, ResolvedServers, Resolving,
    ResolvingHttps, ResolvingServers, SystemResolver, set_default_resolver,
};
use crate::handler::Handler;
use crate::limits::{CONNECT_TIMEOUT, CONNECTION_ATTEMPT_DELAY, Limits};

/// The target of a connection and its options. A client can connect many times.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{Backend, Client, EventLoop, Server};
///
/// let server = Server::bind("127.0.0.1:0")?.loops(1).serve(Lines::new, async |mut channel| {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })?;
///
/// let client = Client::at(server.address().clone());
/// let answer = EventLoop::on(Backend::Auto)?.block_on(async move {
///     let mut channel = client.connect(Lines::new()).await?;
///     channel.send("ebb and flow".into())?;
///     Ok::<_, Box<dyn std::error::Error>>(channel.recv().await?)
/// })?;
/// assert_eq!(&*answer?.expect("the server answers"), b"ebb and flow");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a client does nothing until it connects"]
pub struct Client {
    pub(crate) target: Target,
    pub(crate) connect_timeout: Duration,
    pub(crate) connection_attempt_delay: Duration,
    pub(crate) local: Option<Address>,
    pub(crate) options: SocketOptions,
    pub(crate) limits: Limits,
    pub(crate) resolver: NameResolver,
}

/// The target: addresses, or a name to resolve.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Addresses(Vec<Address>),
    Name(Box<str>, u16),
}

impl Client {
    /// A client of `target`: `IP:PORT`, `[IPV6]:PORT`, `NAME:PORT`, `unix:PATH`, or `unix:@NAME` for a name in the
    /// abstract namespace of Linux. A name of a host is resolved each time that the client connects, by its
    /// [resolver](Self::resolver).
    ///
    /// # Errors
    /// [`ConnectError::Target`] if that is none of these.
    pub fn to(target: &str) -> Result<Self, ConnectError> {
        target.parse().map(Self::new).map_err(|BadTarget| ConnectError::Target(target.into()))
    }

    /// A client of an address.
    pub fn at(address: impl Into<Address>) -> Self {
        Self::new(Target::Addresses(vec![address.into()]))
    }

    /// A client of a target with several addresses, which are tried in this order.
    pub fn at_each(addresses: impl IntoIterator<Item = Address>) -> Self {
        Self::new(Target::Addresses(addresses.into_iter().collect()))
    }

    fn new(target: Target) -> Self {
        Self {
            target,
            connect_timeout: CONNECT_TIMEOUT,
            connection_attempt_delay: CONNECTION_ATTEMPT_DELAY,
            local: None,
            options: SocketOptions::default(),
            limits: Limits::default(),
            resolver: NameResolver::default(),
        }
    }

    /// Resolves the name of the target; unless set, the resolver of [`set_default_resolver`], and else that of the
    /// system, on a thread for blocking work.
    pub fn resolver(mut self, resolver: impl Resolve + Send + Sync) -> Self {
        self.resolver = NameResolver::new(resolver);
        self
    }

    /// How long connecting may take in all, resolving the name included; 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long one address is tried alone before the next is tried as well; 250 ms (RFC 8305 §5). If an attempt fails,
    /// the next address is tried at once.
    pub fn connection_attempt_delay(mut self, delay: Duration) -> Self {
        self.connection_attempt_delay = delay;
        self
    }

    /// The local address to connect from; port 0 means any free port.
    pub fn local(mut self, local: impl Into<Address>) -> Self {
        self.local = Some(local.into());
        self
    }

    /// Options of the socket.
    pub fn options(mut self, options: SocketOptions) -> Self {
        self.options = options;
        self
    }

    /// The limits of the connection. `connections_max` and `memory_max` apply to servers only.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Connects, and yields a channel. Dropping the future gives up.
    ///
    /// # Errors
    /// [`ConnectError`], with the last of the reasons if several addresses were tried.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub fn connect<C: Pipeline>(&self, codec: C) -> Connect<C> {
        Connect::new(self, codec)
    }

    /// Connects, and hands the connection to a handler; yields a [`Remote`](crate::Remote) to post to it. Dropping the
    /// future gives up.
    ///
    /// # Errors
    /// [`ConnectError`], with the last of the reasons if several addresses were tried.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub fn connect_with<C: Pipeline, H: Handler<C>>(&self, codec: C, handler: H) -> ConnectWith<C, H> {
        ConnectWith::new(self, codec, handler)
    }
}

impl Client {
    /// Connects, and yields a session with the multiplexing codec `mux`, on which streams are opened. Dropping the future
    /// gives up.
    ///
    /// # Errors
    /// [`ConnectError`], with the last of the reasons if several addresses were tried.
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub fn open_session<P: Pipeline<In = StreamEvent, Codec: Mux>>(&self, mux: P) -> OpenSession<P> {
        OpenSession::new(self, mux)
    }
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Addresses(vec![address]));
        }
        let (name, port) = text.rsplit_once(':').ok_or(BadTarget)?;
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        match port.parse() {
            Ok(port) if is_name => Ok(Self::Name(name.into(), port)),
            _ => Err(BadTarget),
        }
    }
}

/// The text is neither an address nor a name with a port.
pub(crate) struct BadTarget;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_address_or_a_name_with_a_port() {
        for text in ["127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/run/a.sock", "unix:@a"] {
            assert!(matches!(text.parse(), Ok(Target::Addresses(_))), "{text}");
        }
        for text in ["example.com:80", "a_b-c:1"] {
            assert!(matches!(text.parse(), Ok(Target::Name(..))), "{text}");
        }
        for text in ["", "example.com", ":80", "example.com:", "exa mple:80", "a:b:80", "example.com:99999", "unix:"] {
            let error = Client::to(text).unwrap_err().to_string();
            assert!(error.contains("NAME:PORT"), "{text}: {error}");
        }
    }
}
