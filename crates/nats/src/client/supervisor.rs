//! `supervise`: the task that connects, connects again to the next server, and lets requests expire meanwhile.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_engine::task;

use crate::client::builder::MakeError;
use crate::client::config::{ClientConfig, reading_target};
use crate::client::connection::{ConnectionEnd, ConnectionHandler, OperationPipeline};
use crate::client::error::Failure;
use crate::client::servers::{ServerAddress, ServerPool};
use crate::client::shared::Shared;

/// Keeps a connection until no handle is left, the client was drained, or the loop drains.
pub(crate) async fn supervise<P: OperationPipeline>(
    config: Arc<ClientConfig>,
    pool: Rc<RefCell<ServerPool>>,
    shared: Arc<Shared>,
    make: impl Fn(&ServerAddress) -> Result<P, MakeError>,
) {
    let ending = LoopGuard(shared);
    let shared = &ending.0;
    let mut pauses = Pauses::default();
    // So many servers have refused the client, one after the other.
    let mut refusals = 0;
    loop {
        let Some(server) = pool.borrow_mut().next() else { return };
        let began = task::now();
        let running = run_connection(&config, &pool, shared, server, &make);
        let Some(end) = with_expiry(shared, running).await else { return };
        refusals = if end.is_refused { refusals + 1 } else { 0 };
        if refusals >= pool.borrow().len() {
            shared.fail_all(Failure::Refused);
        }
        if is_draining().await && !shared.has_waiting() {
            return;
        }
        let pause =
            if end.moves { Duration::ZERO } else { pauses.next(&config, pool.borrow().len(), began, end.was_ready) };
        // Never none: a server that closes at once would keep the loop busy.
        if with_expiry(shared, task::sleep(pause.max(PAUSE_MIN))).await.is_none() {
            return;
        }
    }
}

/// The pauses between connections: short while there are servers that were not tried, longer with each round.
#[derive(Debug, Default)]
struct Pauses {
    failures: u32,
    attempt: u64,
}

impl Pauses {
    fn next(&mut self, config: &ClientConfig, servers: usize, began: Instant, was_ready: bool) -> Duration {
        let rounds = |failures: u32| failures / u32::try_from(servers.max(1)).unwrap_or(1);
        let lasted = task::now().saturating_duration_since(began);
        let is_stable = was_ready && lasted > config.backoff.delay(rounds(self.failures));
        self.failures = if is_stable { 0 } else { self.failures.saturating_add(1) };
        self.attempt += 1;
        let delay = config.backoff.delay(rounds(self.failures.saturating_sub(1)));
        config.backoff.random_part(delay, self.attempt)
    }
}

/// One connection, from connecting to its end.
async fn run_connection<P: OperationPipeline>(
    config: &Arc<ClientConfig>,
    pool: &Rc<RefCell<ServerPool>>,
    shared: &Arc<Shared>,
    server: ServerAddress,
    make: &impl Fn(&ServerAddress) -> Result<P, MakeError>,
) -> ConnectionEnd {
    let end = Rc::new(RefCell::new(ConnectionEnd::default()));
    let connecting = async {
        let target = reading_target(server.as_str(), config.timeout)?;
        let pipeline = make(&server)?;
        let handler = ConnectionHandler::new(config.clone(), pool.clone(), shared.clone(), server.clone(), end.clone());
        target.connect_with(pipeline, handler).await?;
        Ok::<(), MakeError>(())
    };
    if let Err(error) = connecting.await {
        shared.set_last_failure(format!("{server}: {error}"));
        return ConnectionEnd::default();
    }
    poll_fn(|cx| {
        let mut end = end.borrow_mut();
        if end.is_over {
            return Poll::Ready(());
        }
        end.waker = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
    end.take()
}

async fn is_draining() -> bool {
    let mut draining = task::draining();
    poll_fn(|cx| Poll::Ready(Pin::new(&mut draining).poll(cx).is_ready())).await
}

/// Polls a future, and lets requests expire meanwhile, as long as no connection does so. `None` once the client is over.
async fn with_expiry<T>(shared: &Shared, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut timer: Option<(Instant, Pin<Box<task::Sleep>>)> = None;
    poll_fn(|cx| {
        shared.set_supervisor(cx.waker());
        let is_over = shared.is_over();
        if is_over && !shared.is_connected() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(if is_over { None } else { Some(value) });
        }
        while !shared.is_connected() {
            let Some(next) = shared.expire(task::now()) else { break };
            if timer.as_ref().is_none_or(|(at, _)| *at != next) {
                timer = Some((next, Box::pin(task::sleep_until(next))));
            }
            if timer.as_mut().is_none_or(|(_, sleep)| sleep.as_mut().poll(cx).is_pending()) {
                break;
            }
            timer = None;
        }
        Poll::Pending
    })
    .await
}

/// Marks the end of the loop.
struct LoopGuard(Arc<Shared>);

impl Drop for LoopGuard {
    fn drop(&mut self) {
        self.0.end(Failure::LoopEnded);
    }
}

/// The shortest pause between two connections.
const PAUSE_MIN: Duration = Duration::from_millis(1);
