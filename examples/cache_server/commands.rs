//! The commands on keys, with the replies of Redis.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate::Bytes;
use tidegate::redis::{
    AggregateKind, Answer, CallContext, Command, OutgoingReply, Service, Transaction, error_for_count, matches,
};

use crate::keyspace::{Keyspace, OutOfMemory};

/// The keyspace of a server, which all loops share.
#[derive(Debug)]
pub(crate) struct Cache {
    keyspace: Mutex<Keyspace>,
}

impl Cache {
    pub(crate) fn new(memory_bytes_max: usize) -> Self {
        Self { keyspace: Mutex::new(Keyspace::new(memory_bytes_max)) }
    }

    /// Removes at most `max` expired keys.
    pub(crate) fn expire(&self, max: usize) -> usize {
        let mut keyspace = self.keyspace();
        let now = keyspace.millis(Instant::now());
        keyspace.expire(now, max)
    }

    fn keyspace(&self) -> MutexGuard<'_, Keyspace> {
        self.keyspace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The commands of one connection.
#[derive(Debug)]
pub(crate) struct CacheService {
    cache: Arc<Cache>,
    watched: Option<Box<Watched>>,
}

/// Keys that WATCH has named, and how often they had changed.
#[derive(Debug, Default)]
struct Watched(Vec<(Box<[u8]>, u64)>);

impl CacheService {
    pub(crate) fn new(cache: Arc<Cache>) -> Self {
        Self { cache, watched: None }
    }
}

impl Drop for CacheService {
    fn drop(&mut self) {
        self.discard();
    }
}

impl Service for CacheService {
    fn call(&mut self, command: &Command, cx: &CallContext) -> Answer {
        let Some(what) = CacheCommand::of(command.name()) else { return Answer::Unknown };
        if let Err(error) = what.check(command) {
            return error.into();
        }
        let mut keyspace = self.cache.keyspace();
        let now = keyspace.millis(cx.now);
        match what {
            CacheCommand::Watch
                if self.watched.as_deref().map_or(0, |watched| watched.0.len()) + command.count() > WATCHED_MAX =>
            {
                OutgoingReply::error("ERR too many watched keys").into()
            }
            CacheCommand::Watch => {
                let watch = |key: &[u8]| (key.into(), keyspace.watch(key, now));
                self.watched.get_or_insert_default().0.extend(command.arguments().map(watch));
                OutgoingReply::ok().into()
            }
            CacheCommand::Unwatch => {
                drop(keyspace);
                self.discard();
                OutgoingReply::ok().into()
            }
            what => execute(what, command, &mut keyspace, now).into(),
        }
    }

    fn check(&self, command: &Command) -> Result<bool, OutgoingReply> {
        CacheCommand::of(command.name()).map_or(Ok(false), |what| what.check(command).map(|()| true))
    }

    fn exec(&mut self, transaction: Transaction<'_>) -> OutgoingReply {
        let mut keyspace = self.cache.keyspace();
        let now = keyspace.millis(transaction.context().now);
        if self
            .watched
            .as_deref()
            .into_iter()
            .flat_map(|watched| &watched.0)
            .any(|(key, changes)| keyspace.changes(key, now) != *changes)
        {
            return transaction.abort();
        }
        transaction.run(|command, _| match CacheCommand::of(command.name()) {
            Some(CacheCommand::Watch | CacheCommand::Unwatch) => OutgoingReply::ok().into(),
            Some(what) => execute(what, command, &mut keyspace, now).into(),
            None => Answer::Unknown,
        })
    }

    fn discard(&mut self) {
        if let Some(watched) = self.watched.take() {
            let mut keyspace = self.cache.keyspace();
            watched.0.iter().for_each(|(key, _)| keyspace.unwatch(key));
        }
    }
}

macro_rules! commands {
    ($($variant:ident $name:literal $min:literal $max:expr;)*) => {
        /// The commands on keys.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum CacheCommand { $($variant,)* }

        impl CacheCommand {
            /// The command with this name, in letters of either case.
            fn of(name: &[u8]) -> Option<Self> {
                let mut upper = [0; NAME_BYTES_MAX];
                let upper = upper.get_mut(..name.len())?;
                upper.copy_from_slice(name);
                upper.make_ascii_uppercase();
                match &*upper {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// How few and how many arguments it has, its name included.
            const fn counts(self) -> (usize, usize) {
                match self { $(Self::$variant => ($min, $max),)* }
            }
        }
    };
}

commands! {
    Append b"APPEND" 3 3;
    Dbsize b"DBSIZE" 1 1;
    Decr b"DECR" 2 2;
    Decrby b"DECRBY" 3 3;
    Del b"DEL" 2 MANY;
    Exists b"EXISTS" 2 MANY;
    Expire b"EXPIRE" 3 MANY;
    Flushall b"FLUSHALL" 1 MANY;
    Get b"GET" 2 2;
    Incr b"INCR" 2 2;
    Incrby b"INCRBY" 3 3;
    Keys b"KEYS" 2 2;
    Mget b"MGET" 2 MANY;
    Mset b"MSET" 3 MANY;
    Persist b"PERSIST" 2 2;
    Pexpire b"PEXPIRE" 3 MANY;
    Pttl b"PTTL" 2 2;
    Scan b"SCAN" 2 MANY;
    Set b"SET" 3 MANY;
    Strlen b"STRLEN" 2 2;
    Ttl b"TTL" 2 2;
    Type b"TYPE" 2 2;
    Unwatch b"UNWATCH" 1 1;
    Watch b"WATCH" 2 MANY;
}

impl CacheCommand {
    fn check(self, command: &Command) -> Result<(), OutgoingReply> {
        let (min, max) = self.counts();
        if (min..=max).contains(&command.count()) { Ok(()) } else { Err(error_for_count(command)) }
    }
}

/// Executes a command whose number of arguments is right.
fn execute(what: CacheCommand, command: &Command, keyspace: &mut Keyspace, now: u64) -> OutgoingReply {
    let mut arguments = command.arguments();
    let key = arguments.next().unwrap_or_default();
    match what {
        CacheCommand::Get => keyspace.get(key, now).map_or(OutgoingReply::Null, OutgoingReply::bulk),
        CacheCommand::Set => set(command, keyspace, now).unwrap_or_else(|error| error),
        CacheCommand::Mget => {
            let values = command.arguments();
            OutgoingReply::array(
                values.map(|key| keyspace.get(key, now).map_or(OutgoingReply::Null, OutgoingReply::bulk)),
            )
        }
        CacheCommand::Mset => mset(command, keyspace),
        CacheCommand::Append => append(key, arguments.next().unwrap_or_default(), keyspace, now),
        CacheCommand::Strlen => number(keyspace.get(key, now).map_or(0, |value| value.len())),
        CacheCommand::Type => OutgoingReply::Simple(if keyspace.has(key, now) { "string" } else { "none" }.into()),
        CacheCommand::Del => {
            let there = command.arguments().filter(|key| keyspace.has(key, now) && keyspace.remove(key));
            number(there.count())
        }
        CacheCommand::Exists => number(command.arguments().filter(|key| keyspace.has(key, now)).count()),
        CacheCommand::Incr => add(key, Ok(1), keyspace, now),
        CacheCommand::Decr => add(key, Ok(-1), keyspace, now),
        CacheCommand::Incrby => add(key, integer(arguments.next().unwrap_or_default()), keyspace, now),
        CacheCommand::Decrby => {
            let by = integer(arguments.next().unwrap_or_default());
            let by =
                by.and_then(|by| by.checked_neg().ok_or_else(|| OutgoingReply::error("ERR decrement would overflow")));
            add(key, by, keyspace, now)
        }
        CacheCommand::Expire => expire(command, 1_000, "expire", keyspace, now).unwrap_or_else(|error| error),
        CacheCommand::Pexpire => expire(command, 1, "pexpire", keyspace, now).unwrap_or_else(|error| error),
        CacheCommand::Persist => {
            let had = keyspace.expiry(key, now).flatten().is_some();
            number(usize::from(had && keyspace.set_expiry(key, None)))
        }
        CacheCommand::Ttl => time_left(key, keyspace, now, |left| (left + 500) / 1_000),
        CacheCommand::Pttl => time_left(key, keyspace, now, |left| left),
        CacheCommand::Dbsize => number(keyspace.len()),
        CacheCommand::Flushall => flush_all(command, keyspace),
        CacheCommand::Keys if key.len() > PATTERN_BYTES_MAX => error_for_pattern(),
        CacheCommand::Keys => {
            let found: Vec<_> = keyspace.keys(now).filter(|name| matches(key, name)).map(bulk).collect();
            OutgoingReply::array(found)
        }
        CacheCommand::Scan => scan(command, keyspace, now).unwrap_or_else(|error| error),
        // The service has the watched keys.
        CacheCommand::Watch | CacheCommand::Unwatch => OutgoingReply::ok(),
    }
}

/// SET key value [NX | XX] [GET] [EX seconds | PX milliseconds | KEEPTTL]
fn set(command: &Command, keyspace: &mut Keyspace, now: u64) -> Result<OutgoingReply, OutgoingReply> {
    let mut arguments = command.arguments();
    let (key, value) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let (mut only_new, mut only_old, mut gets, mut keeps, mut life) = (false, false, false, false, None);
    while let Some(option) = arguments.next() {
        let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
        let has_time = life.is_some() || keeps;
        if is(b"NX") && !only_old {
            only_new = true;
        } else if is(b"XX") && !only_new {
            only_old = true;
        } else if is(b"GET") {
            gets = true;
        } else if is(b"KEEPTTL") && life.is_none() {
            keeps = true;
        } else if (is(b"EX") || is(b"PX")) && !has_time {
            life = Some((arguments.next().ok_or_else(syntax_error)?, if is(b"EX") { 1_000 } else { 1 }));
        } else {
            return Err(syntax_error());
        }
    }
    let life = life.map(|(text, unit)| {
        let life = integer(text)?.checked_mul(unit).filter(|life| (1..TIME_MAX).contains(life));
        life.ok_or_else(|| invalid_time("set"))
    });
    let expires = life.transpose()?.map(|life| now + life as u64);
    let old = keyspace.get(key, now);
    let is_met = !(only_new && old.is_some() || only_old && old.is_none());
    if is_met {
        let expires = if keeps { keyspace.expiry(key, now).flatten() } else { expires };
        keyspace.set(key, Bytes::copy_from_slice(value), expires).map_err(out_of_memory)?;
    }
    Ok(match old {
        Some(old) if gets => OutgoingReply::bulk(old),
        None if gets => OutgoingReply::Null,
        _ if is_met => OutgoingReply::ok(),
        _ => OutgoingReply::Null,
    })
}

fn mset(command: &Command, keyspace: &mut Keyspace) -> OutgoingReply {
    if command.count().is_multiple_of(2) {
        return error_for_count(command);
    }
    let mut arguments = command.arguments();
    while let (Some(key), Some(value)) = (arguments.next(), arguments.next()) {
        if let Err(error) = keyspace.set(key, Bytes::copy_from_slice(value), None) {
            return out_of_memory(error);
        }
    }
    OutgoingReply::ok()
}

fn append(key: &[u8], more: &[u8], keyspace: &mut Keyspace, now: u64) -> OutgoingReply {
    let length = keyspace.get(key, now).map_or(0, |value| value.len());
    if length + more.len() > STRING_BYTES_MAX {
        return OutgoingReply::error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    }
    keyspace.append(key, more, now).map_or_else(out_of_memory, number)
}

fn add(key: &[u8], by: Result<i64, OutgoingReply>, keyspace: &mut Keyspace, now: u64) -> OutgoingReply {
    let sum = || {
        let by = by?;
        let old = keyspace.get(key, now).map_or(Ok(0), |value| integer(&value))?;
        let sum = old.checked_add(by);
        let sum = sum.ok_or_else(|| OutgoingReply::error("ERR increment or decrement would overflow"))?;
        let expires = keyspace.expiry(key, now).flatten();
        keyspace.set(key, sum.to_string().into(), expires).map_err(out_of_memory)?;
        Ok(OutgoingReply::Integer(sum))
    };
    sum().unwrap_or_else(|error| error)
}

/// EXPIRE key time [NX | XX | GT | LT], with times of `unit` milliseconds.
fn expire(
    command: &Command,
    unit: i64,
    name: &str,
    keyspace: &mut Keyspace,
    now: u64,
) -> Result<OutgoingReply, OutgoingReply> {
    let mut arguments = command.arguments();
    let (key, time) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in arguments {
        let flag = match option.to_ascii_uppercase().as_slice() {
            b"NX" => &mut nx,
            b"XX" => &mut xx,
            b"GT" => &mut gt,
            b"LT" => &mut lt,
            _ => {
                let option = String::from_utf8_lossy(option).replace(['\r', '\n'], " ");
                return Err(OutgoingReply::error(format!("ERR Unsupported option {option}")));
            }
        };
        *flag = true;
    }
    if nx && (xx || gt || lt) {
        return Err(OutgoingReply::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if gt && lt {
        return Err(OutgoingReply::error("ERR GT and LT options at the same time are not compatible"));
    }
    let life = integer(time)?.checked_mul(unit).filter(|life| (-TIME_MAX..TIME_MAX).contains(life));
    let at = now as i64 + life.ok_or_else(|| invalid_time(name))?;
    let Some(old) = keyspace.expiry(key, now) else { return Ok(number(0)) };
    let is_unmet = match old {
        None => xx || gt,
        Some(old) => nx || gt && at <= old as i64 || lt && at >= old as i64,
    };
    if is_unmet {
        return Ok(number(0));
    }
    if at > now as i64 {
        keyspace.set_expiry(key, Some(at as u64));
    } else {
        keyspace.remove(key);
    }
    Ok(number(1))
}

fn time_left(key: &[u8], keyspace: &mut Keyspace, now: u64, unit: impl Fn(u64) -> u64) -> OutgoingReply {
    OutgoingReply::Integer(match keyspace.expiry(key, now) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => unit(at.saturating_sub(now)) as i64,
    })
}

fn flush_all(command: &Command, keyspace: &mut Keyspace) -> OutgoingReply {
    let is_known = |how: &[u8]| how.eq_ignore_ascii_case(b"SYNC") || how.eq_ignore_ascii_case(b"ASYNC");
    if command.count() > 2 || !command.argument(1).is_none_or(is_known) {
        return syntax_error();
    }
    keyspace.clear();
    OutgoingReply::ok()
}

/// All keys are compared with a pattern while other connections wait: a long one would take long.
fn error_for_pattern() -> OutgoingReply {
    OutgoingReply::error(format!("ERR a pattern has more than {PATTERN_BYTES_MAX} bytes"))
}

const PATTERN_BYTES_MAX: usize = 1_024;

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]
fn scan(command: &Command, keyspace: &Keyspace, now: u64) -> Result<OutgoingReply, OutgoingReply> {
    let mut arguments = command.arguments();
    let cursor = arguments.next().and_then(|text| std::str::from_utf8(text).ok()?.parse::<usize>().ok());
    let cursor = cursor.ok_or_else(|| OutgoingReply::error("ERR invalid cursor"))?;
    let (mut pattern, mut count, mut has_type) = (&b"*"[..], 10, true);
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or_else(syntax_error)?;
        match option.to_ascii_uppercase().as_slice() {
            b"MATCH" if value.len() > PATTERN_BYTES_MAX => return Err(error_for_pattern()),
            b"MATCH" => pattern = value,
            b"COUNT" => {
                let number = integer(value)?;
                count = usize::try_from(number).ok().filter(|count| *count > 0).ok_or_else(syntax_error)?;
            }
            b"TYPE" => has_type = value.eq_ignore_ascii_case(b"string"),
            _ => return Err(syntax_error()),
        }
    }
    let (cursor, keys) = keyspace.scan(cursor, count, now);
    let keys: Vec<_> = keys.into_iter().filter(|key| has_type && matches(pattern, key)).map(bulk).collect();
    let array = |count| OutgoingReply::Aggregate(AggregateKind::Array, count);
    let mut all = vec![array(2), OutgoingReply::bulk(cursor.to_string()), array(keys.len() as u64)];
    all.extend(keys);
    Ok(OutgoingReply::All(all))
}

fn number(number: usize) -> OutgoingReply {
    OutgoingReply::Integer(number as i64)
}

fn bulk(bytes: &[u8]) -> OutgoingReply {
    OutgoingReply::bulk(bytes.to_vec())
}

/// An integer as Redis stores it: in one spelling only.
fn integer(text: &[u8]) -> Result<i64, OutgoingReply> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let number = number.filter(|number| number.to_string().as_bytes() == text);
    number.ok_or_else(|| OutgoingReply::error("ERR value is not an integer or out of range"))
}

fn syntax_error() -> OutgoingReply {
    OutgoingReply::error("ERR syntax error")
}

fn invalid_time(name: &str) -> OutgoingReply {
    OutgoingReply::error(format!("ERR invalid expire time in '{name}' command"))
}

fn out_of_memory(_: OutOfMemory) -> OutgoingReply {
    OutgoingReply::error("OOM command not allowed when used memory > 'maxmemory'.")
}

/// The longest name of a command here.
const NAME_BYTES_MAX: usize = 8;

const MANY: usize = usize::MAX;

/// Keys that one connection watches.
const WATCHED_MAX: usize = 10_000;

/// The longest value, as in Redis.
const STRING_BYTES_MAX: usize = 512 << 20;

/// The longest time to live, in milliseconds: 140,000 years.
const TIME_MAX: i64 = 1 << 52;
