//! `NodeContext`: one server of several, for the connection to it.

use std::sync::Arc;

use crate::client::error::{ClientError, ErrorReply};
use crate::client::pending::PendingCommand;
use crate::client::queue::NodeAddress;
use crate::client::redirect::{Redirect, redirect_of};
use crate::client::router::Router;
use crate::client::slot::CommandResult;
use crate::client::slots::host_of;
use crate::outgoing_command::CommandBuffer;
use crate::owned::OwnedValue;

/// A server, and the router that has the others.
#[derive(Debug, Clone)]
pub(crate) struct NodeContext {
    pub(crate) router: Arc<Router>,
    pub(crate) node: NodeAddress,
}

impl NodeContext {
    /// Whether another server, or another time, has the result of a command with this one.
    pub(crate) fn redirect(&self, command: &PendingCommand, result: &CommandResult) -> Option<(Redirect, ErrorReply)> {
        command.route?;
        let read = |text: &[u8]| {
            let redirect = redirect_of(text, host_of(&self.node.address), self.node.is_replica)?;
            let is_between_nodes = matches!(redirect, Redirect::Moved(..) | Redirect::Ask(_));
            (self.router.is_cluster || !is_between_nodes).then_some(redirect)
        };
        match result {
            Err(ClientError::Reply(error)) => {
                let redirect = read(error.text())?;
                let slot = command.route?.slot;
                let is_script = !command.is_idempotent && command.wire.as_ref().is_some_and(runs_script);
                let is_certain = !is_script || redirect.is_certain_for_script(error.text(), slot);
                is_certain.then(|| (redirect, error.clone()))
            }
            // A transaction was not executed if EXEC has an error. The cause may be that of a command before it.
            Ok(OwnedValue::Aggregate(_, replies)) if command.group.is_some() => {
                let (OwnedValue::Error(last), before) = replies.split_last()? else { return None };
                let mut texts = before
                    .iter()
                    .filter_map(|reply| if let OwnedValue::Error(text) = reply { Some(text) } else { None });
                let is_aborted = last.starts_with(b"EXECABORT");
                let text = if is_aborted { texts.find(|text| read(text).is_some())? } else { last };
                Some((read(text)?, ErrorReply::new(text.clone())))
            }
            _ => None,
        }
    }
}

/// Whether a command runs a script or a function, which may return any error.
fn runs_script(command: &CommandBuffer) -> bool {
    let Some(name) = command.arguments().next() else { return false };
    ["EVAL", "EVALSHA", "FCALL", "EVAL_RO", "EVALSHA_RO", "FCALL_RO"]
        .iter()
        .any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}
