//! A long poll: a request waits for news, for the end of its time, or for the peer's next request, whatever comes first.
//!
//! ```text
//! POST high water     sets the text             OK
//! WAIT 3              waits for version 4       4 high water, or UNCHANGED after half a minute
//! ```
//!
//! A peer that closes, or sends its next request, ends its wait: a session that only waited for news would keep the
//! connections of peers that have closed until the next news.
//!
//! `cargo run --example long_poll` checks itself; with an address it serves there.

#![forbid(unsafe_code)]

use std::error::Error;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use event_listener::Event;
use futures_util::future::{Either, select};
use tidegate::framing::Lines;
use tidegate::{Backend, Channel, Client, EventLoop, Server, ServerHandle, StartError, task};

/// A text and its version. Clones are the same board, on any loop.
#[derive(Clone, Default)]
struct Board(Arc<Shared>);

#[derive(Default)]
struct Shared {
    text: Mutex<(u64, String)>,
    changed: Event,
}

impl Board {
    fn post(&self, text: String) {
        let mut latest = self.latest();
        *latest = (latest.0 + 1, text);
        self.0.changed.notify(usize::MAX);
    }

    /// Waits for a version after `seen`.
    async fn newer_than(&self, seen: u64) -> String {
        loop {
            // Before the look at the version, so that no change in between is missed.
            let changed = self.0.changed.listen();
            if let (version @ 1.., text) = &*self.latest()
                && *version > seen
            {
                return format!("{version} {text}");
            }
            changed.await;
        }
    }

    fn latest(&self) -> MutexGuard<'_, (u64, String)> {
        self.0.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn session(mut channel: Channel<Lines>, board: Board) -> Result<(), Box<dyn Error>> {
    let mut request = channel.recv().await?;
    while let Some(line) = request {
        let line = String::from_utf8_lossy(&line).into_owned();
        if let Some(text) = line.strip_prefix("POST ") {
            board.post(text.to_owned());
            channel.send("OK".into())?;
        } else if let Some(Ok(seen)) = line.strip_prefix("WAIT ").map(str::parse) {
            let news = pin!(task::timeout(POLL_TIMEOUT, board.newer_than(seen)));
            let answer = match select(news, channel.recv()).await {
                Either::Left((Ok(news), _)) => news,
                Either::Left((Err(_), _)) => "UNCHANGED".into(),
                // The next request, or the end. A `recv` that is dropped unfinished loses no message.
                Either::Right((next, _)) => {
                    request = next?;
                    continue;
                }
            };
            channel.send(answer.into())?;
        } else {
            return Err(format!("no such request: {line}").into());
        }
        request = channel.recv().await?;
    }
    Ok(())
}

const POLL_TIMEOUT: Duration = Duration::from_secs(30);

fn start(address: &str) -> Result<ServerHandle, StartError> {
    let board = Board::default();
    Server::bind(address)?.serve(Lines::new, move |channel| session(channel, board.clone()))
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
        let mut waits = Client::at(address.clone()).connect(Lines::new()).await?;
        let mut posts = Client::at(address).connect(Lines::new()).await?;
        waits.send("WAIT 0".into())?;
        posts.send("POST high water".into())?;
        Ok::<_, Box<dyn Error>>(waits.recv().await?)
    };
    let news = EventLoop::on(Backend::Auto)?.block_on(talk)??;
    assert_eq!(news.as_deref(), Some(&b"1 high water"[..]));
    server.drain(Duration::from_secs(1));
    println!("news came as soon as they were there");
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::Embedded;

    use super::*;

    fn open(board: &Board) -> Embedded<std::convert::Infallible> {
        let board = board.clone();
        Embedded::serving(Lines::new(), move |channel| session(channel, board))
    }

    #[test]
    fn news_end_the_wait_and_so_does_the_time() {
        let board = Board::default();
        let mut pipe = open(&board);
        pipe.receive(b"WAIT 0\n");
        assert_eq!(pipe.take_written(), b"");
        board.post("high".into());
        pipe.run();
        assert_eq!(pipe.take_written(), b"1 high\n");
        pipe.receive(b"WAIT 0\nWAIT 1\n");
        assert_eq!(pipe.take_written(), b"1 high\n");
        pipe.advance(POLL_TIMEOUT - Duration::from_millis(1));
        assert_eq!(pipe.take_written(), b"");
        pipe.advance(Duration::from_millis(1));
        assert_eq!(pipe.take_written(), b"UNCHANGED\n");
    }

    #[test]
    fn the_next_request_or_the_end_of_the_peer_ends_the_wait() {
        let board = Board::default();
        let mut pipe = open(&board);
        pipe.receive(b"WAIT 0\nPOST low\nWAIT 1\n");
        assert_eq!(pipe.take_written(), b"OK\n");
        pipe.receive_fin();
        assert!(pipe.is_closed());
        assert_eq!(board.0.changed.total_listeners(), 0);
    }
}
