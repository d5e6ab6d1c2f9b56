//! The handler of one connection.

use std::time::Duration;

use tidegate::{CloseReason, Context, Event, Handler, Outcome};

use crate::packet::{Connect, Message, Mqtt, Request, Response, SERVER_UNAVAILABLE, SUBSCRIPTION_FAILED};
use crate::sessions::{Connected, Post, Sessions, SharedBacklog, lock};

type Cx<'a> = Context<'a, Mqtt, Post>;

/// One connection of a client.
pub(crate) struct Connection {
    sessions: Sessions,
    client: Box<str>,
    /// The number of the connection, and the backlog of its session, from CONNECT on.
    connected: Option<(u64, SharedBacklog)>,
    keep_alive: Option<Duration>,
    /// Published unless the client disconnects in good order.
    will: Option<Box<Message>>,
}

impl Connection {
    pub(crate) fn new(sessions: Sessions) -> Self {
        Self { sessions, client: Box::default(), connected: None, keep_alive: None, will: None }
    }

    fn connect(&mut self, connect: Connect, cx: &mut Cx<'_>) -> Outcome<Mqtt> {
        self.client = connect.client;
        if self.client.is_empty() {
            self.client = format!("anonymous-{}", cx.id()).into();
        }
        let Some(connected) = self.sessions.connect(&self.client, connect.clean, cx.remote()) else {
            return match cx.send(Response::ConnectAck { present: false, code: SERVER_UNAVAILABLE }) {
                Ok(_) => Outcome::Close,
                Err(error) => Outcome::fail(error),
            };
        };
        let Connected { number, is_present, backlog } = connected;
        self.connected = Some((number, backlog));
        self.will = connect.will.map(Box::new);
        // A client may be late by half of its keep-alive time (MQTT 3.1.1 §3.1.2.10).
        let keep_alive = Duration::from_secs(connect.keep_alive.into()) * 3 / 2;
        self.keep_alive = (!keep_alive.is_zero()).then_some(keep_alive);
        cx.deadline(self.keep_alive.map(|after| cx.now() + after));
        if let Err(error) = cx.send(Response::ConnectAck { present: is_present, code: 0 }) {
            return Outcome::fail(error);
        }
        self.repeat(cx)
    }

    /// Sends the messages once more that the client did not acknowledge on its last connection.
    fn repeat(&mut self, cx: &mut Cx<'_>) -> Outcome<Mqtt> {
        let Some((_, backlog)) = &self.connected else { return Outcome::Continue };
        for (id, message) in &lock(backlog).in_flight {
            let (message, id) = (message.clone(), Some(*id));
            if let Err(error) = cx.send(Response::Publish { message, id, duplicate: true }) {
                return Outcome::fail(error);
            }
        }
        self.send_waiting(cx)
    }

    /// Sends messages of the backlog while the client reads and acknowledges.
    fn send_waiting(&mut self, cx: &mut Cx<'_>) -> Outcome<Mqtt> {
        let Some((number, backlog)) = &self.connected else { return Outcome::Continue };
        let mut backlog = lock(backlog);
        if backlog.owner != *number {
            return Outcome::Continue;
        }
        backlog.settle();
        while cx.is_writable() {
            let Some((id, message)) = backlog.next() else { break };
            if let Err(error) = cx.send(Response::Publish { message, id: Some(id), duplicate: false }) {
                return Outcome::fail(error);
            }
        }
        Outcome::Continue
    }

    /// Sends a message of QoS 0, unless the client is slow.
    fn deliver(message: Message, cx: &mut Cx<'_>) -> Outcome<Mqtt> {
        if !cx.is_writable() {
            return Outcome::Continue;
        }
        cx.send(Response::Publish { message, id: None, duplicate: false }).into()
    }

    fn subscribe(&mut self, id: u16, filters: &[(Box<str>, u8)], cx: &mut Cx<'_>) -> Outcome<Mqtt> {
        let (mut codes, mut retained) = (Vec::with_capacity(filters.len()), Vec::new());
        for (filter, qos) in filters {
            let qos = (*qos).min(1);
            let found = self.sessions.subscribe(&self.client, filter, qos);
            codes.push(if found.is_some() { qos } else { SUBSCRIPTION_FAILED });
            retained.extend(found.into_iter().flatten());
        }
        if let Err(error) = cx.send(Response::SubscribeAck { id, codes }) {
            return Outcome::fail(error);
        }
        for message in retained {
            if message.qos > 0 {
                self.sessions.deliver_to(&self.client, message);
            } else if let outcome @ Outcome::Fail(_) = Self::deliver(message, cx) {
                return outcome;
            }
        }
        Outcome::Continue
    }
}

impl Handler<Mqtt> for Connection {
    type Post = Post;

    fn open(&mut self, cx: &mut Cx<'_>) -> Outcome<Mqtt> {
        cx.deadline_after(CONNECT_TIMEOUT);
        Outcome::Continue
    }

    fn message(&mut self, request: Request, cx: &mut Cx<'_>) -> Outcome<Mqtt> {
        if let Some(after) = self.keep_alive {
            cx.deadline_after(after);
        }
        match request {
            Request::Connect(connect) => self.connect(connect, cx),
            Request::Publish { message, id } => {
                self.sessions.publish(&message);
                if message.qos == 0 { Outcome::Continue } else { cx.send(Response::PublishAck { id }).into() }
            }
            Request::Acknowledge { id } => {
                if let Some((_, backlog)) = &self.connected {
                    lock(backlog).acknowledge(id);
                }
                self.send_waiting(cx)
            }
            Request::Subscribe { id, filters } => self.subscribe(id, &filters, cx),
            Request::Unsubscribe { id, filters } => {
                filters.iter().for_each(|filter| self.sessions.unsubscribe(&self.client, filter));
                cx.send(Response::UnsubscribeAck { id }).into()
            }
            Request::Ping => cx.send(Response::PingResp).into(),
            Request::Disconnect => {
                self.will = None;
                Outcome::Close
            }
        }
    }

    fn event(&mut self, event: Event<Post>, cx: &mut Cx<'_>) -> Outcome<Mqtt> {
        match event {
            Event::Posted(Post::Deliver(message)) => Self::deliver(message, cx),
            Event::Posted(Post::Wake) | Event::Writable => self.send_waiting(cx),
            Event::Posted(Post::Superseded) | Event::Deadline => Outcome::Close,
            other => other.by_default(cx),
        }
    }

    fn closed(&mut self, _: &CloseReason) {
        let Some((number, _)) = self.connected.take() else { return };
        if let Some(will) = self.will.take() {
            self.sessions.publish(&will);
        }
        self.sessions.disconnect(&self.client, number);
    }
}

/// A client sends CONNECT within this time.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
