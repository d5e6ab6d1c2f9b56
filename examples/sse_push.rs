//! The push server of `push.rs` with Server-Sent Events: for browsers and proxies that know no WebSocket.
//!
//! ```text
//! cargo run --example sse_push                      # checks itself, and ends
//! cargo run --example sse_push -- 127.0.0.1:8080    # serves
//! cargo run --example sse_push -- 127.0.0.1:8081 redis://127.0.0.1:6379    # one of several nodes; nats:// as well
//! curl -N -H 'Authorization: Bearer sub-1' http://127.0.0.1:8080/rooms/tides
//! curl -H 'Authorization: Bearer pub-1' -d 'high water' http://127.0.0.1:8080/rooms/tides
//! curl -X DELETE -H 'Authorization: Bearer pub-1' http://127.0.0.1:8080/rooms/tides    # ends all streams
//! ```
//!
//! A room keeps its last messages with their positions, which are the identifiers of events. So a browser that reconnects, to
//! this node or another one, continues behind the last event that it has seen, or gets an event `gap`. A subscriber that
//! reads slowly has a bounded queue, and continues from the room's history.

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use tidegate::backplane::{Backplane, MemoryBroker};
use tidegate::framing::Lines;
use tidegate::http::{
    Client, Event, HeaderMap, IntoResponse, LastEventId, Path, Response, Router, Server, Sse, State, StatusCode,
};
use tidegate::{Backend, Bytes, EventLoop, Position, RoomLimits, RoomNotice, ServerHandle, Slow, StartError};

type Any = Box<dyn Error>;
/// All members are streams of events, so no message is encoded for a connection, whatever its protocol.
type Rooms = tidegate::Rooms<Lines>;

fn token(headers: &HeaderMap) -> &str {
    headers.get("Authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ")).unwrap_or_default()
}

/// `GET /rooms/{room}`
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn subscribe(State(rooms): State<Rooms>, Path(name): Path<String>, headers: HeaderMap, last: LastEventId) -> Response {
    if !token(&headers).starts_with("sub-") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    // An identifier that is no position, such as one of another version, cannot be recovered.
    let after = last.as_deref().map(|id| id.parse().unwrap_or(Position { epoch: 0, offset: 0 }));
    let subscriber = rooms.room(&name).and_then(|room| room.subscribe(after, ()).ok());
    let Some(mut subscriber) = subscriber else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    Sse::new(async move |mut events| {
        while let Some(notice) = subscriber.recv().await {
            // The subscriber reads before the next notice is taken: a slow one has a bounded queue in its room.
            if let Some(event) = event_of(notice)? {
                events.send(event).await?;
            }
        }
        Ok(())
    })
    .into_response()
}

fn event_of(notice: RoomNotice) -> Result<Option<Event>, Any> {
    let with_id = |position: Option<Position>| match position {
        Some(position) => Event::new().id(&position.to_string()),
        None => Ok(Event::new()),
    };
    Ok(Some(match notice {
        RoomNotice::Message { bytes, position } => with_id(position)?.data(String::from_utf8_lossy(&bytes)),
        // The page reads its state again.
        RoomNotice::Gap { position } => with_id(position)?.name("gap")?.data("messages are missing"),
        RoomNotice::Kicked { code, reason } => Event::new().name("closed")?.data(format!("{code} {reason}")),
        _ => return Ok(None),
    }))
}

/// `POST /rooms/{room}`
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn publish(
    State(rooms): State<Rooms>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: String,
) -> Result<(), StatusCode> {
    let room = room_of_publisher(&rooms, &name, &headers)?;
    room.publish(&Bytes::from(text)).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

/// `DELETE /rooms/{room}`
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn close(State(rooms): State<Rooms>, Path(name): Path<String>, headers: HeaderMap) -> Result<(), StatusCode> {
    let room = room_of_publisher(&rooms, &name, &headers)?;
    room.kick(4001, "the room is closed").map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

fn room_of_publisher(rooms: &Rooms, name: &str, headers: &HeaderMap) -> Result<tidegate::Room<Lines>, StatusCode> {
    if !token(headers).starts_with("pub-") {
        return Err(StatusCode::UNAUTHORIZED);
    }
    rooms.room(name).ok_or(StatusCode::SERVICE_UNAVAILABLE)
}

/// A node. Its rooms are those of all nodes with the same broker.
fn start(address: &str, backplane: Option<&Backplane>) -> Result<ServerHandle, StartError> {
    let mut limits = RoomLimits::default();
    limits.history_max = HISTORY;
    let rooms = Rooms::new(Slow::Skip, limits).encoding(|_| None);
    let rooms = match backplane {
        Some(backplane) => rooms.with(backplane),
        None => rooms,
    };
    Server::bind(address)?.start(move || {
        let router = Router::with_state(rooms.clone()).get("/rooms/{room}", subscribe);
        router.post("/rooms/{room}", publish).delete("/rooms/{room}", close)
    })
}

/// Messages that a room keeps.
const HISTORY: usize = 100;

fn main() -> Result<(), Any> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let Some(address) = arguments.first() {
        let backplane = arguments.get(1).map(|url| Backplane::at(url)).transpose()?;
        let backplane = backplane.map(|builder| builder.spawn()).transpose()?;
        let server = start(address, backplane.as_ref())?;
        println!("listening on http://{}", server.address());
        server.wait();
        return Ok(());
    }
    check_alone()?;
    check_two_nodes()?;
    println!("a subscriber that comes back has missed nothing");
    Ok(())
}

fn check_alone() -> Result<(), Any> {
    let server = start("127.0.0.1:0", None)?;
    let address = server.address().to_string();
    EventLoop::on(Backend::Auto)?.block_on(check([address.clone(), address]))??;
    server.drain(Duration::ZERO);
    Ok(())
}

/// Two nodes with a broker in memory: a subscriber comes back to the other one.
fn check_two_nodes() -> Result<(), Any> {
    let broker = MemoryBroker::new();
    let node = || -> Result<ServerHandle, Any> {
        let backplane = Backplane::memory(&broker).spawn()?;
        Ok(start("127.0.0.1:0", Some(&backplane))?)
    };
    let nodes = [node()?, node()?];
    let addresses = nodes.each_ref().map(|node| node.address().to_string());
    EventLoop::on(Backend::Auto)?.block_on(check(addresses))??;
    nodes.into_iter().for_each(|node| node.drain(Duration::ZERO));
    Ok(())
}

/// A subscriber that comes back, to another node, and one that may not.
async fn check([first, second]: [String; 2]) -> Result<(), Any> {
    let client = Client::new();
    let [first, second] = [first, second].map(|address| format!("http://{address}/rooms/tides"));
    assert_eq!(client.get(&first).send().await?.status(), StatusCode::UNAUTHORIZED);
    let subscribe = |uri: &str, last: Option<&str>| {
        let request = client.get(uri).bearer_auth("sub-1");
        last.iter().fold(request, |request, last| request.header("Last-Event-ID", last))
    };
    // It stays, so the room does.
    let mut stays = subscribe(&first, None).send().await?;
    let mut leaves = subscribe(&second, None).send().await?;
    for text in ["low water", "half tide", "high water"] {
        let published = client.post(&first).bearer_auth("pub-1").body(text).send().await?;
        assert_eq!(published.status(), StatusCode::OK);
    }
    for subscriber in [&mut stays, &mut leaves] {
        let all = read_until(subscriber, "high water\n\n").await?;
        assert_eq!(all.matches("data: ").count(), 3, "{all}");
    }
    drop(leaves);
    // It has seen the first.
    let mut again = subscribe(&second, None).send().await?;
    let all = read_until(&mut again, "high water\n\n").await?;
    let id = all.split("id: ").nth(1).and_then(|rest| rest.lines().next()).ok_or("no identifier")?.to_owned();
    let rest = read_until(&mut subscribe(&first, Some(&id)).send().await?, "high water\n\n").await?;
    assert_eq!((rest.matches("data: ").count(), rest.contains("low water")), (2, false), "{rest}");
    for unknown in ["0", "0000000000000007-1"] {
        let rest = read_until(&mut subscribe(&second, Some(unknown)).send().await?, "high water\n\n").await?;
        assert!(rest.contains("event: gap\n") && rest.matches("data: ").count() == 4, "{rest}");
    }
    // The publisher ends the streams of all nodes.
    let closed = client.delete(&first).bearer_auth("pub-1").send().await?;
    assert_eq!(closed.status(), StatusCode::OK);
    for subscriber in [&mut stays, &mut again] {
        let end = read_until(subscriber, "4001 the room is closed\n\n").await?;
        assert!(end.contains("event: closed\n"), "{end}");
        assert!(subscriber.body_mut().next().await.is_none());
    }
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
        check_alone().unwrap();
    }

    #[test]
    fn a_subscriber_that_comes_back_to_another_node_misses_nothing() {
        check_two_nodes().unwrap();
    }
}
