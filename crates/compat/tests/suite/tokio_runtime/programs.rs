//! The other way round: our loops in a tokio program.

use std::sync::Arc;
use std::time::Duration;

use tidegate::http::{Router, Server};
use tidegate::{ServerHandle, TokioRuntime};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::tokio_runtime::requests::address;

/// The number of workers of the runtime that a function finds.
fn workers() -> Router {
    Router::new().get("/", async || {
        let workers = async { Handle::current().metrics().num_workers().to_string() };
        tokio::spawn(workers).await.unwrap_or_default()
    })
}

async fn fetch(server: &ServerHandle) -> Result<String, reqwest::Error> {
    reqwest::get(format!("http://{}/", address(server))).await?.text().await
}

fn is_send<T: Send>(future: T) -> T {
    future
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_server_uses_the_runtime_that_it_is_started_in() {
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(workers).unwrap();
    assert_eq!(fetch(&server).await.unwrap(), "3");
    is_send(server.drained(Duration::from_secs(10))).await;
    assert!(!server.all_loops_run());
    assert!(fetch(&server).await.is_err(), "nothing listens any more");
    // Once the loops have ended, every such future is complete.
    server.ended().await;
}

/// A runtime of one thread runs only while that thread is in it, and the thread may wait for the server.
#[tokio::test]
async fn a_server_does_not_rely_on_a_runtime_of_one_thread() {
    let server =
        Server::bind("127.0.0.1:0").unwrap().loops(1).tokio_runtime(TokioRuntime::with_threads(2)).start(workers);
    let server = server.unwrap();
    assert_eq!(fetch(&server).await.unwrap(), "2");
    let shared = Server::bind("127.0.0.1:0").unwrap().loops(1).start(workers).unwrap();
    // The thread of this runtime blocks meanwhile.
    assert_eq!(crate::tokio_runtime::requests::get(&shared, "/"), "1");
}

/// Given by name it is used all the same: here the test drives it.
#[tokio::test]
async fn a_server_uses_a_runtime_of_one_thread_that_it_is_given() {
    let here = std::thread::current().id();
    let router = move || {
        Router::new().get("/", async move || {
            tokio::spawn(async move { (std::thread::current().id() == here).to_string() }).await.unwrap_or_default()
        })
    };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).tokio_runtime(TokioRuntime::of(Handle::current()));
    let server = server.start(router).unwrap();
    assert_eq!(fetch(&server).await.unwrap(), "true");
    server.drained(Duration::ZERO).await;
}

/// A tokio task waits for the end while another one drains, and a request in progress is answered before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_lets_requests_finish_and_wakes_every_waiter() {
    let (entered, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let router = {
        let (entered, release) = (entered.clone(), release.clone());
        move || {
            let (entered, release) = (entered.clone(), release.clone());
            Router::new().get("/", async move || {
                entered.notify_one();
                release.notified().await;
                "finished"
            })
        }
    };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2).start(router).unwrap();
    let waiters: Vec<_> = (0..3).map(|_| tokio::spawn(server.ended())).collect();
    let request = tokio::spawn({
        let server = server.clone();
        async move { fetch(&server).await }
    });
    entered.notified().await;
    let drained = server.drained(Duration::from_secs(60));
    // A future that is dropped before the end leaves nothing behind.
    drop(server.ended());
    release.notify_one();
    assert_eq!(request.await.unwrap().unwrap(), "finished");
    drained.await;
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

/// A future of the end does not keep the server running.
#[tokio::test]
async fn dropping_the_last_handle_completes_the_future_of_the_end() {
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(workers).unwrap();
    let ended = server.ended();
    drop(server);
    ended.await;
}
