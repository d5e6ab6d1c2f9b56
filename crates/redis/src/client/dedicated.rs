//! `Dedicated`: a connection of its own, for commands that wait, and for state that belongs to a connection.

use std::ops::Deref;
use std::sync::Arc;

use crate::client::handle::{Client, ClientHandle};
use crate::client::queue::{CommandQueue, ConnectionRequest};
use crate::client::slot::lock;

/// A connection that no other caller uses: for blocking commands such as BLPOP, and for WATCH.
///
/// It has the methods of [`Client`]. It does not come back: once it is lost, its commands fail, since the state that it had on
/// the server is lost as well. A blocking command needs a [timeout](crate::Call::timeout) above its own.
///
/// ```no_run
/// # async fn example(client: tidegate::redis::Client) -> Result<(), tidegate::redis::ClientError> {
/// use std::time::Duration;
///
/// let connection = client.dedicated();
/// let pop = connection.cmd("BLPOP").arg("jobs").arg("30").timeout(Duration::from_secs(35));
/// let job: Option<(String, String)> = pop.fetch().await?;
/// connection.release();
/// # drop(job);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dedicated {
    connection: Client,
    /// It keeps the loop of the client alive, and has the pool.
    owner: Client,
}

impl Client {
    /// A connection of its own: an idle one of the pool, or a new one. With sentinels it leads to the master of the moment; in a
    /// cluster to any, so that [`node_of`](Self::node_of) the key is the client to call this of.
    #[must_use]
    pub fn dedicated(&self) -> Dedicated {
        let idle = loop {
            match lock(&self.handle.idle).pop() {
                Some(lost) if !lost.is_connected() => {}
                found => break found,
            }
        };
        let connection = idle.unwrap_or_else(|| {
            let queue = Arc::new(CommandQueue::new(self.handle.limits));
            self.handle.queue.request_connection(ConnectionRequest { queue: queue.clone(), node: None });
            let (timeout, limits) = (self.handle.timeout, self.handle.limits);
            let (router, owner, cache, idle) = (None, None, None, Vec::new().into());
            Client { handle: Arc::new(ClientHandle { queue, router, owner, timeout, limits, cache, idle }) }
        });
        Dedicated { connection, owner: self.clone() }
    }
}

impl Dedicated {
    /// Returns the connection to the pool of the client. The caller has ended what it began there: no transaction is open,
    /// and no other database selected. Watched keys are forgotten. A connection that still has commands under way is closed,
    /// as is each that is dropped instead.
    pub fn release(self) {
        if self.connection.pending().0 > 0 || !self.connection.is_connected() {
            return;
        }
        let mut idle = lock(&self.owner.handle.idle);
        if idle.len() < IDLE_MAX {
            self.connection.cmd("UNWATCH").post();
            idle.push(self.connection);
        }
    }
}

impl Deref for Dedicated {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.connection
    }
}

/// Idle connections of a client's pool.
const IDLE_MAX: usize = 16;
