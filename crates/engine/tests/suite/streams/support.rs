//! Servers of streams, clients with sessions, and loops that do not wait for ever.

use std::future::Future;
use std::time::{Duration, Instant};

use tidegate_codec::framing::{Lines, Payload};
use tidegate_codec::{Pipeline, Slice};
use tidegate_engine::{
    Backend, Channel, ChannelError, Client, Context, EventLoop, Handler, Listener, Outcome, Server, ServerHandle,
    Session, task,
};
use tidegate_testkit::{ToyMux, ToyMuxConfig};

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Sends lines back.
#[derive(Debug, Default)]
pub(crate) struct Echo;

impl<C: Pipeline<In = Slice, Out = Payload>> Handler<C> for Echo {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        cx.send(line.into()).into()
    }
}

pub(crate) async fn echo<C: Pipeline<In = Slice, Out = Payload>>(mut channel: Channel<C>) -> Result<(), ChannelError> {
    while let Some(line) = channel.recv().await? {
        channel.ready().await?;
        channel.send(line.into()).map_err(|_| ChannelError::Busy)?;
    }
    Ok(())
}

pub(crate) fn lines() -> Lines {
    Lines::new().with_line_bytes_max(1 << 20)
}

/// The backends that this machine has.
pub(crate) fn backends() -> Vec<Backend> {
    let has_uring = EventLoop::on(Backend::Uring).is_ok();
    [Backend::Epoll].into_iter().chain(has_uring.then_some(Backend::Uring)).collect()
}

/// How a server serves a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By {
    Handler,
    Task,
}

pub(crate) const BOTH: [By; 2] = [By::Handler, By::Task];

/// A server that echoes lines on every stream.
pub(crate) fn serve(backend: Backend, by: By, config: ToyMuxConfig) -> ServerHandle {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mux = move || ToyMux::server(config);
    let listener = match by {
        By::Handler => listener.handle_streams(mux, || (lines(), Echo)),
        By::Task => listener.serve_streams(mux, lines, echo),
    };
    Server::new().loops(1).backend(backend).listener(listener).run().expect("the port is free")
}

/// Runs `act` with a session of a client on the same backend.
pub(crate) fn with_session<T, F: Future<Output = T>>(
    server: &ServerHandle,
    backend: Backend,
    config: ToyMuxConfig,
    act: impl FnOnce(Session<ToyMux>) -> F,
) -> T {
    let client = Client::at(server.address().clone());
    let mut event_loop = EventLoop::on(backend).unwrap();
    event_loop
        .block_on(async {
            let session = client.open_session(ToyMux::client(config)).await.expect("it listens");
            task::timeout(PATIENCE, act(session)).await.expect("it ends")
        })
        .expect("the loop waits")
}

pub(crate) async fn ask(channel: &mut Channel<Lines>, line: &str) -> String {
    channel.send(line.to_owned().into()).expect("the stream is open");
    let answer = channel.recv().await.expect("the stream is open").expect("an answer");
    String::from_utf8(answer.to_vec()).expect("text")
}

/// Waits until `done`, for a long time if it has to be.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "it has not come to it");
    }
}
