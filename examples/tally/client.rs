//! The client: one connection, with one request at a time.

use std::error::Error;
use std::time::Duration;

use tidegate::{Channel, Client};

use crate::protocol::{ClientSide, Request, Response};

/// A connection to a server.
pub(crate) struct Counters {
    channel: Channel<ClientSide>,
}

impl Counters {
    /// Connects to `IP:PORT` or `NAME:PORT`.
    pub(crate) async fn connect(target: &str) -> Result<Self, Box<dyn Error>> {
        Ok(Self { channel: Client::to(target)?.connect(ClientSide::new()).await? })
    }

    /// Adds to a counter, and returns the total.
    pub(crate) async fn add(&mut self, name: &str, amount: u32) -> Result<u64, Box<dyn Error>> {
        self.ask_for(Request::Add { name: name.to_owned(), amount }).await
    }

    /// Returns the total of a counter.
    pub(crate) async fn ask(&mut self, name: &str) -> Result<u64, Box<dyn Error>> {
        self.ask_for(Request::Ask { name: name.to_owned() }).await
    }

    async fn ask_for(&mut self, request: Request<String>) -> Result<u64, Box<dyn Error>> {
        self.channel.send(request)?;
        match self.channel.recv().within(ANSWER_TIMEOUT).await? {
            Some(Response::Total(total)) => Ok(total),
            Some(Response::Refused(why)) => Err(format!("the server refused: {}", why.escape_ascii()).into()),
            None => Err("the server ended without an answer".into()),
        }
    }
}

/// The timeout of an answer: a server that does not answer is as bad as none.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
