//! `Script`: a script that the server keeps, called by its hash.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::client::error::ClientError;
use crate::client::handle::{Client, ReplyFuture};
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
    /// Calls that are under way at the same time may be executed in another order, if the server has forgotten the script and
    /// another client loads it: the first of them is sent again, behind the others. Where the order counts, await a call before
    /// the next, or use [`run_in_order`](Self::run_in_order).
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
        match call(client, "EVALSHA", &hash, &keys, &arguments).await {
            // The server has not executed anything, so this is no second execution.
            Err(ClientError::Reply(error)) if error.code() == b"NOSCRIPT" => {
                call(client, "EVAL", &self.source, &keys, &arguments).await
            }
            result => result,
        }
    }

    /// As [`run`](Self::run), with the source in each call: the server executes the calls of one connection in their order,
    /// whatever it has forgotten. The call is sent at once, and the future yields its reply.
    pub fn run_in_order(
        &self,
        client: &Client,
        keys: impl IntoIterator<Item: AsRef<[u8]>>,
        arguments: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> ReplyFuture {
        let keys: Vec<_> = keys.into_iter().collect();
        call(client, "EVAL", &self.source, &keys, arguments)
    }
}

fn call(
    client: &Client,
    name: &str,
    script: &Bytes,
    keys: &[impl AsRef<[u8]>],
    arguments: impl IntoIterator<Item: AsRef<[u8]>>,
) -> ReplyFuture {
    let call = client.cmd(name).shared_arg(script.clone()).arg(keys.len().to_string());
    call.args(keys).args(arguments).send()
}
