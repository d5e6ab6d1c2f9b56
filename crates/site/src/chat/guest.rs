//! `Guest`: the handler of a connection in a room.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tidegate::codec::DynOver;
use tidegate::websocket::{Close, CloseCode, Message, MessageRate, WebSocket};
use tidegate::{CloseReason, Context, Handler, Outcome, Room, Visit};

use super::encoded;

type Pipe = DynOver<WebSocket>;
type Cx<'a> = Context<'a, Pipe>;

/// A connection in a room.
pub(super) struct Guest {
    name: Arc<str>,
    room: Room<Pipe, Arc<str>>,
    visit: Option<Visit<Pipe, Arc<str>>>,
    rate: MessageRate,
    per_second: u32,
    /// Messages in a row that the rate has refused.
    refused: u32,
}

impl Guest {
    pub(super) fn new(name: Arc<str>, room: Room<Pipe, Arc<str>>, per_second: u32) -> Self {
        Self { name, room, visit: None, rate: MessageRate::default(), per_second, refused: 0 }
    }

    /// Announces to a small room that the guest comes or goes.
    fn announce(&self, kind: &str) {
        let count = self.room.len();
        if count > ANNOUNCED_MAX {
            return;
        }
        let message = json!({ "type": kind, "name": &*self.name, "count": count });
        // A loop that does not keep up: its members see the next one.
        let _ = self.room.publish_announcement(&message.to_string().into());
    }

    fn text(&mut self, text: &str, cx: &mut Cx<'_>) -> Outcome<Pipe> {
        if !self.rate.take(cx.now(), self.per_second, 2 * self.per_second) {
            self.refused += 1;
            if self.refused > REFUSED_MAX {
                return cx.send(Close::new(CloseCode::POLICY_VIOLATION, "too many messages").into()).into();
            }
            return refuse("Too many messages: wait a moment.", cx);
        }
        self.refused = 0;
        if text.trim().is_empty() {
            return Outcome::Continue;
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        let message = json!({ "type": "message", "name": &*self.name, "text": text, "at": at });
        match self.room.publish(&message.to_string().into()) {
            Ok(()) => Outcome::Continue,
            Err(_) => refuse("The server does not keep up: try again.", cx),
        }
    }
}

impl Handler<Pipe> for Guest {
    type Post = ();

    fn open(&mut self, cx: &mut Cx<'_>) -> Outcome<Pipe> {
        let name = self.name.clone();
        let greeting = |present: &mut dyn Iterator<Item = &Arc<str>>| {
            let names: Vec<Value> = (&mut *present).take(ANNOUNCED_MAX).map(|name| Value::from(&**name)).collect();
            let count = names.len() + present.count();
            encoded(&json!({ "type": "present", "name": &*name, "names": names, "count": count }))
        };
        match self.room.enter(&cx.member(), self.name.clone(), greeting) {
            Ok(visit) => self.visit = Some(visit),
            Err(error) => {
                let close = Close::new(CloseCode::TRY_AGAIN_LATER, error.to_string());
                return cx.send(close.into()).into();
            }
        }
        self.announce("joined");
        Outcome::Continue
    }

    fn message(&mut self, message: Message, cx: &mut Cx<'_>) -> Outcome<Pipe> {
        match message {
            Message::Text(text) => self.text(text.as_str(), cx),
            _ => cx.send(Close::new(CloseCode::UNSUPPORTED_DATA, "messages are texts").into()).into(),
        }
    }

    fn closed(&mut self, _: &CloseReason) {
        if self.visit.take().is_some() {
            self.announce("left");
        }
    }
}

fn refuse(why: &str, cx: &mut Cx<'_>) -> Outcome<Pipe> {
    cx.send(json!({ "type": "refused", "why": why }).to_string().into()).into()
}

/// Members of a room that announces joins and leaves, and names in the list of present members.
const ANNOUNCED_MAX: usize = 100;

/// Messages in a row that the rate refuses before the connection is closed.
const REFUSED_MAX: u32 = 100;
