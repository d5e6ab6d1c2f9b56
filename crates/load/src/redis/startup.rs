//! `StartupPhase`: the commands that open a connection, one at a time: HELLO with the password; AUTH where the server does
//! not know HELLO, and RESP2 is spoken; SELECT; SUBSCRIBE.

use tidegate::redis::{CommandBuffer, Value};

use super::plan::CommandPlan;

/// The command whose reply is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartupPhase {
    Hello,
    Auth,
    Select,
    Subscribe,
}

impl CommandPlan {
    /// The first command.
    pub(crate) fn hello(&self) -> CommandBuffer {
        let hello = CommandBuffer::new("HELLO").arg("3");
        match &self.login.password {
            Some(password) => hello.arg("AUTH").arg(self.login.user.as_deref().unwrap_or("default")).arg(password),
            None => hello,
        }
    }

    /// The command after the phase that has this reply; `None` if the connection is open.
    ///
    /// # Errors
    /// The reply with which the server refuses the phase.
    pub(crate) fn next_phase<'a>(
        &self,
        phase: StartupPhase,
        reply: Value<'a>,
        subscribes: bool,
    ) -> Result<Option<(StartupPhase, CommandBuffer)>, &'a [u8]> {
        match (phase, reply.error()) {
            (StartupPhase::Hello, Some(text)) if is_unknown(text) => {
                Ok(self.auth().or_else(|| self.select()).or_else(|| self.subscribe(subscribes)))
            }
            (_, Some(text)) => Err(text),
            (StartupPhase::Hello | StartupPhase::Auth, None) => {
                Ok(self.select().or_else(|| self.subscribe(subscribes)))
            }
            (StartupPhase::Select, None) => Ok(self.subscribe(subscribes)),
            (StartupPhase::Subscribe, None) => Ok(None),
        }
    }

    fn auth(&self) -> Option<(StartupPhase, CommandBuffer)> {
        let password = self.login.password.as_ref()?;
        let auth = CommandBuffer::new("AUTH");
        let auth = if let Some(user) = &self.login.user { auth.arg(user) } else { auth };
        Some((StartupPhase::Auth, auth.arg(password)))
    }

    fn select(&self) -> Option<(StartupPhase, CommandBuffer)> {
        let select = || CommandBuffer::new("SELECT").arg(self.database.to_string());
        (self.database != 0).then(|| (StartupPhase::Select, select()))
    }

    fn subscribe(&self, subscribes: bool) -> Option<(StartupPhase, CommandBuffer)> {
        let publish = self.publish.as_ref().filter(|_| subscribes)?;
        Some((StartupPhase::Subscribe, CommandBuffer::new("SUBSCRIBE").arg(&publish.channel)))
    }
}

/// Whether a server does not know HELLO, or does not speak RESP3.
pub(crate) fn is_unknown(text: &[u8]) -> bool {
    const UNKNOWN: &[u8] = b"ERR unknown command";
    text.starts_with(b"NOPROTO") || text.get(..UNKNOWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(UNKNOWN))
}
