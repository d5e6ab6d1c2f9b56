//! How streams come to their applications.

use std::cell::RefCell;
use std::error::Error;
use std::future::Future;
use std::io;
use std::rc::Rc;

use tidegate_buffer::Slice;
use tidegate_codec::Pipeline;
use tidegate_codec::mux::{Mux, StreamEvent};
use tidegate_sys::{Address, Socket, Token};

use super::SessionApplication;
use crate::channel::{Channel, start_later};
use crate::connection::{Connection, Link, MakeConnection, Settings};
use crate::handler::Handler;
use crate::loop_core::Core;
use crate::slot_entry::SlotEntry;

/// Makes a stream that the peer has opened, in a reserved slot.
pub(crate) trait MakeStream: 'static {
    fn make_stream(&self, core: &mut Core, token: Token, link: Link);

    /// Whether its streams may answer within the dispatch in which they are opened.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Makes a stream with all bytes of its peer, if they [answer at once](Self::answers_at_once). Returns it if its answer
    /// is complete; see [`Core::answer_stream`].
    fn answer_stream(&self, _core: &mut Core, _token: Token, _link: Link, _bytes: Slice) -> Option<Box<dyn SlotEntry>> {
        None
    }
}

/// Makes streams with handlers.
pub(crate) struct MakeStreamHandler<M>(pub(crate) RefCell<M>);

impl<C, H, M> MakeStream for MakeStreamHandler<M>
where
    C: Pipeline,
    H: Handler<C>,
    M: FnMut() -> (C, H) + 'static,
{
    fn make_stream(&self, core: &mut Core, token: Token, link: Link) {
        let (codec, handler) = (self.0.borrow_mut())();
        core.open_stream(token, Box::new(Connection::new(link, codec, handler)));
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn answer_stream(&self, core: &mut Core, token: Token, link: Link, bytes: Slice) -> Option<Box<dyn SlotEntry>> {
        let (codec, handler) = (self.0.borrow_mut())();
        core.answer_stream(token, Box::new(Connection::new(link, codec, handler)), bytes)
    }
}

/// Makes streams with tasks.
pub(crate) struct MakeStreamTask<M, S> {
    codec: RefCell<M>,
    serve: Rc<S>,
}

impl<M, S> MakeStreamTask<M, S> {
    pub(crate) fn new(codec: M, serve: S) -> Self {
        Self { codec: RefCell::new(codec), serve: Rc::new(serve) }
    }
}

impl<C, F, E, M, S> MakeStream for MakeStreamTask<M, S>
where
    C: Pipeline,
    F: Future<Output = Result<(), E>> + 'static,
    E: Into<Box<dyn Error>> + 'static,
    M: FnMut() -> C + 'static,
    S: Fn(Channel<C>) -> F + 'static,
{
    fn make_stream(&self, core: &mut Core, token: Token, link: Link) {
        let codec = (self.codec.borrow_mut())();
        core.open_stream(token, Box::new(Connection::with_channel(link, codec)));
        let serve = self.serve.clone();
        start_later(core, token, move |channel| serve(channel));
    }
}

/// Makes a session from each accepted socket.
pub(crate) struct MakeSession<M> {
    mux: M,
    make: Rc<dyn MakeStream>,
    settings: Rc<Settings>,
}

impl<M> MakeSession<M> {
    pub(crate) fn new(mux: M, make: Rc<dyn MakeStream>, settings: Rc<Settings>) -> Self {
        Self { mux, make, settings }
    }
}

impl<P, M> MakeConnection for MakeSession<M>
where
    P: Pipeline<In = StreamEvent, Codec: Mux>,
    M: FnMut() -> P + 'static,
{
    fn make_connection(&mut self, core: &mut Core, link: Link, socket: Socket, _: &Address) -> io::Result<()> {
        let application = SessionApplication::new(Some(self.make.clone()), self.settings.clone(), false);
        let session = Connection::with_application(link, (self.mux)(), application);
        core.open_connection(socket, Box::new(session)).map(drop)
    }
}
