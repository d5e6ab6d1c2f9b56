//! One application, on connections and on the streams of a session. Nothing in `count` knows which it is.
//!
//! The protocol with streams is the one that the test kit has for tests; HTTP/2 will be another.
//!
//! ```text
//! cargo run --example streams    # checks itself, prints the results and exits
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use tidegate::codec::Pipeline;
use tidegate::framing::{Lines, Payload};
use tidegate::{Backend, Channel, Client, EventLoop, Listener, Server, Slice};
use tidegate_testkit::{ToyMux, ToyMuxConfig};

type Failure = Box<dyn Error>;

/// Answers each line with its number and its length.
async fn count<P>(mut channel: Channel<P>) -> Result<(), Failure>
where
    P: Pipeline<In = Slice, Out = Payload, Error: Error>,
{
    let mut number = 0;
    while let Some(line) = channel.recv().await? {
        number += 1;
        channel.ready().await?;
        channel.send(format!("{number}: {} bytes", line.len()).into()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Sends three lines, and returns the last answer.
async fn ask(mut channel: Channel<Lines>) -> Result<String, Failure> {
    let mut answer = String::new();
    for line in ["ebb", "and", "flow"] {
        channel.send(line.into())?;
        let received = channel.recv().await?.ok_or("the server has ended")?;
        answer = String::from_utf8(received.to_vec())?;
    }
    channel.close().await?;
    Ok(answer)
}

fn main() -> Result<(), Failure> {
    let config = ToyMuxConfig::default();
    let server = Server::new()
        .loops(1)
        .listener(Listener::bind("127.0.0.1:0")?.label("connections").serve(Lines::new, count))
        .listener(Listener::bind("127.0.0.1:0")?.label("streams").serve_streams(
            move || ToyMux::server(config),
            Lines::new,
            count,
        ))
        .run()?;
    let [connections, streams] = server.listeners() else { return Err("two listeners".into()) };
    let connecting = Client::at(connections.addresses()[0].clone());
    let opening = Client::at(streams.addresses()[0].clone());
    let answers = EventLoop::on(Backend::Auto)?.block_on(async {
        let mut answers = vec![ask(connecting.connect(Lines::new()).await?).await?];
        let session = opening.open_session(ToyMux::client(config)).await?;
        for _ in 0..2 {
            answers.push(ask(session.open(Lines::new())?).await?);
        }
        Ok::<_, Failure>(answers)
    })??;
    println!("on a connection, and on two streams: {answers:?}");
    assert_eq!(answers, ["3: 4 bytes"; 3]);
    assert_eq!([connections, streams].map(|listener| listener.counts().accepted()), [1, 1]);
    server.drain(Duration::from_secs(5));
    Ok(())
}
