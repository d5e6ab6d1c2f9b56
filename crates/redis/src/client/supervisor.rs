//! `supervise`: the task that connects, connects again, and lets commands expire while there is no connection.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tidegate_engine::task;

use crate::client::config::ClientConfig;
use crate::client::connection::{ConnectionEnd, ConnectionHandler, ReplyPipeline};
use crate::client::error::Failure;
use crate::client::queue::CommandQueue;

/// Keeps a connection until no handle is left.
pub(crate) async fn supervise<P: ReplyPipeline>(
    config: Arc<ClientConfig>,
    queue: Arc<CommandQueue>,
    make: impl Fn() -> P,
) {
    let ending = LoopGuard(queue);
    let queue = &ending.0;
    let mut failures = 0_u32;
    for attempt in 0_u64.. {
        let began = task::now();
        let Some(was_ready) = with_expiry(queue, run_connection(&config, queue, &make)).await else { return };
        // The connection closes when nothing is in flight, and comes back for further commands only.
        if is_draining().await && with_expiry(queue, has_commands(queue)).await.is_none() {
            return;
        }
        let lasted = task::now().saturating_duration_since(began);
        let is_stable = was_ready && lasted > config.backoff.delay(failures);
        failures = if is_stable { 0 } else { failures.saturating_add(1) };
        let delay = config.backoff.delay(failures.saturating_sub(1));
        // A random part of the delay, and never none: a server that closes at once would keep the loop busy.
        let delay = config.backoff.random_part(delay, attempt).max(DELAY_MIN);
        if with_expiry(queue, task::sleep(delay)).await.is_none() {
            return;
        }
    }
}

/// One connection, from connecting to its end. Returns whether it has taken commands.
async fn run_connection<P: ReplyPipeline>(
    config: &Arc<ClientConfig>,
    queue: &Arc<CommandQueue>,
    make: &impl Fn() -> P,
) -> bool {
    let end = Rc::new(RefCell::new(ConnectionEnd::default()));
    let handler = ConnectionHandler::new(config.clone(), queue.clone(), end.clone());
    if let Err(error) = config.target.connect_with(make(), handler).await {
        queue.set_last_failure(error.to_string());
        return false;
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
    let end = end.take();
    if let Some(refused) = end.refused {
        queue.set_last_failure(format!("the server refuses the client: {}", refused.0.escape_ascii()));
        if refused.is_final() {
            queue.fail_waiting(Failure::Refused);
        }
    }
    end.was_ready
}

async fn is_draining() -> bool {
    let mut draining = task::draining();
    poll_fn(|cx| Poll::Ready(Pin::new(&mut draining).poll(cx).is_ready())).await
}

/// Waits for a command. The supervisor is polled again with each.
async fn has_commands(queue: &CommandQueue) {
    poll_fn(|_| if queue.has_waiting() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Polls a future, and lets commands expire meanwhile, as long as no connection does so. `None` if no handle is left.
async fn with_expiry<T>(queue: &CommandQueue, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut timer: Option<(Instant, Pin<Box<task::Sleep>>)> = None;
    poll_fn(|cx| {
        if queue.has_no_handle() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        queue.set_supervisor(cx.waker());
        while !queue.is_connected() {
            let Some(next) = queue.expire(task::now()) else { break };
            if timer.as_ref().is_none_or(|(at, _)| *at != next) {
                timer = Some((next, Box::pin(task::sleep_until(next))));
            }
            let is_due = timer.as_mut().is_some_and(|(_, sleep)| sleep.as_mut().poll(cx).is_ready());
            if !is_due {
                break;
            }
            timer = None;
        }
        Poll::Pending
    })
    .await
}

/// Marks the end of the loop, or of the last handle.
struct LoopGuard(Arc<CommandQueue>);

impl Drop for LoopGuard {
    fn drop(&mut self) {
        self.0.end_loop();
    }
}

/// The shortest pause between two connections.
const DELAY_MIN: Duration = Duration::from_millis(1);
