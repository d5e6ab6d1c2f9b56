//! `Script`: a script that the server keeps, called by its hash.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::client::error::ClientError;
use crate::client::handle::Client;
use crate::owned::OwnedValue;

/// A script in Lua. The first call loads it, and later ones send its hash alone. A server that has forgotten it gets the
/// source again.
///
/// ```no_run
/// # async fn example(client: tidegate::redis::Client) -> Result<(), tidegate::redis::ClientError> {
/// use tidegate::redis::Script;
///
/// static ADD: std::sync::LazyLock<Script> =
///     std::sync::LazyLock::new(|| Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])"));
/// let sum = ADD.run(&client, ["total"], ["412"]).await?;
/// # drop(sum);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Script {
    source: Bytes,
    /// The server has computed it.
    hash: OnceLock<Bytes>,
}

impl Script {
    /// A script with this source.
    #[must_use]
    pub fn new(source: impl Into<Bytes>) -> Self {
        Self { source: source.into(), hash: OnceLock::new() }
    }

    /// Calls the script with these keys and arguments.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn run(
        &self,
        client: &Client,
        keys: impl IntoIterator<Item: AsRef<[u8]>>,
        arguments: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> Result<OwnedValue, ClientError> {
        let keys: Vec<_> = keys.into_iter().collect();
        let arguments: Vec<_> = arguments.into_iter().collect();
        let hash = if let Some(hash) = self.hash.get() {
            hash.clone()
        } else {
            let load = client.cmd("SCRIPT").arg("LOAD").shared_arg(self.source.clone()).idempotent();
            let hash = load.fetch::<Bytes>().await?;
            self.hash.get_or_init(|| hash).clone()
        };
        let call = |name: &str, script: &Bytes| {
            let call = client.cmd(name).shared_arg(script.clone()).arg(keys.len().to_string());
            call.args(&keys).args(&arguments).send()
        };
        match call("EVALSHA", &hash).await {
            // The server has not executed anything, so this is no second execution.
            Err(ClientError::Reply(error)) if error.code() == b"NOSCRIPT" => call("EVAL", &self.source).await,
            result => result,
        }
    }
}
