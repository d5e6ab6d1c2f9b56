//! A connection that receives the messages of a room. It is a handler without a task, so many of them cost little.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tidegate::websocket::{Config, Message};
use tidegate::{Context, Handler, Outcome, Room, Visit};

use crate::Pipe;

/// A subscriber leaves the room when it is dropped, with its connection.
pub(crate) struct Subscriber {
    room: Room<Pipe>,
    visit: Option<Visit<Pipe>>,
}

impl Subscriber {
    pub(crate) fn new(room: Room<Pipe>) -> Self {
        Self { room, visit: None }
    }
}

impl Handler<Pipe> for Subscriber {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Pipe>) -> Outcome<Pipe> {
        match self.room.enter(&cx.member(), (), |_| None) {
            Ok(visit) => self.visit = Some(visit),
            Err(error) => return Outcome::fail(error),
        }
        Outcome::Continue
    }

    /// A subscriber has nothing to send.
    fn message(&mut self, _: Message, _: &mut Context<'_, Pipe>) -> Outcome<Pipe> {
        Outcome::Close
    }
}

/// The settings of all WebSockets.
pub(crate) fn config() -> &'static Arc<Config> {
    static CONFIG: LazyLock<Arc<Config>> = LazyLock::new(|| {
        let mut config = Config::default();
        config.message_bytes_max = 1024;
        config.ping_interval = Some(Duration::from_secs(60));
        Arc::new(config)
    });
    &CONFIG
}
