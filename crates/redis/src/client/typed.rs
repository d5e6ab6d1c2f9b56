//! A method for each usual command, with its arguments by name and its reply by type.
//!
//! A command that only reads is idempotent. Each has its usual form; options of others are arguments of
//! [`Client::cmd`](crate::Client::cmd).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use crate::client::error::ClientError;
use crate::client::from_reply::FromReply;
use crate::client::handle::{Call, Client, ReplyFuture};

/// An argument of a command: bytes, text, a number, or a pair of them.
pub trait Argument {
    /// Adds it to a command.
    fn add_to(self, call: Call) -> Call;
}

macro_rules! bytes_arguments {
    ($($argument:ty),*) => {$(
        impl Argument for $argument {
            fn add_to(self, call: Call) -> Call {
                call.arg(self)
            }
        }
    )*};
}

bytes_arguments!(&str, String, &String, &[u8], Vec<u8>, &Vec<u8>);

macro_rules! number_arguments {
    ($($argument:ty),*) => {$(
        impl Argument for $argument {
            fn add_to(self, call: Call) -> Call {
                call.arg(self.to_string())
            }
        }
    )*};
}

number_arguments!(i32, u32, i64, u64, usize, isize, f64);

/// It is not copied, if it is long.
impl Argument for Bytes {
    fn add_to(self, call: Call) -> Call {
        call.shared_arg(self)
    }
}

/// Both, one after the other: a field and its value, for example.
impl<A: Argument, B: Argument> Argument for (A, B) {
    fn add_to(self, call: Call) -> Call {
        self.1.add_to(self.0.add_to(call))
    }
}

/// A command whose reply is converted into a `T`. Awaiting it sends it.
#[must_use = "a command does nothing until it is sent"]
pub struct TypedCall<T> {
    call: Call,
    reply: PhantomData<fn() -> T>,
}

impl<T: FromReply> TypedCall<T> {
    fn new(call: Call) -> Self {
        Self { call, reply: PhantomData }
    }

    /// As [`Call::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.call = self.call.timeout(timeout);
        self
    }

    /// As [`Call::idempotent`].
    pub fn idempotent(mut self) -> Self {
        self.call = self.call.idempotent();
        self
    }

    /// As [`Call::send`].
    pub fn send(self) -> TypedReply<T> {
        TypedReply { reply: self.call.send(), kind: PhantomData }
    }

    /// As [`Call::post`].
    pub fn post(self) {
        self.call.post();
    }
}

impl<T: FromReply> IntoFuture for TypedCall<T> {
    type Output = Result<T, ClientError>;
    type IntoFuture = TypedReply<T>;

    fn into_future(self) -> TypedReply<T> {
        self.send()
    }
}

impl<T> fmt::Debug for TypedCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.fmt(f)
    }
}

/// The reply to a [`TypedCall`], when it has come.
#[must_use = "dropping the reply gives up; post() sends a command whose reply is ignored"]
pub struct TypedReply<T> {
    reply: ReplyFuture,
    kind: PhantomData<fn() -> T>,
}

impl<T: FromReply> Future for TypedReply<T> {
    type Output = Result<T, ClientError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = Pin::new(&mut self.reply).poll(cx);
        reply.map(|reply| reply.and_then(|value| Ok(T::from_reply(value)?)))
    }
}

impl<T> fmt::Debug for TypedReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reply.fmt(f)
    }
}

impl Client {
    /// The value of a key by GET, or from the [cache](crate::ClientBuilder::cache) if the client has one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_cached<T: FromReply>(&self, key: impl Into<Bytes>) -> Result<T, ClientError> {
        let key = key.into();
        if let Some(value) = self.handle.cache.as_ref().and_then(|cache| cache.get(&key)) {
            return Ok(T::from_reply(value)?);
        }
        self.cmd("GET").arg(&key).idempotent().cached_as(key).fetch().await
    }
}

macro_rules! of_effect {
    (reads $call:ident) => {
        $call.idempotent()
    };
    (writes $call:ident) => {
        $call
    };
}

/// Methods of `Client`; behind a semicolon, an argument is a list. A reply without a type is of the type that the caller
/// chooses.
macro_rules! commands {
    ($(
        $effect:ident $name:ident$(<$any:ident>)?($($argument:ident),* $(; $list:ident)?) -> $reply:ty
            = $word:literal $($more:literal)?;
    )*) => {
        impl Client {$(
            #[doc = concat!("The command `", $word, $(" ", $more,)? "`.")]
            pub fn $name$(<$any: FromReply>)?(
                &self,
                $($argument: impl Argument,)*
                $($list: impl IntoIterator<Item: Argument>,)?
            ) -> TypedCall<$reply> {
                let call = self.cmd($word)$(.arg($more))?;
                $(let call = $argument.add_to(call);)*
                $(let call = $list.into_iter().fold(call, |call, argument| argument.add_to(call));)?
                TypedCall::new(of_effect!($effect call))
            }
        )*}
    };
}

// Strings.
commands! {
    reads get<T>(key) -> T = "GET";
    reads mget<T>(; keys) -> Vec<T> = "MGET";
    reads getrange<T>(key, start, end) -> T = "GETRANGE";
    reads strlen(key) -> u64 = "STRLEN";
    writes set(key, value) -> () = "SET";
    writes setex(key, seconds, value) -> () = "SETEX";
    writes psetex(key, milliseconds, value) -> () = "PSETEX";
    writes setnx(key, value) -> bool = "SETNX";
    writes setrange(key, offset, value) -> u64 = "SETRANGE";
    writes mset(; entries) -> () = "MSET";
    writes msetnx(; entries) -> bool = "MSETNX";
    writes getset<T>(key, value) -> T = "GETSET";
    writes getdel<T>(key) -> T = "GETDEL";
    writes append(key, value) -> u64 = "APPEND";
    writes incr(key) -> i64 = "INCR";
    writes incrby(key, by) -> i64 = "INCRBY";
    writes incrbyfloat(key, by) -> f64 = "INCRBYFLOAT";
    writes decr(key) -> i64 = "DECR";
    writes decrby(key, by) -> i64 = "DECRBY";
    reads getbit(key, offset) -> bool = "GETBIT";
    writes setbit(key, offset, bit) -> bool = "SETBIT";
    reads bitcount(key) -> u64 = "BITCOUNT";
}

// Keys.
commands! {
    reads exists(; keys) -> u64 = "EXISTS";
    writes del(; keys) -> u64 = "DEL";
    writes unlink(; keys) -> u64 = "UNLINK";
    writes expire(key, seconds) -> bool = "EXPIRE";
    writes pexpire(key, milliseconds) -> bool = "PEXPIRE";
    writes expireat(key, time) -> bool = "EXPIREAT";
    writes persist(key) -> bool = "PERSIST";
    reads ttl(key) -> i64 = "TTL";
    reads pttl(key) -> i64 = "PTTL";
    reads type_of(key) -> String = "TYPE";
    writes rename(key, name) -> () = "RENAME";
    writes renamenx(key, name) -> bool = "RENAMENX";
    writes copy(key, name) -> bool = "COPY";
    reads keys<T>(pattern) -> Vec<T> = "KEYS";
    reads randomkey<T>() -> T = "RANDOMKEY";
    writes touch(; keys) -> u64 = "TOUCH";
}

// Hashes.
commands! {
    reads hget<T>(key, field) -> T = "HGET";
    reads hmget<T>(key; fields) -> Vec<T> = "HMGET";
    reads hgetall<T>(key) -> HashMap<String, T> = "HGETALL";
    reads hkeys<T>(key) -> Vec<T> = "HKEYS";
    reads hvals<T>(key) -> Vec<T> = "HVALS";
    reads hlen(key) -> u64 = "HLEN";
    reads hexists(key, field) -> bool = "HEXISTS";
    reads hstrlen(key, field) -> u64 = "HSTRLEN";
    writes hset(key; entries) -> u64 = "HSET";
    writes hsetnx(key, field, value) -> bool = "HSETNX";
    writes hdel(key; fields) -> u64 = "HDEL";
    writes hincrby(key, field, by) -> i64 = "HINCRBY";
    writes hincrbyfloat(key, field, by) -> f64 = "HINCRBYFLOAT";
}

// Lists.
commands! {
    writes lpush(key; values) -> u64 = "LPUSH";
    writes rpush(key; values) -> u64 = "RPUSH";
    writes lpop<T>(key) -> T = "LPOP";
    writes rpop<T>(key) -> T = "RPOP";
    reads llen(key) -> u64 = "LLEN";
    reads lrange<T>(key, start, stop) -> Vec<T> = "LRANGE";
    reads lindex<T>(key, index) -> T = "LINDEX";
    writes lset(key, index, value) -> () = "LSET";
    writes lrem(key, count, value) -> u64 = "LREM";
    writes ltrim(key, start, stop) -> () = "LTRIM";
    writes lmove<T>(from, to, from_end, to_end) -> T = "LMOVE";
    writes rpoplpush<T>(from, to) -> T = "RPOPLPUSH";
}

// Sets.
commands! {
    writes sadd(key; members) -> u64 = "SADD";
    writes srem(key; members) -> u64 = "SREM";
    reads scard(key) -> u64 = "SCARD";
    reads sismember(key, member) -> bool = "SISMEMBER";
    reads smismember(key; members) -> Vec<bool> = "SMISMEMBER";
    reads smembers(key) -> HashSet<String> = "SMEMBERS";
    reads srandmember<T>(key) -> T = "SRANDMEMBER";
    writes spop<T>(key) -> T = "SPOP";
    writes smove(from, to, member) -> bool = "SMOVE";
    reads sunion(; keys) -> HashSet<String> = "SUNION";
    reads sinter(; keys) -> HashSet<String> = "SINTER";
    reads sdiff(; keys) -> HashSet<String> = "SDIFF";
}

// Sorted sets.
commands! {
    writes zadd(key; scores) -> u64 = "ZADD";
    writes zincrby(key, by, member) -> f64 = "ZINCRBY";
    writes zrem(key; members) -> u64 = "ZREM";
    reads zcard(key) -> u64 = "ZCARD";
    reads zscore(key, member) -> Option<f64> = "ZSCORE";
    reads zrank(key, member) -> Option<u64> = "ZRANK";
    reads zrevrank(key, member) -> Option<u64> = "ZREVRANK";
    reads zcount(key, min, max) -> u64 = "ZCOUNT";
    reads zrange<T>(key, start, stop) -> Vec<T> = "ZRANGE";
    reads zrevrange<T>(key, start, stop) -> Vec<T> = "ZREVRANGE";
    reads zrangebyscore<T>(key, min, max) -> Vec<T> = "ZRANGEBYSCORE";
    writes zremrangebyscore(key, min, max) -> u64 = "ZREMRANGEBYSCORE";
    writes zremrangebyrank(key, start, stop) -> u64 = "ZREMRANGEBYRANK";
}

// Streams.
commands! {
    writes xadd(key, id; entries) -> String = "XADD";
    reads xlen(key) -> u64 = "XLEN";
    reads xrange<T>(key, start, end) -> Vec<T> = "XRANGE";
    writes xdel(key; ids) -> u64 = "XDEL";
    writes xack(key, group; ids) -> u64 = "XACK";
}

// HyperLogLogs, channels, the server.
commands! {
    writes pfadd(key; elements) -> bool = "PFADD";
    reads pfcount(; keys) -> u64 = "PFCOUNT";
    writes publish(channel, message) -> u64 = "PUBLISH";
    reads pubsub_numsub(; channels) -> BTreeMap<String, u64> = "PUBSUB" "NUMSUB";
    reads ping() -> () = "PING";
    reads echo<T>(message) -> T = "ECHO";
    reads dbsize() -> u64 = "DBSIZE";
    writes flushdb() -> () = "FLUSHDB";
    reads info() -> String = "INFO";
    reads time() -> (u64, u32) = "TIME";
    writes script_flush() -> () = "SCRIPT" "FLUSH";
}
