//! `Streams`: the service of streams on connections that become sessions in their middle.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_codec::Pipeline;
use tidegate_codec::mux::{Mux, StreamEvent};

use super::{MakeStream, MakeStreamHandler, MakeStreamTask, SessionApplication};
use crate::channel::Channel;
use crate::connection::{InstallProtocol, Link, Settings, Switch};
use crate::handler::{Handler, Outcome};
use crate::slot_entry::SlotEntry;

/// The service of the streams that peers open: for connections that become sessions, by
/// [`Outcome::session`](Outcome::session). Clones are the same. Streams have the limits of the listener of their
/// session.
#[derive(Clone)]
pub struct Streams {
    make: Rc<dyn MakeStream>,
    /// Makes those of early data, if they differ.
    early: Option<Rc<dyn MakeStream>>,
    /// The settings of streams, and those of the listener that they are made of.
    settings: Rc<RefCell<Option<[Rc<Settings>; 2]>>>,
}

impl Streams {
    /// The codec and the handler that `make` makes for each stream.
    pub fn handle<C, H>(make: impl FnMut() -> (C, H) + 'static) -> Self
    where
        C: Pipeline,
        H: Handler<C>,
    {
        Self::new(Rc::new(MakeStreamHandler(RefCell::new(make))))
    }

    /// A codec that `codec` makes for each stream, and a task that runs `serve` on its channel.
    pub fn serve<C, F, E>(codec: impl FnMut() -> C + 'static, serve: impl Fn(Channel<C>) -> F + 'static) -> Self
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        Self::new(Rc::new(MakeStreamTask::new(codec, serve)))
    }

    /// Whether this is a clone of the other one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same_early = match (&self.early, &other.early) {
            (Some(one), Some(other)) => Rc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        Rc::ptr_eq(&self.make, &other.make) && Rc::ptr_eq(&self.settings, &other.settings) && same_early
    }

    fn new(make: Rc<dyn MakeStream>) -> Self {
        Self { make, early: None, settings: Rc::default() }
    }

    /// Streams that come before the handshake of their session is complete (0-RTT) have the service `early` instead: an
    /// attacker may have sent a copy of them.
    #[must_use]
    pub fn early(self, early: Self) -> Self {
        Self { early: Some(early.make), ..self }
    }

    /// Makes the streams, or those of early data.
    pub(crate) fn make(&self, is_early: bool) -> &dyn MakeStream {
        self.early.as_deref().filter(|_| is_early).unwrap_or(&*self.make)
    }

    /// The settings of the streams of a session.
    fn settings(&self, session: &Rc<Settings>) -> Rc<Settings> {
        let mut settings = self.settings.borrow_mut();
        match &*settings {
            Some([of, streams]) if Rc::ptr_eq(of, session) => streams.clone(),
            _ => {
                let streams = Settings::new(session.limits.clone(), Arc::default());
                *settings = Some([session.clone(), streams.clone()]);
                streams
            }
        }
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams")
    }
}

impl<C: Pipeline> Outcome<C> {
    /// Continues as a session: with the multiplexing codec that `to` makes of the present codec, and with `streams` for
    /// the streams that the peer opens. Everything else is as for [`switch`](Outcome::switch), and the session behaves as
    /// one of [`Listener::handle_streams`](crate::Listener::handle_streams).
    ///
    /// ```
    /// use tidegate::engine::Streams;
    /// use tidegate::framing::Lines;
    /// use tidegate::{Context, Handler, Outcome, Slice};
    /// use tidegate_testkit::{Embedded, ToyMux, ToyMuxConfig};
    ///
    /// /// Sends lines back; `MUX` begins a session, whose streams do the same.
    /// struct Echo(Option<Streams>);
    ///
    /// impl Handler<Lines> for Echo {
    ///     type Post = ();
    ///
    ///     fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
    ///         match (&*line, &self.0) {
    ///             (b"MUX", Some(streams)) => {
    ///                 Outcome::session(|_| ToyMux::server(ToyMuxConfig::default()), streams)
    ///             }
    ///             _ => cx.send(line.into()).into(),
    ///         }
    ///     }
    /// }
    ///
    /// let streams = Streams::handle(|| (Lines::new(), Echo(None)));
    /// let mut pipe = Embedded::new(Lines::new(), Echo(Some(streams)));
    /// pipe.receive(b"hello\nMUX\n");
    /// assert_eq!(pipe.take_written(), b"hello\n");
    /// // The peer opens stream 1 with a line.
    /// let (open, data) = (ToyMux::frame(0, 0, 1, &[3]), ToyMux::frame(1, 0, 1, b"ebb\n"));
    /// pipe.receive(&[open, data.clone()].concat());
    /// assert_eq!(pipe.take_written(), data);
    /// ```
    pub fn session<P>(to: impl FnOnce(C) -> P + 'static, streams: &Streams) -> Self
    where
        P: Pipeline<In = StreamEvent, Codec: Mux>,
    {
        let streams = streams.clone();
        Self::Switch(Switch::new(move |codec| Box::new(InstallSession { mux: to(codec), streams })))
    }
}

impl<C: Pipeline> Switch<C> {
    /// Continues as a session on which this side opens streams, and that refuses those of the peer.
    pub(crate) fn client_session<P>(to: impl FnOnce(C) -> P + 'static) -> Self
    where
        P: Pipeline<In = StreamEvent, Codec: Mux>,
    {
        Self::new(move |codec| Box::new(InstallClientSession(to(codec))))
    }
}

/// A connection of a client becomes a session.
struct InstallClientSession<P>(P);

impl<P: Pipeline<In = StreamEvent, Codec: Mux>> InstallProtocol for InstallClientSession<P> {
    fn install(self: Box<Self>, link: Link) -> Box<dyn SlotEntry> {
        let application = SessionApplication::of_client(link.settings().limits.clone());
        Box::new((self.0, application)).install(link)
    }
}

/// A connection becomes a session.
struct InstallSession<P> {
    mux: P,
    streams: Streams,
}

impl<P: Pipeline<In = StreamEvent, Codec: Mux>> InstallProtocol for InstallSession<P> {
    fn install(self: Box<Self>, link: Link) -> Box<dyn SlotEntry> {
        let Self { mux, streams } = *self;
        let settings = streams.settings(link.shared_settings());
        let application = SessionApplication::new(Some(streams.make), settings, false);
        Box::new((mux, application)).install(link)
    }
}
