//! Commands that concern the connection or the server, and not the data.

use bytes::Bytes;
use tidegate_codec::Broadcast;

use crate::command::Command;
use crate::number;
use crate::outgoing_reply::{OutgoingReply, Version};
use crate::server::channels::Channels;
use crate::server::service::{error_for_count, on_one_line};
use crate::server::subcommands;
use crate::server::subscriptions::SubscriptionCommand;
use crate::token::AggregateKind;

/// A command that the handler knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionCommand {
    Auth,
    Client,
    Command,
    Config,
    /// An HTTP line and no command: see [`ConnectionCommand::of`].
    CrossProtocol,
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
    /// The command with this name. `POST` and `Host:` are HTTP lines: a browser that a page has made send them to this
    /// server must not have the lines behind them executed.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        use ConnectionCommand as C;
        let names: &[(&[u8], C)] = match name.len() {
            4 => &[
                (b"PING", C::Ping),
                (b"EXEC", C::Exec),
                (b"ECHO", C::Echo),
                (b"AUTH", C::Auth),
                (b"INFO", C::Info),
                (b"QUIT", C::Quit),
                (b"POST", C::CrossProtocol),
            ],
            5 => &[(b"MULTI", C::Multi), (b"HELLO", C::Hello), (b"RESET", C::Reset), (b"HOST:", C::CrossProtocol)],
            6 => &[(b"CLIENT", C::Client), (b"CONFIG", C::Config), (b"PUBSUB", C::Pubsub), (b"SELECT", C::Select)],
            7 => &[(b"PUBLISH", C::Publish), (b"COMMAND", C::Command), (b"DISCARD", C::Discard)],
            _ => return SubscriptionCommand::of(name).map(Self::Subscription),
        };
        names.iter().find(|(other, _)| name.eq_ignore_ascii_case(other)).map(|(_, what)| *what)
    }

    /// The error for too few or too many arguments. It breaks a transaction.
    pub(super) fn check(self, command: &Command) -> Result<(), OutgoingReply> {
        let (min, max) = match self {
            Self::Multi | Self::Exec | Self::Discard | Self::Reset => (1, 1),
            Self::Echo | Self::Select => (2, 2),
            Self::Publish => (3, 3),
            Self::Auth | Self::Client | Self::Config | Self::Pubsub => (2, usize::MAX),
            Self::Subscription(what) => (what.count_min(), usize::MAX),
            _ => (1, usize::MAX),
        };
        if (min..=max).contains(&command.count()) { Ok(()) } else { Err(error_for_count(command)) }
    }

    /// It changes the connection: it waits for the replies before it, and the service does not get it.
    pub(super) const fn changes_connection(self) -> bool {
        matches!(
            self,
            Self::Auth
                | Self::CrossProtocol
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
        matches!(self, Self::Auth | Self::CrossProtocol | Self::Hello | Self::Quit | Self::Reset)
    }

    /// It is executed between MULTI and EXEC, and not queued.
    pub(super) const fn is_within_transaction(self) -> bool {
        matches!(self, Self::CrossProtocol | Self::Discard | Self::Exec | Self::Multi | Self::Quit | Self::Reset)
    }

    /// A subscriber of RESP2 may send it.
    pub(super) const fn is_for_subscribers(self) -> bool {
        matches!(self, Self::CrossProtocol | Self::Subscription(_) | Self::Ping | Self::Quit | Self::Reset)
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
    /// The reply to HELLO, in the version that it has chosen.
    pub(super) fn hello(&self) -> OutgoingReply {
        let text = |text: &'static str| OutgoingReply::bulk(text);
        OutgoingReply::All(vec![
            OutgoingReply::Version(self.version),
            OutgoingReply::Restricted(false),
            OutgoingReply::Aggregate(AggregateKind::Map, 7),
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
        ])
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
    let mut arguments = command.arguments();
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
                hello.name = Some(subcommands::checked_name(name)?);
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
        _ => Err(OutgoingReply::error("ERR syntax error")),
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
    if command.count() > 2 {
        return error_for_count(command);
    }
    let argument = command.argument(1).unwrap_or_default().to_vec();
    OutgoingReply::array([OutgoingReply::bulk("pong"), OutgoingReply::bulk(argument)])
}

/// The reply to a command that changes nothing, with the right number of arguments.
pub(super) fn reply<C: Broadcast>(
    what: ConnectionCommand,
    command: &Command,
    identity: &Identity,
    channels: &Channels<C>,
) -> OutgoingReply {
    let (count, first) = (command.count(), command.argument(1).unwrap_or_default());
    match what {
        ConnectionCommand::Ping if count == 1 => OutgoingReply::Simple("PONG".into()),
        ConnectionCommand::Ping if count > 2 => error_for_count(command),
        ConnectionCommand::Ping | ConnectionCommand::Echo => OutgoingReply::bulk(first.to_vec()),
        ConnectionCommand::Info => subcommands::info(command, identity),
        ConnectionCommand::Publish => {
            let message = command.argument(2).unwrap_or_default();
            OutgoingReply::Integer(channels.publish(first, message) as i64)
        }
        ConnectionCommand::Select => match number::plain_integer(first) {
            Some(0) => OutgoingReply::ok(),
            Some(number) if i32::try_from(number).is_ok() => OutgoingReply::error("ERR DB index is out of range"),
            Some(_) => OutgoingReply::error("ERR value is out of range, value must between -2147483648 and 2147483647"),
            None => OutgoingReply::error("ERR value is not an integer or out of range"),
        },
        ConnectionCommand::Command => subcommands::command(command),
        ConnectionCommand::Config => subcommands::config(command),
        ConnectionCommand::Pubsub => subcommands::pubsub(command, channels),
        _ => error_for_count(command),
    }
}
