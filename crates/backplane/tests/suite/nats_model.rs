//! `NatsModel`: a NATS server with the part of JetStream that a node uses: streams with subjects, bounds and republishing, and
//! direct reads. The messages of core NATS are those of the crate's broker.
//!
//! The clock is that of the loop: virtual in a simulated network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tidegate_engine::{CloseReason, Context, Event, Outcome};
use tidegate_nats::{
    Broker, BrokerConfig, Handler, Headers, IncomingClientOperation, MessageView, OutgoingMessage, ServerCodec,
};

use crate::redis_model::{Published, ValueSet};

/// A server. Clones are the same one.
#[derive(Clone)]
pub(crate) struct NatsModel {
    broker: Broker,
    store: Arc<Mutex<Store>>,
}

#[derive(Default)]
struct Store {
    streams: BTreeMap<String, Stream>,
    since: Option<Instant>,
    at: Option<Instant>,
    /// Milliseconds.
    now: i64,
    ahead: i64,
    published: Vec<Published>,
    kicks: Vec<ValueSet>,
}

/// A stream, with its configuration as its creator gave it.
struct Stream {
    config: String,
    subjects: String,
    destination: Option<String>,
    per_subject_max: usize,
    /// Milliseconds.
    age_max: i64,
    is_in_memory: bool,
    last: u64,
    messages: BTreeMap<u64, Stored>,
}

#[derive(Clone)]
struct Stored {
    subject: String,
    payload: Vec<u8>,
    /// Milliseconds.
    at: i64,
}

/// A message that a stream has stored.
struct Kept {
    stream: String,
    sequence: u64,
    /// Where it is published again, and the headers.
    again: Option<(String, String)>,
}

impl NatsModel {
    pub(crate) fn new() -> Self {
        Self { broker: Broker::new(BrokerConfig::default()), store: Arc::default() }
    }

    /// The codec and the handler of a connection.
    pub(crate) fn connection(&self) -> (ServerCodec, ModelHandler) {
        (ServerCodec::default(), ModelHandler { inner: Handler::new(&self.broker), model: self.clone() })
    }

    /// The server starts again, with the streams that are in files or with none.
    pub(crate) fn crash(&self, loses_data: bool) {
        self.store().streams.retain(|_, stream| !(loses_data || stream.is_in_memory));
    }

    /// Sets the server's clock ahead, or back.
    pub(crate) fn step_clock(&self, milliseconds: i64) {
        self.store().ahead += milliseconds;
    }

    /// All messages of rooms, in order.
    pub(crate) fn published(&self) -> Vec<Published> {
        self.store().published.clone()
    }

    /// All kicks that were stored, in order.
    pub(crate) fn kicks(&self) -> Vec<ValueSet> {
        self.store().kicks.clone()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("no panic")
    }

    fn send(&self, subject: &str, headers: &str, payload: Vec<u8>) {
        let mut message = OutgoingMessage::new(subject.to_owned(), payload);
        if !headers.is_empty() {
            message.headers = Some(Headers::from_block(format!("{headers}\r\n")));
        }
        self.broker.send(&message);
    }

    /// Gives a message to the streams. Returns whether it goes on to the subscribers.
    fn receive(&self, message: &MessageView, now: Instant) -> bool {
        let mut store = self.store();
        store.advance(now);
        let subject = String::from_utf8_lossy(message.subject()).into_owned();
        let reply = message.reply().map(|reply| String::from_utf8_lossy(reply).into_owned());
        if let Some(call) = subject.strip_prefix("$JS.API.") {
            let reply = reply.expect("the API is called by requests");
            let json = String::from_utf8_lossy(message.payload()).into_owned();
            for (headers, payload) in store.call(call, &json) {
                self.send(&reply, &headers, payload);
            }
            return false;
        }
        let Some(Kept { stream: name, sequence, again }) = store.keep(&subject, message.payload()) else {
            if subject.starts_with(ROOMS) {
                store.note(&subject, message.payload(), None);
            }
            return true;
        };
        if let Some(reply) = reply {
            self.send(&reply, "", format!("{{\"stream\":\"{name}\",\"seq\":{sequence}}}").into());
        }
        if let Some((destination, headers)) = again {
            self.send(&destination, &headers, message.payload().to_vec());
        }
        // Nothing else subscribes to the subjects of streams.
        false
    }
}

impl Store {
    fn advance(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        self.now = FIRST_TIME + self.ahead + now.saturating_duration_since(since).as_millis() as i64;
        self.at = Some(now);
        let now = self.now;
        for stream in self.streams.values_mut() {
            stream.messages.retain(|_, stored| stored.at + stream.age_max > now);
        }
    }

    fn note(&mut self, channel: &str, payload: &[u8], previous: Option<Vec<u8>>) {
        self.published.push(Published { channel: channel.into(), payload: payload.to_vec(), previous });
    }

    /// Stores a message if there is a stream for it.
    fn keep(&mut self, subject: &str, payload: &[u8]) -> Option<Kept> {
        let (now, at) = (self.now, self.at?);
        let (name, stream) = self.streams.iter_mut().find(|(_, stream)| matches(&stream.subjects, subject))?;
        let of_subject = |stream: &Stream| -> Vec<u64> {
            stream
                .messages
                .iter()
                .filter(|(_, stored)| stored.subject == subject)
                .map(|(sequence, _)| *sequence)
                .collect()
        };
        let before = of_subject(stream).last().copied();
        let previous = before.map(|before| stream.messages[&before].payload.clone());
        stream.last += 1;
        let stored = Stored { subject: subject.to_owned(), payload: payload.to_vec(), at: now };
        let headers = stored.headers(name, stream.last, &format!("Nats-Last-Sequence: {}\r\n", before.unwrap_or(0)));
        stream.messages.insert(stream.last, stored);
        let all = of_subject(stream);
        for sequence in all.iter().take(all.len().saturating_sub(stream.per_subject_max)) {
            stream.messages.remove(sequence);
        }
        let destination = stream.destination.as_ref().map(|destination| {
            let token = subject.rsplit('.').next().expect("a token");
            destination.replace("{{wildcard(1)}}", token)
        });
        let (name, last) = (name.clone(), stream.last);
        if let Some(destination) = &destination {
            self.note(destination, payload, previous);
        }
        if subject.starts_with(KICKS) && !payload.is_empty() {
            self.kicks.push(ValueSet { key: subject.into(), value: payload.to_vec(), at });
        }
        Some(Kept { stream: name, sequence: last, again: destination.map(|destination| (destination, headers)) })
    }

    /// The replies to a call of the API: headers and payload.
    fn call(&mut self, call: &str, json: &str) -> Vec<(String, Vec<u8>)> {
        let (operation, name) = call.rsplit_once('.').expect("the name of a stream");
        if operation == "DIRECT.GET" {
            return match self.streams.get(name) {
                Some(stream) => stream.read(name, json),
                // Nothing answers for a stream that is not there.
                None => vec![("NATS/1.0 503\r\n".to_owned(), Vec::new())],
            };
        }
        if operation == "STREAM.CREATE" {
            match self.streams.get(name) {
                Some(stream) if stream.config != json => return vec![(String::new(), error(400, 10_058))],
                Some(_) => {}
                None => drop(self.streams.insert(name.to_owned(), Stream::of(json))),
            }
        }
        let Some(stream) = self.streams.get(name) else { return vec![(String::new(), error(404, 10_059))] };
        let state = format!("{{\"messages\":{},\"last_seq\":{}}}", stream.messages.len(), stream.last);
        vec![(String::new(), format!("{{\"config\":{},\"state\":{state}}}", stream.config).into())]
    }
}

impl Stream {
    fn of(json: &str) -> Self {
        let number = |name| field(json, name).and_then(|value| value.parse().ok());
        let subjects =
            field(json, "subjects").expect("subjects").trim_start_matches(['[', '"']).trim_end_matches([']', '"']);
        Self {
            subjects: subjects.to_owned(),
            destination: field(json, "dest").map(|dest| dest.trim_matches('"').to_owned()),
            per_subject_max: number("max_msgs_per_subject").map_or(usize::MAX, |number: i64| number as usize),
            age_max: number("max_age").map_or(i64::MAX / 2, |nanoseconds: i64| nanoseconds / 1_000_000),
            is_in_memory: field(json, "storage") == Some("\"memory\""),
            config: json.to_owned(),
            last: 0,
            messages: BTreeMap::new(),
        }
    }

    fn read(&self, name: &str, json: &str) -> Vec<(String, Vec<u8>)> {
        let filter = |name| field(json, name).map(|filter| filter.trim_matches('"'));
        let none = || vec![("NATS/1.0 404 Message Not Found\r\n".to_owned(), Vec::new())];
        if let Some(filter) = filter("last_by_subj") {
            let last = self.messages.iter().rev().find(|(_, stored)| matches(filter, &stored.subject));
            return last.map_or_else(none, |(sequence, stored)| vec![stored.reply(name, *sequence, "")]);
        }
        let first: u64 = field(json, "seq").and_then(|seq| seq.parse().ok()).expect("a sequence");
        let Some(filter) = filter("next_by_subj") else {
            return self.messages.get(&first).map_or_else(none, |stored| vec![stored.reply(name, first, "")]);
        };
        let batch: usize = field(json, "batch").and_then(|batch| batch.parse().ok()).expect("a batch");
        let found = self.messages.range(first..).filter(|(_, stored)| matches(filter, &stored.subject));
        let pending = "Nats-Num-Pending: 0\r\n";
        let mut replies: Vec<_> =
            found.take(batch).map(|(sequence, stored)| stored.reply(name, *sequence, pending)).collect();
        if replies.is_empty() {
            return none();
        }
        replies.push((format!("NATS/1.0 204 EOB\r\n{pending}"), Vec::new()));
        replies
    }
}

impl Stored {
    fn headers(&self, stream: &str, sequence: u64, more: &str) -> String {
        let (subject, (days, milliseconds)) = (&self.subject, (self.at / DAY + 1, self.at % DAY));
        let (seconds, fraction) = (milliseconds / 1000, milliseconds % 1000);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let time = format!("2026-01-{days:02}T{hours:02}:{minutes:02}:{seconds:02}.{fraction:03}Z");
        format!(
            "NATS/1.0\r\nNats-Stream: {stream}\r\nNats-Subject: {subject}\r\nNats-Sequence: {sequence}\r\n\
             Nats-Time-Stamp: {time}\r\n{more}"
        )
    }

    fn reply(&self, stream: &str, sequence: u64, more: &str) -> (String, Vec<u8>) {
        (self.headers(stream, sequence, more), self.payload.clone())
    }
}

/// The value of a field, as it is written. No value of these requests has a comma or a brace in it, but for lists of one.
fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let end = rest.find([',', '}']).unwrap_or(rest.len());
    // The braces of a template are part of a text.
    let end = match rest.strip_prefix('"') {
        Some(text) => text.find('"').map_or(end, |quote| quote + 2),
        None => end,
    };
    Some(&rest[..end])
}

fn error(code: u16, err_code: u16) -> Vec<u8> {
    format!("{{\"error\":{{\"code\":{code},\"err_code\":{err_code},\"description\":\"\"}}}}").into()
}

fn matches(filter: &str, subject: &str) -> bool {
    let tokens = (filter.split('.'), subject.split('.'));
    tokens.0.clone().count() == tokens.1.clone().count()
        && tokens.0.zip(tokens.1).all(|(wanted, token)| wanted == "*" || wanted == token)
}

/// A connection, whose messages the streams see first.
pub(crate) struct ModelHandler {
    inner: Handler,
    model: NatsModel,
}

type Post = <Handler as tidegate_engine::Handler<ServerCodec>>::Post;

impl tidegate_engine::Handler<ServerCodec> for ModelHandler {
    type Post = Post;

    fn open(&mut self, cx: &mut Context<'_, ServerCodec, Post>) -> Outcome<ServerCodec> {
        self.inner.open(cx)
    }

    fn message(
        &mut self,
        message: IncomingClientOperation,
        cx: &mut Context<'_, ServerCodec, Post>,
    ) -> Outcome<ServerCodec> {
        if let IncomingClientOperation::Publish(message) = &message
            && !self.model.receive(message, cx.now())
        {
            return Outcome::Continue;
        }
        self.inner.message(message, cx)
    }

    fn event(&mut self, event: Event<Post>, cx: &mut Context<'_, ServerCodec, Post>) -> Outcome<ServerCodec> {
        self.inner.event(event, cx)
    }

    fn closed(&mut self, reason: &CloseReason) {
        tidegate_engine::Handler::<ServerCodec>::closed(&mut self.inner, reason);
    }
}

const ROOMS: &str = "tidegate.room.";
const KICKS: &str = "tidegate.kick.";
const DAY: i64 = 86_400_000;
/// The server's time at its first message: a day in the middle of a month.
const FIRST_TIME: i64 = 14 * DAY;
