//! A memcached server: text commands, and the usual meta commands.
//!
//! ```text
//! cargo run --example memcached_server                       # checks itself with a client, and exits
//! cargo run --example memcached_server -- 127.0.0.1:11211    # serves until it is killed
//! printf 'set tide 0 60 3\r\nebb\r\nget tide\r\nquit\r\n' | nc 127.0.0.1 11211
//! ```
//!
//! The codec has all of the protocol: lines, lengths, `noreply`, quiet meta commands, errors of wrong lines. This file has
//! the items. All connections belong to one loop, and share them without a lock.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indexmap::IndexMap;
use tidegate::memcached::{
    Arithmetic, ClientCodec, Command, Key, MetaCommand, MetaFlags, MetaResponse, MetaStatus, MetaVerb, Response,
    Retrieval, ServerCodec, Store, StoreMode,
};
use tidegate::{Backend, Bytes, Channel, Client, Context, Event, EventLoop, Handler, Outcome, Server, ServerHandle};

type Any = Box<dyn Error>;

/// A value, with all that commands ask for.
#[derive(Debug, Clone)]
struct Item {
    value: Bytes,
    flags: u32,
    /// The number of its last change.
    version: u64,
    /// When it expires, in seconds of Unix time; `None` if it never does.
    expires: Option<i64>,
    /// The number of commands before the one that used it last.
    used: u64,
}

/// The items of a server, of at most so many bytes.
#[derive(Debug)]
struct Items {
    items: IndexMap<Box<[u8]>, Item>,
    bytes: usize,
    bytes_max: usize,
    changes: u64,
    commands: u64,
}

impl Items {
    fn new(bytes_max: usize) -> Self {
        Self { items: IndexMap::new(), bytes: 0, bytes_max, changes: 0, commands: 0 }
    }

    fn cost(key: &[u8], item: &Item) -> usize {
        key.len() + item.value.len() + ITEM_BYTES
    }

    fn get(&mut self, key: &[u8], now: i64) -> Option<&mut Item> {
        if self.items.get(key)?.expires.is_some_and(|expires| expires <= now) {
            self.remove(key);
        }
        self.commands += 1;
        let item = self.items.get_mut(key)?;
        item.used = self.commands;
        Some(item)
    }

    fn remove(&mut self, key: &[u8]) -> Option<Item> {
        let item = self.items.swap_remove(key)?;
        self.bytes -= Self::cost(key, &item);
        Some(item)
    }

    fn insert(&mut self, key: &[u8], value: Bytes, flags: u32, expires: Option<i64>) {
        self.remove(key);
        self.changes += 1;
        let item = Item { value, flags, version: self.changes, expires, used: self.commands };
        self.bytes += Self::cost(key, &item);
        self.items.insert(key.into(), item);
        while self.bytes > self.bytes_max {
            self.evict();
        }
    }

    /// Removes the item of a few that was used longest ago. The few stand beside each other, from a place that moves on.
    fn evict(&mut self) {
        let start = (self.changes.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % self.items.len().max(1);
        let places = (start..self.items.len()).take(SAMPLES);
        let oldest = places.min_by_key(|place| self.items.get_index(*place).map_or(0, |(_, item)| item.used));
        if let Some((key, item)) = oldest.and_then(|place| self.items.swap_remove_index(place)) {
            self.bytes -= Self::cost(&key, &item);
        }
    }

    fn store(&mut self, store: &Store, now: i64) -> Response {
        let (key, value) = (store.key.as_ref(), store.value.as_ref());
        let found = self.get(key, now).map(|item| item.clone());
        let value = match (store.mode, &found) {
            (StoreMode::Cas(_), None) => return Response::NotFound,
            (StoreMode::Cas(version), Some(item)) if item.version != version => return Response::Exists,
            (StoreMode::Add, Some(_)) | (StoreMode::Replace | StoreMode::Append | StoreMode::Prepend, None) => {
                return Response::NotStored;
            }
            (StoreMode::Append, Some(item)) => [&item.value, value].concat().into(),
            (StoreMode::Prepend, Some(item)) => [value, &item.value].concat().into(),
            _ => Bytes::copy_from_slice(value),
        };
        let (flags, expires) = match (store.mode, found) {
            (StoreMode::Append | StoreMode::Prepend, Some(item)) => (item.flags, item.expires),
            _ => (store.flags, expires(store.expiry, now)),
        };
        self.insert(key, value, flags, expires);
        Response::Stored
    }

    fn count(&mut self, count: &Arithmetic, now: i64) -> Response {
        let key = count.key.as_ref();
        let Some(item) = self.get(key, now) else { return Response::NotFound };
        let (flags, expires) = (item.flags, item.expires);
        let number = std::str::from_utf8(&item.value).ok().and_then(|text| text.trim_end().parse::<u64>().ok());
        let Some(number) = number else {
            return Response::ClientError("cannot increment or decrement non-numeric value".into());
        };
        let number = if count.is_decrement { number.saturating_sub(count.by) } else { number.wrapping_add(count.by) };
        self.insert(key, number.to_string().into(), flags, expires);
        Response::Number(number)
    }

    fn meta(&mut self, command: &MetaCommand, now: i64) -> MetaResponse {
        let status = |status| MetaResponse::new(status, MetaFlags::NONE);
        let Some(key) = &command.key else { return status(MetaStatus::Noop) };
        let number = |letter| Some(std::str::from_utf8(command.flags.token(letter)?).ok()?.parse::<i64>().ok());
        let expiry = number(b'T').flatten();
        match command.verb {
            MetaVerb::Set => {
                let flags = number(b'F').flatten().and_then(|flags| u32::try_from(flags).ok()).unwrap_or(0);
                let value = command.value.as_ref().map_or(&b""[..], AsRef::as_ref);
                self.insert(key.as_ref(), Bytes::copy_from_slice(value), flags, expires(expiry.unwrap_or(0), now));
                status(MetaStatus::Done)
            }
            MetaVerb::Delete if self.get(key.as_ref(), now).is_none() => status(MetaStatus::NotFound),
            MetaVerb::Delete => {
                self.remove(key.as_ref());
                status(MetaStatus::Done)
            }
            MetaVerb::Get => {
                let Some(item) = self.get(key.as_ref(), now) else { return status(MetaStatus::Miss) };
                if let Some(expiry) = expiry {
                    item.expires = expires(expiry, now);
                }
                let flags = returned(command, key, item, now);
                if command.flags.has(b'v') {
                    MetaResponse::with_value(flags, item.value.clone())
                } else {
                    MetaResponse::new(MetaStatus::Done, flags)
                }
            }
            _ => status(MetaStatus::NotStored),
        }
    }
}

/// The flags that `mg` asks for: in the order of the command.
fn returned(command: &MetaCommand, key: &Key, item: &Item, now: i64) -> MetaFlags {
    let left = item.expires.map_or(-1, |expires| expires - now);
    let mut text = Vec::new();
    for (letter, token) in command.flags.iter() {
        let value = match letter {
            b'k' => key.as_ref().to_vec(),
            b'O' => token.to_vec(),
            b'f' => item.flags.to_string().into(),
            b's' => item.value.len().to_string().into(),
            b'c' => item.version.to_string().into(),
            b't' => left.to_string().into(),
            _ => continue,
        };
        text.extend([&[letter][..], &value, b" "].concat());
    }
    text.pop();
    MetaFlags::new(text).unwrap_or(MetaFlags::NONE)
}

/// The Unix time at which a time to live ends.
fn expires(expiry: i64, now: i64) -> Option<i64> {
    match expiry {
        0 => None,
        ..0 => Some(0),
        1..=MONTH_SECONDS => Some(now + expiry),
        _ => Some(expiry),
    }
}

/// The application on one connection.
struct Service {
    items: Rc<RefCell<Items>>,
    /// A retrieval whose values fill the connection's queue: the rest follows once the peer has read them.
    retrieval: Option<(Retrieval, usize)>,
    /// The connection closes once the retrieval is complete.
    is_ending: bool,
}

type Cx<'a> = Context<'a, ServerCodec>;

impl Service {
    /// Sends the values of a retrieval from this key on, as long as the connection takes them, and then its end.
    fn retrieve(&mut self, retrieval: Retrieval, first: usize, cx: &mut Cx<'_>) -> Result<(), Any> {
        let now = now();
        let mut items = self.items.borrow_mut();
        let mut next = usize::MAX;
        let Retrieval { keys, with_cas, expiry } = &retrieval;
        for (place, key) in keys.iter().enumerate().skip(first) {
            if !cx.is_writable() {
                next = place;
                break;
            }
            let Some(item) = items.get(key, now) else { continue };
            if let Some(expiry) = *expiry {
                item.expires = expires(expiry, now);
            }
            let (flags, cas, value) = (item.flags, with_cas.then_some(item.version), item.value.clone());
            cx.send(Response::Value { key: key.to_vec().into(), flags, cas, value: value.into() })?;
        }
        if next == usize::MAX && cx.is_writable() {
            cx.send(Response::End)?;
        } else {
            self.retrieval = Some((retrieval, next));
        }
        Ok(())
    }

    /// The last line of the response to a command; the lines before it are sent here.
    fn respond(&self, command: Command, cx: &mut Cx<'_>) -> Result<Response, Any> {
        let now = now();
        let mut items = self.items.borrow_mut();
        Ok(match command {
            Command::Store(store) => items.store(&store, now),
            Command::Count(count) => items.count(&count, now),
            Command::Delete { key, .. } => {
                let is_there = items.get(key.as_ref(), now).is_some();
                items.remove(key.as_ref());
                if is_there { Response::Deleted } else { Response::NotFound }
            }
            Command::Touch { key, expiry, .. } => match items.get(key.as_ref(), now) {
                Some(item) => {
                    item.expires = expires(expiry, now);
                    Response::Touched
                }
                None => Response::NotFound,
            },
            Command::FlushAll { delay, .. } => {
                let at = now + delay.clamp(0, MONTH_SECONDS);
                let soonest = |item: &mut Item| item.expires = Some(item.expires.map_or(at, |expires| expires.min(at)));
                items.items.values_mut().for_each(soonest);
                Response::Ok
            }
            Command::Stats(group) if group.as_ref().is_empty() => {
                let stats = [
                    ("pid", u64::from(std::process::id())),
                    ("curr_items", items.items.len() as u64),
                    ("bytes", items.bytes as u64),
                ];
                for (name, value) in stats {
                    cx.send(Response::Stat { name: name.into(), value: value.to_string().into() })?;
                }
                Response::End
            }
            Command::Version => Response::Version(env!("CARGO_PKG_VERSION").into()),
            Command::Verbosity { .. } => Response::Ok,
            Command::Meta(meta) => Response::Meta(items.meta(&meta, now)),
            _ => Response::Error,
        })
    }
}

impl Handler<ServerCodec> for Service {
    type Post = ();

    fn message(&mut self, command: Command, cx: &mut Cx<'_>) -> Outcome<ServerCodec> {
        let sent = match command {
            Command::Get(retrieval) => self.retrieve(retrieval, 0, cx),
            command => self.respond(command, cx).and_then(|last| {
                cx.send(last)?;
                Ok(())
            }),
        };
        outcome(sent)
    }

    fn event(&mut self, event: Event<()>, cx: &mut Cx<'_>) -> Outcome<ServerCodec> {
        match (event, self.retrieval.take()) {
            (Event::Writable, Some((retrieval, next))) => {
                let sent = self.retrieve(retrieval, next, cx);
                if sent.is_ok() && self.is_ending && self.retrieval.is_none() {
                    return Outcome::Close;
                }
                outcome(sent)
            }
            (event, None) => event.by_default(cx),
            (event, waiting) => {
                self.retrieval = waiting;
                match event.by_default(cx) {
                    Outcome::Close => {
                        self.is_ending = true;
                        Outcome::Continue
                    }
                    other => other,
                }
            }
        }
    }
}

/// The connection goes on unless a response does not fit into its queue.
fn outcome(sent: Result<(), Any>) -> Outcome<ServerCodec> {
    sent.map_or(Outcome::Abort, |()| Outcome::Continue)
}

/// Seconds of Unix time.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

fn start(address: &str) -> Result<ServerHandle, tidegate::StartError> {
    Server::bind(address)?.loops(1).start_each(|_| {
        let items = Rc::new(RefCell::new(Items::new(ITEMS_BYTES_MAX)));
        let service = move || Service { items: items.clone(), retrieval: None, is_ending: false };
        move |_: &tidegate::Address| (ServerCodec::default(), service())
    })
}

fn main() -> Result<(), Any> {
    if let Some(address) = std::env::args().nth(1) {
        let server = start(&address)?;
        println!("listening on {}", server.address());
        server.wait();
        return Ok(());
    }
    let server = start("127.0.0.1:0")?;
    let address = server.address().to_string();
    EventLoop::on(Backend::Auto)?.block_on(check(address))??;
    server.drain(Duration::from_secs(5));
    Ok(())
}

/// A client that checks the server.
async fn check(address: String) -> Result<(), Any> {
    let mut channel = Client::to(&address)?.connect(ClientCodec::default()).await?;
    channel.send(Command::set(Key::new("tide")?, "ebb", 60))?;
    channel.send(Command::get(Key::new("tide")?))?;
    let quiet = MetaFlags::new("v q")?;
    for key in ["tide", "gone"] {
        let (key, flags) = (Some(Key::new(key)?), quiet.clone());
        channel.send(Command::Meta(MetaCommand { verb: MetaVerb::Get, key, flags, value: None }))?;
    }
    let (key, flags) = (None, MetaFlags::NONE);
    channel.send(Command::Meta(MetaCommand { verb: MetaVerb::Noop, key, flags, value: None }))?;
    let lines = [
        next(&mut channel).await?,
        next(&mut channel).await?,
        next(&mut channel).await?,
        next(&mut channel).await?,
        next(&mut channel).await?,
    ];
    let [Response::Stored, Response::Value { value, .. }, Response::End, Response::Meta(hit), Response::Meta(end)] =
        &lines
    else {
        return Err(format!("other responses: {lines:?}").into());
    };
    assert_eq!((value.as_ref(), hit.value.as_ref().map(AsRef::as_ref)), (&b"ebb"[..], Some(&b"ebb"[..])));
    assert_eq!(end.status, MetaStatus::Noop, "the quiet command for a key without an item has no response");
    println!("set, get, and a batch of quiet commands: {} responses", lines.len());
    Ok(())
}

async fn next(channel: &mut Channel<ClientCodec>) -> Result<Response, Any> {
    Ok(channel.recv().await?.ok_or("the server has closed the connection")?)
}

/// Bytes of keys and values, unless they are few.
const ITEMS_BYTES_MAX: usize = 64 << 20;

/// Bytes of an item beside its key and its value.
const ITEM_BYTES: usize = 96;

/// Items among which the one to evict is chosen.
const SAMPLES: usize = 5;

/// A time to live above this is a Unix time.
const MONTH_SECONDS: i64 = 60 * 60 * 24 * 30;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn memccapable_accepts_the_text_protocol() {
        let server = start("127.0.0.1:0").expect("a server");
        let address = server.address().ip().expect("an IP address");
        let mut command = Command::new("memccapable");
        command.args(["-a", "-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
        match command.output() {
            Err(error) => println!("skipped: memccapable is not installed: {error}"),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success() && !text.contains("FAIL"), "{text}");
                assert_eq!(text.matches("[pass]").count(), 27, "{text}");
            }
        }
        server.drain(Duration::from_secs(5));
    }

    #[test]
    fn values_of_any_length_and_number_arrive_although_they_exceed_the_queue() {
        use std::io::{Read as _, Write as _};

        let server = start("127.0.0.1:0").expect("a server");
        let address = server.address().ip().expect("an IP address");
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        let value = "x".repeat(400_000);
        let mut wire = String::new();
        for key in ["one", "two", "three"] {
            wire += &format!("set {key} 0 0 {} noreply\r\n{value}\r\n", value.len());
        }
        wire += "get one none two three\r\nversion\r\nquit\r\n";
        stream.write_all(wire.as_bytes()).expect("it is sent");
        let mut responses = String::new();
        stream.read_to_string(&mut responses).expect("the server closes after quit");
        let values: String =
            ["one", "two", "three"].iter().map(|key| format!("VALUE {key} 0 {}\r\n{value}\r\n", value.len())).collect();
        let expected = format!("{values}END\r\nVERSION {}\r\n", env!("CARGO_PKG_VERSION"));
        assert!(responses == expected, "{} bytes of {}", responses.len(), expected.len());
        server.drain(Duration::from_secs(5));
    }

    #[test]
    fn a_drain_and_an_end_of_the_peer_close_connections_once_their_retrievals_are_complete() {
        use std::io::{Read as _, Write as _};
        use std::net::{Shutdown, TcpStream};

        let server = start("127.0.0.1:0").expect("a server");
        let address = server.address().ip().expect("an IP address");
        let value = "x".repeat(900_000);
        let keys = ["one"; 20];
        let mut streams = [(); 4].map(|()| TcpStream::connect(address).expect("a connection"));
        let [idle, ended, ending, reading] = &mut streams;
        for stream in [&*idle, &*ended, &*ending, &*reading] {
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        }
        write!(reading, "set one 0 0 {} noreply\r\n{value}\r\n", value.len()).expect("it is sent");
        let mut rest = String::new();
        ended.shutdown(Shutdown::Write).expect("an end");
        ended.read_to_string(&mut rest).expect("the server closes");
        // The values exceed the buffers of both sides: their first byte shows that the retrieval has begun.
        for stream in [&mut *reading, &mut *ending] {
            write!(stream, "get {}\r\n", keys.join(" ")).expect("it is sent");
            stream.read_exact(&mut [0]).expect("a byte");
        }
        write!(idle, "verbosity 1\r\n").expect("it is sent");
        idle.read_exact(&mut [0; 4]).expect("a response");
        ending.shutdown(Shutdown::Write).expect("an end");
        ending.read_to_string(&mut rest).expect("the server closes");
        server.begin_drain(Duration::from_secs(600));
        idle.read_to_string(&mut rest).expect("the server closes");
        reading.read_to_string(&mut rest).expect("the server closes");
        let expected = format!("{}END\r\n", format!("VALUE one 0 {}\r\n{value}\r\n", value.len()).repeat(keys.len()));
        assert!(rest == expected[1..].repeat(2), "{} bytes of {}", rest.len(), 2 * expected.len() - 2);
        drop(streams);
        server.wait();
    }

    #[test]
    fn a_full_cache_evicts_the_items_that_were_used_longest_ago() {
        let mut items = Items::new(100 * (ITEM_BYTES + 20));
        let key = |number: u32| format!("{number:010}").into_bytes();
        for number in 0..1_000 {
            items.insert(&key(number), Bytes::from_static(b"0123456789"), 0, None);
            // One item is used again and again.
            assert!(items.get(&key(0), 0).is_some(), "after {number} items");
        }
        assert_eq!((items.items.len(), items.bytes), (100, items.bytes_max));
    }
}
