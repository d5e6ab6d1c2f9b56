//! The push server of `push.rs` with Server-Sent Events: for browsers and proxies that know no WebSocket.
//!
//! ```text
//! cargo run --example sse_push                      # checks itself, and ends
//! cargo run --example sse_push -- 127.0.0.1:8080    # serves
//! curl -N -H 'Authorization: Bearer sub-1' http://127.0.0.1:8080/rooms/tides
//! curl -H 'Authorization: Bearer pub-1' -d 'high water' http://127.0.0.1:8080/rooms/tides
//! ```
//!
//! A room keeps its last messages with their numbers. Each subscriber has the number of the next one that it sends, so
//! a browser that reconnects continues after the last that it has seen, and one that reads slowly misses the oldest.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::http::{
    Client, Event, HeaderMap, IntoResponse, LastEventId, Path, Response, Router, Server, Sse, State, StatusCode,
};
use tidegate::{Backend, EventLoop, ServerHandle, StartError};

type Any = Box<dyn Error>;

/// The rooms of a server. Clones are the same, on any loop.
#[derive(Clone, Default)]
struct Rooms(Arc<Mutex<BTreeMap<String, Arc<Room>>>>);

/// The last messages of a room, and the subscribers that wait for the next.
#[derive(Default)]
struct Room(Mutex<Messages>);

#[derive(Default)]
struct Messages {
    last: VecDeque<Arc<str>>,
    /// The number of the first of them.
    first: u64,
    waiting: Vec<Waker>,
}

impl Rooms {
    fn room(&self, name: &str) -> Option<Arc<Room>> {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(name) {
            return Some(room.clone());
        }
        if rooms.len() == ROOMS_MAX {
            // A room without messages and subscribers has nothing to keep.
            rooms.retain(|_, room| Arc::strong_count(room) > 1 || !room.lock().last.is_empty());
        }
        (rooms.len() < ROOMS_MAX).then(|| rooms.entry(name.to_owned()).or_default().clone())
    }
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, text: Arc<str>) {
        let mut messages = self.lock();
        messages.last.push_back(text);
        if messages.last.len() > HISTORY {
            messages.last.pop_front();
            messages.first += 1;
        }
        // Wakers may wake tasks of other loops, and of those that have ended.
        messages.waiting.drain(..).for_each(Waker::wake);
    }

    /// The message with this number, or the oldest that is left, and its number.
    fn poll_next(&self, number: u64, cx: &Context<'_>) -> Poll<(u64, Arc<str>)> {
        let mut messages = self.lock();
        let number = number.max(messages.first);
        match messages.last.get((number - messages.first) as usize) {
            Some(text) => Poll::Ready((number, text.clone())),
            None => {
                messages.waiting.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The number of the next message.
    fn next_number(&self) -> u64 {
        let messages = self.lock();
        messages.first + messages.last.len() as u64
    }
}

fn token(headers: &HeaderMap) -> &str {
    headers.get("Authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ")).unwrap_or_default()
}

/// `GET /rooms/{room}`
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn subscribe(State(rooms): State<Rooms>, Path(name): Path<String>, headers: HeaderMap, last: LastEventId) -> Response {
    if !token(&headers).starts_with("sub-") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Some(room) = rooms.room(&name) else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let seen = last.as_deref().and_then(|id| id.parse::<u64>().ok());
    // A number from before a restart of the server is none of this room: it begins with the next message.
    let mut number = seen.map_or(u64::MAX, |seen| seen.saturating_add(1)).min(room.next_number());
    Sse::new(async move |mut events| {
        loop {
            // The subscriber reads before the next message is taken: a slow one has none waiting in memory.
            let (found, text) = poll_fn(|cx| room.poll_next(number, cx)).await;
            events.send(Event::new().id(&found.to_string())?.data(&*text)).await?;
            number = found + 1;
        }
    })
    .into_response()
}

/// `POST /rooms/{room}`
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn publish(
    State(rooms): State<Rooms>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: String,
) -> Result<(), StatusCode> {
    if !token(&headers).starts_with("pub-") {
        return Err(StatusCode::UNAUTHORIZED);
    }
    rooms.room(&name).ok_or(StatusCode::SERVICE_UNAVAILABLE)?.publish(text.into());
    Ok(())
}

/// Messages that a room keeps, and rooms that a server has.
const HISTORY: usize = 100;
const ROOMS_MAX: usize = 10_000;

fn start(address: &str) -> Result<ServerHandle, StartError> {
    let rooms = Rooms::default();
    Server::bind(address)?
        .start(move || Router::with_state(rooms.clone()).get("/rooms/{room}", subscribe).post("/rooms/{room}", publish))
}

fn main() -> Result<(), Any> {
    if let Some(address) = std::env::args().nth(1) {
        let server = start(&address)?;
        println!("listening on http://{}", server.address());
        server.wait();
        return Ok(());
    }
    check()
}

/// A subscriber that comes back, and one that may not.
fn check() -> Result<(), Any> {
    let server = start("127.0.0.1:0")?;
    let uri = format!("http://{}/rooms/tides", server.address());
    EventLoop::on(Backend::Auto)?.block_on(async move {
        let client = Client::new();
        assert_eq!(client.get(&uri).send().await?.status(), StatusCode::UNAUTHORIZED);
        let subscribe = |last: Option<&str>| {
            let request = client.get(&uri).bearer_auth("sub-1");
            last.iter().fold(request, |request, last| request.header("Last-Event-ID", last))
        };
        let mut first = subscribe(None).send().await?;
        for text in ["low water", "half tide", "high water"] {
            let published = client.post(&uri).bearer_auth("pub-1").body(text).send().await?;
            assert_eq!(published.status(), StatusCode::OK);
        }
        let all = read_until(&mut first, "high water\n\n").await?;
        assert_eq!(all.matches("data: ").count(), 3, "{all}");
        // It has seen the first, and comes back.
        drop(first);
        let rest = read_until(&mut subscribe(Some("0")).send().await?, "high water\n\n").await?;
        assert_eq!(rest.matches("data: ").count(), 2, "{rest}");
        println!("a subscriber that comes back has missed nothing");
        Ok::<_, Any>(())
    })??;
    server.drain(Duration::ZERO);
    Ok(())
}

async fn read_until(response: &mut tidegate::http::client::Response, end: &str) -> Result<String, Any> {
    let mut text = String::new();
    while !text.ends_with(end) {
        let piece = response.body_mut().next().await.ok_or("the stream has ended")??;
        text.push_str(std::str::from_utf8(&piece)?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscriber_that_comes_back_misses_nothing() {
        check().unwrap();
    }

    #[test]
    fn a_room_keeps_its_last_messages_and_a_slow_subscriber_continues_with_the_oldest() {
        let room = Room::default();
        for number in 0..250 {
            room.publish(number.to_string().into());
        }
        let next = |number| room.poll_next(number, &Context::from_waker(Waker::noop()));
        assert_eq!(next(0), Poll::Ready((150, "150".into())));
        assert_eq!(next(249), Poll::Ready((249, "249".into())));
        assert_eq!(next(250), Poll::Pending);
        assert_eq!(room.next_number(), 250);
    }
}
