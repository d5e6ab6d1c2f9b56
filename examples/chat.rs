//! Chat over lines: a client sends its name, then every member receives the lines of all members.
//!
//! ```text
//! cargo run --example chat                      # checks itself with two members, and exits
//! cargo run --example chat -- 127.0.0.1:7002    # serves until it is killed: `nc 127.0.0.1 7002`
//! ```
//!
//! A line is encoded once and linked to the queue of every member, on every loop. A member that reads too slowly misses
//! lines instead of delaying the others. The example uses a channel and not a handler because a session is a sequence:
//! a name, then lines; a handler would have to keep the position in this sequence as state.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate::framing::Lines;
use tidegate::{Channel, Group, Server, ServerHandle, Slice, Slow, StartError};

type Any = Box<dyn Error>;

/// A session, from the name to the last line.
async fn session(mut channel: Channel<Lines>, members: Group<Lines>) -> Result<(), Any> {
    channel.send("your name?".into())?;
    let Some(name) = channel.recv().within(PATIENCE).await? else { return Ok(()) };
    let name = text(&name);
    // A member stays in the group until its connection closes. Joins and leaves are not announced: with ten thousand
    // members that would be a hundred million lines before the first message.
    channel.join(&members)?;
    channel.send(format!("welcome, {name}").into())?;
    while let Some(line) = channel.recv().await? {
        say(&members, format!("{name}: {}", text(&line)))?;
    }
    Ok(())
}

/// Encodes a line once, for all members.
fn say(members: &Group<Lines>, line: String) -> Result<(), Any> {
    Ok(members.publish(&mut Lines::new(), line.into())?)
}

/// Readable text of any input: without control characters, which would reach the terminals of other members.
fn text(line: &Slice) -> String {
    String::from_utf8_lossy(line).chars().filter(|char| !char.is_control()).collect()
}

fn start(address: &str) -> Result<ServerHandle, StartError> {
    let members = Group::new(Slow::Skip);
    // Received lines are shorter than sent ones may be, so that a name and a line fit into one.
    let lines = || Lines::new().with_line_bytes_max(4096);
    Server::bind(address)?.loops(2).serve(lines, move |channel| session(channel, members.clone()))
}

fn main() -> Result<(), Any> {
    let address = std::env::args().nth(1);
    let server = start(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    println!("listening on {}, {} loops", server.address(), server.loops());
    if address.is_some() {
        server.wait();
        return Ok(());
    }
    let at = server.address().ip().ok_or("not an IP address")?;
    let mut gull = TestClient::enter(at, "gull")?;
    let mut tern = TestClient::enter(at, "tern")?;
    writeln!(tern.0.get_mut(), "the tide is out")?;
    gull.expects("tern: the tide is out")?;
    tern.expects("tern: the tide is out")?;
    drop(tern);
    writeln!(gull.0.get_mut(), "is anybody there?")?;
    gull.expects("gull: is anybody there?")?;
    server.drain(Duration::from_secs(1));
    Ok(())
}

/// A client of the self-check.
struct TestClient(BufReader<TcpStream>);

impl TestClient {
    fn enter(at: SocketAddr, name: &str) -> Result<Self, Any> {
        let mut client = Self(BufReader::new(TcpStream::connect(at)?));
        client.expects("your name?")?;
        writeln!(client.0.get_mut(), "{name}")?;
        client.expects(&format!("welcome, {name}"))?;
        Ok(client)
    }

    fn expects(&mut self, expected: &str) -> Result<(), Any> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        assert_eq!(line.trim_end(), expected);
        println!("received: {expected}");
        Ok(())
    }
}

/// The timeout of the name.
const PATIENCE: Duration = Duration::from_secs(120);
