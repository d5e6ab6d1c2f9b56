//! `ServerConnection`: the connection to one server.

use std::rc::{Rc, Weak};

use tidegate_engine::{CloseReason, Context, Event, Handler, Outcome, task};

use super::name_server::ResponsePipeline;
use super::{IDLE, Shared};
use crate::message_view::Message;
use crate::message_writer::EncodedMessage;
use crate::resolver::Transport;

/// The handler of a connection to a server.
#[derive(Debug)]
pub(super) struct ServerConnection {
    shared: Weak<Shared>,
    server: usize,
}

impl ServerConnection {
    pub(super) fn new(shared: &Rc<Shared>, server: usize) -> Self {
        Self { shared: Rc::downgrade(shared), server }
    }

    /// Whether a lookup waits for a response of the server.
    fn is_waited_for(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.resolver.borrow().is_waiting(self.server, Transport::Stream))
    }
}

impl<P: ResponsePipeline> Handler<P> for ServerConnection {
    type Post = EncodedMessage;

    fn message(&mut self, message: Message, cx: &mut Context<'_, P, EncodedMessage>) -> Outcome<P> {
        let Some(shared) = self.shared.upgrade() else { return Outcome::Close };
        shared.resolver.borrow_mut().handle_stream_message(self.server, message.wire(), cx.now());
        Shared::pump(&shared);
        if cx.is_draining() && !self.is_waited_for() {
            return Outcome::Close;
        }
        cx.deadline_after(IDLE);
        Outcome::Continue
    }

    fn event(&mut self, event: Event<EncodedMessage>, cx: &mut Context<'_, P, EncodedMessage>) -> Outcome<P> {
        match event {
            Event::Posted(message) => {
                cx.deadline_after(IDLE);
                match cx.send(message) {
                    Ok(_) => Outcome::Continue,
                    Err(error) => Outcome::fail(error),
                }
            }
            Event::Deadline => Outcome::Close,
            // It closes with the last response.
            Event::Drain if self.is_waited_for() => Outcome::Continue,
            event => event.by_default(cx),
        }
    }

    fn closed(&mut self, _: &CloseReason) {
        let Some(shared) = self.shared.upgrade() else { return };
        // The loop calls this within its own borrow of the connection, so a task does the rest.
        let server = self.server;
        drop(task::spawn(async move { Shared::on_closed(&shared, server) }));
    }
}
