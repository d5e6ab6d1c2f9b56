//! The sockets that a loop serves: listeners, and sockets that are connected already.

use std::cell::RefCell;
use std::error::Error;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tidegate_codec::Pipeline;
use tidegate_codec::mux::{Mux, StreamEvent};
use tidegate_sys::{Address, Operation, Socket};

use super::EventLoop;
use crate::admission::AdmissionControl;
use crate::channel::{Channel, Handle as ChannelHandle};
use crate::connection::{Connection, Link, MakeConnection, Settings};
use crate::counters::ListenerCounts;
use crate::endpoint::SteeredPlace;
use crate::handler::Handler;
use crate::limits::Limits;
use crate::load_balancing::LoopHandle;
use crate::loop_core::Core;
use crate::remote::Remote;
use crate::server::acceptor::Acceptor;
use crate::server::make::{MakeHandlerConnection, MakeTaskConnection};
use crate::session::{MakeSession, MakeStreamHandler, MakeStreamTask, Session, SessionApplication};
use crate::successor::Successor;

impl EventLoop {
    /// Accepts from a listener, and makes a codec and a handler for each stream that comes. `live` counts the
    /// connections of all loops that share `limits`.
    ///
    /// # Errors
    /// The driver's, if it does not take the listener.
    pub fn listen<C, H, M>(
        &mut self,
        listener: Socket,
        limits: Limits,
        live: Arc<AtomicUsize>,
        make: M,
    ) -> io::Result<()>
    where
        C: Pipeline,
        H: Handler<C>,
        M: FnMut(&Address) -> (C, H) + 'static,
    {
        self.accept(listener, limits, live, MakeHandlerConnection(make))
    }

    /// Accepts from a listener, makes a codec for each stream that comes, and runs a task that serves its channel.
    /// `live` counts the connections of all loops that share `limits`.
    ///
    /// # Errors
    /// The driver's, if it does not take the listener.
    pub fn serve<C, F, E, M, S>(
        &mut self,
        listener: Socket,
        limits: Limits,
        live: Arc<AtomicUsize>,
        mut codec: M,
        serve: S,
    ) -> io::Result<()>
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
        M: FnMut() -> C + 'static,
        S: Fn(Channel<C>) -> F + 'static,
    {
        self.serve_each(listener, limits, live, move |_: &Address| codec(), serve)
    }

    /// The same with a codec for each peer: `codec` is called with the address of the peer.
    ///
    /// # Errors
    /// The driver's, if it does not take the listener.
    pub fn serve_each<C, F, E, M, S>(
        &mut self,
        listener: Socket,
        limits: Limits,
        live: Arc<AtomicUsize>,
        codec: M,
        serve: S,
    ) -> io::Result<()>
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
        M: FnMut(&Address) -> C + 'static,
        S: Fn(Channel<C>) -> F + 'static,
    {
        self.accept(listener, limits, live, MakeTaskConnection::new(codec, serve))
    }

    /// Accepts from a listener, and makes a session with the codec `mux` from each stream socket that comes. Each stream
    /// that a peer opens gets a codec and a handler. `live` counts the sessions of all loops that share `limits`.
    ///
    /// # Errors
    /// The driver's, if it does not take the listener.
    pub fn listen_streams<P, C, H, X, M>(
        &mut self,
        listener: Socket,
        limits: Limits,
        live: Arc<AtomicUsize>,
        mux: X,
        make: M,
    ) -> io::Result<()>
    where
        P: Pipeline<In = StreamEvent, Codec: Mux>,
        C: Pipeline,
        H: Handler<C>,
        X: FnMut() -> P + 'static,
        M: FnMut() -> (C, H) + 'static,
    {
        let settings = Settings::new(limits.clone(), Arc::default());
        let make = Rc::new(MakeStreamHandler(RefCell::new(make)));
        self.accept(listener, limits, live, MakeSession::new(mux, make, settings))
    }

    /// The same with tasks: each stream that a peer opens gets a codec, and a task that serves its channel.
    ///
    /// # Errors
    /// The driver's, if it does not take the listener.
    pub fn serve_streams<P, C, F, E, X, M, S>(
        &mut self,
        listener: Socket,
        limits: Limits,
        live: Arc<AtomicUsize>,
        mux: X,
        codec: M,
        serve: S,
    ) -> io::Result<()>
    where
        P: Pipeline<In = StreamEvent, Codec: Mux>,
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
        X: FnMut() -> P + 'static,
        M: FnMut() -> C + 'static,
        S: Fn(Channel<C>) -> F + 'static,
    {
        let settings = Settings::new(limits.clone(), Arc::default());
        let make = Rc::new(MakeStreamTask::new(codec, serve));
        self.accept(listener, limits, live, MakeSession::new(mux, make, settings))
    }

    fn accept(
        &mut self,
        listener: Socket,
        limits: Limits,
        live: Arc<AtomicUsize>,
        admit: impl MakeConnection,
    ) -> io::Result<()> {
        let mut core = self.local.core.borrow_mut();
        let (token, _) = core.reserve(Operation::Listen(listener))?;
        let (handle, counts) = self.listener.clone();
        let handoffs = handle.as_ref().and_then(|handle| handle.receive(&core.mailbox, token));
        let settings = Settings::of_listener(limits, live, handle, counts, self.admission.clone());
        core.slots.put(token, Box::new(Acceptor::new(settings, admit, handoffs)));
        Ok(())
    }

    /// Listeners that are added from now on admit connections by these caps; by none unless set. Loops that have the same
    /// control count together.
    pub fn admission(&mut self, admission: Option<Arc<AdmissionControl>>) {
        self.admission = admission;
    }

    /// The control of connections of sockets that are added now.
    pub(crate) fn admission_of_listener(&self) -> Option<Arc<AdmissionControl>> {
        self.admission.clone()
    }

    /// The endpoint that is added next has this place among loops that forward datagrams to each other, and a server may
    /// get its socket.
    pub(crate) fn begin_endpoint(&mut self, steered: Option<SteeredPlace>, successor: Option<Successor>) {
        self.endpoint = (steered, successor);
    }

    /// The same of the endpoint that is added now.
    pub(crate) fn take_endpoint(&mut self) -> (Option<SteeredPlace>, Option<Successor>) {
        std::mem::take(&mut self.endpoint)
    }

    /// The sockets that are added next belong to one listener, with these counts. If it has a handle, its connections
    /// may be handed to other loops, and theirs to this one: to the first of these sockets.
    pub(crate) fn begin_listener(&mut self, handle: Option<LoopHandle>, counts: Option<Arc<ListenerCounts>>) {
        self.listener = (handle, counts);
    }

    /// Takes over a connected stream, and calls [`open`](Handler::open) of its handler.
    ///
    /// # Errors
    /// The driver's, if it refuses the stream; the handler is dropped without a call then.
    pub fn adopt<C, H>(
        &mut self,
        socket: Socket,
        peer: &Address,
        limits: Limits,
        codec: C,
        handler: H,
    ) -> io::Result<Remote<H::Post>>
    where
        C: Pipeline,
        H: Handler<C>,
    {
        self.refresh_time();
        let _entered = self.local.enter();
        let mut core = self.local.core.borrow_mut();
        let link = standalone(limits, peer, &core);
        let token = core.open_connection(socket, Box::new(Connection::new(link, codec, handler)))?;
        Ok(core.remote(token))
    }

    /// Takes over a connected stream as a channel, for the tasks of this loop.
    ///
    /// # Errors
    /// The driver's, if it refuses the stream.
    pub fn open<C: Pipeline>(
        &mut self,
        socket: Socket,
        peer: &Address,
        limits: Limits,
        codec: C,
    ) -> io::Result<Channel<C>> {
        self.refresh_time();
        let _entered = self.local.enter();
        let mut core = self.local.core.borrow_mut();
        let link = standalone(limits, peer, &core);
        let token = core.open_connection(socket, Box::new(Connection::with_channel(link, codec)))?;
        Ok(Channel::new(ChannelHandle::new(self.local.clone(), token)))
    }

    /// Takes over a connected socket as a session, on which the tasks of this loop open streams. Streams that the peer
    /// opens are refused.
    ///
    /// # Errors
    /// The driver's, if it refuses the socket.
    pub fn open_session<P: Pipeline<In = StreamEvent, Codec: Mux>>(
        &mut self,
        socket: Socket,
        peer: &Address,
        limits: Limits,
        mux: P,
    ) -> io::Result<Session<P>> {
        self.refresh_time();
        let _entered = self.local.enter();
        let mut core = self.local.core.borrow_mut();
        let session = SessionApplication::of_client(limits.clone());
        let link = standalone(limits, peer, &core);
        let session = Connection::with_application(link, mux, session);
        let token = core.open_connection(socket, Box::new(session))?;
        Ok(Session::new(self.local.clone(), token))
    }
}

/// A link of a connection that belongs to no server.
fn standalone(limits: Limits, peer: &Address, core: &Core) -> Link {
    Link::new(Settings::new(limits, Arc::new(AtomicUsize::new(1))), peer, &core.pool)
}
