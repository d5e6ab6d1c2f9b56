//! `supervise_servers`: the task that finds the servers of a client, and starts their connections.
//!
//! It asks when a command has no server, after each redirect, when a connection ends, and when a sentinel reports another
//! master. A question has a connection of its own, so that it never waits behind commands.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidegate_engine::task;

use crate::client::config::{ClientConfig, ConnectionPurpose, ServerSource};
use crate::client::connection::{PipelineMaker, ReplyPipeline};
use crate::client::error::{ClientError, Failure};
use crate::client::node::NodeContext;
use crate::client::pending::PendingCommand;
use crate::client::queue::{CommandQueue, ConnectionRequest, NodeAddress};
use crate::client::router::Router;
use crate::client::sentinel::SentinelWatch;
use crate::client::slot::reply_slot;
use crate::client::slots::{Shard, Slots, host_of};
use crate::client::supervisor::{serve_dedicated, supervise, with_expiry};
use crate::outgoing_command::CommandBuffer;
use crate::owned::OwnedValue;

/// Finds servers until no handle is left.
pub(crate) async fn supervise_servers<P: ReplyPipeline>(
    config: Arc<ClientConfig>,
    router: Arc<Router>,
    make: PipelineMaker<P>,
) {
    let ending = RouterGuard(router);
    let router = &ending.0;
    let start = |request: ConnectionRequest| match request.node {
        Some(node) => start_node(&config, router, node, request.queue, &make),
        // A connection of its own: to the master, or to any server of a cluster.
        None => match router.master_queue(None) {
            Some(queue) => queue.request_connection(request),
            None => drop(task::spawn(later(router.clone(), request))),
        },
    };
    let mut finder = Finder { config: config.clone(), make: make.clone(), turn: 0, watch: SentinelWatch::default() };
    with_expiry(&router.front, &start, find_servers(&mut finder, router)).await;
}

/// Requests a connection once there is a map. Its commands expire meanwhile.
async fn later(router: Arc<Router>, request: ConnectionRequest) {
    let queue = request.queue.clone();
    let has_master = poll_fn(|cx| {
        let has_master = router.poll_master(None, cx).0.is_some();
        if has_master || router.front.has_no_handle() { Poll::Ready(has_master) } else { Poll::Pending }
    });
    let start = |other: ConnectionRequest| other.queue.end(Failure::ConnectionLost);
    let has_master = with_expiry(&queue, &start, has_master).await;
    match router.master_queue(None).filter(|_| has_master == Some(true)) {
        Some(master) => master.request_connection(request),
        None => queue.end(Failure::LoopEnded),
    }
}

fn start_node<P: ReplyPipeline>(
    config: &Arc<ClientConfig>,
    router: &Arc<Router>,
    node: NodeAddress,
    queue: Arc<CommandQueue>,
    make: &PipelineMaker<P>,
) {
    let purpose = match (router.is_cluster, node.is_replica) {
        (true, true) => ConnectionPurpose::ClusterReplica,
        (false, false) => ConnectionPurpose::Master,
        _ => ConnectionPurpose::Any,
    };
    match config.for_server(&node.address, purpose) {
        Ok(config) => {
            let context = NodeContext { router: router.clone(), node };
            drop(task::spawn(supervise(Arc::new(config), Some(context), queue, make.clone())));
        }
        // A name that is no address.
        Err(error) => {
            router.front.set_last_failure(error.to_string());
            queue.end(Failure::NoMaster);
        }
    }
}

async fn find_servers<P: ReplyPipeline>(finder: &mut Finder<P>, router: &Arc<Router>) {
    let (mut failures, mut unsettled) = (0, 0_u32);
    let reads_replicas = finder.config.reads_replicas;
    loop {
        // No server reports that there is another replica.
        let mut regular = pin!(task::sleep(REFRESH_AFTER));
        let is_doubted = poll_fn(|cx| {
            let reports = finder.watch.poll_reports(cx);
            let is_due = reads_replicas && router.slot_faults().is_some() && regular.as_mut().poll(cx).is_ready();
            match router.poll_refresh(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending if reports || is_due => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            }
        });
        let is_doubted = is_doubted.await;
        match finder.find(router, is_doubted).await {
            Ok(slots) => {
                failures = 0;
                router.set_slots(slots);
            }
            Err(failure) => {
                failures += 1;
                router.front.set_last_failure(failure);
                router.request_refresh();
            }
        }
        unsettled = if router.send_waiting() { unsettled.saturating_add(1) } else { 0 };
        let backoff = finder.config.backoff.delay(failures);
        let pause = PAUSE_MIN.saturating_mul(1 << unsettled.min(PAUSE_DOUBLINGS));
        task::sleep(if failures > 0 { backoff.max(pause) } else { pause }).await;
        if router.has_stranded() {
            task::sleep(STRANDED_PAUSE).await;
            router.request_refresh();
        }
    }
}

/// It asks servers which servers there are.
struct Finder<P> {
    config: Arc<ClientConfig>,
    make: PipelineMaker<P>,
    /// The server that is asked first.
    turn: usize,
    watch: SentinelWatch,
}

impl<P: ReplyPipeline> Finder<P> {
    /// `is_doubted`: a connection has ended, or a server has refused a command, so the map may be wrong.
    ///
    /// Sentinels are asked from the one on that answered last, where the client is subscribed. Each search that began at the
    /// next one would subscribe there, and the first report of that subscription would begin another search, for ever. Only
    /// a doubt begins at the next one, since the last one may know less than the others.
    async fn find(&mut self, router: &Arc<Router>, is_doubted: bool) -> Result<Slots, String> {
        let source = self.config.source.clone();
        let (mut addresses, name) = match source {
            Some(ServerSource::Cluster(seeds)) => {
                let mut known = router.masters();
                known.retain(|known| !seeds.contains(known));
                known.extend(seeds);
                (known, None)
            }
            Some(ServerSource::Sentinel(sentinels, name)) => (sentinels, Some(name)),
            None => return Err("there is no server to ask".to_owned()),
        };
        if name.is_some() && is_doubted && !router.masters().is_empty() {
            self.turn = self.turn.wrapping_add(1);
        }
        let turn = self.turn % addresses.len().max(1);
        addresses.rotate_left(turn);
        let mut last = "there is no server to ask".to_owned();
        for address in addresses {
            let found = match &name {
                None => self.ask_node(&address).await,
                Some(name) => self.ask_sentinel(&address, name, router).await,
            };
            match found {
                Ok(slots) => {
                    // The servers of a cluster share the questions.
                    self.turn = self.turn.wrapping_add(usize::from(name.is_none()));
                    return Ok(slots);
                }
                Err(failure) => {
                    self.turn = self.turn.wrapping_add(1);
                    last = format!("{address}: {failure}");
                }
            }
        }
        Err(last)
    }

    async fn ask_node(&self, address: &str) -> Result<Slots, String> {
        let config = self.config.for_server(address, ConnectionPurpose::Any).map_err(|error| error.to_string())?;
        let probe = Probe::new(config, &self.make);
        // Each version has CLUSTER SLOTS; one that drops it has CLUSTER SHARDS.
        let (reply, has_slots) = match probe.ask(&["CLUSTER", "SLOTS"]).await {
            Err(ClientError::Reply(_)) => (probe.ask(&["CLUSTER", "SHARDS"]).await, false),
            reply => (reply, true),
        };
        let reply = reply.map_err(|error| probe.explain(&error))?;
        let parse = if has_slots { Slots::from_slots } else { Slots::from_shards };
        parse(&reply, host_of(address)).map_err(str::to_owned)
    }

    async fn ask_sentinel(&mut self, address: &str, name: &str, router: &Arc<Router>) -> Result<Slots, String> {
        let config = self.config.for_sentinel(address).map_err(|error| error.to_string())?;
        let probe = Probe::new(config.clone(), &self.make);
        let reply = probe.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]).await;
        let reply = reply.map_err(|error| probe.explain(&error))?;
        let master = SentinelWatch::master(&reply, host_of(address))?;
        let replicas = if self.config.reads_replicas {
            let reply = probe.ask(&["SENTINEL", "REPLICAS", name]).await.map_err(|error| probe.explain(&error))?;
            SentinelWatch::replicas(&reply, host_of(address))
        } else {
            Vec::new()
        };
        self.watch.watch(address, name, config, router, &self.make);
        Ok(Slots::of_one(Shard { master, replicas }))
    }
}

/// A connection for questions. It closes when it is dropped.
struct Probe {
    queue: Arc<CommandQueue>,
    timeout: Duration,
}

impl Probe {
    fn new<P: ReplyPipeline>(config: ClientConfig, make: &PipelineMaker<P>) -> Self {
        let timeout = config.timeout.min(QUESTION_TIMEOUT);
        let config = ClientConfig { timeout, target: config.target.connect_timeout(timeout), ..config };
        let queue = Arc::new(CommandQueue::new(config.limits));
        drop(task::spawn(serve_dedicated(Arc::new(config), queue.clone(), make.clone())));
        Self { queue, timeout }
    }

    async fn ask(&self, words: &[&str]) -> Result<OwnedValue, ClientError> {
        let (name, arguments) = words.split_first().unwrap_or((&"PING", &[]));
        let command = arguments.iter().fold(CommandBuffer::new(name), CommandBuffer::arg);
        let (slot, waiting) = reply_slot();
        self.queue.push(PendingCommand {
            charge: command.memory(),
            wire: Some(command),
            timeout: self.timeout,
            deadline: None,
            is_idempotent: false,
            is_detached: false,
            slot: Some(slot.into()),
            is_sent: false,
            cache_key: None,
            group: None,
            is_counted: true,
            route: None,
        });
        waiting.await
    }

    fn explain(&self, error: &ClientError) -> String {
        self.queue.last_failure().unwrap_or_else(|| error.to_string())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.queue.end_handles();
    }
}

/// Marks the end of the loop, or of the last handle.
struct RouterGuard(Arc<Router>);

impl Drop for RouterGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The shortest pause between two questions.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// While commands have no server, the pauses grow up to 640 ms.
const PAUSE_DOUBLINGS: u32 = 5;
/// The pause while a server with commands has no connection.
const STRANDED_PAUSE: Duration = Duration::from_millis(250);
/// A client that reads from replicas asks so often which there are.
const REFRESH_AFTER: Duration = Duration::from_secs(10);
/// A server that does not answer by then is passed over.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(1);
