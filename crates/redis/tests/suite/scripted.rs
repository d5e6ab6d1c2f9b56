//! Servers that are written by hand, on the simulated network and on both drivers.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_buffer::WaterMarks;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Backend, Channel, Client as Target, EventLoop, Limits, Server, task};
use tidegate_redis::{Client, ClientBuilder, CommandBuffer};
use tidegate_testkit::network::Network;

/// A step of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// These bytes come next.
    Expect(Vec<u8>),
    Send(Vec<u8>),
    /// The connection stays open, and nothing happens any more.
    Hang,
}

/// The steps of each connection in turn; after the last step the server closes it. Further connections
/// have the last steps again.
type Script = Vec<Vec<Step>>;

pub(crate) fn expect(words: &str) -> Step {
    Step::Expect(wire(words))
}

pub(crate) fn send(bytes: impl Into<Vec<u8>>) -> Step {
    Step::Send(bytes.into())
}

/// A command as bytes.
pub(crate) fn wire(words: &str) -> Vec<u8> {
    let words: Vec<_> = words.split(' ').collect();
    let mut wire = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| wire.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    wire.into()
}

/// A connection that begins with HELLO as usual.
pub(crate) fn greeted(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    [expect("HELLO 3"), send("%1\r\n$5\r\nproto\r\n:3\r\n")].into_iter().chain(steps).collect()
}

struct Scripts {
    script: Script,
    next: AtomicUsize,
    mistakes: Mutex<Vec<String>>,
}

async fn serve(mut channel: Channel<Raw>, scripts: Arc<Scripts>) -> Result<(), Box<dyn std::error::Error>> {
    let number = scripts.next.fetch_add(1, Ordering::Relaxed);
    let mut received = Vec::new();
    for step in scripts.script.get(number).or(scripts.script.last()).cloned().unwrap_or_default() {
        match step {
            Step::Send(bytes) => drop(channel.send(bytes.into())?),
            Step::Hang => while channel.recv().await?.is_some() {},
            Step::Expect(bytes) => {
                while received.len() < bytes.len() {
                    let Some(more) = channel.recv().await? else { return Ok(()) };
                    received.extend_from_slice(&more);
                }
                if !received.starts_with(&bytes) {
                    let text = format!("{number}: \"{}\"", received.escape_ascii());
                    scripts.mistakes.lock().expect("no panic").push(text);
                    return Ok(());
                }
                received.drain(..bytes.len());
            }
        }
    }
    Ok(())
}

pub(crate) type Test = Pin<Box<dyn Future<Output = ()>>>;

/// Runs a client against such a server, on each network that there is.
pub(crate) fn on_each_network(script: &[Vec<Step>], test: impl Fn(ClientBuilder) -> Test) {
    let scripts =
        || Arc::new(Scripts { script: script.to_vec(), next: AtomicUsize::new(0), mistakes: Mutex::default() });
    let check = |scripts: &Scripts| {
        let mistakes = scripts.mistakes.lock().expect("no panic");
        assert!(mistakes.is_empty(), "{mistakes:?}");
    };

    let simulated = scripts();
    let network = Network::new(7);
    let (server, node) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    let of_server = simulated.clone();
    let serving = move |channel| serve(channel, of_server.clone());
    let address = server.serve(6379, Limits::default(), || Raw, serving).expect("a port");
    let testing = node.spawn(test(Client::over(reading(Target::at(address)))));
    network.run_task(Duration::from_secs(600), testing);
    check(&simulated);

    for backend in [Backend::Epoll, Backend::Uring] {
        let Ok(mut event_loop) = EventLoop::on(backend) else { continue };
        let scripts = scripts();
        let of_server = scripts.clone();
        let serving = move |channel| serve(channel, of_server.clone());
        let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).backend(backend);
        let server = server.serve(|| Raw, serving).expect("it starts");
        let testing = test(Client::over(reading(Target::at(server.address().clone()))));
        event_loop
            .block_on(async move { task::timeout(Duration::from_secs(120), testing).await })
            .expect("the loop runs")
            .expect("the test does not hang");
        server.drain(Duration::ZERO);
        check(&scripts);
    }
}

/// As `Client::to` has it: the connection reads however much waits to be sent.
fn reading(target: Target) -> Target {
    let water = WaterMarks::new(1 << 40, 1 << 40);
    target.limits(Limits { water, ..Limits::default() })
}

/// A command of words.
pub(crate) fn words(words: &str) -> CommandBuffer {
    let mut words = words.split(' ');
    let name = words.next().unwrap_or_default();
    words.fold(CommandBuffer::new(name), CommandBuffer::arg)
}
