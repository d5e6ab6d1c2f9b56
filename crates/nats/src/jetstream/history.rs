//! `History`: the messages of a stream after a sequence, in order.
//!
//! It reads batches directly (`DIRECT.GET` with `batch`, ADR-31), which need no consumer and no acknowledgement: a batch ends with
//! the status 204, and 404 says that there is no further message. A batch that breaks off is read again from the last message
//! on, so none is missing and none comes twice.
//!
//! Invariant: sequences only grow.

use std::collections::VecDeque;

use serde_json::json;

use crate::client::{ClientError, Failure, Message, Subscriber, SubscriberEvent};
use crate::headers::HeadersView;
use crate::jetstream::api::JetStreamError;
use crate::jetstream::context::{JetStream, StoredMessage, is_stored, stored};
use crate::outgoing::OutgoingMessage;

/// The messages of a stream after a sequence. [`JetStream`] documents an example.
#[derive(Debug)]
pub struct History {
    streams: JetStream,
    stream: String,
    filter: String,
    after: u64,
    batch: VecDeque<StoredMessage>,
    is_over: bool,
}

impl History {
    pub(super) const fn new(streams: JetStream, stream: String, filter: String, after: u64) -> Self {
        Self { streams, stream, filter, after, batch: VecDeque::new(), is_over: false }
    }

    /// The next message; `None` once all that were there when the last batch was read have come.
    ///
    /// # Errors
    /// As [`JetStream::message`], and [`Failure::ConnectionLost`] if a batch breaks off. The next call goes on behind the last
    /// message.
    pub async fn next(&mut self) -> Result<Option<StoredMessage>, JetStreamError> {
        if self.batch.is_empty() && !self.is_over {
            self.read_batch().await?;
        }
        let message = self.batch.pop_front();
        self.after = message.as_ref().map_or(self.after, |message| message.sequence);
        Ok(message)
    }

    async fn read_batch(&mut self) -> Result<(), JetStreamError> {
        let client = self.streams.client();
        let (subject, inbox) = (self.streams.subject("DIRECT.GET", &self.stream)?, client.inbox());
        let mut replies = client.subscribe(inbox.clone())?;
        let request = json!({
            "seq": self.after + 1, "next_by_subj": self.filter, "batch": BATCH_MESSAGES, "max_bytes": BATCH_BYTES,
        });
        client.send(OutgoingMessage::new(subject, request.to_string()).reply(inbox))?;
        let mut last = self.after;
        loop {
            let reply = next_reply(&mut replies, self.streams.client()).await?;
            // A publisher may have given a message any status.
            match reply.status().filter(|_| !is_stored(&reply)) {
                // The batch is complete. Without a message there are none behind it.
                Some(204) => {
                    self.is_over = self.batch.is_empty();
                    return Ok(());
                }
                Some(404) => {
                    self.is_over = true;
                    return Ok(());
                }
                Some(503) if reply.payload.is_empty() => return Err(ClientError::NoResponders.into()),
                _ => {}
            }
            // A server before 2.11 sends one message for a request, and no end.
            let is_alone = reply.headers.as_ref().is_none_or(|headers| !is_of_batch(headers.view()));
            let message = stored(reply)?;
            // A server that repeats itself must not make the reader go in circles.
            if message.sequence <= last {
                return Err(JetStreamError::Reply);
            }
            last = message.sequence;
            self.batch.push_back(message);
            if is_alone {
                return Ok(());
            }
        }
    }
}

/// Whether the server says how many messages of a batch follow. Its headers begin with the stream's name; those before it are
/// the publisher's.
fn is_of_batch(headers: HeadersView<'_>) -> bool {
    headers.iter().fold(false, |is_of_batch, (name, _)| match name {
        b"Nats-Stream" => false,
        b"Nats-Num-Pending" => true,
        _ => is_of_batch,
    })
}

/// The next message of the inbox, as long as the connection is there.
async fn next_reply(replies: &mut Subscriber, client: &crate::client::Client) -> Result<Message, JetStreamError> {
    let lost = |failure| JetStreamError::Client(ClientError::MaybeProcessed(failure));
    loop {
        let event = client.within(replies.recv()).await.ok_or_else(|| lost(Failure::Deadline))?;
        match event {
            Some(SubscriberEvent::Message(message)) => return Ok(message),
            Some(SubscriberEvent::Down | SubscriberEvent::Gap) => return Err(lost(Failure::ConnectionLost)),
            Some(SubscriberEvent::Refused(_)) => return Err(lost(Failure::Refused)),
            Some(_) => {}
            None => return Err(lost(Failure::LoopEnded)),
        }
    }
}

/// Messages of one request. They wait in memory until the reader has taken them.
const BATCH_MESSAGES: u32 = 256;
/// Bytes of these messages, after which the server ends the batch. One that does not know this bound may send more than a subscriber's
/// queue holds, and the reader asks again behind the last message that it has.
const BATCH_BYTES: u32 = 4 << 20;
