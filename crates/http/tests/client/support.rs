//! A loop for the client, and servers for it.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use tidegate::http::{Router, Server};
use tidegate::{Backend, EventLoop, ServerHandle, task};

pub(crate) type Any = Box<dyn Error>;

/// Runs a task on a loop of its own, for a minute at most.
pub(crate) fn run<T: 'static>(future: impl Future<Output = Result<T, Any>> + 'static) -> T {
    let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
    let result = event_loop.block_on(task_within_a_minute(future)).expect("the loop runs");
    result.expect("the task succeeds")
}

async fn task_within_a_minute<T>(future: impl Future<Output = Result<T, Any>>) -> Result<T, Any> {
    task::timeout(Duration::from_secs(60), future).await?
}

/// A server on a thread of its own, which ends when it is dropped.
pub(crate) struct Served(Option<ServerHandle>);

impl Served {
    pub(crate) fn start(router: impl Fn() -> Router + Send + Sync + 'static) -> Self {
        Self(Some(Server::bind("127.0.0.1:0").expect("a port").loops(1).start(router).expect("it starts")))
    }

    pub(crate) fn uri(&self, target: &str) -> String {
        format!("http://{}{target}", self.0.as_ref().expect("it runs").address())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = self.0.take() {
            server.drain(Duration::ZERO);
        }
    }
}
