//! A server for the checks of this example: a few commands, on one loop.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use tidegate::redis::{
    Answer, CallContext, Channels, Command, Handler, HandlerConfig, OutgoingReply, ServerCodec, Service, Transaction,
};
use tidegate::{Address, Server, ServerHandle, task};

use crate::Any;

/// The data that connections share.
#[derive(Default)]
struct Toy {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// The keys that were written since a connection watches them, by connection.
    watched: HashMap<u64, HashSet<Vec<u8>>>,
    broken: HashSet<u64>,
    /// Connections that have sent a command.
    connections: HashSet<u64>,
    blocked: usize,
}

/// One connection.
struct ToyService {
    toy: Rc<RefCell<Toy>>,
    client_id: u64,
}

/// Counts the BLPOPs that wait.
struct Blocked(Rc<RefCell<Toy>>);

impl Drop for Blocked {
    fn drop(&mut self) {
        self.0.borrow_mut().blocked -= 1;
    }
}

impl Toy {
    fn write(&mut self, key: &[u8], value: Vec<u8>) {
        let by = self.watched.iter().filter(|(_, keys)| keys.contains(key)).map(|(id, _)| *id);
        self.broken.extend(by);
        self.values.insert(key.to_vec(), value);
    }
}

impl Service for ToyService {
    fn call(&mut self, command: &Command, context: &CallContext) -> Answer {
        self.client_id = context.client_id;
        let key = command.argument(1).unwrap_or_default();
        let mut toy = self.toy.borrow_mut();
        toy.connections.insert(self.client_id);
        match command.name() {
            b"SET" => toy.write(key, command.argument(2).unwrap_or_default().to_vec()),
            b"GET" => {
                let value = toy.values.get(key).cloned();
                return value.map_or(OutgoingReply::Null, OutgoingReply::bulk).into();
            }
            b"INCR" => {
                let value = toy.values.get(key).map(|value| String::from_utf8_lossy(value).parse().unwrap_or(0));
                let value: i64 = value.unwrap_or(0) + 1;
                toy.write(key, value.to_string().into());
                return OutgoingReply::Integer(value).into();
            }
            b"WATCH" => drop(toy.watched.entry(self.client_id).or_default().insert(key.to_vec())),
            b"UNWATCH" => {
                drop(toy);
                self.discard();
            }
            b"BLPOP" => {
                toy.blocked += 1;
                drop(toy);
                let (blocked, key) = (Blocked(self.toy.clone()), key.to_vec());
                return Answer::later(async move {
                    loop {
                        if let Some(value) = blocked.0.borrow_mut().values.remove(&key) {
                            return OutgoingReply::array([OutgoingReply::bulk(key), OutgoingReply::bulk(value)]);
                        }
                        task::sleep(std::time::Duration::from_millis(2)).await;
                    }
                });
            }
            b"CONNECTIONS" => return OutgoingReply::Integer(toy.connections.len() as i64).into(),
            b"BLOCKED" => return OutgoingReply::Integer(toy.blocked as i64).into(),
            b"MAP" => {
                let pair = [OutgoingReply::bulk("level"), OutgoingReply::Double(4.5)];
                return OutgoingReply::aggregate(tidegate::redis::AggregateKind::Map, pair).into();
            }
            _ => return Answer::Unknown,
        }
        OutgoingReply::ok().into()
    }

    fn check(&self, command: &Command) -> Result<bool, OutgoingReply> {
        Ok(matches!(command.name(), b"SET" | b"GET" | b"INCR"))
    }

    fn exec(&mut self, transaction: Transaction<'_>) -> OutgoingReply {
        self.client_id = transaction.context().client_id;
        if self.toy.borrow_mut().broken.remove(&self.client_id) {
            return transaction.abort();
        }
        transaction.run(|command, context| self.call(command, context))
    }

    fn discard(&mut self) {
        let mut toy = self.toy.borrow_mut();
        toy.watched.remove(&self.client_id);
        toy.broken.remove(&self.client_id);
    }
}

/// Starts a server with this password, or with none.
pub(crate) fn start_with(password: Option<&str>) -> Result<ServerHandle, Any> {
    let password = password.map(|password| password.as_bytes().into());
    let config = std::sync::Arc::new(HandlerConfig { password, ..HandlerConfig::default() });
    Ok(Server::bind("127.0.0.1:0")?.loops(1).start_each(move |_| {
        let (toy, channels, config) = (Rc::new(RefCell::new(Toy::default())), Channels::new(), config.clone());
        move |_: &Address| {
            let service = ToyService { toy: toy.clone(), client_id: 0 };
            (ServerCodec::default(), Handler::with(service, config.clone(), channels.clone()))
        }
    })?)
}

/// Starts a server without a password.
pub(crate) fn start() -> Result<ServerHandle, Any> {
    start_with(None)
}
