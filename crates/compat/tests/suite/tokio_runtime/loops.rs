//! Callbacks, channels and tasks of loops in a tokio runtime, and loops without a server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use tidegate::framing::Lines;
use tidegate::{Backend, Channel, Context, Event, EventLoop, Handler, Outcome, Server, Slice, TokioRuntime, task};

use crate::tokio_runtime::requests::{PATIENCE, address};

/// Answers each line from a tokio task, which posts the answer.
struct PostsFromTokio;

impl Handler<Lines> for PostsFromTokio {
    type Post = String;

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines, String>) -> Outcome<Lines> {
        let (remote, line) = (cx.remote(), String::from_utf8_lossy(&line).into_owned());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            // It fails if the connection is closed: the answer is not needed then.
            let _ = remote.post(line.to_uppercase());
        });
        Outcome::Continue
    }

    fn event(&mut self, event: Event<String>, cx: &mut Context<'_, Lines, String>) -> Outcome<Lines> {
        match event {
            Event::Posted(answer) => cx.send(answer.into()).into(),
            other => other.by_default(cx),
        }
    }
}

fn ask(server: &tidegate::ServerHandle) -> String {
    let mut stream = TcpStream::connect(address(server)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"ebb\n").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

#[test]
fn a_callback_spawns_on_tokio() {
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(|| (Lines::default(), PostsFromTokio)).unwrap();
    assert_eq!(ask(&server), "EBB\n");
}

#[test]
fn a_channel_awaits_timers_of_tokio_and_of_the_loop() {
    let serve = async |mut channel: Channel<Lines>| {
        while let Some(line) = channel.recv().await? {
            let both = async { tokio::join!(tokio::time::sleep(SHORT), task::sleep(SHORT)) };
            both.await;
            channel.send(line.into())?;
        }
        Ok::<_, tidegate::ChannelError>(())
    };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).serve(Lines::default, serve).unwrap();
    assert_eq!(ask(&server), "ebb\n");
}

#[test]
fn a_loop_without_a_server_runs_in_a_tokio_runtime_once_it_has_one() {
    let mut event_loop = EventLoop::on(Backend::Auto).unwrap();
    assert!(tokio::runtime::Handle::try_current().is_err());
    let without = event_loop.block_on(async { tokio::runtime::Handle::try_current().is_ok() });
    assert!(!without.unwrap());
    event_loop.tokio_runtime(TokioRuntime::with_threads(1)).unwrap();
    let joined = event_loop.block_on(async { tokio::spawn(async { 6 * 7 }).await.unwrap() });
    assert_eq!(joined.unwrap(), 42);
    let spawned = event_loop.spawn(async { tokio::time::sleep(SHORT).await });
    event_loop.block_on(spawned).unwrap().unwrap();
    // Between turns the thread is in no runtime: the loop has left it.
    assert!(tokio::runtime::Handle::try_current().is_err());
}

/// A task's values are dropped while the loop is still in the runtime: their drop may use tokio.
#[test]
fn a_task_that_is_dropped_with_its_loop_may_still_spawn() {
    struct SpawnsWhenDropped(mpsc::Sender<bool>);
    impl Drop for SpawnsWhenDropped {
        fn drop(&mut self) {
            let sender = self.0.clone();
            let _ = self.0.send(tokio::runtime::Handle::try_current().is_ok());
            tokio::spawn(async move { sender.send(true) });
        }
    }
    let (sender, receiver) = mpsc::channel();
    let mut event_loop = EventLoop::on(Backend::Auto).unwrap();
    let tokio_runtime = TokioRuntime::with_threads(1);
    event_loop.tokio_runtime(tokio_runtime.clone()).unwrap();
    let held = SpawnsWhenDropped(sender);
    event_loop.spawn(async move {
        std::future::pending::<()>().await;
        drop(held);
    });
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    drop(event_loop);
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(true), "the drop is within the runtime");
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(true), "the task that it spawned has run");
}

#[tidegate::test]
async fn an_async_test_runs_in_a_tokio_runtime() {
    tokio::time::sleep(SHORT).await;
    assert_eq!(tokio::spawn(async { 6 * 7 }).await.unwrap(), 42);
    assert_eq!(task::spawn(async { 7 }).await, Ok(7));
}

#[tidegate::test(tokio_threads = 2, backend = "epoll")]
async fn an_async_test_has_arguments_and_a_result() -> Result<(), tokio::task::JoinError> {
    let threads = tokio::runtime::Handle::current().metrics().num_workers();
    assert_eq!(tokio::spawn(async move { threads }).await?, 2);
    Ok(())
}

const SHORT: Duration = Duration::from_millis(1);
