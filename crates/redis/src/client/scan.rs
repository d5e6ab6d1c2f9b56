//! `Scan`: the keys of a server, or the members of a value, batch by batch.

use bytes::Bytes;

use crate::client::error::ClientError;
use crate::client::from_reply::FromReply;
use crate::client::handle::{Call, Client};
use crate::owned::OwnedValue;

/// An iteration over SCAN, SSCAN, HSCAN or ZSCAN. The server may return an element more than once.
///
/// ```no_run
/// # async fn example(client: tidegate::redis::Client) -> Result<(), tidegate::redis::ClientError> {
/// let mut scan = client.scan().matching("tide:*").count(100);
/// while let Some(keys) = scan.next_batch::<Vec<String>>().await? {
///     println!("{keys:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "an iteration does nothing until it is asked for a batch"]
pub struct Scan {
    client: Client,
    name: &'static str,
    key: Option<Bytes>,
    pattern: Option<Bytes>,
    count: Option<u32>,
    /// `None` at the end.
    cursor: Option<Bytes>,
}

impl Client {
    /// An iteration over the keys.
    pub fn scan(&self) -> Scan {
        self.scan_with("SCAN", None)
    }

    /// An iteration over the members of a set.
    pub fn sscan(&self, key: impl Into<Bytes>) -> Scan {
        self.scan_with("SSCAN", Some(key.into()))
    }

    /// An iteration over the fields and values of a hash.
    pub fn hscan(&self, key: impl Into<Bytes>) -> Scan {
        self.scan_with("HSCAN", Some(key.into()))
    }

    /// An iteration over the members and scores of a sorted set.
    pub fn zscan(&self, key: impl Into<Bytes>) -> Scan {
        self.scan_with("ZSCAN", Some(key.into()))
    }

    fn scan_with(&self, name: &'static str, key: Option<Bytes>) -> Scan {
        let cursor = Some(Bytes::from_static(b"0"));
        Scan { client: self.clone(), name, key, pattern: None, count: None, cursor }
    }
}

impl Scan {
    /// Only elements that match this pattern.
    pub fn matching(mut self, pattern: impl Into<Bytes>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// About how many elements the server looks at for each batch.
    pub fn count(mut self, count: u32) -> Self {
        self.count = Some(count);
        self
    }

    /// The next elements, which may be none; `None` at the end. After an error the same batch is asked for again.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn next_batch<T: FromReply>(&mut self) -> Result<Option<T>, ClientError> {
        if self.cursor.is_none() {
            return Ok(None);
        }
        let call = [&self.key, &self.cursor].into_iter().flatten().fold(self.client.cmd(self.name), Call::arg);
        let call = if let Some(pattern) = &self.pattern { call.arg("MATCH").arg(pattern) } else { call };
        let call = if let Some(count) = self.count { call.arg("COUNT").arg(count.to_string()) } else { call };
        let (next, elements) = call.idempotent().fetch::<(Bytes, OwnedValue)>().await?;
        let elements = T::from_reply(elements)?;
        self.cursor = (next != "0").then_some(next);
        Ok(Some(elements))
    }
}
