//! Commands with subcommands, and INFO: replies that client libraries need when they connect.

use bytes::Bytes;
use tidegate_codec::Broadcast;

use crate::command::Command;
use crate::outgoing_reply::OutgoingReply;
use crate::server::channels::{Channels, TopicKind};
use crate::server::config::HandlerConfig;
use crate::server::connection_commands::{ConnectionCommand, Identity};
use crate::server::glob::matches;
use crate::server::service::{CallContext, on_one_line};
use crate::token::AggregateKind;

/// INFO: the sections that clients read.
pub(super) fn info(command: &Command, identity: &Identity) -> OutgoingReply {
    let server = format!("redis_version:{}\r\nredis_mode:standalone\r\n", identity.server_version);
    let sections = [
        ("Server", &*server),
        ("Persistence", "loading:0\r\n"),
        ("Replication", "role:master\r\nconnected_slaves:0\r\n"),
        ("Cluster", "cluster_enabled:0\r\n"),
    ];
    let is_wanted = |section: &str| {
        let is = |name: &[u8]| name.eq_ignore_ascii_case(section.as_bytes());
        let is_all =
            |name: &[u8]| [&b"all"[..], b"default", b"everything"].iter().any(|all| name.eq_ignore_ascii_case(all));
        command.count() == 1 || command.arguments().any(|name| is(name) || is_all(name))
    };
    let sections: Vec<_> = sections.iter().filter(|(name, _)| is_wanted(name)).collect();
    let text: Vec<_> = sections.iter().map(|(name, lines)| format!("# {name}\r\n{lines}")).collect();
    OutgoingReply::Verbatim(*b"txt", text.join("\r\n").into())
}

/// CONFIG GET: the parameters that redis-benchmark reads.
pub(super) fn config(command: &Command) -> OutgoingReply {
    const PARAMETERS: [(&str, &str); 2] = [("appendonly", "no"), ("save", "")];
    match Subcommand::of(command) {
        config if config.is("GET", 3, usize::MAX) => {
            let is_wanted = |name: &str| {
                let mut patterns = command.iter().skip(2);
                patterns.any(|pattern| matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
            };
            let found = PARAMETERS.into_iter().filter(|(name, _)| is_wanted(name));
            OutgoingReply::aggregate(
                AggregateKind::Map,
                found.flat_map(|(name, value)| [OutgoingReply::bulk(name), OutgoingReply::bulk(value)]),
            )
        }
        config => config.error("GET"),
    }
}

/// COMMAND: the server describes none, so that clients use their own tables.
pub(super) fn command(command: &Command) -> OutgoingReply {
    let nothing = |kind| OutgoingReply::Aggregate(kind, 0);
    match Subcommand::of(command) {
        _ if command.count() == 1 => nothing(AggregateKind::Array),
        what if what.is("COUNT", 2, 2) => OutgoingReply::Integer(0),
        what if what.is("DOCS", 2, usize::MAX) => nothing(AggregateKind::Map),
        what if what.is("LIST", 2, usize::MAX) => nothing(AggregateKind::Array),
        what if what.is("INFO", 2, usize::MAX) => {
            OutgoingReply::array(command.iter().skip(2).map(|_| OutgoingReply::NullArray))
        }
        what => what.error("COUNT"),
    }
}

/// The error for a name or a pattern that is too long to compare, of PUBLISH and PUBSUB CHANNELS.
pub(super) fn check_names(
    what: ConnectionCommand,
    command: &Command,
    config: &HandlerConfig,
) -> Result<(), OutgoingReply> {
    match what {
        ConnectionCommand::Publish => config.check_name(TopicKind::Channel, command.argument(1).unwrap_or_default()),
        _ if Subcommand::of(command).is("CHANNELS", 3, 3) => {
            config.check_name(TopicKind::Pattern, command.argument(2).unwrap_or_default())
        }
        _ => Ok(()),
    }
}

pub(super) fn pubsub<C: Broadcast>(command: &Command, channels: &Channels<C>) -> OutgoingReply {
    match Subcommand::of(command) {
        what if what.is("CHANNELS", 2, 3) => {
            let active = channels.active(command.argument(2).unwrap_or(b"*"));
            OutgoingReply::array(active.iter().map(|name| OutgoingReply::bulk(name.to_vec())))
        }
        what if what.is("NUMPAT", 2, 2) => OutgoingReply::Integer(channels.pattern_count() as i64),
        what if what.is("NUMSUB", 2, usize::MAX) => {
            let counts = command.iter().skip(2).flat_map(|name| {
                let count = channels.subscriber_count(name) as i64;
                [OutgoingReply::bulk(name.to_vec()), OutgoingReply::Integer(count)]
            });
            OutgoingReply::array(counts)
        }
        what => what.error("NUMPAT"),
    }
}

/// Whether the command gives the connection a name.
pub(super) fn names_client(command: &Command) -> bool {
    command.argument(1).is_some_and(|what| what.eq_ignore_ascii_case(b"SETNAME"))
}

/// CLIENT: the subcommands that client libraries send when they connect.
pub(super) fn client(command: &Command, name: &mut Bytes, context: &CallContext) -> OutgoingReply {
    let argument = command.argument(2).unwrap_or_default();
    let is_switch = |on: &str, off: &str| [on, off].iter().any(|word| argument.eq_ignore_ascii_case(word.as_bytes()));
    match Subcommand::of(command) {
        what if what.is("ID", 2, 2) => OutgoingReply::Integer(context.client_id as i64),
        what if what.is("GETNAME", 2, 2) && name.is_empty() => OutgoingReply::Null,
        what if what.is("GETNAME", 2, 2) => OutgoingReply::bulk(name.clone()),
        what if what.is("SETNAME", 3, 3) => match checked_name(argument) {
            Ok(checked) => {
                *name = checked;
                OutgoingReply::ok()
            }
            Err(error) => error,
        },
        what if what.is("SETINFO", 4, 4) => OutgoingReply::ok(),
        what if what.is("NO-EVICT", 3, 3) || what.is("NO-TOUCH", 3, 3) => {
            if is_switch("on", "off") {
                OutgoingReply::ok()
            } else {
                OutgoingReply::error("ERR syntax error")
            }
        }
        what => what.error("ID GETNAME SETNAME SETINFO NO-EVICT NO-TOUCH"),
    }
}

pub(super) fn checked_name(name: &[u8]) -> Result<Bytes, OutgoingReply> {
    if name.len() <= NAME_BYTES_MAX && name.iter().all(u8::is_ascii_graphic) {
        return Ok(Bytes::copy_from_slice(name));
    }
    Err(OutgoingReply::error("ERR Client names cannot contain spaces, newlines or special characters."))
}

/// The first two words of a command.
#[derive(Clone, Copy)]
struct Subcommand<'a> {
    command: &'a [u8],
    name: &'a [u8],
    count: usize,
}

impl<'a> Subcommand<'a> {
    fn of(command: &'a Command) -> Self {
        Self { command: command.name(), name: command.argument(1).unwrap_or_default(), count: command.count() }
    }

    /// Whether it is this one, with so many arguments.
    fn is(&self, name: &str, min: usize, max: usize) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes()) && (min..=max).contains(&self.count)
    }

    /// The error for a subcommand that is not there, or for the number of arguments if it is one of `names`.
    fn error(&self, names: &str) -> OutgoingReply {
        let (command, name) = (on_one_line(self.command), on_one_line(self.name));
        if names.split(' ').any(|known| self.name.eq_ignore_ascii_case(known.as_bytes())) {
            let words = format!("{command}|{name}").to_ascii_lowercase();
            return OutgoingReply::error(format!("ERR wrong number of arguments for '{words}' command"));
        }
        let command = command.to_ascii_uppercase();
        OutgoingReply::error(format!("ERR unknown subcommand '{name}'. Try {command} HELP."))
    }
}

/// A name is for lists of connections.
const NAME_BYTES_MAX: usize = 1024;
