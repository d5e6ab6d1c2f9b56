//! A connection of the server, as a handler: a callback for each request.

use std::time::Duration;

use tidegate::{Context, Event, Handler, Outcome};

use crate::protocol::{Request, Response, ServerCodec};
use crate::store::Store;

/// Serves one connection.
#[derive(Debug)]
pub struct Connection {
    store: Store,
}

impl Connection {
    pub fn new(store: Store) -> Self {
        Self { store }
    }
}

impl Handler<ServerCodec> for Connection {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, ServerCodec>) -> Outcome<ServerCodec> {
        cx.deadline_after(IDLE_TIMEOUT);
        Outcome::Continue
    }

    fn message(
        &mut self,
        request: Request,
        cx: &mut Context<'_, ServerCodec>,
    ) -> Outcome<ServerCodec> {
        cx.deadline_after(IDLE_TIMEOUT);
        let response = match request {
            Request::Set { key, value } => {
                if self.store.set(key, value) {
                    Response::Ok
                } else {
                    Response::Full
                }
            }
            Request::Get { key } => self.store.get(&key).map_or(Response::None, Response::Value),
        };
        // Output that waits is bounded: above the bound no further request is decoded.
        cx.send(response).into()
    }

    fn event(
        &mut self,
        event: Event<()>,
        cx: &mut Context<'_, ServerCodec>,
    ) -> Outcome<ServerCodec> {
        match event {
            Event::Deadline => Outcome::Close,
            other => other.by_default(cx),
        }
    }
}

/// A peer that sends nothing for so long is gone.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
