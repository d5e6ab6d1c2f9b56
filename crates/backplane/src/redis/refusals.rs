//! Servers of Redis that are connected and refuse messages: which errors say so, and their probes.

use bytes::Bytes;
use tidegate_redis::{Client, ClientError, ErrorKind, Failure};

use super::scripts::PUBLISH;
use crate::refusals::{Prober, Verdict};

/// Publishes to servers, each of which stands for a slot that it has.
pub(super) struct ServerProber(pub(super) Client);

impl Prober for ServerProber {
    type Part = u16;
    /// The channel of a room of the slot.
    type Target = String;

    async fn probe(&self, _: u16, channel: String) -> Verdict {
        let probe = format!("{channel}:probe");
        let keys = [format!("{probe}:m"), format!("{probe}:h")];
        let arguments = [&probe, "0000000000000001", "1", "1", PROBE_SECONDS, "0", "1", ""];
        let arguments = arguments.map(|argument| Bytes::copy_from_slice(argument.as_bytes()));
        verdict_of(PUBLISH.run(&self.0, keys, arguments).await.as_ref().err())
    }
}

/// The verdict of a message that was written, or was not for this error.
pub(super) fn verdict_of(error: Option<&ClientError>) -> Verdict {
    match error {
        None => Verdict::Taken,
        Some(error) if is_refusal(error) => Verdict::Refused(error.to_string().into()),
        Some(_) => Verdict::Unknown,
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
