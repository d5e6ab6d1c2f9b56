//! `Refusals`: servers that are connected and refuse messages, and the probes that find out when they take them again.
//!
//! A node that is not ready gets no clients, so it would publish nothing that shows that the server takes messages again. So it
//! probes a server that has refused something: a message in a room of its own, on the same server, to which nothing subscribes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_engine::task;
use tidegate_redis::{Client, ClientError, ErrorKind, Failure};

use super::scripts::PUBLISH;
use crate::broker::BrokerEvent;
use crate::broker_events::RequestEvents;

/// The servers that refuse messages, each by a slot that it has.
pub(super) struct Refusals {
    client: Client,
    events: Rc<RequestEvents>,
    /// The channel of a room of the slot, and the reason.
    refused: RefCell<BTreeMap<u16, (String, Arc<str>)>>,
}

impl Refusals {
    pub(super) fn new(client: Client, events: Rc<RequestEvents>) -> Rc<Self> {
        Rc::new(Self { client, events, refused: RefCell::default() })
    }

    /// A message, or the members of a room, were written, or not for this error.
    pub(super) fn note(self: &Rc<Self>, slot: u16, channel: &str, error: Option<&ClientError>) {
        let reason = match error {
            None => None,
            Some(error) if is_refusal(error) => Some(error.to_string()),
            Some(_) => return,
        };
        let mut refused = self.refused.borrow_mut();
        let was_empty = refused.is_empty();
        match reason {
            Some(reason) if refused.len() < SLOTS_MAX || refused.contains_key(&slot) => {
                refused.insert(slot, (channel.to_owned(), reason.into()));
            }
            Some(_) => {}
            None => drop(refused.remove(&slot)),
        }
        let first = refused.values().next().map(|(_, reason)| reason.clone());
        drop(refused);
        if was_empty != first.is_none() {
            if first.is_some() {
                drop(task::spawn(probe(Rc::downgrade(self))));
            }
            self.events.extend([BrokerEvent::RefusesMessages(first)]);
        }
    }

    /// Publishes a message to each server that refuses some.
    async fn probe_all(self: Rc<Self>) {
        let slots: Vec<_> = self.refused.borrow().iter().map(|(slot, (channel, _))| (*slot, channel.clone())).collect();
        for (slot, channel) in slots {
            let probe = format!("{channel}:probe");
            let keys = [format!("{probe}:m"), format!("{probe}:h")];
            let arguments = [&probe, "0000000000000001", "1", "1", PROBE_SECONDS, "0", "1", ""];
            let arguments = arguments.map(|argument| Bytes::copy_from_slice(argument.as_bytes()));
            let result = PUBLISH.run(&self.client, keys, arguments).await;
            self.note(slot, &channel, result.as_ref().err());
        }
    }
}

/// Probes until no server refuses messages, or the node has ended.
async fn probe(refusals: Weak<Refusals>) {
    loop {
        task::sleep(PROBE_AFTER).await;
        let Some(refusals) = refusals.upgrade() else { return };
        refusals.clone().probe_all().await;
        if refusals.refused.borrow().is_empty() {
            return;
        }
    }
}

/// Whether the server refuses each write of a node. An error of one key, of one channel, or of a slot that moves, is none.
fn is_refusal(error: &ClientError) -> bool {
    let kind = match error {
        ClientError::Reply(reply) if is_of_a_channel(reply.text()) => return false,
        ClientError::Reply(reply) => kind_of(reply.text()),
        ClientError::NotSent(failure) => return *failure == Failure::Refused,
        _ => return false,
    };
    matches!(
        kind,
        ErrorKind::ReadOnly
            | ErrorKind::Loading
            | ErrorKind::MasterDown
            | ErrorKind::ClusterDown
            | ErrorKind::Busy
            | ErrorKind::OutOfMemory
            | ErrorKind::NoReplicas
            | ErrorKind::CannotSave
            | ErrorKind::NoAuth
    )
}

/// Whether the user may not have a channel. Its room is refused to members; others are not concerned.
fn is_of_a_channel(text: &[u8]) -> bool {
    kind_of(text) == ErrorKind::NoAuth && text.windows(CHANNEL.len()).any(|bytes| bytes == CHANNEL)
}

/// The kind of an error. Redis 6 has the code of an error in a script within the text, behind a hyphen.
fn kind_of(text: &[u8]) -> ErrorKind {
    let mut words = text.split(|byte| *byte == b' ');
    let code = words.next().unwrap_or_default();
    let mut within = || words.find_map(|word| word.strip_prefix(b"-"));
    ErrorKind::of_code(if code == b"ERR" { within().unwrap_or(code) } else { code })
}

/// The word in the texts of Redis 6 and 7 about a channel, beside its code.
const CHANNEL: &[u8] = b"channel";
/// Servers that are probed.
const SLOTS_MAX: usize = 64;
/// The pause before each probe.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// The room of probes lasts so many seconds.
const PROBE_SECONDS: &str = "60";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_the_user_may_not_have_is_no_refusal_of_the_server() {
        for (text, is_channel) in [
            ("NOPERM User default has no permissions to access one of the channels used as arguments", true),
            ("NOPERM No permissions to access a channel script: f_1, on @user_script:1.", true),
            (
                "ERR Error running script (call to f_1): @user_script:5: -NOPERM this user has no permissions to access one of the \
              channels used as arguments",
                true,
            ),
            ("NOPERM No permissions to access a key", false),
            ("ERR wrong number of arguments for 'pubsub|channels' command", false),
        ] {
            assert_eq!(is_of_a_channel(text.as_bytes()), is_channel, "{text}");
        }
    }

    #[test]
    fn errors_of_scripts_have_the_kind_of_the_command_that_fails() {
        for (text, kind) in [
            ("READONLY You can't write against a read only replica.", ErrorKind::ReadOnly),
            ("ERR Error running script (call to f_1): @user_script:5: -READONLY You can't", ErrorKind::ReadOnly),
            ("NOPERM this user has no permissions to run the 'eval' command", ErrorKind::NoAuth),
            ("ERR wrong number of arguments", ErrorKind::Other),
            ("", ErrorKind::Other),
        ] {
            assert_eq!(kind_of(text.as_bytes()), kind, "{text}");
        }
    }
}
