//! Chat over lines: whoever connects says a name, then everybody hears what everybody says.
//!
//! ```text
//! cargo run --example chat                      # two guests talk, and it ends
//! cargo run --example chat -- 127.0.0.1:7002    # serves until it is killed: `nc 127.0.0.1 7002`
//! ```
//!
//! A line is encoded once and linked to the queue of every member, on whichever loop that is. Who reads too slowly misses
//! lines instead of holding anybody up. It is a channel and not a handler because a guest's life is a sequence: a name,
//! then lines; a handler would have to remember where in it the guest is.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate::framing::Lines;
use tidegate::{Channel, Group, Server, ServerHandle, Slice, Slow, StartError};

type Any = Box<dyn Error>;

/// A guest, from the name to the last word.
async fn guest(mut channel: Channel<Lines>, everybody: Group<Lines>) -> Result<(), Any> {
    channel.send("your name?".into())?;
    let Some(name) = channel.recv().within(PATIENCE).await? else { return Ok(()) };
    let name = text(&name);
    // Whoever is in the room is in it until the connection is gone. Nobody's coming and going is announced: with ten
    // thousand guests that would be a hundred million lines before the first word.
    channel.join(&everybody)?;
    channel.send(format!("welcome, {name}").into())?;
    while let Some(line) = channel.recv().await? {
        say(&everybody, format!("{name}: {}", text(&line)))?;
    }
    Ok(())
}

/// Encodes a line once, for all members.
fn say(everybody: &Group<Lines>, line: String) -> Result<(), Any> {
    Ok(everybody.publish(&mut Lines::new(), line.into())?)
}

/// Readable text, whatever came: no control characters that would reach the terminals of others.
fn text(line: &Slice) -> String {
    String::from_utf8_lossy(line).chars().filter(|char| !char.is_control()).collect()
}

fn start(address: &str) -> Result<ServerHandle, StartError> {
    let everybody = Group::new(Slow::Skip);
    // What may come is shorter than what may be sent: a name and a line fit into one.
    let lines = || Lines::new().with_line_bytes_max(4096);
    Server::bind(address)?.loops(2).serve(lines, move |channel| guest(channel, everybody.clone()))
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
    let mut gull = Guest::enter(at, "gull")?;
    let mut tern = Guest::enter(at, "tern")?;
    writeln!(tern.0.get_mut(), "the tide is out")?;
    gull.hears("tern: the tide is out")?;
    tern.hears("tern: the tide is out")?;
    drop(tern);
    writeln!(gull.0.get_mut(), "is anybody there?")?;
    gull.hears("gull: is anybody there?")?;
    server.drain(Duration::from_secs(1));
    Ok(())
}

/// A guest of the self-check.
struct Guest(BufReader<TcpStream>);

impl Guest {
    fn enter(at: SocketAddr, name: &str) -> Result<Self, Any> {
        let mut guest = Self(BufReader::new(TcpStream::connect(at)?));
        guest.hears("your name?")?;
        writeln!(guest.0.get_mut(), "{name}")?;
        guest.hears(&format!("welcome, {name}"))?;
        Ok(guest)
    }

    fn hears(&mut self, expected: &str) -> Result<(), Any> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        assert_eq!(line.trim_end(), expected);
        println!("heard: {expected}");
        Ok(())
    }
}

/// How long somebody may take to say a name.
const PATIENCE: Duration = Duration::from_secs(60);
