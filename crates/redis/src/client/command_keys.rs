//! The keys of commands: at which positions each known command has them, and whether it only reads.
//!
//! The positions are those of COMMAND INFO (redis.io, "Key specifications"). The table has the commands of Redis 7 that have
//! keys, and those without keys that any server of a cluster can answer. All others concern one server, or are unknown.

use crate::outgoing_command::CommandBuffer;

/// Where a command has its keys. Positions count from the name, which is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyPositions {
    /// No key: any server has the same answer.
    Nowhere,
    /// From the first to the last, which counts from the end if negative, at this distance.
    Range(usize, isize, usize),
    /// Behind their number, which is at this position.
    Counted(usize),
    /// The first argument, and behind their number, which is at position 2.
    DestinationAndCounted,
    /// The first half of the arguments behind STREAMS.
    Streams,
}

/// The keys of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommandKeys<'a> {
    /// These keys. It only reads if the second value is true.
    Known(Vec<&'a [u8]>, bool),
    /// The command concerns one server, or the table does not have it, or its arguments are malformed.
    Unknown,
}

/// The keys of a command.
pub(crate) fn keys_of(command: &CommandBuffer) -> CommandKeys<'_> {
    let arguments: Vec<_> = command.arguments().collect();
    let Some((positions, reads)) = arguments.first().and_then(|name| positions_of(name, arguments.get(1).copied()))
    else {
        return CommandKeys::Unknown;
    };
    match keys_at(positions, &arguments) {
        Some(keys) if positions == KeyPositions::Nowhere || !keys.is_empty() => CommandKeys::Known(keys, reads),
        // A script may have no key: any server has the same answer, unless it writes.
        Some(keys) if matches!(positions, KeyPositions::Counted(2)) => CommandKeys::Known(keys, reads),
        _ => CommandKeys::Unknown,
    }
}

fn keys_at<'a>(positions: KeyPositions, arguments: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
    let counted = |at: usize| {
        let count: usize = std::str::from_utf8(arguments.get(at)?).ok()?.parse().ok()?;
        arguments.get(at + 1..(at + 1).checked_add(count)?)
    };
    match positions {
        KeyPositions::Nowhere => Some(Vec::new()),
        KeyPositions::Range(first, last, step) => {
            let end = usize::try_from(last).ok().or_else(|| arguments.len().checked_add_signed(last))?;
            Some(arguments.get(first..=end)?.iter().step_by(step).copied().collect())
        }
        KeyPositions::Counted(at) => Some(counted(at)?.to_vec()),
        KeyPositions::DestinationAndCounted => Some([&arguments.get(1..2)?, counted(2)?].concat()),
        KeyPositions::Streams => {
            let from = arguments.iter().position(|argument| argument.eq_ignore_ascii_case(b"STREAMS"))? + 1;
            Some(arguments[from..from + (arguments.len() - from) / 2].to_vec())
        }
    }
}

fn positions_of(name: &[u8], subcommand: Option<&[u8]>) -> Option<(KeyPositions, bool)> {
    let mut upper = [0; NAME_BYTES_MAX];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    let name = std::str::from_utf8(upper).ok()?;
    let is_subcommand = |names: &[&str]| {
        names.iter().any(|name| subcommand.is_some_and(|subcommand| subcommand.eq_ignore_ascii_case(name.as_bytes())))
    };
    let known = match name {
        "SCRIPT" => is_subcommand(&["LOAD"]).then_some((KeyPositions::Nowhere, true)),
        "MEMORY" => is_subcommand(&["USAGE"]).then_some((KeyPositions::Range(2, 2, 1), true)),
        "OBJECT" => {
            is_subcommand(&["ENCODING", "FREQ", "IDLETIME", "REFCOUNT"]).then_some((KeyPositions::Range(2, 2, 1), true))
        }
        "XINFO" => is_subcommand(&["STREAM", "GROUPS", "CONSUMERS"]).then_some((KeyPositions::Range(2, 2, 1), true)),
        _ => None,
    };
    let found = || TABLE.iter().find(|(_, _, names)| names.contains(&name)).map(|(keys, reads, _)| (*keys, *reads));
    known.or_else(found)
}

/// The longest name of the table, and a reserve.
const NAME_BYTES_MAX: usize = 32;

/// Positions, whether the commands only read, and their names; the most frequent first.
const TABLE: &[(KeyPositions, bool, &[&str])] = &[
    (
        KeyPositions::Range(1, 1, 1),
        true,
        &[
            "GET",
            "HGET",
            "HGETALL",
            "HMGET",
            "TTL",
            "LRANGE",
            "SISMEMBER",
            "SMEMBERS",
            "ZSCORE",
            "ZRANGE",
            "ZRANK",
            "ZRANGEBYSCORE",
            "STRLEN",
            "PTTL",
            "TYPE",
            "HEXISTS",
            "HKEYS",
            "HVALS",
            "HLEN",
            "HSTRLEN",
            "HRANDFIELD",
            "HSCAN",
            "LLEN",
            "LINDEX",
            "LPOS",
            "SCARD",
            "SMISMEMBER",
            "SRANDMEMBER",
            "SSCAN",
            "ZCARD",
            "ZMSCORE",
            "ZREVRANK",
            "ZCOUNT",
            "ZLEXCOUNT",
            "ZREVRANGE",
            "ZREVRANGEBYSCORE",
            "ZRANGEBYLEX",
            "ZREVRANGEBYLEX",
            "ZRANDMEMBER",
            "ZSCAN",
            "XLEN",
            "XRANGE",
            "XREVRANGE",
            "XPENDING",
            "GETRANGE",
            "SUBSTR",
            "GETBIT",
            "BITCOUNT",
            "BITPOS",
            "BITFIELD_RO",
            "EXPIRETIME",
            "PEXPIRETIME",
            "DUMP",
            "SORT_RO",
            "GEOPOS",
            "GEODIST",
            "GEOHASH",
            "GEOSEARCH",
            "GEORADIUS_RO",
            "GEORADIUSBYMEMBER_RO",
            "HTTL",
            "HPTTL",
            "HEXPIRETIME",
            "HPEXPIRETIME",
        ],
    ),
    (
        KeyPositions::Range(1, 1, 1),
        false,
        &[
            "SET",
            "INCR",
            "HSET",
            "EXPIRE",
            "LPUSH",
            "RPUSH",
            "LPOP",
            "RPOP",
            "SADD",
            "SREM",
            "ZADD",
            "ZINCRBY",
            "ZREM",
            "SETEX",
            "PSETEX",
            "SETNX",
            "SETRANGE",
            "GETSET",
            "GETDEL",
            "GETEX",
            "APPEND",
            "INCRBY",
            "INCRBYFLOAT",
            "DECR",
            "DECRBY",
            "SETBIT",
            "BITFIELD",
            "PEXPIRE",
            "EXPIREAT",
            "PEXPIREAT",
            "PERSIST",
            "RESTORE",
            "HMSET",
            "HSETNX",
            "HDEL",
            "HINCRBY",
            "HINCRBYFLOAT",
            "LPUSHX",
            "RPUSHX",
            "LSET",
            "LREM",
            "LTRIM",
            "LINSERT",
            "SPOP",
            "ZPOPMIN",
            "ZPOPMAX",
            "ZREMRANGEBYSCORE",
            "ZREMRANGEBYRANK",
            "ZREMRANGEBYLEX",
            "XADD",
            "XDEL",
            "XACK",
            "XTRIM",
            "XCLAIM",
            "XAUTOCLAIM",
            "XSETID",
            "PFADD",
            "GEOADD",
            "GEORADIUS",
            "GEORADIUSBYMEMBER",
            "SORT",
            "SPUBLISH",
            "HEXPIRE",
            "HPEXPIRE",
            "HEXPIREAT",
            "HPEXPIREAT",
            "HPERSIST",
            "HGETDEL",
            "HGETEX",
            "HSETEX",
        ],
    ),
    (KeyPositions::Range(1, -1, 1), true, &["MGET", "EXISTS", "SUNION", "SINTER", "SDIFF", "PFCOUNT"]),
    (
        KeyPositions::Range(1, -1, 1),
        false,
        &["DEL", "UNLINK", "TOUCH", "WATCH", "SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE", "PFMERGE"],
    ),
    (KeyPositions::Range(1, -1, 2), false, &["MSET", "MSETNX"]),
    (KeyPositions::Range(1, -2, 1), false, &["BLPOP", "BRPOP", "BZPOPMIN", "BZPOPMAX"]),
    (KeyPositions::Range(1, 2, 1), true, &["LCS"]),
    (
        KeyPositions::Range(1, 2, 1),
        false,
        &[
            "RENAME",
            "RENAMENX",
            "COPY",
            "LMOVE",
            "RPOPLPUSH",
            "SMOVE",
            "BLMOVE",
            "BRPOPLPUSH",
            "ZRANGESTORE",
            "GEOSEARCHSTORE",
        ],
    ),
    (KeyPositions::Range(2, -1, 1), false, &["BITOP"]),
    (KeyPositions::Range(2, 2, 1), false, &["XGROUP"]),
    (KeyPositions::Counted(1), true, &["SINTERCARD", "ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD"]),
    (KeyPositions::Counted(1), false, &["LMPOP", "ZMPOP"]),
    (KeyPositions::Counted(2), true, &["EVAL_RO", "EVALSHA_RO", "FCALL_RO"]),
    (KeyPositions::Counted(2), false, &["EVALSHA", "EVAL", "FCALL", "BLMPOP", "BZMPOP"]),
    (KeyPositions::DestinationAndCounted, false, &["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"]),
    (KeyPositions::Streams, true, &["XREAD"]),
    (KeyPositions::Streams, false, &["XREADGROUP"]),
    (KeyPositions::Nowhere, true, &["PING", "ECHO", "TIME", "COMMAND"]),
    (KeyPositions::Nowhere, false, &["PUBLISH"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &str) -> CommandBuffer {
        let mut words = words.split(' ');
        let name = words.next().unwrap_or_default();
        words.fold(CommandBuffer::new(name), CommandBuffer::arg)
    }

    #[test]
    fn keys_are_where_redis_has_them() {
        for (words, keys) in [
            ("get a", "a"),
            ("MSET a 1 b 2", "a b"),
            ("BLPOP a b 0", "a b"),
            ("LMOVE a b LEFT RIGHT", "a b"),
            ("EVALSHA hash 2 a b c", "a b"),
            ("EVAL x 0", ""),
            ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", "d a b"),
            ("XREAD COUNT 2 STREAMS a b 0 0", "a b"),
            ("BITOP AND d a b", "d a b"),
            ("PING", ""),
            ("OBJECT ENCODING a", "a"),
            ("BLMPOP 0 2 a b LEFT", "a b"),
        ] {
            let command = command(words);
            let CommandKeys::Known(found, _) = keys_of(&command) else { panic!("{words} has no keys") };
            let expected: Vec<_> = keys.split(' ').filter(|key| !key.is_empty()).map(str::as_bytes).collect();
            assert_eq!(found, expected, "{words}");
        }
    }

    #[test]
    fn commands_of_one_server_unknown_ones_and_malformed_ones_have_no_keys() {
        let long = "X".repeat(100);
        for words in [
            "KEYS *",
            "DBSIZE",
            "FLUSHALL",
            "WHAT a",
            "GET",
            "EVAL x 5 a",
            "EVAL x -1 a",
            "XREAD a",
            "BLPOP",
            "MGET",
            &long,
        ] {
            assert_eq!(keys_of(&command(words)), CommandKeys::Unknown, "{words}");
        }
        let overflow = format!("EVAL x {} a", usize::MAX);
        assert_eq!(keys_of(&command(&overflow)), CommandKeys::Unknown);
    }

    #[test]
    fn a_name_is_in_the_table_once() {
        let mut names: Vec<_> = TABLE.iter().flat_map(|(_, _, names)| *names).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(names.iter().all(|name| name.len() < NAME_BYTES_MAX));
    }

    #[test]
    fn a_linked_key_is_found() {
        let key = bytes::Bytes::from(vec![b'k'; 100_000]);
        let command = CommandBuffer::new("SET").shared_arg(key.clone()).arg("value");
        assert_eq!(command.arguments().collect::<Vec<_>>(), [&b"SET"[..], &key, b"value"]);
    }
}
