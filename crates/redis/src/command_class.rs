//! `CommandClass`: which commands may share a connection.

use crate::command::Command;

/// Needs of a command towards its connection, for proxies and pools: the Redis 7 commands, by their names.
///
/// A command with an unknown name counts as [`Keyed`](Self::Keyed): a later version or a module has it, and most commands
/// need nothing of their connection.
///
/// ```
/// use tidegate::redis::{CommandClass, IncomingCommand, ServerCodec};
/// use tidegate_testkit::CodecHarness;
///
/// let mut server = CodecHarness::new(ServerCodec::default());
/// let commands = server.decode(b"GET brest\r\nBLPOP jobs 0\r\nXREAD BLOCK 0 STREAMS s $\r\nMULTI\r\nPING\r\n")?;
/// let classes: Vec<_> = commands
///     .iter()
///     .map(|command| match command {
///         IncomingCommand::Whole(command) => CommandClass::of(command),
///         other => panic!("{other:?}"),
///     })
///     .collect();
/// use CommandClass::{Blocking, Keyed, Keyless, Transaction};
/// assert_eq!(classes, [Keyed, Blocking, Blocking, Transaction, Keyless]);
/// # Ok::<(), tidegate::redis::RedisError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommandClass {
    /// It reads or writes keys, and may share a connection.
    Keyed,
    /// It names no key, and may share a connection: PING, PUBLISH, INFO, SCRIPT and so on. A cluster has it on any node,
    /// or on all.
    Keyless,
    /// Its reply may take long, and delays those behind it: BLPOP and its like, XREAD and XREADGROUP with BLOCK.
    Blocking,
    /// MULTI, EXEC, DISCARD, WATCH, UNWATCH: the commands between them belong to the same connection.
    Transaction,
    /// SUBSCRIBE and its like, MONITOR: messages follow that answer no command.
    Subscription,
    /// It shows or changes the state of its connection, or its effect depends on earlier commands there: HELLO, AUTH,
    /// SELECT, CLIENT, RESET, QUIT, WAIT, READONLY, ASKING, SCRIPT DEBUG, and the commands of replication.
    Connection,
}

impl CommandClass {
    /// The class of a command. Upper and lower case are the same.
    #[must_use]
    pub fn of(command: &Command) -> Self {
        let name = command.name();
        let is_in = |names: &[&str]| names.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()));
        if is_in(&["XREAD", "XREADGROUP"]) {
            return if waits(command) { Self::Blocking } else { Self::Keyed };
        }
        // A script would be debugged for all that share the connection.
        if is_in(&["SCRIPT"]) && command.argument(1).is_some_and(|word| word.eq_ignore_ascii_case(b"DEBUG")) {
            return Self::Connection;
        }
        CLASSES.iter().find(|(_, names)| is_in(names)).map_or(Self::Keyed, |(class, _)| *class)
    }
}

/// Whether XREAD or XREADGROUP has the option BLOCK. Behind STREAMS there are keys, and behind GROUP two names.
fn waits(command: &Command) -> bool {
    let has_group = command.arguments().next().is_some_and(|first| first.eq_ignore_ascii_case(b"GROUP"));
    command
        .arguments()
        .skip(if has_group { 3 } else { 0 })
        .take_while(|argument| !argument.eq_ignore_ascii_case(b"STREAMS"))
        .any(|argument| argument.eq_ignore_ascii_case(b"BLOCK"))
}

const CLASSES: [(CommandClass, &[&str]); 5] = [
    (CommandClass::Blocking, &["BLPOP", "BRPOP", "BLMOVE", "BLMPOP", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX", "BZMPOP"]),
    (CommandClass::Transaction, &["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"]),
    (
        CommandClass::Subscription,
        &["SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE", "MONITOR"],
    ),
    (
        CommandClass::Connection,
        &[
            "HELLO",
            "AUTH",
            "SELECT",
            "CLIENT",
            "RESET",
            "QUIT",
            "WAIT",
            "WAITAOF",
            "READONLY",
            "READWRITE",
            "ASKING",
            "SYNC",
            "PSYNC",
            "REPLCONF",
        ],
    ),
    (
        CommandClass::Keyless,
        &[
            "PING",
            "ECHO",
            "TIME",
            "INFO",
            "COMMAND",
            "CONFIG",
            "DBSIZE",
            "KEYS",
            "SCAN",
            "RANDOMKEY",
            "FLUSHALL",
            "FLUSHDB",
            "SWAPDB",
            "PUBLISH",
            "PUBSUB",
            "SCRIPT",
            "FUNCTION",
            "ACL",
            "SLOWLOG",
            "LATENCY",
            "LOLWUT",
            "LASTSAVE",
            "SAVE",
            "BGSAVE",
            "BGREWRITEAOF",
            "SHUTDOWN",
            "ROLE",
            "REPLICAOF",
            "SLAVEOF",
            "FAILOVER",
            "CLUSTER",
            "MODULE",
            "DEBUG",
        ],
    ),
];
