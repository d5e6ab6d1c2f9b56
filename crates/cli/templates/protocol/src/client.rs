//! A client: one connection, with one request at a time.

use std::error::Error;
use std::time::Duration;

use tidegate::{Channel, Client};

use crate::protocol::{ClientCodec, Request, Response};

/// A connection to a server.
pub struct Connection {
    channel: Channel<ClientCodec>,
}

impl Connection {
    /// Connects to `IP:PORT` or `NAME:PORT`.
    ///
    /// # Errors
    /// The server is not there, or has not answered within five seconds.
    pub async fn connect(target: &str) -> Result<Self, Box<dyn Error>> {
        let client = Client::to(target)?.connect_timeout(TIMEOUT);
        Ok(Self {
            channel: client.connect(ClientCodec::default()).await?,
        })
    }

    /// Stores a value. Returns whether the server had room.
    ///
    /// # Errors
    /// The connection has ended, or the server has not answered within five seconds. The value may be stored or not.
    pub async fn set(&mut self, key: &str, value: &str) -> Result<bool, Box<dyn Error>> {
        match self
            .ask(Request::Set {
                key: key.into(),
                value: value.into(),
            })
            .await?
        {
            Response::Ok => Ok(true),
            Response::Full => Ok(false),
            other => Err(format!("{other:?} is no response to SET").into()),
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub async fn get(&mut self, key: &str) -> Result<Option<String>, Box<dyn Error>> {
        match self.ask(Request::Get { key: key.into() }).await? {
            Response::Value(value) => Ok(Some(value)),
            Response::None => Ok(None),
            other => Err(format!("{other:?} is no response to GET").into()),
        }
    }

    async fn ask(&mut self, request: Request) -> Result<Response, Box<dyn Error>> {
        self.channel.send(request)?;
        let response = self.channel.recv().within(TIMEOUT).await?;
        response.ok_or_else(|| "the server has closed the connection".into())
    }
}

const TIMEOUT: Duration = Duration::from_secs(5);
