//! `tokio::spawn`, `tokio::time`, `tokio::net` and a tokio client in functions of a server, unchanged.

use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use tidegate::http::{Router, Server};
use tidegate::{ServerHandle, TokioRuntime, tower};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::tokio_runtime::requests::{self, address};

async fn spawns() -> String {
    let other = tokio::spawn(async { std::thread::current().name().unwrap_or_default().to_owned() }).await;
    let here = std::thread::current().name().unwrap_or_default().to_owned();
    format!("{here} and {}", other.expect("it does not panic"))
}

async fn sleeps() -> &'static str {
    tokio::time::sleep(Duration::from_millis(2)).await;
    let never = tokio::time::timeout(Duration::from_millis(2), std::future::pending::<()>());
    if never.await.is_err() { "slept" } else { "the time was never up" }
}

/// Connects two tokio sockets, both made within the function.
async fn connects() -> std::io::Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let mut client = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
    let echo = async {
        let (mut peer, _) = listener.accept().await?;
        let mut bytes = [0; 3];
        peer.read_exact(&mut bytes).await?;
        peer.write_all(&bytes).await
    };
    let ask = async {
        client.write_all(b"ebb").await?;
        let mut bytes = [0; 3];
        client.read_exact(&mut bytes).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (echoed, asked) = tokio::join!(echo, ask);
    echoed?;
    asked
}

async fn blocks_a_thread() -> String {
    tokio::task::spawn_blocking(|| "a thread may block").await.unwrap_or("it panicked").to_owned()
}

fn server(loops: usize) -> ServerHandle {
    let router = || {
        Router::new()
            .get("/spawn", spawns)
            .get("/sleep", sleeps)
            .get("/connect", async || connects().await.unwrap_or_else(|error| error.to_string()))
            .get("/block", blocks_a_thread)
    };
    Server::bind("127.0.0.1:0")
        .unwrap()
        .loops(loops)
        .tokio_runtime(TokioRuntime::with_threads(1))
        .start(router)
        .unwrap()
}

#[test]
fn tasks_timers_and_sockets_of_tokio_work_in_functions() {
    let server = server(2);
    assert!(requests::get(&server, "/spawn").ends_with(" and tidegate-tokio"));
    assert!(requests::get(&server, "/spawn").starts_with("tidegate-"), "the function stays on its loop");
    assert_eq!(requests::get(&server, "/sleep"), "slept");
    assert_eq!(requests::get(&server, "/connect"), "ebb");
    assert_eq!(requests::get(&server, "/block"), "a thread may block");
}

/// Many tasks of several loops wait for timers of one tokio runtime at once.
#[test]
fn many_functions_wait_for_the_tokio_runtime_at_once() {
    let server = server(2);
    let streams: Vec<_> = (0..100).map(|_| requests::send(&server, "/sleep")).collect();
    for stream in streams {
        assert!(requests::receive(stream).unwrap().ends_with("\r\n\r\nslept"));
    }
}

/// A server that is given no tokio runtime has that of the process.
#[test]
fn a_server_without_settings_has_a_tokio_runtime() {
    let server = tower::serve("127.0.0.1:0", axum::Router::new().route("/", get(sleeps))).unwrap();
    assert_eq!(requests::get(&server, "/"), "slept");
}

/// An axum router whose state is a tokio queue.
#[test]
fn a_router_of_axum_uses_channels_of_tokio() {
    let (sender, mut receiver) = mpsc::channel::<u32>(1);
    let push = async |State(sender): State<mpsc::Sender<u32>>| sender.send(7).await.map(|()| "sent").unwrap_or("full");
    let router = axum::Router::new().route("/", get(push)).with_state(sender);
    let server = tower::serve("127.0.0.1:0", router).unwrap();
    assert_eq!(requests::get(&server, "/"), "sent");
    assert_eq!(receiver.blocking_recv(), Some(7));
}

/// reqwest runs within a function of one server, and asks another one.
#[test]
fn reqwest_asks_one_server_from_a_function_of_another() {
    let asked = server(1);
    let url = format!("http://{}/sleep", address(&asked));
    let fetch = move || {
        let (client, url) = (reqwest::Client::new(), url.clone());
        Router::new().get("/fetch", async move || {
            let fetched = async { client.get(&url).send().await?.text().await };
            fetched.await.unwrap_or_else(|error: reqwest::Error| error.to_string())
        })
    };
    let asking = Server::bind("127.0.0.1:0").unwrap().loops(1).start(fetch).unwrap();
    assert_eq!(requests::get(&asking, "/fetch"), "slept");
    // Its connection is kept and used again.
    assert_eq!(requests::get(&asking, "/fetch"), "slept");
}
