//! `supervise`: the task that connects, connects again, and lets commands expire while there is no connection.
//! `supervise_subscriber` is the same for a subscriber.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_engine::{ConnectError, Handler, ReconnectPauses, task};

use crate::client::config::ClientConfig;
use crate::client::connection::{ConnectionEnd, ConnectionHandler, PipelineMaker, ReplyPipeline};
use crate::client::error::Failure;
use crate::client::node::NodeContext;
use crate::client::queue::{CommandQueue, ConnectionRequest, WakeUp};
use crate::client::router::Router;
use crate::client::subscriber_queue::SubscriberQueue;
use crate::client::subscription::SubscriptionHandler;

/// Keeps a connection until no handle is left. `node` is the server, if it is one of several.
pub(crate) async fn supervise<P: ReplyPipeline>(
    config: Arc<ClientConfig>,
    node: Option<NodeContext>,
    queue: Arc<CommandQueue>,
    make: PipelineMaker<P>,
) {
    let ending = LoopGuard(queue);
    let queue = &ending.0;
    let start = |request: ConnectionRequest| {
        drop(task::spawn(serve_dedicated(config.clone(), request.queue, make.clone())));
    };
    let mut pauses = ReconnectPauses::default();
    loop {
        let began = task::now();
        let running = run_for_commands(&config, node.as_ref(), queue, &*make);
        let Some(was_ready) = with_expiry(queue, &start, running).await else { return };
        if let Some(node) = &node {
            node.router.request_refresh();
        }
        // The connection closes when nothing is in flight, and comes back for further commands only.
        if task::is_draining() && with_expiry(queue, &start, has_commands(queue)).await.is_none() {
            return;
        }
        let pause = pauses.next(&config.backoff, 1, lasted(was_ready, began));
        if with_expiry(queue, &start, task::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Serves a queue with one connection, and ends with it.
pub(crate) async fn serve_dedicated<P: ReplyPipeline>(
    config: Arc<ClientConfig>,
    queue: Arc<CommandQueue>,
    make: PipelineMaker<P>,
) {
    let ending = LoopGuard(queue);
    let queue = &ending.0;
    // Only the shared connection tracks keys.
    let config = Arc::new(ClientConfig { cache: None, ..(*config).clone() });
    // A connection of this kind has none of its own.
    let start = |other: ConnectionRequest| other.queue.end(Failure::ConnectionLost);
    with_expiry(queue, &start, run_for_commands(&config, None, queue, &*make)).await;
    queue.end(Failure::ConnectionLost);
}

/// The server of a subscriber, of several.
#[derive(Debug, Clone)]
pub(crate) enum SubscriberServer {
    /// That of the configuration.
    Configured,
    /// A master.
    AnyMaster(Arc<Router>),
    /// This one, whose end may mean another map.
    At(Box<str>, Arc<Router>),
}

impl SubscriberServer {
    /// The configuration of the next connection.
    async fn config(&self, config: &Arc<ClientConfig>) -> Result<Arc<ClientConfig>, ConnectError> {
        let address = match self {
            Self::Configured => return Ok(config.clone()),
            Self::At(address, _) => address.clone(),
            Self::AnyMaster(router) => {
                poll_fn(|cx| router.poll_master(None, cx).0.map_or(Poll::Pending, Poll::Ready)).await
            }
        };
        Ok(Arc::new(config.for_server(&address, config.purpose)?))
    }

    fn lost(&self) {
        if let Self::AnyMaster(router) | Self::At(_, router) = self {
            router.request_refresh();
        }
    }
}

/// Keeps a connection until the subscriber is gone, or the loop drains.
pub(crate) async fn supervise_subscriber<P: ReplyPipeline>(
    config: Arc<ClientConfig>,
    server: SubscriberServer,
    queue: Arc<SubscriberQueue>,
    make: PipelineMaker<P>,
) {
    let ending = SubscriberGuard(queue);
    let queue = &ending.0;
    let mut pauses = ReconnectPauses::default();
    loop {
        let began = task::now();
        let end = Rc::new(RefCell::new(ConnectionEnd::default()));
        let connecting = async {
            let config = server.config(&config).await?;
            let handler = SubscriptionHandler::new(config.clone(), queue.clone(), end.clone());
            run_connection(&config, &*make, handler, end).await
        };
        let Some(ended) = with_reader(queue, connecting).await else { return };
        server.lost();
        if task::is_draining() {
            return;
        }
        let was_ready = ended.as_ref().is_ok_and(|end| end.was_ready);
        if let Err(error) = ended {
            queue.set_last_failure(error.to_string());
        }
        if with_reader(queue, task::sleep(pauses.next(&config.backoff, 1, lasted(was_ready, began)))).await.is_none() {
            return;
        }
    }
}

/// How long a connection has lasted that began then, if it was ready.
fn lasted(was_ready: bool, began: Instant) -> Option<Duration> {
    was_ready.then(|| task::now().saturating_duration_since(began))
}

/// One connection, from connecting to its end.
async fn run_connection<P: ReplyPipeline, H: Handler<P, Post = WakeUp>>(
    config: &ClientConfig,
    make: &dyn Fn() -> P,
    handler: H,
    end: Rc<RefCell<ConnectionEnd>>,
) -> Result<ConnectionEnd, ConnectError> {
    config.target.connect_with(make(), handler).await?;
    poll_fn(|cx| {
        let mut end = end.borrow_mut();
        if end.is_over {
            return Poll::Ready(());
        }
        end.waker = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
    Ok(end.take())
}

/// One connection for commands. Returns whether it has taken commands.
async fn run_for_commands<P: ReplyPipeline>(
    config: &Arc<ClientConfig>,
    node: Option<&NodeContext>,
    queue: &Arc<CommandQueue>,
    make: &dyn Fn() -> P,
) -> bool {
    let end = Rc::new(RefCell::new(ConnectionEnd::default()));
    let handler = ConnectionHandler::new(config.clone(), node.cloned(), queue.clone(), end.clone());
    match run_connection(config, make, handler, end).await {
        Err(error) => {
            queue.set_last_failure(error.to_string());
            false
        }
        Ok(end) => {
            if let Some(refused) = end.refused {
                queue.set_last_failure(format!("the server refuses the client: {}", refused.0.escape_ascii()));
                if refused.is_final() {
                    queue.fail_waiting(Failure::Refused);
                }
            }
            end.was_ready
        }
    }
}

/// Waits for a command. The supervisor is polled again with each.
async fn has_commands(queue: &CommandQueue) {
    poll_fn(|_| if queue.has_waiting() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Polls a future as long as the subscriber is there; `None` if it is gone.
async fn with_reader<T>(queue: &SubscriberQueue, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if queue.poll_no_reader(cx.waker()) {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Polls a future, and lets commands expire meanwhile, as long as no connection does so. `None` if no handle is left.
/// `start` starts the connections that handles request.
pub(crate) async fn with_expiry<T>(
    queue: &CommandQueue,
    start: &impl Fn(ConnectionRequest),
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    let mut timer = task::ExpiryTimer::default();
    poll_fn(|cx| {
        // First of all: a handle on another thread may come in between.
        queue.set_supervisor(cx.waker());
        if queue.has_no_handle() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        queue.take_requests().into_iter().for_each(start);
        queue.wake_again();
        timer.poll(cx, |now| if queue.is_connected() { None } else { queue.expire(now) });
        Poll::Pending
    })
    .await
}

/// Marks the end of the loop, or of the last handle.
struct LoopGuard(Arc<CommandQueue>);

impl Drop for LoopGuard {
    fn drop(&mut self) {
        self.0.end(Failure::LoopEnded);
    }
}

/// Marks the end of the loop.
struct SubscriberGuard(Arc<SubscriberQueue>);

impl Drop for SubscriberGuard {
    fn drop(&mut self) {
        self.0.end_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};

    use tidegate_engine::{Backend, EventLoop};

    use super::*;
    use crate::client::config::ClientLimits;

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_handle_that_goes_while_the_supervisor_is_polled_wakes_it() {
        let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
        let outcome = event_loop.block_on(async {
            let queue = CommandQueue::new(ClientLimits::default());
            // The last handle goes after the supervisor has looked for it.
            let inner = poll_fn(|_| {
                queue.end_handles();
                Poll::<()>::Pending
            });
            let woken = Arc::new(Woken(AtomicBool::new(false)));
            let waker = Waker::from(woken.clone());
            let mut cx = Context::from_waker(&waker);
            let mut supervising = pin!(with_expiry(&queue, &|_| {}, inner));
            let first = supervising.as_mut().poll(&mut cx);
            (first, woken.0.load(Ordering::Relaxed), supervising.as_mut().poll(&mut cx))
        });
        assert_eq!(outcome.expect("the loop runs"), (Poll::Pending, true, Poll::Ready(None)));
    }
}
