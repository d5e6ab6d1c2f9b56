//! `Records`: the records of one certificate in the store.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use instant_acme::AccountCredentials;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_engine::blocking;

use crate::error::IssueError;
use crate::settings::Settings;
use crate::store::Store;

/// The store, and the names of the records.
#[derive(Clone)]
pub(crate) struct Records {
    store: Arc<dyn Store>,
    /// One for each authority.
    account: String,
    /// Those of one authority and one set of names.
    order: String,
    certificate: String,
    failures: String,
}

/// An order under way. Its key is made first, so that a certificate that is issued meanwhile has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedOrder {
    pub(crate) url: String,
    /// PEM.
    pub(crate) key: String,
}

/// Failures since the last certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedFailures {
    pub(crate) count: u32,
    /// Seconds since 1970.
    pub(crate) retry_at: u64,
    pub(crate) error: String,
}

impl SavedFailures {
    pub(crate) fn new(count: u32, retry_at: SystemTime, error: &IssueError) -> Self {
        let retry_at = retry_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { count, retry_at, error: error.to_string() }
    }

    pub(crate) fn retry_at(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.retry_at)).unwrap_or(UNIX_EPOCH)
    }
}

impl Records {
    pub(crate) fn new(settings: &Settings) -> Self {
        let authority = hash([settings.directory.as_str()]);
        let certificate =
            hash([settings.directory.as_str()].into_iter().chain(settings.names.iter().map(String::as_str)));
        let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-');
        let first: String = settings.names[0].chars().map(|char| if is_plain(char) { char } else { '-' }).collect();
        let first = first.trim_start_matches('.');
        Self {
            store: settings.store.clone(),
            account: format!("account-{authority:016x}.json"),
            order: format!("order-{first}-{certificate:016x}.json"),
            certificate: format!("certificate-{first}-{certificate:016x}.pem"),
            failures: format!("failures-{first}-{certificate:016x}.json"),
        }
    }

    /// The name of the record that holds up attempts, for the log.
    pub(crate) fn failures_name(&self) -> &str {
        &self.failures
    }

    /// The key and the chain as one PEM text. It blocks.
    pub(crate) fn read_certificate(&self) -> io::Result<Option<Vec<u8>>> {
        self.store.read(&self.certificate)
    }

    /// The failures, unless the record is malformed. It blocks.
    pub(crate) fn read_failures(&self) -> io::Result<Option<SavedFailures>> {
        let text = self.store.read(&self.failures)?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    pub(crate) async fn account(&self) -> Result<Option<AccountCredentials>, IssueError> {
        self.read(&self.account, "account").await
    }

    pub(crate) async fn order(&self) -> Result<Option<SavedOrder>, IssueError> {
        self.read(&self.order, "order").await
    }

    pub(crate) async fn set_account(&self, account: &AccountCredentials) -> Result<(), IssueError> {
        self.write(&self.account, serde_json::to_vec(account).map_err(|_| IssueError::Crypto)?).await
    }

    pub(crate) async fn set_order(&self, order: &SavedOrder) -> Result<(), IssueError> {
        self.write(&self.order, serde_json::to_vec(order).map_err(|_| IssueError::Crypto)?).await
    }

    pub(crate) async fn set_certificate(&self, text: Vec<u8>) -> Result<(), IssueError> {
        self.write(&self.certificate, text).await
    }

    pub(crate) async fn set_failures(&self, failures: &SavedFailures) -> Result<(), IssueError> {
        self.write(&self.failures, serde_json::to_vec(failures).map_err(|_| IssueError::Crypto)?).await
    }

    pub(crate) async fn remove_account(&self) -> Result<(), IssueError> {
        self.remove(&self.account).await
    }

    pub(crate) async fn remove_order(&self) -> Result<(), IssueError> {
        self.remove(&self.order).await
    }

    pub(crate) async fn remove_failures(&self) -> Result<(), IssueError> {
        self.remove(&self.failures).await
    }

    async fn read<T: DeserializeOwned>(&self, name: &str, what: &'static str) -> Result<Option<T>, IssueError> {
        let (store, name) = (self.store.clone(), name.to_owned());
        let text = blocking(move || store.read(&name)).await??;
        text.map(|text| serde_json::from_slice(&text).map_err(|_| IssueError::Record(what))).transpose()
    }

    async fn write(&self, name: &str, value: Vec<u8>) -> Result<(), IssueError> {
        let (store, name) = (self.store.clone(), name.to_owned());
        Ok(blocking(move || store.write(&name, &value)).await??)
    }

    async fn remove(&self, name: &str) -> Result<(), IssueError> {
        let (store, name) = (self.store.clone(), name.to_owned());
        Ok(blocking(move || store.remove(&name)).await??)
    }
}

/// FNV-1a of texts, each with an end: the same in every version, and no secret.
fn hash<'t>(texts: impl IntoIterator<Item = &'t str>) -> u64 {
    let bytes = texts.into_iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_other_names_have_other_names() {
        assert_eq!(hash([]), 0xcbf2_9ce4_8422_2325);
        assert_ne!(hash(["a", "b"]), hash(["ab"]));
        assert_ne!(hash(["a", "b"]), hash(["b", "a"]));
    }
}
