//! `Reconnect`: a WebSocket that is opened again whenever it ends.

use std::ops::ControlFlow;
use std::time::Duration;

use tidegate_engine::{Backoff, ReconnectPauses, task};
use tidegate_websocket::handshake::HandshakeError;

use super::error::{ClientError, ProxyError};
use super::websocket::{WebSocketBuilder, WebSocketChannel};

/// How a WebSocket is opened again after it has ended, or could not be opened.
///
/// Before each attempt the client waits for a random part of a delay, so that the clients of a server that restarts do
/// not all come back in the same moment. The delay begins at 5 seconds, doubles with each failure up to a minute, and
/// begins anew after a connection that has lasted for longer than it (RFC 6455 §7.2.3).
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use tidegate::http::Client;
/// use tidegate::http::client::{ClientError, Reconnect};
/// use tidegate::websocket::Message;
///
/// # async fn example(client: Client, token: impl Fn() -> String) -> Result<(), ClientError> {
/// let last = Reconnect::new()
///     .run(
///         || client.websocket("wss://sea.example/tides").bearer_auth(&token()),
///         async |mut channel| {
///             while let Ok(Some(message)) = channel.recv().await {
///                 if let Message::Text(text) = message {
///                     return ControlFlow::Break(text.to_string());
///                 }
///             }
///             ControlFlow::Continue(())
///         },
///     )
///     .await?;
/// # drop(last);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it runs"]
pub struct Reconnect {
    backoff: Backoff,
    attempts_max: Option<u32>,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self { backoff: Backoff::new(Duration::from_secs(5), Duration::from_secs(60)), attempts_max: None }
    }
}

impl Reconnect {
    /// Delays from 5 seconds to a minute, and any number of attempts.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first and the longest delay.
    pub fn delays(mut self, min: Duration, max: Duration) -> Self {
        self.backoff = Backoff::new(min, max);
        self
    }

    /// How many attempts in a row may fail: the error of the last is returned. Any number unless set.
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = Some(attempts);
        self
    }

    /// Opens a WebSocket with the builder that `open` returns, passes it to `serve`, and opens the next one when that
    /// returns `Continue`. `open` is called for each attempt, so that each has a fresh token.
    ///
    /// # Errors
    /// An error that the next attempt would have as well: of the URI, the TLS configuration, a field; a server that
    /// answers the handshake wrongly, or refuses it with a status below 500 other than 408, 425 and 429. Also that of
    /// the last attempt, of [`attempts_max`](Self::attempts_max).
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub async fn run<T>(
        self,
        mut open: impl FnMut() -> WebSocketBuilder,
        mut serve: impl AsyncFnMut(WebSocketChannel) -> ControlFlow<T>,
    ) -> Result<T, ClientError> {
        let (mut pauses, mut refused) = (ReconnectPauses::default(), 0_u32);
        loop {
            let lasted = match open().open().await {
                Ok(channel) => {
                    refused = 0;
                    let begun = task::now();
                    if let ControlFlow::Break(value) = serve(channel).await {
                        return Ok(value);
                    }
                    Some(task::now().saturating_duration_since(begun))
                }
                Err(error) => {
                    refused += 1;
                    if is_final(&error) || self.attempts_max.is_some_and(|most| refused >= most) {
                        return Err(error);
                    }
                    None
                }
            };
            task::sleep(pauses.next(&self.backoff, 1, lasted)).await;
        }
    }
}

/// Whether the next attempt would have the same error.
fn is_final(error: &ClientError) -> bool {
    match error {
        ClientError::WebSocket(HandshakeError::Status(status)) => *status < 500 && !matches!(status, 408 | 425 | 429),
        ClientError::Proxy(error) => matches!(error, ProxyError::Target),
        ClientError::Uri
        | ClientError::Scheme
        | ClientError::NoTls
        | ClientError::NoHttp3
        | ClientError::ServerName
        | ClientError::Request(_)
        | ClientError::Field(_)
        | ClientError::WebSocket(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_would_come_again_ends_the_attempts() {
        let of_status = |status| ClientError::WebSocket(HandshakeError::Status(status));
        for error in
            [ClientError::Scheme, of_status(200), of_status(401), ClientError::WebSocket(HandshakeError::Accept)]
        {
            assert!(is_final(&error), "{error}");
        }
        for error in [of_status(503), of_status(429), ClientError::PoolFull] {
            assert!(!is_final(&error), "{error}");
        }
    }
}
