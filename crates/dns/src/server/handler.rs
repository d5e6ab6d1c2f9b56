//! `StreamHandler`: a connection of a server whose responder answers at once.

use tidegate_codec::Pipeline;
use tidegate_engine::{Context, Handler, Outcome};

use super::{Responder, respond};
use crate::message_view::Message;
use crate::message_writer::EncodedMessage;

/// The connection of a server over TCP or TLS. Responses leave in the order of their queries. While the client does not
/// read, the loop decodes no further query, so a client that sends a thousand of them fills its own kernel.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::Server;
/// use tidegate::dns::server::StreamHandler;
/// use tidegate::dns::{ServerCodec, Zone};
///
/// let zone = Arc::new(Zone::parse("tides.example. 60 SOA . . 1 2 3 4 5\n", None)?);
/// let server = Server::bind("127.0.0.1:0")?.loops(1).start(move || (ServerCodec::default(), StreamHandler::new(zone.clone())))?;
/// # let _ = server.address();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct StreamHandler<R> {
    responder: R,
}

impl<R: Responder> StreamHandler<R> {
    /// A handler of one connection.
    pub const fn new(responder: R) -> Self {
        Self { responder }
    }
}

impl<R, P> Handler<P> for StreamHandler<R>
where
    R: Responder + 'static,
    P: Pipeline<In = Message, Out = EncodedMessage>,
{
    type Post = ();

    fn message(&mut self, query: Message, cx: &mut Context<'_, P>) -> Outcome<P> {
        match cx.send(respond(&self.responder, &query.view(), None)) {
            Ok(_) => Outcome::Continue,
            Err(error) => Outcome::fail(error),
        }
    }
}
