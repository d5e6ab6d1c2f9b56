//! `divide_sharded`: the sharded channels of a subscriber, divided among the masters of a cluster.
//!
//! Each master with some of them has a queue and a connection of its own, whose events go to the queue of the subscriber. When
//! a slot moves, the server ends the subscription, or the map changes: the channel moves, and a gap is reported.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tidegate_engine::task;

use crate::client::config::ClientConfig;
use crate::client::connection::{PipelineMaker, ReplyPipeline};
use crate::client::router::Router;
use crate::client::slots::slot_of;
use crate::client::subscriber_queue::{SubscriberQueue, SubscriptionKind, SubscriptionName};
use crate::client::supervisor::{SubscriberServer, supervise_subscriber};

/// Divides the channels until the subscriber is gone.
pub(crate) async fn divide_sharded<P: ReplyPipeline>(
    config: Arc<ClientConfig>,
    router: Arc<Router>,
    parent: Arc<SubscriberQueue>,
    make: PipelineMaker<P>,
) {
    let mut division =
        Division { router, parent, assigned: BTreeMap::new(), held: BTreeMap::new(), servers: BTreeMap::new() };
    poll_fn(|cx| {
        for (address, queue) in division.update(cx)? {
            let server = SubscriberServer::At(address, division.router.clone());
            drop(task::spawn(supervise_subscriber(config.clone(), server, queue, make.clone())));
        }
        Poll::<Result<(), SubscriberGone>>::Pending
    })
    .await
    .ok();
}

struct SubscriberGone;

/// A server with its queue.
type ShardQueue = (Box<str>, Arc<SubscriberQueue>);

struct Division {
    router: Arc<Router>,
    parent: Arc<SubscriberQueue>,
    /// The server of each channel.
    assigned: BTreeMap<Bytes, Box<str>>,
    /// Channels whose server has ended them, until there is another map than this one.
    held: BTreeMap<Bytes, u64>,
    servers: BTreeMap<Box<str>, Arc<SubscriberQueue>>,
}

impl Division {
    /// Brings the channels to their servers. Returns the servers that need a connection.
    fn update(&mut self, cx: &Context<'_>) -> Result<Vec<ShardQueue>, SubscriberGone> {
        let wanted = self.parent.poll_sharded(cx).ok_or(SubscriberGone)?;
        for queue in self.servers.values() {
            for channel in queue.take_ended() {
                self.assigned.remove(&channel);
                self.held.insert(channel, self.router.version());
                self.parent.gap();
                self.router.request_refresh();
            }
        }
        self.assigned.retain(|channel, address| {
            let is_wanted = wanted.contains(channel);
            if !is_wanted {
                change(&self.servers, address, false, channel);
            }
            is_wanted
        });
        self.held.retain(|channel, _| wanted.contains(channel));
        let mut started = Vec::new();
        for channel in wanted {
            let (Some(address), version) = self.router.poll_master(Some(slot_of(&channel)), cx) else { continue };
            if self.held.get(&channel) == Some(&version) || self.assigned.get(&channel) == Some(&address) {
                continue;
            }
            self.held.remove(&channel);
            if !self.servers.contains_key(&address) {
                let queue = Arc::new(SubscriberQueue::child_of(self.parent.clone()));
                self.servers.insert(address.clone(), queue.clone());
                started.push((address.clone(), queue));
            }
            change(&self.servers, &address, true, &channel);
            if let Some(before) = self.assigned.insert(channel.clone(), address) {
                change(&self.servers, &before, false, &channel);
                self.parent.gap();
            }
        }
        let is_used = |address: &str| self.assigned.values().any(|used| &**used == address);
        self.servers.retain(|address, queue| {
            let is_used = is_used(address);
            if !is_used {
                queue.end_reader();
            }
            is_used
        });
        Ok(started)
    }
}

fn change(servers: &BTreeMap<Box<str>, Arc<SubscriberQueue>>, address: &str, is_wanted: bool, channel: &Bytes) {
    if let Some(queue) = servers.get(address) {
        queue.change(is_wanted, SubscriptionName { kind: SubscriptionKind::Sharded, name: channel.clone() });
    }
}

impl Drop for Division {
    fn drop(&mut self) {
        self.servers.values().for_each(|queue| queue.end_reader());
    }
}
