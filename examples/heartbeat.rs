//! One deadline for several purposes: a time to log in, a ping after silence, and the end of a peer that answers none.
//!
//! ```text
//! LOGIN gull          within five seconds       WELCOME gull
//! anything else       counts as a sign of life  an echo; PONG has no answer
//! ```
//!
//! The server sends `PING` after ten silent seconds, and closes a connection that stays silent for ten more.
//!
//! `cargo run --example heartbeat` checks itself; with an address it serves there.

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::{Duration, Instant};

use tidegate::framing::Lines;
use tidegate::{Backend, Client, Context, Event, EventLoop, Handler, Outcome, Server, ServerHandle, Slice, StartError};

const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);
const PING_AFTER: Duration = Duration::from_secs(10);
const PONG_TIMEOUT: Duration = Duration::from_secs(10);

/// When each purpose needs the handler.
#[derive(Default)]
struct Timers {
    login: Option<Instant>,
    ping: Option<Instant>,
    pong: Option<Instant>,
}

impl Timers {
    /// The connection's deadline is the earliest.
    fn arm(&self, cx: &mut Context<'_, Lines>) {
        cx.deadline([self.login, self.ping, self.pong].into_iter().flatten().min());
    }
}

#[derive(Default)]
struct Session {
    timers: Timers,
}

impl Handler<Lines> for Session {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        self.timers.login = Some(cx.now() + LOGIN_TIMEOUT);
        self.timers.arm(cx);
        Outcome::Continue
    }

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let sent = match (&self.timers.login, line.strip_prefix(b"LOGIN ")) {
            (Some(_), Some(name)) => cx.send(format!("WELCOME {}", name.escape_ascii()).into()).map(drop),
            (Some(_), None) => return Outcome::Close,
            (None, _) if *line == *b"PONG" => Ok(()),
            (None, _) => cx.send(line.into()).map(drop),
        };
        // Every message is a sign of life.
        self.timers = Timers { ping: Some(cx.now() + PING_AFTER), ..Timers::default() };
        self.timers.arm(cx);
        sent.into()
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let Event::Deadline = event else { return event.by_default(cx) };
        let has_come = |at: Option<Instant>| at.is_some_and(|at| at <= cx.now());
        if has_come(self.timers.login) || has_come(self.timers.pong) {
            return Outcome::Close;
        }
        let sent = cx.send("PING".into()).map(drop);
        self.timers = Timers { pong: Some(cx.now() + PONG_TIMEOUT), ..Timers::default() };
        self.timers.arm(cx);
        sent.into()
    }
}

fn start(address: &str) -> Result<ServerHandle, StartError> {
    Server::bind(address)?.start(|| (Lines::new(), Session::default()))
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = std::env::args().nth(1) {
        let server = start(&address)?;
        println!("listening on {}", server.address());
        server.wait();
        return Ok(());
    }
    let server = start("127.0.0.1:0")?;
    let address = server.address().clone();
    let talk = async move {
        let mut client = Client::at(address).connect(Lines::new()).await?;
        client.send("LOGIN gull".into())?;
        Ok::<_, Box<dyn Error>>(client.recv().await?)
    };
    let welcome = EventLoop::on(Backend::Auto)?.block_on(talk)??;
    assert_eq!(welcome.as_deref(), Some(&b"WELCOME gull"[..]));
    server.drain(Duration::from_secs(1));
    println!("the session is logged in");
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::Embedded;

    use super::*;

    #[test]
    fn each_purpose_has_its_time() {
        let mut pipe = Embedded::new(Lines::new(), Session::default());
        pipe.advance(LOGIN_TIMEOUT);
        assert!(pipe.is_write_closed(), "the peer has not logged in");

        let mut pipe = Embedded::new(Lines::new(), Session::default());
        pipe.receive(b"LOGIN gull\n");
        assert_eq!(pipe.take_written(), b"WELCOME gull\n");
        pipe.advance(PING_AFTER);
        assert_eq!(pipe.take_written(), b"PING\n");
        pipe.receive(b"PONG\n");
        pipe.advance(PING_AFTER);
        assert_eq!(pipe.take_written(), b"PING\n");
        pipe.advance(PONG_TIMEOUT - Duration::from_millis(1));
        assert!(!pipe.is_write_closed());
        pipe.advance(Duration::from_millis(1));
        assert!(pipe.is_write_closed());
    }
}
