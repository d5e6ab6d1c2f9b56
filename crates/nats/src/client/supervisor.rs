//! `supervise`: the task that connects, connects again to the next server, and lets requests expire meanwhile.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use tidegate_engine::{ReconnectPauses, task};

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
    let mut pauses = ReconnectPauses::default();
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
        if task::is_draining() && !shared.has_waiting() {
            return;
        }
        let lasted = end.was_ready.then(|| task::now().saturating_duration_since(began));
        let pause = match end.moves {
            true => ReconnectPauses::MIN,
            false => pauses.next(&config.backoff, pool.borrow().len(), lasted),
        };
        if with_expiry(shared, task::sleep(pause)).await.is_none() {
            return;
        }
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

/// Polls a future, and lets requests expire meanwhile, as long as no connection does so. `None` once the client is over.
async fn with_expiry<T>(shared: &Shared, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut timer = task::ExpiryTimer::default();
    poll_fn(|cx| {
        shared.set_supervisor(cx.waker());
        let is_over = shared.is_over();
        if is_over && !shared.is_connected() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(if is_over { None } else { Some(value) });
        }
        shared.wake_again();
        timer.poll(cx, |now| if shared.is_connected() { None } else { shared.expire(now) });
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
