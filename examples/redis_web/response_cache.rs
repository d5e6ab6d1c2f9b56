//! Responses that several processes share through Redis: each sends pages that another one has made.

use std::time::Duration;

use tidegate::Bytes;
use tidegate::http::{ContentType, InvalidField, Response};
use tidegate::redis::Client;

/// Pages by their keys. Clones share the client.
#[derive(Debug, Clone)]
pub(crate) struct ResponseCache {
    client: Client,
    fresh: Duration,
    body_bytes_max: usize,
}

impl ResponseCache {
    /// Pages that are fresh for so long. Longer bodies are not stored.
    pub(crate) fn new(client: Client, fresh: Duration, body_bytes_max: usize) -> Self {
        Self { client, fresh, body_bytes_max }
    }

    /// The page of a key, as it is stored; otherwise that of `make`, which is stored. `X-Cache` says which of both. While
    /// Redis does not answer, a request waits for it 20 ms, and makes its own page.
    ///
    /// The key has all that the page depends on: a page for one user has the user's name in its key.
    pub(crate) async fn page<E>(
        &self,
        key: &str,
        make: impl AsyncFnOnce() -> Result<Bytes, E>,
    ) -> Result<Result<Response, InvalidField>, E> {
        let key = format!("page:{key}");
        let stored = self.client.cmd("GET").arg(&key).timeout(DEADLINE).fetch::<Option<Bytes>>().await;
        if let Ok(Some(page)) = stored {
            return Ok(response(page, "hit"));
        }
        let page = make().await?;
        if page.len() <= self.body_bytes_max {
            let seconds = self.fresh.as_secs().max(1).to_string();
            // The response does not wait for it, and a failure costs the next request some time.
            self.client.cmd("SET").arg(&key).shared_arg(page.clone()).arg("EX").arg(seconds).timeout(DEADLINE).post();
        }
        Ok(response(page, "miss"))
    }

    /// Removes a page whose content has changed.
    pub(crate) async fn purge(&self, key: &str) -> Result<(), tidegate::redis::ClientError> {
        self.client.cmd("DEL").arg(format!("page:{key}")).idempotent().await.map(drop)
    }
}

fn response(page: Bytes, outcome: &str) -> Result<Response, InvalidField> {
    Response::new().body(page).content_type(ContentType::HTML).header("X-Cache", outcome)
}

const DEADLINE: Duration = Duration::from_millis(20);
