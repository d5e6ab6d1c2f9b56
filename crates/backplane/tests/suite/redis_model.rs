//! `RedisModel`: a server with the commands that a node sends to Redis. The scripts of `src/redis/scripts.rs` run as Rust.
//!
//! A script is recognised by its text, so a changed script is unknown until its source is the model's again, and
//! `differences.rs` compares model and redis-server. The clock is that of the loop: virtual in a simulated network.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use sha1::{Digest as _, Sha1};
use tidegate_engine::{Server, ServerHandle};
use tidegate_redis::{
    AggregateKind, Answer, CallContext, Channels, Command, Handler, HandlerConfig, OutgoingReply, ServerCodec, Service,
};

/// The data and the subscribers of a server. Clones are the same server.
#[derive(Clone, Default)]
pub(crate) struct RedisModel {
    store: Arc<Mutex<Store>>,
    channels: Channels,
}

impl RedisModel {
    /// The codec and the handler of a connection.
    pub(crate) fn connection(&self) -> (ServerCodec, Handler<ModelService>) {
        let service = ModelService(self.clone());
        let handler = Handler::with(service, Arc::new(HandlerConfig::default()), self.channels.clone());
        let mut store = self.store();
        store.connections += 1;
        (ServerCodec::default(), handler.client_id(store.connections))
    }

    /// Serves on the loopback address, until the handle is dropped.
    pub(crate) fn serve(&self) -> ServerHandle {
        let model = self.clone();
        let server = Server::bind("127.0.0.1:0").expect("a port").loops(1);
        let each = move |_| {
            let model = model.clone();
            move |_: &_| model.connection()
        };
        server.start_each(each).expect("it starts")
    }

    /// Forgets all keys and scripts, as a server without persistence that starts again.
    pub(crate) fn lose_data(&self) {
        let mut store = self.store();
        store.keys.clear();
        store.scripts.clear();
    }

    /// The data, for [`go_back`](Self::go_back).
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(self.store().keys.clone())
    }

    /// Has the data of an earlier moment, as a replica that lacks the last commands and becomes the master.
    pub(crate) fn go_back(&self, snapshot: &Snapshot) {
        self.store().keys.clone_from(&snapshot.0);
    }

    /// Sets the server's clock ahead, or back.
    pub(crate) fn step_clock(&self, milliseconds: i64) {
        self.store().ahead += milliseconds;
    }

    /// All messages of channels, in order.
    pub(crate) fn published(&self) -> Vec<Published> {
        self.store().published.clone()
    }

    /// All values that were set with a lifetime, in order.
    pub(crate) fn values_set(&self) -> Vec<ValueSet> {
        self.store().values_set.clone()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("no panic")
    }
}

/// The commands of one connection.
pub(crate) struct ModelService(RedisModel);

impl Service for ModelService {
    fn call(&mut self, command: &Command, cx: &CallContext) -> Answer {
        let mut store = self.0.store();
        store.advance(cx.now);
        let arguments: Vec<_> = command.arguments().collect();
        match store.execute(&command.name().to_ascii_uppercase(), &arguments, &self.0.channels) {
            Some(reply) => reply.unwrap_or_else(|WrongType| OutgoingReply::error(WRONG_TYPE)).into(),
            None => Answer::Unknown,
        }
    }
}

/// The data of a server at one moment.
#[derive(Default)]
pub(crate) struct Snapshot(HashMap<Vec<u8>, Key>);

/// A message of a channel.
#[derive(Clone)]
pub(crate) struct Published {
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    /// The entry of the history before it, if the script has appended it.
    pub(crate) previous: Option<Vec<u8>>,
}

/// A SET with a lifetime.
#[derive(Clone)]
pub(crate) struct ValueSet {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) at: Instant,
}

#[derive(Default)]
struct Store {
    keys: HashMap<Vec<u8>, Key>,
    connections: u64,
    published: Vec<Published>,
    values_set: Vec<ValueSet>,
    /// The time of the loop.
    at: Option<Instant>,
    /// How far the clock was set ahead, in milliseconds.
    ahead: i64,
    scripts: HashMap<Vec<u8>, ModelScript>,
    /// The time of the first command, which is [`FIRST_TIME`].
    since: Option<Instant>,
    /// Milliseconds.
    now: i64,
}

#[derive(Clone)]
struct Key {
    value: StoredValue,
    expires_at: Option<i64>,
}

#[derive(Clone)]
enum StoredValue {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    /// In the order of the first writes, as small ones are in Redis.
    Hash(Fields),
}

/// Names and values.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug)]
struct WrongType;

type ModelReply = Result<OutgoingReply, WrongType>;

#[derive(Clone, Copy)]
enum ModelScript {
    Publish,
    Read,
    Presence,
}

impl ModelScript {
    fn of(source: &[u8]) -> Option<Self> {
        let all = [("PUBLISH", Self::Publish), ("READ", Self::Read), ("PRESENCE", Self::Presence)];
        all.into_iter().find(|(name, _)| source == script_source(name).as_bytes()).map(|(_, script)| script)
    }
}

/// The source of a script of the crate.
pub(crate) fn script_source(name: &str) -> &'static str {
    let file = include_str!("../../src/redis/scripts.rs");
    let (_, source) = file.split_once(&format!("{name}_SOURCE: &str = r\"")).expect("the script");
    source.split_once('"').expect("its end").0
}

impl Store {
    fn advance(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        self.now = FIRST_TIME + self.ahead + now.saturating_duration_since(since).as_millis() as i64;
        self.at = Some(now);
    }

    /// Sends a message to the subscribers of a channel. Returns how many there are.
    fn multicast(&mut self, channels: &Channels, channel: &[u8], payload: &[u8], previous: Option<Vec<u8>>) -> usize {
        self.published.push(Published { channel: channel.to_vec(), payload: payload.to_vec(), previous });
        channels.publish(channel, payload)
    }

    fn execute(&mut self, name: &[u8], arguments: &[&[u8]], channels: &Channels) -> Option<ModelReply> {
        Some(match (name, arguments) {
            (b"TIME", []) => {
                let parts = [self.now / 1000, self.now % 1000 * 1000].map(|part| bulk(part.to_string()));
                Ok(OutgoingReply::array(parts))
            }
            (b"PUBLISH", [channel, message]) => {
                Ok(OutgoingReply::Integer(self.multicast(channels, channel, message, None) as i64))
            }
            (b"SCRIPT", [what, source]) if what.eq_ignore_ascii_case(b"LOAD") => Ok(self.load(source)),
            (b"SCRIPT", [what]) if what.eq_ignore_ascii_case(b"FLUSH") => {
                self.scripts.clear();
                Ok(OutgoingReply::ok())
            }
            (b"EVAL", [source, count, rest @ ..]) => match ModelScript::of(source) {
                Some(script) => {
                    self.load(source);
                    self.run(script, count, rest, channels)
                }
                None => Ok(OutgoingReply::error("ERR the model has no such script")),
            },
            (b"EVALSHA", [hash, count, rest @ ..]) => match self.scripts.get(&hash.to_ascii_lowercase()) {
                Some(script) => self.run(*script, count, rest, channels),
                None => Ok(OutgoingReply::error("NOSCRIPT No matching script. Please use EVAL.")),
            },
            _ => return self.execute_on_key(name, arguments),
        })
    }

    fn execute_on_key(&mut self, name: &[u8], arguments: &[&[u8]]) -> Option<ModelReply> {
        Some(match (name, arguments) {
            (b"SET", [key, value]) => Ok(self.set(key, value, None)),
            (b"SET", [key, value, unit, time]) if unit.eq_ignore_ascii_case(b"PX") => match number(time) {
                Some(time) if time > 0 => {
                    let at = self.at.expect("a command is executed");
                    self.values_set.push(ValueSet { key: key.to_vec(), value: value.to_vec(), at });
                    Ok(self.set(key, value, Some(self.now + time)))
                }
                _ => Ok(OutgoingReply::error("ERR invalid expire time in 'set' command")),
            },
            (b"GET", [key]) => self.get(key).map(|value| value.map_or(OutgoingReply::Null, bulk)),
            (b"DEL", [key]) => Ok(OutgoingReply::Integer(self.remove(key).into())),
            (b"PTTL", [key]) => Ok(OutgoingReply::Integer(self.time_left(key))),
            (b"HSET", [key, field, value]) => {
                self.write_field(key, field, value.to_vec()).map(|is_new| OutgoingReply::Integer(is_new.into()))
            }
            (b"HGETALL", [key]) => self
                .fields(key)
                .map(|all| OutgoingReply::array(all.into_iter().flat_map(|(name, value)| [bulk(name), bulk(value)]))),
            (b"RPUSH", [key, entry]) => self.push(key, entry).map(|length| OutgoingReply::Integer(length as i64)),
            (b"LRANGE", [key, b"0", b"-1"]) => {
                self.entries(key).map(|all| OutgoingReply::array(all.into_iter().map(bulk)))
            }
            _ => return None,
        })
    }

    fn load(&mut self, source: &[u8]) -> OutgoingReply {
        let Some(script) = ModelScript::of(source) else {
            return OutgoingReply::error("ERR the model has no such script");
        };
        let hash: String = Sha1::digest(source).iter().map(|byte| format!("{byte:02x}")).collect();
        self.scripts.insert(hash.clone().into_bytes(), script);
        bulk(hash)
    }

    fn run(&mut self, script: ModelScript, count: &[u8], rest: &[&[u8]], channels: &Channels) -> ModelReply {
        let count = number(count).and_then(|count| usize::try_from(count).ok()).filter(|count| *count <= rest.len());
        let Some(count) = count else {
            return Ok(OutgoingReply::error("ERR Number of keys can't be greater than number of args"));
        };
        let (keys, arguments) = rest.split_at(count);
        match script {
            ModelScript::Publish => self.publish(keys, arguments, channels),
            ModelScript::Read => self.read(keys, arguments),
            ModelScript::Presence => self.presence(keys, arguments, channels),
        }
    }
}

/// The commands of scripts.
impl Store {
    fn value(&mut self, key: &[u8]) -> Option<&mut StoredValue> {
        if self.keys.get(key).is_some_and(|key| key.expires_at.is_some_and(|at| at <= self.now)) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key).map(|key| &mut key.value)
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        self.value(key).is_some() && self.keys.remove(key).is_some()
    }

    fn set(&mut self, key: &[u8], value: &[u8], expires_at: Option<i64>) -> OutgoingReply {
        self.keys.insert(key.to_vec(), Key { value: StoredValue::Text(value.to_vec()), expires_at });
        OutgoingReply::ok()
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, WrongType> {
        match self.value(key) {
            None => Ok(None),
            Some(StoredValue::Text(text)) => Ok(Some(text.clone())),
            Some(_) => Err(WrongType),
        }
    }

    fn time_left(&mut self, key: &[u8]) -> i64 {
        if self.value(key).is_none() {
            return -2;
        }
        self.keys[key].expires_at.map_or(-1, |at| at - self.now)
    }

    fn expire(&mut self, key: &[u8], milliseconds: i64) {
        if self.value(key).is_some()
            && let Some(key) = self.keys.get_mut(key)
        {
            key.expires_at = Some(self.now + milliseconds);
        }
    }

    fn fields(&mut self, key: &[u8]) -> Result<Fields, WrongType> {
        match self.value(key) {
            None => Ok(Vec::new()),
            Some(StoredValue::Hash(fields)) => Ok(fields.clone()),
            Some(_) => Err(WrongType),
        }
    }

    fn field(&mut self, key: &[u8], name: &str) -> Result<Option<Vec<u8>>, WrongType> {
        let fields = self.fields(key)?;
        Ok(fields.into_iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| value))
    }

    fn new_key(&mut self, key: &[u8], value: StoredValue) -> &mut StoredValue {
        if self.value(key).is_none() {
            self.keys.insert(key.to_vec(), Key { value, expires_at: None });
        }
        &mut self.keys.get_mut(key).expect("it was added").value
    }

    /// Whether the field is new.
    fn write_field(&mut self, key: &[u8], name: &[u8], value: Vec<u8>) -> Result<bool, WrongType> {
        let StoredValue::Hash(fields) = self.new_key(key, StoredValue::Hash(Vec::new())) else { return Err(WrongType) };
        if let Some((_, before)) = fields.iter_mut().find(|(field, _)| field == name) {
            *before = value;
            return Ok(false);
        }
        fields.push((name.to_vec(), value));
        Ok(true)
    }

    fn remove_field(&mut self, key: &[u8], name: &[u8]) {
        let Some(StoredValue::Hash(fields)) = self.value(key) else { return };
        fields.retain(|(field, _)| field != name);
        if fields.is_empty() {
            self.keys.remove(key);
        }
    }

    fn entries(&mut self, key: &[u8]) -> Result<Vec<Vec<u8>>, WrongType> {
        match self.value(key) {
            None => Ok(Vec::new()),
            Some(StoredValue::List(entries)) => Ok(entries.iter().cloned().collect()),
            Some(_) => Err(WrongType),
        }
    }

    /// The length.
    fn push(&mut self, key: &[u8], entry: &[u8]) -> Result<usize, WrongType> {
        let StoredValue::List(entries) = self.new_key(key, StoredValue::List(VecDeque::new())) else {
            return Err(WrongType);
        };
        entries.push_back(entry.to_vec());
        Ok(entries.len())
    }

    fn pop_first(&mut self, key: &[u8]) -> Vec<u8> {
        let Some(StoredValue::List(entries)) = self.value(key) else { return Vec::new() };
        let first = entries.pop_front().unwrap_or_default();
        if entries.is_empty() {
            self.keys.remove(key);
        }
        first
    }
}

/// The scripts.
impl Store {
    fn publish(&mut self, keys: &[&[u8]], arguments: &[&[u8]], channels: &Channels) -> ModelReply {
        let [meta, history] = keys else { return Ok(wrong_call()) };
        let [channel, new_epoch, length_max, bytes_max, seconds, lasts, messages @ ..] = arguments else {
            return Ok(wrong_call());
        };
        let mut foreign = i64::from(self.fields(meta).is_err());
        if foreign == 1 {
            self.remove(meta);
        }
        let (mut epoch, mut offset) = self.position(meta)?;
        let mut bytes = self.field(meta, "b")?.and_then(|bytes| number(&bytes)).unwrap_or(0);
        let (mut lasts, mut length) = (*lasts == b"1", 0);
        for pair in messages.chunks_exact(2) {
            let [is_kept, message] = pair else { continue };
            if *is_kept != b"1" {
                self.multicast(channels, channel, message, None);
                continue;
            }
            let mut previous = self.entries(history).ok().and_then(|entries| entries.last().cloned());
            match self.push(history, message) {
                Ok(now) => length = now,
                Err(WrongType) => {
                    foreign += 1;
                    offset = None;
                }
            }
            let last = match offset {
                Some(offset) => offset,
                None => {
                    self.remove(history);
                    length = self.push(history, message)?;
                    (epoch, bytes, previous) = (new_epoch.to_vec(), 0, None);
                    0
                }
            };
            if length == 1 {
                (bytes, lasts) = (0, false);
            }
            offset = Some(last + 1);
            bytes += message.len() as i64;
            let head = [b"@", &epoch[..], b"-", (last + 1).to_string().as_bytes(), b"\n"].concat();
            self.multicast(channels, channel, &[&head, *message].concat(), previous);
        }
        let bounds = (number(length_max).unwrap_or(0), number(bytes_max).unwrap_or(0));
        bytes = self.trim(history, (length as i64, bytes), bounds);
        if let Some(offset) = offset {
            self.write_field(meta, b"e", epoch)?;
            self.write_field(meta, b"o", offset.to_string().into_bytes())?;
            self.write_field(meta, b"b", bytes.to_string().into_bytes())?;
        }
        if !lasts {
            let milliseconds = number(seconds).unwrap_or(0) * 1000;
            self.expire(meta, milliseconds);
            self.expire(history, milliseconds);
        }
        Ok(OutgoingReply::Integer(foreign))
    }

    /// Removes the first messages of a history until its length and its bytes are within the bounds. Returns its bytes.
    fn trim(
        &mut self,
        history: &[u8],
        (mut length, mut bytes): (i64, i64),
        (length_max, bytes_max): (i64, i64),
    ) -> i64 {
        while length > 0 && (length > length_max || bytes > bytes_max) {
            bytes -= self.pop_first(history).len() as i64;
            length -= 1;
            bytes = if length == 0 { 0 } else { bytes };
        }
        bytes
    }

    /// The epoch and the last offset of a room, if a script has written them.
    fn position(&mut self, meta: &[u8]) -> Result<(Vec<u8>, Option<i64>), WrongType> {
        let epoch = self.field(meta, "e")?.unwrap_or_default();
        let is_ours = epoch.len() == 16 && epoch.iter().all(u8::is_ascii_hexdigit);
        let is_number = |offset: &Vec<u8>| offset.len() < 16 && offset.iter().all(u8::is_ascii_digit);
        let offset = self.field(meta, "o")?.filter(|offset| is_ours && is_number(offset));
        Ok((epoch, offset.and_then(|offset| number(&offset))))
    }

    fn read(&mut self, keys: &[&[u8]], arguments: &[&[u8]]) -> ModelReply {
        let ([meta, history], [from_epoch, from, page_max, entry_max]) = (keys, arguments) else {
            return Ok(wrong_call());
        };
        let (Ok((epoch, offset)), Ok(entries)) = (self.position(meta), self.entries(history)) else {
            return Ok(OutgoingReply::array([bulk("foreign")]));
        };
        let Some(offset) = offset else { return Ok(OutgoingReply::array([])) };
        let first = offset - entries.len() as i64 + 1;
        let from = number(from).filter(|from| *from_epoch == epoch && *from > first);
        let (mut skipped, mut size, mut rest) = (from.map_or(0, |from| from - first), 0, Vec::new());
        for (at, entry) in entries.into_iter().enumerate().skip(skipped as usize) {
            if entry.len() as i64 > number(entry_max).unwrap_or(0) {
                (skipped, size, rest) = (at as i64 + 1, 0, Vec::new());
                continue;
            }
            size += entry.len() as i64 + 64;
            rest.push(bulk(entry));
            if size >= number(page_max).unwrap_or(0) {
                break;
            }
        }
        let mut reply = vec![OutgoingReply::Aggregate(AggregateKind::Array, 4), bulk(epoch)];
        reply.extend([bulk(offset.to_string()), bulk((first + skipped).to_string())]);
        reply.push(OutgoingReply::Aggregate(AggregateKind::Array, rest.len() as u64));
        reply.extend(rest);
        Ok(OutgoingReply::All(reply))
    }

    fn presence(&mut self, keys: &[&[u8]], arguments: &[&[u8]], channels: &Channels) -> ModelReply {
        let [node, lease, mode, page_max, list_max, after, rooms @ ..] = arguments else { return Ok(wrong_call()) };
        let bounds = [lease, page_max, list_max].map(|bound| number(bound).unwrap_or(0));
        let mut page = PresencePage { bounds, after: after.to_vec(), ..PresencePage::default() };
        let mut foreign = 0;
        for (place, key) in keys.iter().enumerate() {
            if *mode != b"2" {
                let Some(room) = rooms.chunks_exact(5).nth(place) else { return Ok(wrong_call()) };
                foreign += i64::from(self.record(key, node, bounds[0], room, channels)?);
            }
            if *mode != b"0" && !page.is_full() {
                foreign += i64::from(self.read_room(key, &mut page));
            }
        }
        let mut reply = vec![OutgoingReply::Aggregate(AggregateKind::Array, page.rooms.len() as u64 + 3)];
        for parts in page.rooms {
            reply.push(OutgoingReply::Aggregate(AggregateKind::Array, parts.len() as u64));
            reply.extend(parts.into_iter().map(bulk));
        }
        reply.extend([bulk(page.stopped), bulk(self.now.to_string()), OutgoingReply::Integer(foreign)]);
        Ok(OutgoingReply::All(reply))
    }

    /// Records the members of a node in a room. Returns whether its key was foreign.
    fn record(
        &mut self,
        key: &[u8],
        node: &[u8],
        lease: i64,
        room: &[&[u8]],
        channels: &Channels,
    ) -> Result<bool, WrongType> {
        let [channel, has_list, list, has_message, message] = room else { return Ok(false) };
        let is_foreign = self.fields(key).is_err();
        if *has_list == b"1" {
            if is_foreign {
                self.remove(key);
            }
            let until = (self.now + lease).to_string();
            self.write_field(key, node, [until.as_bytes(), b":", list].concat())?;
            self.expire(key, lease);
        } else if !is_foreign {
            self.remove_field(key, node);
        }
        if *has_message == b"1" {
            self.multicast(channels, channel, message, None);
        }
        Ok(is_foreign)
    }

    /// Adds a room to a page: node, milliseconds and list of each lease, and the kick. Other fields are removed. Returns whether the
    /// key of the kick was foreign.
    fn read_room(&mut self, key: &[u8], page: &mut PresencePage) -> bool {
        let ([lease, page_max, list_max], mut parts) = (page.bounds, Vec::<Vec<u8>>::new());
        let mut fields = self.fields(key).unwrap_or_default();
        fields.sort();
        for (node, value) in fields {
            if node.len() != 32 || !node.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
                self.remove_field(key, &node);
                continue;
            }
            if node <= page.after {
                continue;
            }
            if page.size >= page_max {
                page.stopped = parts[parts.len() - 3].clone();
                break;
            }
            let (until, list) = split_at_colon(&value).unwrap_or((b"0", &value));
            let left = number(until).unwrap_or(0) - self.now;
            if left > 0 && left <= lease {
                let list = if value.len() as i64 > list_max { &list[..list.len().min(16)] } else { list };
                page.size += (until.len() + 1 + list.len()) as i64 + 128;
                parts.extend([node, left.to_string().into_bytes(), list.to_vec()]);
            } else {
                self.remove_field(key, &node);
            }
        }
        page.after.clear();
        let kick = if page.stopped.is_empty() { self.kick(key, list_max) } else { Ok(Vec::new()) };
        let is_foreign = kick.is_err();
        if let Some([word, age, bytes]) = kick.ok().and_then(|kick| <[Vec<u8>; 3]>::try_from(kick).ok()) {
            // The lifetime is a part of the value.
            page.size += bytes.len() as i64 + 72;
            parts.extend([word, age, bytes]);
        }
        page.size += 16;
        page.rooms.push(parts);
        is_foreign
    }

    fn kick(&mut self, key: &[u8], bytes_max: i64) -> Result<Vec<Vec<u8>>, WrongType> {
        let name = [&key[..key.len().saturating_sub(1)], b"k"].concat();
        let Some(kick) = self.get(&name)?.filter(|kick| kick.len() as i64 <= bytes_max) else { return Ok(Vec::new()) };
        let Some((Some(lasts), bytes)) = split_at_colon(&kick).map(|(lasts, bytes)| (number(lasts), bytes)) else {
            return Ok(Vec::new());
        };
        let age = lasts - self.time_left(&name);
        Ok(vec![b"kick".to_vec(), age.to_string().into_bytes(), bytes.to_vec()])
    }
}

/// The reply to a presence request.
#[derive(Default)]
struct PresencePage {
    /// The lease, the bytes after which the page ends, and those of the longest list.
    bounds: [i64; 3],
    size: i64,
    /// The node after which the first room goes on.
    after: Vec<u8>,
    /// The node after which the last room goes on.
    stopped: Vec<u8>,
    rooms: Vec<Vec<Vec<u8>>>,
}

impl PresencePage {
    fn is_full(&self) -> bool {
        self.size >= self.bounds[1] || !self.stopped.is_empty()
    }
}

fn split_at_colon(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = value.iter().position(|byte| *byte == b':')?;
    Some((&value[..colon], &value[colon + 1..]))
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn bulk(bytes: impl Into<Vec<u8>>) -> OutgoingReply {
    OutgoingReply::bulk(bytes.into())
}

fn wrong_call() -> OutgoingReply {
    OutgoingReply::error("ERR the model's script has other keys or arguments")
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// The server's time at its first command, in milliseconds: any day.
const FIRST_TIME: i64 = 1_700_000_000_000;
