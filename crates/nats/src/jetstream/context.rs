//! `JetStream`: streams and their messages, over the requests of a client.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::client::{Client, Message};
use crate::headers::Headers;
use crate::jetstream::api::{ApiError, JetStreamError, StreamConfig, StreamInfo, read};
use crate::jetstream::history::History;
use crate::outgoing::OutgoingMessage;
use crate::subject::is_subject;

/// JetStream of the server to which a client is connected.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::nats::{Client, PublishOptions, StreamConfig};
///
/// let streams = Client::to("127.0.0.1:4222")?.start().jetstream();
/// streams.create_or_update(&StreamConfig::new("TIDES", ["tides.>"])).await?;
/// let ack = streams.publish("tides.brest", "ebb", PublishOptions::new().message_id("tide-412")).await?;
/// let mut history = streams.history("TIDES", "tides.>", ack.sequence - 1);
/// while let Some(message) = history.next().await? {
///     println!("{}: {:?}", message.sequence, message.payload);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct JetStream {
    client: Client,
    prefix: String,
}

/// The conditions of a message that is published to a stream.
#[derive(Debug, Clone, Default)]
#[must_use = "the options are for JetStream::publish"]
pub struct PublishOptions {
    message_id: Option<String>,
    last_sequence: Option<u64>,
    last_subject_sequence: Option<u64>,
    stream: Option<String>,
    headers: Option<Headers>,
}

impl PublishOptions {
    /// No condition.
    pub fn new() -> Self {
        Self::default()
    }

    /// `Nats-Msg-Id`: a message with the same ID within the stream's window is a duplicate, and is stored once.
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.message_id = Some(id.into());
        self
    }

    /// `Nats-Expected-Last-Sequence`: the message is stored only if this is the last sequence of the stream.
    pub fn expected_last_sequence(mut self, sequence: u64) -> Self {
        self.last_sequence = Some(sequence);
        self
    }

    /// `Nats-Expected-Last-Subject-Sequence`: the same for the last message of this subject.
    pub fn expected_last_subject_sequence(mut self, sequence: u64) -> Self {
        self.last_subject_sequence = Some(sequence);
        self
    }

    /// `Nats-Expected-Stream`: the message is stored only by this stream.
    pub fn expected_stream(mut self, stream: impl Into<String>) -> Self {
        self.stream = Some(stream.into());
        self
    }

    /// Further headers.
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = Some(headers);
        self
    }

    fn into_headers(self) -> Result<Option<Headers>, crate::NatsError> {
        let numbers = [
            ("Nats-Expected-Last-Sequence", self.last_sequence.map(|number| number.to_string())),
            ("Nats-Expected-Last-Subject-Sequence", self.last_subject_sequence.map(|number| number.to_string())),
            ("Nats-Msg-Id", self.message_id),
            ("Nats-Expected-Stream", self.stream),
        ];
        let mut headers = self.headers;
        for (name, value) in numbers {
            if let Some(value) = value {
                headers = Some(headers.unwrap_or_default().with(name, value)?);
            }
        }
        Ok(headers)
    }
}

/// The acknowledgement of a message: a stream has stored it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PublishAck {
    /// The stream.
    pub stream: String,
    /// The sequence of the message there.
    #[serde(rename = "seq")]
    pub sequence: u64,
    /// The message was there before, with the same ID; the sequence is its own.
    #[serde(default)]
    pub duplicate: bool,
}

impl PublishAck {
    /// Reads the reply to a request that was sent to the subject of a stream.
    ///
    /// ```
    /// use tidegate::nats::{ApiError, PublishAck};
    ///
    /// assert_eq!(PublishAck::from_reply(br#"{"stream":"TIDES","seq":412}"#)?.sequence, 412);
    /// let full = br#"{"error":{"code":503,"err_code":10023,"description":"insufficient resources"},"stream":"TIDES","seq":0}"#;
    /// let error = PublishAck::from_reply(full).expect_err("nothing is stored");
    /// assert_eq!(error.err_code(), Some(ApiError::INSUFFICIENT_RESOURCES));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`JetStreamError::Api`] if the stream has not stored the message, [`JetStreamError::Reply`] if the reply is none of a stream.
    pub fn from_reply(reply: &[u8]) -> Result<Self, JetStreamError> {
        read(reply)
    }
}

/// A message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its subject.
    pub subject: Bytes,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// Its headers, those of JetStream included.
    pub headers: Option<Headers>,
    /// Its payload.
    pub payload: Bytes,
}

impl Client {
    /// JetStream of the server.
    #[must_use]
    pub fn jetstream(&self) -> JetStream {
        JetStream { client: self.clone(), prefix: "$JS.API".to_owned() }
    }
}

impl JetStream {
    /// The API of a domain: of a leaf node, for example.
    #[must_use]
    pub fn in_domain(mut self, domain: &str) -> Self {
        self.prefix = format!("$JS.{domain}.API");
        self
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Creates a stream. One that exists with the same configuration is left as it is.
    ///
    /// # Errors
    /// [`ApiError::STREAM_NAME_EXISTS`] if it has another configuration.
    pub async fn create(&self, config: &StreamConfig) -> Result<StreamInfo, JetStreamError> {
        self.call("STREAM.CREATE", &config.name, config).await
    }

    /// Changes the configuration of a stream.
    ///
    /// # Errors
    /// [`ApiError::STREAM_NOT_FOUND`], and changes that the server does not make.
    pub async fn update(&self, config: &StreamConfig) -> Result<StreamInfo, JetStreamError> {
        self.call("STREAM.UPDATE", &config.name, config).await
    }

    /// Creates a stream, or changes the configuration of the one that exists.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn create_or_update(&self, config: &StreamConfig) -> Result<StreamInfo, JetStreamError> {
        match self.create(config).await {
            Err(error) if error.err_code() == Some(ApiError::STREAM_NAME_EXISTS) => self.update(config).await,
            result => result,
        }
    }

    /// A stream and its state.
    ///
    /// # Errors
    /// [`ApiError::STREAM_NOT_FOUND`].
    pub async fn info(&self, stream: &str) -> Result<StreamInfo, JetStreamError> {
        self.call("STREAM.INFO", stream, &json!({})).await
    }

    /// Deletes a stream with its messages.
    ///
    /// # Errors
    /// [`ApiError::STREAM_NOT_FOUND`].
    pub async fn delete(&self, stream: &str) -> Result<(), JetStreamError> {
        self.call::<serde_json::Value>("STREAM.DELETE", stream, &json!({})).await.map(drop)
    }

    /// Publishes a message, and waits until a stream has stored it.
    ///
    /// # Errors
    /// [`ClientError::NoResponders`](crate::ClientError::NoResponders) if no stream stores the subject,
    /// [`ApiError::WRONG_LAST_SEQUENCE`] if a condition is not met. After
    /// [`ClientError::MaybeProcessed`](crate::ClientError::MaybeProcessed) the message may be stored: a message with an ID may
    /// be published again.
    pub async fn publish(
        &self,
        subject: impl Into<Bytes>,
        payload: impl Into<Bytes>,
        options: PublishOptions,
    ) -> Result<PublishAck, JetStreamError> {
        let headers = options.into_headers().map_err(crate::ClientError::Invalid)?;
        let message = OutgoingMessage { headers, ..OutgoingMessage::new(subject, payload) };
        let reply = self.client.request_with(message, self.client.handle.timeout).await?;
        PublishAck::from_reply(&reply.payload)
    }

    /// The message with this sequence. The stream has to allow direct reads.
    ///
    /// # Errors
    /// [`ApiError::NO_MESSAGE_FOUND`].
    pub async fn message(&self, stream: &str, sequence: u64) -> Result<StoredMessage, JetStreamError> {
        self.direct(stream, &json!({ "seq": sequence })).await
    }

    /// The last message of a subject. The stream has to allow direct reads.
    ///
    /// # Errors
    /// [`ApiError::NO_MESSAGE_FOUND`].
    pub async fn last_message(&self, stream: &str, subject: &str) -> Result<StoredMessage, JetStreamError> {
        self.direct(stream, &json!({ "last_by_subj": subject })).await
    }

    /// The first message from this sequence on whose subject a filter matches. The stream has to allow direct reads.
    ///
    /// # Errors
    /// [`ApiError::NO_MESSAGE_FOUND`].
    pub async fn next_message(
        &self,
        stream: &str,
        filter: &str,
        sequence: u64,
    ) -> Result<StoredMessage, JetStreamError> {
        self.direct(stream, &json!({ "seq": sequence, "next_by_subj": filter })).await
    }

    /// The messages after a sequence whose subjects a filter matches, in order, up to those that are there now. 0 begins with
    /// the first message.
    #[must_use]
    pub fn history(&self, stream: impl Into<String>, filter: impl Into<String>, after: u64) -> History {
        History::new(self.clone(), stream.into(), filter.into(), after)
    }

    async fn direct(&self, stream: &str, request: &serde_json::Value) -> Result<StoredMessage, JetStreamError> {
        let reply = self.request("DIRECT.GET", stream, request).await?;
        stored(reply)
    }

    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        operation: &str,
        stream: &str,
        request: &impl Serialize,
    ) -> Result<T, JetStreamError> {
        read(&self.request(operation, stream, request).await?.payload)
    }

    async fn request(
        &self,
        operation: &str,
        stream: &str,
        request: &impl Serialize,
    ) -> Result<Message, JetStreamError> {
        let subject = self.subject(operation, stream)?;
        let json = serde_json::to_vec(request).map_err(|_| JetStreamError::Reply)?;
        Ok(self.client.request(subject, json).await?)
    }

    pub(super) fn subject(&self, operation: &str, stream: &str) -> Result<String, JetStreamError> {
        if stream.contains('.') || !is_subject(stream.as_bytes()) {
            return Err(JetStreamError::Name);
        }
        Ok(format!("{}.{operation}.{stream}", self.prefix))
    }
}

/// The message of a direct read: its subject and its sequence are headers.
pub(super) fn stored(reply: Message) -> Result<StoredMessage, JetStreamError> {
    if let Some(code) = reply.status().filter(|_| !is_stored(&reply)) {
        let description = reply.headers.as_ref().map(|headers| headers.view().description());
        let description = String::from_utf8_lossy(description.unwrap_or_default()).into_owned();
        let err_code = if code == 404 { ApiError::NO_MESSAGE_FOUND } else { 0 };
        return Err(JetStreamError::Api(ApiError { code, err_code, description }));
    }
    let headers = reply.headers.ok_or(JetStreamError::Reply)?;
    let subject = Bytes::copy_from_slice(headers.last_value("Nats-Subject").ok_or(JetStreamError::Reply)?);
    let sequence = headers.last_value("Nats-Sequence").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let sequence = sequence.ok_or(JetStreamError::Reply)?;
    Ok(StoredMessage { subject, sequence, headers: Some(headers), payload: reply.payload })
}

/// Whether a reply is a message of a stream. A status is no answer of the server then: the publisher has chosen it.
pub(super) fn is_stored(reply: &Message) -> bool {
    let headers = reply.headers.as_ref();
    headers.is_some_and(|headers| headers.value("Nats-Stream").is_some() && headers.value("Nats-Sequence").is_some())
}
