//! A push server: subscribers of a room get the messages that publishers post to it. Both need a token.
//!
//! ```text
//! cargo run --example push                      # checks itself, and ends
//! cargo run --example push -- 127.0.0.1:8080    # serves
//! cargo run --example push -- 127.0.0.1:8081 redis://127.0.0.1:6379    # one of several nodes; nats:// as well
//! cargo run --example push -- --follow 'ws://127.0.0.1:8080/rooms/tides?token=sub-1'
//! curl -H 'Authorization: Bearer pub-1' -d 'high water' http://127.0.0.1:8080/rooms/tides
//! ```
//!
//! With a backplane, publishers and subscribers of a room may be on different nodes: `docs/guide/backplane.md`. The check runs two
//! nodes in one process.
//!
//! A subscriber is a handler without state, so a hundred thousand of them cost little: `docs/guide/http/push.md`. One
//! that reads slowly misses messages, and holds up nothing. `sse_push.rs` is the same with Server-Sent Events.

#![forbid(unsafe_code)]

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::Deserialize;
use tidegate::backplane::{Backplane, MemoryBroker};
use tidegate::codec::{DynOver, Encoded, Filters};
use tidegate::http::client::{ClientError, Reconnect, WebSocketChannel};
use tidegate::http::{
    Client, HeaderMap, IntoResponse, Limits, Path, Query, Response, Router, Server, State, StatusCode, WebSocketUpgrade,
};
use tidegate::websocket::{Config, Deflate, Message, WebSocket};
use tidegate::{
    Backend, Context, EventLoop, Handler, Outcome, Room, RoomLimits, Rooms, ServerHandle, Slow, StartError, Visit,
};

type Any = Box<dyn Error>;
type Pipe = DynOver<WebSocket>;

/// Permissions. A service has these in a database, or checks a signature.
fn may_subscribe(token: &str) -> bool {
    token.starts_with("sub-")
}

fn may_publish(token: &str) -> bool {
    token.starts_with("pub-")
}

/// A connection that receives the messages published in a room.
struct Subscriber {
    room: Room<Pipe>,
    visit: Option<Visit<Pipe>>,
}

impl Handler<Pipe> for Subscriber {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Pipe>) -> Outcome<Pipe> {
        match self.room.enter(&cx.member(), (), |_| None) {
            Ok(visit) => self.visit = Some(visit),
            Err(error) => return Outcome::fail(error),
        }
        Outcome::Continue
    }

    /// A subscriber has nothing to send.
    fn message(&mut self, _: Message, _: &mut Context<'_, Pipe>) -> Outcome<Pipe> {
        Outcome::Close
    }
}

/// A browser cannot add fields to the request of a WebSocket, so the token is in the query: keep it out of access logs,
/// and let it expire soon.
#[derive(Deserialize)]
struct Subscription {
    token: String,
}

/// `GET /rooms/{room}?token=TOKEN`
fn subscribe(
    State(rooms): State<Rooms<Pipe>>,
    Path(name): Path<String>,
    Query(Subscription { token }): Query<Subscription>,
    upgrade: WebSocketUpgrade,
) -> Response {
    if !may_subscribe(&token) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Some(room) = rooms.room(&name) else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    upgrade.any_origin().config(&CONFIG).handler(Subscriber { room, visit: None })
}

/// `POST /rooms/{room}`
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn publish(
    State(rooms): State<Rooms<Pipe>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: String,
) -> Result<String, StatusCode> {
    let token = headers.get("Authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if !token.is_some_and(may_publish) {
        return Err(StatusCode::UNAUTHORIZED);
    }
    let room = rooms.room(&name).ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let mut codec = Filters::default().stack(WebSocket::server(CONFIG.clone(), None));
    let message = Encoded::new(&mut codec, Message::from(text)).map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    room.send(&message).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(format!("{}\n", room.len()))
}

/// Subscribers send nothing but pongs, and compression is for those that offer it.
static CONFIG: LazyLock<Arc<Config>> = LazyLock::new(|| {
    let mut config = Config::default();
    config.message_bytes_max = 1024;
    config.ping_interval = Some(Duration::from_secs(60));
    config.deflate = Some(Deflate::default());
    // At a restart subscribers go to other nodes one after the other.
    config.drain_spread = Some(Duration::from_secs(3));
    Arc::new(config)
});

/// A node. Its rooms are those of all nodes with the same broker.
fn start(address: &str, backplane: Option<&Backplane>) -> Result<ServerHandle, StartError> {
    let mut room_limits = RoomLimits::default();
    room_limits.history_max = 1;
    room_limits.members_max = 1_000_000;
    let rooms = Rooms::new(Slow::Skip, room_limits);
    let rooms = match backplane {
        Some(backplane) => rooms.with(backplane),
        None => rooms,
    };
    let mut limits = Limits::default();
    limits.collected_body_bytes_max = 16 * 1024;
    Server::bind(address)?
        .limits(limits)
        .start(move || Router::with_state(rooms.clone()).get("/rooms/{room}", subscribe).post("/rooms/{room}", publish))
}

/// Reads a room's messages up to the last one, and comes back whenever the connection ends.
async fn follow(client: &Client, uri: &str, mut is_last: impl FnMut(&str) -> bool) -> Result<(), ClientError> {
    let read = async |mut channel: WebSocketChannel| {
        while let Ok(Some(message)) = channel.recv().await {
            if let Message::Text(text) = message
                && is_last(text.as_str())
            {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    };
    Reconnect::new().run(|| client.websocket(uri), read).await
}

fn main() -> Result<(), Any> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [flag, uri] = &arguments[..]
        && flag == "--follow"
    {
        let uri = uri.clone();
        return Ok(EventLoop::on(Backend::Auto)?.block_on(async move {
            let print = |text: &str| {
                println!("{text}");
                false
            };
            follow(&Client::new(), &uri, print).await
        })??);
    }
    if let Some(address) = arguments.first() {
        let backplane = arguments.get(1).map(|url| Backplane::at(url)).transpose()?;
        let backplane = backplane.map(|builder| builder.spawn()).transpose()?;
        let server = start(address, backplane.as_ref())?;
        println!("listening on http://{}", server.address());
        server.wait();
        return Ok(());
    }
    println!("{} subscribers have the message", check_alone()?);
    println!("{} subscribers of two nodes have the message", check_two_nodes()?);
    Ok(())
}

/// One node, whose subscribers and publishers have the same address.
fn check_alone() -> Result<usize, Any> {
    let server = start("127.0.0.1:0", None)?;
    let address = server.address().to_string();
    let received = EventLoop::on(Backend::Auto)?.block_on(check([address.clone(), address]))??;
    server.drain(Duration::from_secs(5));
    Ok(received)
}

/// Two nodes with a broker in memory: publishers use the first one, and a subscriber is on each.
fn check_two_nodes() -> Result<usize, Any> {
    let broker = MemoryBroker::new();
    let node =
        || -> Result<ServerHandle, Any> { Ok(start("127.0.0.1:0", Some(&Backplane::memory(&broker).spawn()?))?) };
    let nodes = [node()?, node()?];
    let addresses = nodes.each_ref().map(|node| node.address().to_string());
    let received = EventLoop::on(Backend::Auto)?.block_on(check(addresses))??;
    nodes.into_iter().for_each(|node| node.drain(Duration::from_secs(5)));
    Ok(received)
}

/// Three subscribers, of which one comes late, and those that may not.
async fn check([first, second]: [String; 2]) -> Result<usize, Any> {
    let client = Client::new();
    let rooms = format!("http://{first}/rooms/tides");
    let room = |number: usize| format!("ws://{}/rooms/tides", if number.is_multiple_of(2) { &first } else { &second });
    for token in ["", "?token=", "?token=pub-1"] {
        assert!(client.websocket(format!("{}{token}", room(0))).open().await.is_err(), "{token}");
    }
    let refused = client.post(&rooms).bearer_auth("sub-1").body("ebb").send().await?;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);

    let mut subscribers = Vec::new();
    for number in 0..2 {
        subscribers.push(client.websocket(format!("{}?token=sub-{number}", room(number))).open().await?);
    }
    // The 101 may be here before the subscriber is in the room: a publisher learns how many there are, on all nodes.
    while client.post(&rooms).bearer_auth("pub-1").body("high water").send().await?.text().await? != "2\n" {}
    // The room has a history of one message, for those that come late.
    follow(&client, &format!("{}?token=sub-3", room(3)), |text| text == "high water").await?;
    let count = subscribers.len() + 1;
    for mut subscriber in subscribers {
        let Some(Message::Text(text)) = subscriber.recv().await? else { return Err("no text".into()) };
        assert_eq!(text, "high water");
        subscriber.abort();
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_with_a_token_get_the_messages_of_publishers_with_a_token() {
        assert_eq!(check_alone().unwrap(), 3);
    }

    #[test]
    fn subscribers_of_another_node_get_them_too() {
        assert_eq!(check_two_nodes().unwrap(), 3);
    }
}
