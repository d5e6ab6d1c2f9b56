//! `Upgrade`: what takes over a connection that leaves HTTP.

use std::error::Error;
use std::fmt;
use std::future::Future;

use http::StatusCode;
use tidegate_codec::{DynOver, Filters, Pipeline};
use tidegate_engine::{Channel, Handler, Switch};
use tidegate_http1::InvalidField;

use crate::body::{Body, Kind};
use crate::request::Request;
use crate::response::Response;

/// What takes over a connection after a response: the codec of another protocol, with a handler or a task. A
/// [`Response`] carries it: [`Response::upgrade`] and [`Response::tunnel`].
///
/// The pipeline is a [`DynOver`]: the codec over the filters that the connection has, such as TLS, whose types are erased.
/// Bytes that the peer has sent behind its request are the first that the codec decodes.
pub struct Upgrade(pub(crate) Switch<Filters>);

impl Upgrade {
    /// A codec, and a task that serves the connection.
    pub fn channel<C, F, E>(codec: C, serve: impl FnOnce(Channel<DynOver<C>>) -> F + 'static) -> Self
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        Self(Switch::channel(move |filters: Filters| filters.stack(codec), serve))
    }

    /// A codec and a handler.
    pub fn handler<C: Pipeline, H: Handler<DynOver<C>>>(codec: C, handler: H) -> Self {
        Self(Switch::handler(move |filters: Filters| (filters.stack(codec), handler)))
    }
}

impl Response {
    /// Upgrades the connection: 101 (Switching Protocols), after which `upgrade` has the connection. Other fields may be
    /// added, such as those of a handshake.
    ///
    /// The request has to ask for the protocol: see [`Request::asks_for_upgrade`]. If it does not, or if its body is not
    /// read to the end, the protocol does not allow the response: the peer gets a 500, and the error is logged.
    ///
    /// ```
    /// use tidegate::framing::Lines;
    /// use tidegate::http::{Config, IntoResponse, Request, Response, Router, StatusCode, Upgrade};
    /// use tidegate_testkit::Embedded;
    ///
    /// fn shout(request: Request) -> Response {
    ///     if !request.asks_for_upgrade("shout") {
    ///         return StatusCode::BAD_REQUEST.into_response();
    ///     }
    ///     let upgrade = Upgrade::channel(Lines::new(), async |mut channel| {
    ///         while let Some(line) = channel.recv().await? {
    ///             channel.send(line.to_ascii_uppercase().into())?;
    ///         }
    ///         Ok::<_, Box<dyn std::error::Error>>(())
    ///     });
    ///     Response::upgrade("shout", upgrade).into_response()
    /// }
    ///
    /// let (codec, handler) = Config::new().connections(Router::new().get("/", shout))();
    /// let mut pipe = Embedded::new(codec, handler);
    /// pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\nebb\n");
    /// let wire = pipe.take_written();
    /// assert!(wire.starts_with(b"HTTP/1.1 101 ") && wire.ends_with(b"\r\n\r\nEBB\n"));
    /// ```
    ///
    /// # Errors
    /// [`InvalidField`] if the name of the protocol cannot be the value of a field.
    pub fn upgrade(protocol: &str, upgrade: Upgrade) -> Result<Self, InvalidField> {
        Ok(Self::status(StatusCode::SWITCHING_PROTOCOLS).header("Upgrade", protocol)?.with_upgrade(upgrade))
    }

    /// The same response, after which `upgrade` has the connection: a 101 that names its protocol, or a 2xx to CONNECT.
    pub(crate) fn upgrade_to(self, upgrade: Upgrade) -> Self {
        self.body(Body(Kind::Upgrade(Box::new(upgrade))))
    }

    /// Makes the connection a tunnel: the 200 to a CONNECT, after which `upgrade` has the connection. After a request of
    /// another method there is no tunnel: the connection closes behind the response, and the error is logged.
    #[must_use]
    pub fn tunnel(upgrade: Upgrade) -> Self {
        Self::new().with_upgrade(upgrade)
    }

    /// The same response with what takes over the connection after it, in place of its body: for one that is made
    /// already. It is a 101 with the field `Upgrade`, or a 2xx to a CONNECT.
    #[must_use]
    pub fn with_upgrade(self, upgrade: Upgrade) -> Self {
        self.body(Body(Kind::Upgrade(Box::new(upgrade))))
    }
}

impl Request {
    /// Whether the client wants to continue with this protocol on the same connection (RFC 9110 §7.8). Case does not
    /// matter.
    #[must_use]
    pub fn asks_for_upgrade(&self, protocol: &str) -> bool {
        self.asks_for_any_upgrade() && self.has_token("upgrade", protocol)
    }

    /// Whether the client wants to continue with another protocol on the same connection.
    #[must_use]
    pub fn asks_for_any_upgrade(&self) -> bool {
        self.head().version() == tidegate_http1::Version::Http11
            && self.header("upgrade").is_some()
            && self.has_token("connection", "upgrade")
    }

    /// Whether the fields of this name, as one list, have this element.
    fn has_token(&self, name: &str, token: &str) -> bool {
        let fields = self.head().headers().filter(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()));
        fields
            .flat_map(|(_, value)| value.split(|&byte| byte == b','))
            .any(|found| found.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgrade")
    }
}
