//! A push server: subscribers of a room receive what publishers post to it.
//!
//! | request | response |
//! |---|---|
//! | `GET /rooms/{room}?token=TOKEN` as a WebSocket | the messages of the room, the last one first |
//! | `POST /rooms/{room}` with `Authorization: Bearer TOKEN` | the number of subscribers |
//!
//! `subscriber.rs` is a connection in a room, `tokens.rs` decides who may do what, `settings.rs` reads the configuration,
//! `main.rs` starts the server. `tests/rooms.rs` tests the rooms on a simulated network.

#![forbid(unsafe_code)]

pub mod settings;
mod subscriber;
mod tokens;

use serde::Deserialize;
use tidegate::codec::{DynOver, Encoded, Filters};
use tidegate::http::{
    HeaderMap, IntoResponse, Path, Query, Response, Router, State, StatusCode, WebSocketUpgrade,
};
use tidegate::websocket::{Message, WebSocket};
use tidegate::{RoomLimits, Rooms, Slow};

use crate::subscriber::{Subscriber, config};

/// The pipeline of a connection: a WebSocket, over TLS or not.
pub type Pipe = DynOver<WebSocket>;

/// The rooms of the server. A subscriber that reads slowly misses messages, and delays nobody else.
pub fn rooms() -> Rooms<Pipe> {
    let mut limits = RoomLimits::default();
    limits.history_max = 1;
    Rooms::new(Slow::Skip, limits)
}

/// The routes. Each loop has a router of its own, and all of them share the rooms.
pub fn router(rooms: Rooms<Pipe>) -> Router<Rooms<Pipe>> {
    Router::with_state(rooms)
        .get("/rooms/{room}", subscribe)
        .post("/rooms/{room}", publish)
}

/// A browser cannot add fields to the request of a WebSocket, so the token is in the query. Let it expire soon.
#[derive(Debug, Deserialize)]
struct Subscription {
    token: String,
}

fn subscribe(
    State(rooms): State<Rooms<Pipe>>,
    Path(name): Path<String>,
    Query(Subscription { token }): Query<Subscription>,
    upgrade: WebSocketUpgrade,
) -> Response {
    if !tokens::may_subscribe(&token) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    // There is a bound on the number of rooms.
    let Some(room) = rooms.room(&name) else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    upgrade
        .any_origin()
        .config(config())
        .handler(Subscriber::new(room))
}

fn publish(
    State(rooms): State<Rooms<Pipe>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    text: String,
) -> Result<String, StatusCode> {
    let token = headers
        .get("Authorization")
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if !token.is_some_and(tokens::may_publish) {
        return Err(StatusCode::UNAUTHORIZED);
    }
    let room = rooms.room(&name).ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    // The message is encoded once, for all subscribers.
    let mut codec = Filters::default().stack(WebSocket::server(config().clone(), None));
    let message =
        Encoded::new(&mut codec, Message::from(text)).map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    room.send(&message)
        .map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(room.len().to_string())
}
