//! `Protocols`: several protocols on one listener, chosen by the first bytes of each connection.
//!
//! A connection begins with a [`Sniffer`] and a handler of this module, and goes on with another codec and another
//! application, by a switch: the first bytes stay undecoded in its input, and nothing of the sniffer remains.
//!
//! The rules and the verdicts are in `crates/codec/src/sniff`.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::Pipeline;
use tidegate_codec::mux::{Mux, StreamEvent};
use tidegate_codec::sniff::{Match, Rules, Sniffer};

use crate::channel::Channel;
use crate::context::Context;
use crate::handler::{Handler, Outcome};
use crate::session::Streams;

/// How a connection goes on once its protocol is known. `C` is the pipeline that has sniffed.
pub struct Protocol<C: Pipeline = Sniffer<ProtocolIndex>>(Box<dyn Fn() -> Outcome<C>>);

impl<C: Pipeline> Protocol<C> {
    /// The outcome that `to` makes for each connection: an [`Outcome::switch`], an [`Outcome::channel`], an
    /// [`Outcome::session`], or another one as [`Outcome::Close`]. Needed over filters, which the switch keeps; see [`SharedProtocols`].
    pub fn new(to: impl Fn() -> Outcome<C> + 'static) -> Self {
        Self(Box::new(to))
    }
}

impl Protocol {
    /// The codec and the handler that `make` makes for each connection.
    pub fn handle<D, H>(make: impl Fn() -> (D, H) + 'static) -> Self
    where
        D: Pipeline,
        H: Handler<D>,
    {
        Self::new(move || {
            let made = make();
            Outcome::switch(move |_| made)
        })
    }

    /// A codec that `codec` makes for each connection, and a task that runs `serve` on its channel.
    pub fn serve<D, F, E>(codec: impl Fn() -> D + 'static, serve: impl Fn(Channel<D>) -> F + 'static) -> Self
    where
        D: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        let serve = Rc::new(serve);
        Self::new(move || {
            let (codec, serve) = (codec(), serve.clone());
            Outcome::channel(move |_| codec, move |channel| serve(channel))
        })
    }

    /// A session with the multiplexing codec that `mux` makes for each connection, and `streams` for the streams that the
    /// peer opens.
    pub fn session<P>(mux: impl Fn() -> P + 'static, streams: Streams) -> Self
    where
        P: Pipeline<In = StreamEvent, Codec: Mux>,
    {
        Self::new(move || {
            let mux = mux();
            Outcome::session(move |_| mux, &streams)
        })
    }
}

impl<C: Pipeline> fmt::Debug for Protocol<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol")
    }
}

/// The protocols of one port, with the rules by which a connection's first bytes choose one. The rules, their order
/// and the limits are those of [`tidegate_codec::sniff`].
///
/// A connection that matches no rule is closed, and logged like other errors of peers, unless there is a protocol
/// [`otherwise`](Self::otherwise). A peer that is silent until the deadline is disconnected, unless there is a protocol
/// [`when_silent`](Self::when_silent). A connection that the peer ends without a byte is closed, and so is one whose
/// protocol is not known yet when the server drains.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::{Shutdown, TcpStream};
/// use std::time::Duration;
///
/// use tidegate::framing::{LengthField, Lines};
/// use tidegate::{Channel, ChannelError, Context, Handler, Outcome, Protocol, Protocols, Server, Slice, sniff};
///
/// /// Sends frames back.
/// struct Frames;
///
/// impl Handler<LengthField> for Frames {
///     type Post = ();
///
///     fn message(&mut self, frame: Slice, cx: &mut Context<'_, LengthField>) -> Outcome<LengthField> {
///         cx.send(frame.into()).into()
///     }
/// }
///
/// async fn lines(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.into())?;
///     }
///     Ok(())
/// }
///
/// let server = Server::bind("127.0.0.1:0")?.sniff(|_| {
///     Protocols::new()
///         .on(sniff::starts_with(b"\0"), Protocol::handle(|| (LengthField::new(2), Frames)))
///         .otherwise(Protocol::serve(Lines::new, lines))
///         .deadline(Duration::from_secs(3))
/// })?;
/// let address = server.address().ip().ok_or("an IP address")?;
/// for wire in [&b"\0\x03ebb"[..], b"ebb and flow\n"] {
///     let mut peer = TcpStream::connect(address)?;
///     peer.write_all(wire)?;
///     peer.shutdown(Shutdown::Write)?;
///     let mut answer = Vec::new();
///     peer.read_to_end(&mut answer)?;
///     assert_eq!(answer, wire);
/// }
/// server.drain(Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "protocols do nothing until a listener uses them"]
pub struct Protocols<C: Pipeline = Sniffer<ProtocolIndex>> {
    rules: Rules<ProtocolIndex>,
    protocols: Vec<Protocol<C>>,
}

impl<C: Pipeline> Default for Protocols<C> {
    fn default() -> Self {
        Self { rules: Rules::new(), protocols: Vec::new() }
    }
}

impl Protocols {
    /// No protocols.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<C: Pipeline> Protocols<C> {
    /// No protocols, for sniffing over filters.
    pub fn over() -> Self {
        Self::default()
    }

    /// The protocol of connections whose first bytes match a rule, and none of the rules before.
    pub fn on(self, rule: impl Fn(&[u8]) -> Match + 'static, protocol: Protocol<C>) -> Self {
        self.add(protocol, |rules, index| rules.rule(rule, index))
    }

    /// The protocol of connections whose bytes match no rule; see [`Rules::otherwise`].
    pub fn otherwise(self, protocol: Protocol<C>) -> Self {
        self.add(protocol, Rules::otherwise)
    }

    /// The protocol of connections that are silent until the deadline, for protocols in which the server speaks first;
    /// see [`Rules::when_silent`].
    pub fn when_silent(self, protocol: Protocol<C>) -> Self {
        self.add(protocol, Rules::when_silent)
    }

    /// How many of the first bytes rules see; see [`Rules::bytes_max`]. Default 256.
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.rules = self.rules.bytes_max(bytes_max);
        self
    }

    /// How long a peer may take until a rule matches; see [`Rules::deadline`]. Default 5 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.rules = self.rules.deadline(deadline);
        self
    }

    /// The same for the connections of one loop, outside of a listener's [`sniff`](crate::Listener::sniff).
    pub fn share(self) -> SharedProtocols<C> {
        SharedProtocols { rules: Rc::new(self.rules), protocols: Rc::new(self.protocols) }
    }

    fn add(
        mut self,
        protocol: Protocol<C>,
        add: impl FnOnce(Rules<ProtocolIndex>, ProtocolIndex) -> Rules<ProtocolIndex>,
    ) -> Self {
        self.rules = add(self.rules, ProtocolIndex(self.protocols.len()));
        self.protocols.push(protocol);
        self
    }
}

impl<C: Pipeline> fmt::Debug for Protocols<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Protocols").field(&self.rules).finish()
    }
}

/// A place in [`Protocols`]: the message of their sniffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolIndex(usize);

/// [`Protocols`] that the connections of one loop share. Clones are the same protocols.
///
/// A pipeline that sniffs over a filter keeps the filter when it switches:
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{Context, Handler, Outcome, Over, Protocol, ProtocolIndex, Protocols, Slice, sniff};
/// use tidegate_testkit::Embedded;
/// use tidegate_testkit::filters::StripPrefix;
///
/// type Sniffer = sniff::Sniffer<ProtocolIndex>;
/// type Filtered<C> = Over<StripPrefix, C>;
///
/// struct Echo;
///
/// impl Handler<Filtered<Lines>> for Echo {
///     type Post = ();
///
///     fn message(&mut self, line: Slice, cx: &mut Context<'_, Filtered<Lines>>) -> Outcome<Filtered<Lines>> {
///         cx.send(line.into()).into()
///     }
/// }
///
/// let lines = || Outcome::switch(|over: Filtered<Sniffer>| (over.map(|_| Lines::new()), Echo));
/// let protocols = Protocols::<Filtered<Sniffer>>::over().on(sniff::starts_with(b"HELO "), Protocol::new(lines)).share();
/// let sniffing = Over::new(StripPrefix::new(b"tide"), protocols.sniffer());
/// let mut pipe = Embedded::new(sniffing, protocols.handler());
/// pipe.receive(b"tideHELO sea\n");
/// assert_eq!(pipe.take_written(), b"HELO sea\n");
/// ```
pub struct SharedProtocols<C: Pipeline = Sniffer<ProtocolIndex>> {
    rules: Rc<Rules<ProtocolIndex>>,
    protocols: Rc<Vec<Protocol<C>>>,
}

impl<C: Pipeline> SharedProtocols<C> {
    /// The codec of a new connection.
    #[must_use]
    pub fn sniffer(&self) -> Sniffer<ProtocolIndex> {
        Sniffer::new(self.rules.clone())
    }

    /// The handler of a new connection.
    #[must_use]
    pub fn handler(&self) -> SniffHandler<C> {
        SniffHandler { protocols: self.protocols.clone() }
    }
}

impl<C: Pipeline> Clone for SharedProtocols<C> {
    fn clone(&self) -> Self {
        Self { rules: self.rules.clone(), protocols: self.protocols.clone() }
    }
}

impl<C: Pipeline> fmt::Debug for SharedProtocols<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedProtocols").field(&self.rules).finish()
    }
}

/// The handler of a connection whose protocol is not known yet.
pub struct SniffHandler<C: Pipeline = Sniffer<ProtocolIndex>> {
    protocols: Rc<Vec<Protocol<C>>>,
}

impl<C: Pipeline<In = ProtocolIndex>> Handler<C> for SniffHandler<C> {
    type Post = ();

    fn message(&mut self, ProtocolIndex(index): ProtocolIndex, _: &mut Context<'_, C>) -> Outcome<C> {
        // A sniffer with the rules of other protocols may yield an index that these do not have.
        self.protocols.get(index).map_or(Outcome::Close, |Protocol(to)| to())
    }
}

impl<C: Pipeline> fmt::Debug for SniffHandler<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SniffHandler")
    }
}
