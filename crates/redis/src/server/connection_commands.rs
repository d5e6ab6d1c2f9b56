//! Commands that concern the connection or the server, and not the data.

use bytes::Bytes;
use tidegate_codec::Broadcast;

use crate::command::Command;
use crate::number;
use crate::outgoing_reply::{OutgoingReply, Version};
use crate::server::channels::Channels;
use crate::server::service::{CallContext, error_for_count, on_one_line};
use crate::server::subscriptions::SubscriptionCommand;
use crate::token::AggregateKind;

/// A command that the handler knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionCommand {
    Auth,
    Client,
    Command,
    Config,
    Discard,
    Echo,
    Exec,
    Hello,
    Info,
    Multi,
    Ping,
    Publish,
    Pubsub,
    Quit,
    Reset,
    Select,
    Subscription(SubscriptionCommand),
}

impl ConnectionCommand {
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        const NAMES: [(&[u8], ConnectionCommand); 16] = [
            (b"PING", ConnectionCommand::Ping),
            (b"PUBLISH", ConnectionCommand::Publish),
            (b"MULTI", ConnectionCommand::Multi),
            (b"EXEC", ConnectionCommand::Exec),
            (b"DISCARD", ConnectionCommand::Discard),
            (b"ECHO", ConnectionCommand::Echo),
            (b"HELLO", ConnectionCommand::Hello),
            (b"AUTH", ConnectionCommand::Auth),
            (b"CLIENT", ConnectionCommand::Client),
            (b"COMMAND", ConnectionCommand::Command),
            (b"CONFIG", ConnectionCommand::Config),
            (b"INFO", ConnectionCommand::Info),
            (b"PUBSUB", ConnectionCommand::Pubsub),
            (b"QUIT", ConnectionCommand::Quit),
            (b"RESET", ConnectionCommand::Reset),
            (b"SELECT", ConnectionCommand::Select),
        ];
        let found = NAMES.iter().find(|(other, _)| name.eq_ignore_ascii_case(other)).map(|(_, what)| *what);
        found.or_else(|| SubscriptionCommand::of(name).map(Self::Subscription))
    }

    /// How few and how many arguments it may have in a transaction, its name included.
    pub(super) const fn counts(self) -> (usize, usize) {
        match self {
            Self::Echo | Self::Select => (2, 2),
            Self::Publish => (3, 3),
            Self::Client | Self::Config | Self::Pubsub => (2, usize::MAX),
            _ => (1, usize::MAX),
        }
    }

    /// It has to wait for the replies before it, and is refused within a transaction.
    pub(super) const fn changes_connection(self) -> bool {
        matches!(
            self,
            Self::Auth
                | Self::Discard
                | Self::Exec
                | Self::Hello
                | Self::Multi
                | Self::Quit
                | Self::Reset
                | Self::Subscription(_)
        )
    }

    pub(super) const fn is_before_authentication(self) -> bool {
        matches!(self, Self::Auth | Self::Hello | Self::Quit | Self::Reset)
    }

    /// It is executed between MULTI and EXEC, and not queued.
    pub(super) const fn is_within_transaction(self) -> bool {
        matches!(self, Self::Discard | Self::Exec | Self::Multi | Self::Quit | Self::Reset)
    }

    /// A subscriber of RESP2 may send it.
    pub(super) const fn is_for_subscribers(self) -> bool {
        matches!(self, Self::Subscription(_) | Self::Ping | Self::Quit | Self::Reset)
    }
}

/// The server and the connection, for HELLO and INFO.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) server_version: &'static str,
    pub(super) client_id: u64,
    pub(super) version: Version,
}

impl Identity {
    /// The reply to HELLO.
    pub(super) fn hello(&self) -> OutgoingReply {
        let text = |text: &'static str| OutgoingReply::bulk(text);
        OutgoingReply::aggregate(
            AggregateKind::Map,
            [
                text("server"),
                text("redis"),
                text("version"),
                text(self.server_version),
                text("proto"),
                OutgoingReply::Integer(if self.version == Version::Resp3 { 3 } else { 2 }),
                text("id"),
                OutgoingReply::Integer(self.client_id as i64),
                text("mode"),
                text("standalone"),
                text("role"),
                text("master"),
                text("modules"),
                OutgoingReply::Aggregate(AggregateKind::Array, 0),
            ],
        )
    }

    fn info(&self) -> OutgoingReply {
        let text = format!("# Server\r\nredis_version:{}\r\nredis_mode:standalone\r\n", self.server_version);
        OutgoingReply::Verbatim(*b"txt", text.into())
    }
}

/// The requests of a HELLO command.
#[derive(Debug, Default)]
pub(super) struct Hello {
    pub(super) version: Option<Version>,
    pub(super) name: Option<Bytes>,
}

/// The arguments of HELLO.
pub(super) fn hello(command: &Command, password: Option<&[u8]>, was_in: bool) -> Result<Hello, OutgoingReply> {
    let mut arguments = command.iter().skip(1);
    let (mut hello, mut is_in) = (Hello::default(), was_in);
    if let Some(version) = arguments.next() {
        hello.version = Some(match number::plain_integer(version) {
            Some(2) => Version::Resp2,
            Some(3) => Version::Resp3,
            Some(_) => return Err(OutgoingReply::error("NOPROTO unsupported protocol version")),
            None => return Err(OutgoingReply::error("ERR Protocol version is not an integer or out of range")),
        });
    }
    while let Some(option) = arguments.next() {
        let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
        let mut next = || arguments.next();
        match option {
            _ if is(b"AUTH") => match (next(), next()) {
                (Some(user), Some(given)) => {
                    check_password(Some(user), given, password)?;
                    is_in = true;
                }
                _ => return Err(error_for_hello(option)),
            },
            _ if is(b"SETNAME") => {
                let name = next().ok_or_else(|| error_for_hello(option))?;
                hello.name = Some(checked_name(name)?);
            }
            _ => return Err(error_for_hello(option)),
        }
    }
    if is_in {
        return Ok(hello);
    }
    Err(OutgoingReply::error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
         option can be used to authenticate the client and select the RESP protocol version at the same time",
    ))
}

fn error_for_hello(option: &[u8]) -> OutgoingReply {
    OutgoingReply::error(format!("ERR Syntax error in HELLO option '{}'", on_one_line(option)))
}

/// AUTH password, or AUTH user password.
pub(super) fn authenticate(command: &Command, password: Option<&[u8]>) -> Result<(), OutgoingReply> {
    match (command.count(), command.argument(1), command.argument(2)) {
        (2, Some(given), _) if password.is_some() => check_password(None, given, password),
        (2, ..) => Err(OutgoingReply::error(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
             configuration is correct?",
        )),
        (3, Some(user), Some(given)) => check_password(Some(user), given, password),
        _ => Err(error_for_count(command)),
    }
}

fn check_password(user: Option<&[u8]>, given: &[u8], password: Option<&[u8]>) -> Result<(), OutgoingReply> {
    // It takes the same time wherever the first wrong byte is.
    let is_right = |password: &[u8]| {
        let differences = password.iter().zip(given).fold(0, |all, (right, given)| all | (right ^ given));
        password.len() == given.len() && std::hint::black_box(differences) == 0
    };
    if user.is_none_or(|user| user == b"default") && password.is_none_or(is_right) {
        return Ok(());
    }
    Err(OutgoingReply::error("WRONGPASS invalid username-password pair or user is disabled."))
}

pub(super) fn error_for_subscriber(name: &[u8]) -> OutgoingReply {
    let name = on_one_line(name).to_ascii_lowercase();
    OutgoingReply::error(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    ))
}

/// The reply to PING on a connection of RESP2 that has subscriptions: it looks like a push.
pub(super) fn pong_of_subscriber(command: &Command) -> OutgoingReply {
    let argument = command.argument(1).unwrap_or_default().to_vec();
    OutgoingReply::array([OutgoingReply::bulk("pong"), OutgoingReply::bulk(argument)])
}

/// The reply to a command that changes nothing.
pub(super) fn reply<C: Broadcast>(
    what: ConnectionCommand,
    command: &Command,
    identity: &Identity,
    channels: &Channels<C>,
) -> OutgoingReply {
    let (count, first) = (command.count(), command.argument(1).unwrap_or_default());
    match what {
        ConnectionCommand::Ping if count == 1 => OutgoingReply::Simple("PONG".into()),
        ConnectionCommand::Ping | ConnectionCommand::Echo if count == 2 => OutgoingReply::bulk(first.to_vec()),
        ConnectionCommand::Info => identity.info(),
        ConnectionCommand::Publish if count == 3 => {
            let message = command.argument(2).unwrap_or_default();
            OutgoingReply::Integer(channels.publish(first, message) as i64)
        }
        ConnectionCommand::Select if count == 2 => match number::plain_integer(first) {
            Some(0) => OutgoingReply::ok(),
            Some(number) if i32::try_from(number).is_ok() => OutgoingReply::error("ERR DB index is out of range"),
            Some(_) => OutgoingReply::error("ERR value is out of range, value must between -2147483648 and 2147483647"),
            None => OutgoingReply::error("ERR value is not an integer or out of range"),
        },
        ConnectionCommand::Command => command_documents(command),
        ConnectionCommand::Config if count > 2 && first.eq_ignore_ascii_case(b"GET") => {
            OutgoingReply::Aggregate(AggregateKind::Map, 0)
        }
        ConnectionCommand::Pubsub if count > 1 => pubsub(command, channels),
        ConnectionCommand::Config if count > 1 => error_for_subcommand("CONFIG", first),
        _ => error_for_count(command),
    }
}

/// COMMAND: the server describes none, so that clients use their own tables.
fn command_documents(command: &Command) -> OutgoingReply {
    match command.argument(1) {
        None => OutgoingReply::Aggregate(AggregateKind::Array, 0),
        Some(what) if what.eq_ignore_ascii_case(b"COUNT") => OutgoingReply::Integer(0),
        Some(what) if what.eq_ignore_ascii_case(b"DOCS") => OutgoingReply::Aggregate(AggregateKind::Map, 0),
        Some(what) if what.eq_ignore_ascii_case(b"INFO") => {
            OutgoingReply::array(command.iter().skip(2).map(|_| OutgoingReply::NullArray))
        }
        Some(what) if what.eq_ignore_ascii_case(b"LIST") => OutgoingReply::Aggregate(AggregateKind::Array, 0),
        Some(what) => error_for_subcommand("COMMAND", what),
    }
}

fn pubsub<C: Broadcast>(command: &Command, channels: &Channels<C>) -> OutgoingReply {
    let what = command.argument(1).unwrap_or_default();
    if what.eq_ignore_ascii_case(b"CHANNELS") && command.count() <= 3 {
        let active = channels.active(command.argument(2).unwrap_or(b"*"));
        OutgoingReply::array(active.into_iter().map(OutgoingReply::bulk))
    } else if what.eq_ignore_ascii_case(b"NUMPAT") && command.count() == 2 {
        OutgoingReply::Integer(channels.pattern_count() as i64)
    } else if what.eq_ignore_ascii_case(b"NUMSUB") {
        let counts = command.iter().skip(2).flat_map(|name| {
            let count = channels.subscriber_count(name) as i64;
            [OutgoingReply::bulk(name.to_vec()), OutgoingReply::Integer(count)]
        });
        OutgoingReply::array(counts)
    } else {
        error_for_subcommand("PUBSUB", what)
    }
}

/// Whether the command gives the connection a name.
pub(super) fn names_client(command: &Command) -> bool {
    command.argument(1).is_some_and(|what| what.eq_ignore_ascii_case(b"SETNAME"))
}

/// CLIENT: the subcommands that client libraries send when they connect.
pub(super) fn client(command: &Command, name: &mut Bytes, context: &CallContext) -> OutgoingReply {
    let Some(what) = command.argument(1) else { return error_for_count(command) };
    let is = |other: &[u8]| what.eq_ignore_ascii_case(other);
    match command.count() {
        2 if is(b"ID") => OutgoingReply::Integer(context.client_id as i64),
        2 if is(b"GETNAME") && name.is_empty() => OutgoingReply::Null,
        2 if is(b"GETNAME") => OutgoingReply::bulk(name.clone()),
        3 if is(b"SETNAME") => match checked_name(command.argument(2).unwrap_or_default()) {
            Ok(checked) => {
                *name = checked;
                OutgoingReply::ok()
            }
            Err(error) => error,
        },
        4 if is(b"SETINFO") => OutgoingReply::ok(),
        3 if is(b"NO-EVICT") || is(b"NO-TOUCH") => OutgoingReply::ok(),
        _ => error_for_subcommand("CLIENT", what),
    }
}

fn checked_name(name: &[u8]) -> Result<Bytes, OutgoingReply> {
    if name.len() <= NAME_BYTES_MAX && name.iter().all(u8::is_ascii_graphic) {
        return Ok(Bytes::copy_from_slice(name));
    }
    Err(OutgoingReply::error("ERR Client names cannot contain spaces, newlines or special characters."))
}

fn error_for_subcommand(command: &str, what: &[u8]) -> OutgoingReply {
    let what = on_one_line(what);
    OutgoingReply::error(format!("ERR unknown subcommand '{what}'. Try {command} HELP."))
}

/// A name is for lists of connections.
const NAME_BYTES_MAX: usize = 1024;
