//! The client: one connection, with one request at a time.

use std::error::Error;
use std::time::Duration;

use tidegate::{Channel, Client};

use crate::protocol::{Answer, Request, TidesClient};

/// A connection to an office.
pub(crate) struct Gauge {
    channel: Channel<TidesClient>,
}

impl Gauge {
    /// Connects to `IP:PORT` or `NAME:PORT`.
    pub(crate) async fn connect(target: &str) -> Result<Self, Box<dyn Error>> {
        let client = Client::to(target)?.connect_timeout(Duration::from_secs(5));
        Ok(Self { channel: client.connect(TidesClient::new()).await? })
    }

    pub(crate) async fn set(&mut self, station: &str, level: i32) -> Result<Answer, Box<dyn Error>> {
        self.ask(Request::Set { station: station.into(), level }).await
    }

    pub(crate) async fn get(&mut self, station: &str) -> Result<Answer, Box<dyn Error>> {
        self.ask(Request::Get { station: station.into() }).await
    }

    /// Asks for something that has one answer.
    pub(crate) async fn ask(&mut self, request: Request) -> Result<Answer, Box<dyn Error>> {
        self.channel.send(request)?;
        self.next().await
    }

    /// The next thing that the office says; it has five seconds.
    pub(crate) async fn next(&mut self) -> Result<Answer, Box<dyn Error>> {
        let answer = self.channel.recv().within(Duration::from_secs(5)).await?;
        answer.ok_or_else(|| "the office has closed".into())
    }

    /// Returns all levels.
    pub(crate) async fn list(&mut self) -> Result<Vec<(Box<str>, i32)>, Box<dyn Error>> {
        self.channel.send(Request::List)?;
        let mut levels = Vec::new();
        while let Answer::At { station, level } = self.next().await? {
            levels.push((station, level));
        }
        Ok(levels)
    }
}
