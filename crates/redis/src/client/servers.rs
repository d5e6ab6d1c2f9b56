//! What a client with several servers has beside its commands: its masters one by one, and its numbers.

use std::sync::Arc;

use crate::client::counts::ClientCounts;
use crate::client::handle::{Client, ClientHandle};
use crate::client::queue::CommandQueue;
use crate::client::slots::slot_of;

impl Client {
    /// A client of the server that has a key: for commands without a key, and for
    /// [connections of their own](Self::dedicated). None while a cluster is unknown, or the key's slot has no server.
    ///
    /// It sends commands to that server alone, also after the key has moved: an error says so then.
    #[must_use]
    pub fn node_of(&self, key: impl AsRef<[u8]>) -> Option<Self> {
        match &self.handle.router {
            None => Some(self.clone()),
            Some(router) => {
                let slot = router.is_cluster.then(|| slot_of(key.as_ref()));
                router.master_queue(slot).map(|queue| self.view(queue))
            }
        }
    }

    /// A client for each master, for commands that concern all of them, such as SCAN, DBSIZE or FLUSHALL. None while a
    /// cluster is unknown.
    ///
    /// ```no_run
    /// # async fn example(client: tidegate::redis::Client) -> Result<(), tidegate::redis::ClientError> {
    /// let mut keys = 0;
    /// for master in client.masters() {
    ///     keys += master.dbsize().await?;
    /// }
    /// # drop(keys);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn masters(&self) -> Vec<Self> {
        match &self.handle.router {
            None => vec![self.clone()],
            Some(router) => router.master_queues().into_iter().map(|queue| self.view(queue)).collect(),
        }
    }

    /// How many slots of the cluster no server has, and how many several servers claim; none while the cluster is unknown.
    #[must_use]
    pub fn slot_faults(&self) -> Option<(usize, usize)> {
        self.handle.router.as_ref()?.slot_faults()
    }

    /// Numbers for metrics. Connections of their own are not in them.
    #[must_use]
    pub fn counts(&self) -> ClientCounts {
        let Some(router) = &self.handle.router else { return self.handle.queue.client_counts() };
        let mut counts = router.past_counts();
        router.queues().iter().for_each(|queue| counts.add(&queue.client_counts()));
        counts
    }

    /// A client of one server of several. It does not end the connection.
    fn view(&self, queue: Arc<CommandQueue>) -> Self {
        let handle = ClientHandle {
            queue,
            router: None,
            owner: Some(self.handle.clone()),
            timeout: self.handle.timeout,
            limits: self.handle.limits,
            cache: None,
            idle: Vec::new().into(),
        };
        Self { handle: Arc::new(handle) }
    }
}
