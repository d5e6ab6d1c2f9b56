//! How accepted sockets come to their applications: a handler, or a task with a channel.

use std::error::Error;
use std::future::Future;
use std::io;
use std::rc::Rc;

use tidegate_codec::Pipeline;
use tidegate_sys::{Address, Socket};

use crate::channel::{Channel, start_later};
use crate::connection::{Connection, Link, MakeConnection};
use crate::handler::Handler;
use crate::loop_core::Core;

/// Makes a connection with a handler from each stream.
pub(crate) struct MakeHandlerConnection<M>(pub(crate) M);

impl<C, H, M> MakeConnection for MakeHandlerConnection<M>
where
    C: Pipeline,
    H: Handler<C>,
    M: FnMut(&Address) -> (C, H) + 'static,
{
    fn make_connection(&mut self, core: &mut Core, link: Link, socket: Socket, peer: &Address) -> io::Result<()> {
        let (codec, handler) = (self.0)(peer);
        core.open_connection(socket, Box::new(Connection::new(link, codec, handler))).map(drop)
    }
}

/// Makes a connection and a task from each stream.
pub(crate) struct MakeTaskConnection<M, S> {
    codec: M,
    serve: Rc<S>,
}

impl<M, S> MakeTaskConnection<M, S> {
    pub(crate) fn new(codec: M, serve: S) -> Self {
        Self { codec, serve: Rc::new(serve) }
    }
}

impl<C, F, E, M, S> MakeConnection for MakeTaskConnection<M, S>
where
    C: Pipeline,
    F: Future<Output = Result<(), E>> + 'static,
    E: Into<Box<dyn Error>> + 'static,
    M: FnMut(&Address) -> C + 'static,
    S: Fn(Channel<C>) -> F + 'static,
{
    fn make_connection(&mut self, core: &mut Core, link: Link, socket: Socket, peer: &Address) -> io::Result<()> {
        let connection = Connection::with_channel(link, (self.codec)(peer));
        let token = core.open_connection(socket, Box::new(connection))?;
        let serve = self.serve.clone();
        start_later(core, token, move |channel| serve(channel));
        Ok(())
    }
}
