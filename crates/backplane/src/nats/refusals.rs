//! Streams that refuse messages: which answers of JetStream say so. `streams.rs` probes them.
//!
//! A full disk or memory, a limit of the account, a sealed stream and one that cannot be created concern all messages of a stream. A
//! server without JetStream has ephemeral rooms alone: it refuses histories, and neither members nor kicks.

use std::sync::Arc;

use tidegate_nats::{ApiError, ClientError, JetStreamError, Message, PublishAck};

use crate::refusals::Verdict;

/// A stream of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamKind {
    /// Histories of so many messages.
    Histories(usize),
    InMemory(MemoryStream),
}

/// A stream in memory with the last message of each subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MemoryStream {
    /// The members of nodes.
    Leases,
    /// The last kicks of rooms.
    Kicks,
}

/// The verdict of a reply to a message.
pub(super) fn verdict_of(reply: Result<Message, ClientError>) -> Verdict {
    match reply {
        Ok(reply) => verdict_of_payload(&reply.payload),
        Err(_) => Verdict::Unknown,
    }
}

fn verdict_of_payload(payload: &[u8]) -> Verdict {
    // An error has its own member before that of the stream.
    if payload.starts_with(b"{\"stream\"") {
        return Verdict::Taken;
    }
    PublishAck::from_reply(payload).map_or_else(|error| publish_verdict(&error), |_| Verdict::Taken)
}

/// The verdict of a message that a stream has not stored.
pub(super) fn publish_verdict(error: &JetStreamError) -> Verdict {
    match error {
        JetStreamError::Api(error) if refuses_each(error) => refusal(error),
        _ => Verdict::Unknown,
    }
}

/// Whether the stream refuses each message. An error of one message, or of one subject, is none.
fn refuses_each(error: &ApiError) -> bool {
    match error.err_code {
        ApiError::ACCOUNT_RESOURCES_EXCEEDED | ApiError::STREAM_SEALED => true,
        ApiError::STREAM_STORE_FAILED => !ONE_MESSAGE.iter().any(|text| error.description.contains(text)),
        _ => error.code >= 500,
    }
}

/// The verdict of a stream that the server does not create.
pub(super) fn creation_verdict(kind: StreamKind, error: &JetStreamError) -> Verdict {
    let needs_jetstream = matches!(kind, StreamKind::Histories(_));
    match error {
        JetStreamError::Client(ClientError::NoResponders) if needs_jetstream => refusal(error),
        JetStreamError::Api(ApiError {
            err_code: ApiError::NOT_ENABLED | ApiError::NOT_ENABLED_FOR_ACCOUNT, ..
        }) if !needs_jetstream => Verdict::Unknown,
        JetStreamError::Api(error) => refusal(error),
        _ => Verdict::Unknown,
    }
}

fn refusal(error: &impl ToString) -> Verdict {
    Verdict::Refused(Arc::from(error.to_string()))
}

/// Words of nats-server about one subject, or one message, in an error that is of many kinds.
const ONE_MESSAGE: [&str; 3] = ["per subject", "too large", "to large"];

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, err_code: u32, description: &str) -> ApiError {
        ApiError { code, err_code, description: description.to_owned() }
    }

    #[test]
    fn errors_of_all_messages_are_refusals_and_those_of_one_message_are_none() {
        for (code, err_code, description, is_refusal) in [
            (503, 10_023, "insufficient resources", true),
            (400, 10_002, "resource limits exceeded for account", true),
            (503, 10_077, "maximum messages exceeded", true),
            (503, 10_077, "maximum bytes exceeded", true),
            (503, 10_077, "write tides/1.blk: no space left on device", true),
            (400, 10_109, "invalid operation on sealed stream", true),
            (500, 10_118, "stream is offline", true),
            (503, 10_039, "JetStream not enabled for account", true),
            (503, 10_077, "maximum messages per subject exceeded", false),
            (503, 10_077, "message to large", false),
            (400, 10_054, "message size exceeds maximum allowed", false),
            (400, 10_071, "wrong last sequence: 7", false),
        ] {
            let payload = format!(
                "{{\"error\":{{\"code\":{code},\"err_code\":{err_code},\"description\":\"{description}\"}},\"stream\":\"S\",\"seq\":0}}"
            );
            let verdict = verdict_of_payload(payload.as_bytes());
            assert_eq!(matches!(verdict, Verdict::Refused(_)), is_refusal, "{description}: {verdict:?}");
            assert_ne!(verdict, Verdict::Taken);
        }
        assert_eq!(verdict_of_payload(br#"{"stream":"S","seq":7}"#), Verdict::Taken);
        assert_eq!(verdict_of_payload(br#"{"domain":"hub","stream":"S","seq":7}"#), Verdict::Taken);
        for foreign in ["", "ok", "{}", "{\"error\":7}"] {
            assert_eq!(verdict_of_payload(foreign.as_bytes()), Verdict::Unknown, "{foreign}");
        }
    }

    #[test]
    fn a_server_without_jetstream_refuses_histories_alone() {
        let without = [
            JetStreamError::Client(ClientError::NoResponders),
            JetStreamError::Api(error(503, ApiError::NOT_ENABLED, "JetStream not enabled")),
            JetStreamError::Api(error(503, ApiError::NOT_ENABLED_FOR_ACCOUNT, "JetStream not enabled for account")),
        ];
        let in_memory = [MemoryStream::Leases, MemoryStream::Kicks].map(StreamKind::InMemory);
        for error in without {
            assert!(matches!(creation_verdict(StreamKind::Histories(7), &error), Verdict::Refused(_)), "{error}");
            for kind in in_memory {
                assert_eq!(creation_verdict(kind, &error), Verdict::Unknown, "{error}");
            }
        }
        let full = JetStreamError::Api(error(500, 10_028, "insufficient memory resources available"));
        for kind in in_memory {
            assert!(matches!(creation_verdict(kind, &full), Verdict::Refused(_)));
        }
        let lost = JetStreamError::Client(ClientError::MaybeProcessed(tidegate_nats::Failure::ConnectionLost));
        assert_eq!(creation_verdict(StreamKind::Histories(7), &lost), Verdict::Unknown);
    }
}
