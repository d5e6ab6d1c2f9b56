//! `StartupStep`: the commands with which a connection begins, and their order.
//!
//! A connection begins with `HELLO 3`, which has the password and the name. A server that does not know it gets AUTH,
//! CLIENT SETNAME and SELECT, and RESP2 is spoken. A client with several servers ends with ROLE or READONLY. One step is under way at a time: its reply decides the next.

use bytes::Bytes;

use crate::client::config::{ClientConfig, ConnectionPurpose};
use crate::outgoing_command::CommandBuffer;
use crate::value::Value;

/// The command whose reply the startup awaits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartupStep {
    Hello,
    /// Only after HELLO: without RESP3 the invalidations have no way to come.
    Tracking,
    Auth,
    Name,
    Select,
    /// The server is asked whether it is a master.
    Role,
    /// A replica of a cluster is asked to answer.
    ReadOnly,
}

/// The server refuses a step of the startup; its text.
#[derive(Debug)]
pub(crate) struct StartupRefused(pub(crate) Bytes);

impl StartupRefused {
    /// Whether the next attempt would have the same answer, unless the server is configured anew.
    pub(crate) fn is_final(&self) -> bool {
        let code = self.0.split(|byte| *byte == b' ').next().unwrap_or_default();
        matches!(code, b"ERR" | b"WRONGPASS" | b"NOAUTH" | b"NOPERM")
    }
}

/// The first step, if there is any.
pub(crate) fn first_step(config: &ClientConfig) -> Option<(StartupStep, CommandBuffer)> {
    if !config.speaks_resp3 {
        return step_from(StartupStep::Auth, config);
    }
    let mut hello = CommandBuffer::new("HELLO").arg("3");
    if let Some(password) = &config.password {
        hello = hello.arg("AUTH").arg(config.user.as_deref().unwrap_or("default")).arg(password);
    }
    if let Some(name) = &config.name {
        hello = hello.arg("SETNAME").arg(&**name);
    }
    Some((StartupStep::Hello, hello))
}

/// The step after the one that has this reply; none if the startup is over.
pub(crate) fn next_step(
    step: StartupStep,
    reply: Value<'_>,
    config: &ClientConfig,
) -> Result<Option<(StartupStep, CommandBuffer)>, StartupRefused> {
    let refused = |text: &[u8]| Err(StartupRefused(Bytes::copy_from_slice(text)));
    match (step, reply.error()) {
        (StartupStep::Hello, None) if reply.elements().is_some() => Ok(step_from(StartupStep::Tracking, config)),
        (StartupStep::Hello, None) => refused(b"HELLO has another reply than a map"),
        (StartupStep::Hello, Some(text)) if is_unknown(text) => Ok(step_from(StartupStep::Auth, config)),
        // A name is for operators only, and without tracking each value comes from the server: neither is necessary.
        (StartupStep::Tracking | StartupStep::Name, _) => Ok(step_from(StartupStep::Select, config)),
        (_, Some(text)) => refused(text),
        (StartupStep::Auth, None) => Ok(step_from(StartupStep::Name, config)),
        (StartupStep::Select, None) => Ok(step_for(config.purpose)),
        (StartupStep::Role, None) => match reply.elements().and_then(|mut role| role.next()?.bytes()) {
            Some(b"master") => Ok(None),
            _ => refused(b"READONLY the server is no master"),
        },
        (StartupStep::ReadOnly, None) => Ok(None),
    }
}

/// This step, or the first one after it that the configuration needs.
fn step_from(step: StartupStep, config: &ClientConfig) -> Option<(StartupStep, CommandBuffer)> {
    if step == StartupStep::Tracking && config.cache.is_some() {
        return Some((StartupStep::Tracking, CommandBuffer::new("CLIENT").arg("TRACKING").arg("ON")));
    }
    if step == StartupStep::Auth
        && let Some(password) = &config.password
    {
        let auth = CommandBuffer::new("AUTH");
        let auth = if let Some(user) = &config.user { auth.arg(&**user) } else { auth };
        return Some((StartupStep::Auth, auth.arg(password)));
    }
    if matches!(step, StartupStep::Auth | StartupStep::Name)
        && let Some(name) = &config.name
    {
        return Some((StartupStep::Name, CommandBuffer::new("CLIENT").arg("SETNAME").arg(&**name)));
    }
    let select = || CommandBuffer::new("SELECT").arg(itoa::Buffer::new().format(config.database));
    if config.database != 0 { Some((StartupStep::Select, select())) } else { step_for(config.purpose) }
}

/// The last step.
fn step_for(purpose: ConnectionPurpose) -> Option<(StartupStep, CommandBuffer)> {
    match purpose {
        ConnectionPurpose::Any => None,
        ConnectionPurpose::Master => Some((StartupStep::Role, CommandBuffer::new("ROLE"))),
        ConnectionPurpose::ClusterReplica => Some((StartupStep::ReadOnly, CommandBuffer::new("READONLY"))),
    }
}

/// Whether a server does not know HELLO, or does not speak RESP3.
fn is_unknown(text: &[u8]) -> bool {
    const UNKNOWN: &[u8] = b"ERR unknown command";
    text.starts_with(b"NOPROTO") || text.get(..UNKNOWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(UNKNOWN))
}
