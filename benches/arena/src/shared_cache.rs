//! A cache of single items that several processes share, in Redis.

use std::error::Error;
use std::time::Duration;

use tidegate::Bytes;
use tidegate::redis::Client;

use crate::database::CACHED_MAX;

/// Items as JSON, each for as long as a process of its own would keep it. Without Redis nothing is cached.
#[derive(Debug, Clone)]
pub struct SharedCache(Client);

impl SharedCache {
    /// One connection for all loops, on a thread of its own.
    ///
    /// # Errors
    /// If the URL is none of a Redis server.
    pub fn connect(url: &str) -> Result<Self, Box<dyn Error>> {
        Ok(Self(Client::url(url)?.name("arena").timeout(ANSWER_MAX).spawn()?))
    }

    /// The cached item of this number.
    pub async fn item(&self, id: i32) -> Option<Bytes> {
        self.0.cmd("GET").arg(key(id)).idempotent().fetch().await.unwrap_or_default()
    }

    /// Keeps an item.
    pub fn keep(&self, id: i32, item: &[u8]) {
        let lifetime = CACHED_MAX.as_millis().to_string();
        self.0.cmd("SET").arg(key(id)).arg(item).arg("PX").arg(lifetime).post();
    }

    /// Removes the item of this number, since it has changed. Where that fails, the item is old until its lifetime ends.
    pub async fn remove(&self, id: i32) {
        // The item in the database has changed already.
        drop(self.0.cmd("DEL").arg(key(id)).await);
    }
}

fn key(id: i32) -> String {
    format!("arena:item:{id}")
}

/// A read goes to the database where Redis takes longer.
const ANSWER_MAX: Duration = Duration::from_millis(100);
