//! `ServerInfo` and `ConnectInfo`: the JSON of INFO and of CONNECT.
//!
//! A member that is missing has the value that the protocol gives it; a member that this crate does not know is skipped.

use serde::{Deserialize, Serialize};

/// The JSON of INFO: the server and its demands.
///
/// ```
/// use tidegate::nats::ServerInfo;
///
/// let info = ServerInfo::from_json(br#"{"server_id":"a","max_payload":1048576,"headers":true}"#)?;
/// assert!(info.headers && !info.tls_required);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ServerInfo {
    /// An ID that no other server has.
    pub server_id: String,
    /// Its name.
    pub server_name: String,
    /// Its version.
    pub version: String,
    /// The version of the protocol: 1 if INFO may come again.
    pub proto: i64,
    /// Whether it knows headers.
    pub headers: bool,
    /// The longest message that it accepts, in bytes; 0 if it does not say so.
    pub max_payload: u64,
    /// Whether a client must authenticate itself.
    #[serde(skip_serializing_if = "is_false")]
    pub auth_required: bool,
    /// Whether TLS begins after INFO.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_required: bool,
    /// Whether TLS may begin after INFO.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_available: bool,
    /// Whether it has JetStream.
    #[serde(skip_serializing_if = "is_false")]
    pub jetstream: bool,
    /// Lame duck mode: the server shuts down, and its clients should move to another one.
    #[serde(skip_serializing_if = "is_false")]
    pub ldm: bool,
    /// The number of the connection.
    pub client_id: u64,
    /// The address of the client, as the server sees it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_ip: String,
    /// The bytes that a client signs by its key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nonce: String,
    /// The name of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The servers of the cluster that a client may connect to, `HOST:PORT` each.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "list_or_null")]
    pub connect_urls: Vec<String>,
}

/// The JSON of CONNECT: the client and how it authenticates itself.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ConnectInfo {
    /// Whether the server acknowledges each operation by +OK.
    pub verbose: bool,
    /// Whether the server checks subjects more strictly.
    pub pedantic: bool,
    /// Whether the client demands TLS.
    pub tls_required: bool,
    /// The name of the client, for lists of connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The language of the client.
    pub lang: String,
    /// The version of the client.
    pub version: String,
    /// 1 if INFO may come again.
    pub protocol: i64,
    /// Whether the client gets messages that it has published itself.
    pub echo: bool,
    /// Whether the client knows headers.
    pub headers: bool,
    /// Whether a request that nothing subscribes to is answered by the status 503.
    pub no_responders: bool,
    /// The name of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// The token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<String>,
    /// The public key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nkey: Option<String>,
    /// The signature of the nonce, as Base64 without padding, for URLs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sig: Option<String>,
    /// The JSON web token of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt: Option<String>,
}

impl ServerInfo {
    /// Reads the JSON of INFO.
    ///
    /// # Errors
    /// The JSON is malformed, or a member has another type.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// The JSON for INFO.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Strings, numbers and lists always have a JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl ConnectInfo {
    /// Reads the JSON of CONNECT.
    ///
    /// # Errors
    /// The JSON is malformed, or a member has another type.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// The JSON for CONNECT.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Default for ConnectInfo {
    /// As the protocol has it for members that are missing.
    fn default() -> Self {
        Self {
            verbose: true,
            pedantic: false,
            tls_required: false,
            name: None,
            lang: String::new(),
            version: String::new(),
            protocol: 0,
            echo: true,
            headers: false,
            no_responders: false,
            user: None,
            pass: None,
            auth_token: None,
            nkey: None,
            sig: None,
            jwt: None,
        }
    }
}

/// Secrets stay out of logs.
impl std::fmt::Debug for ConnectInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectInfo").field("name", &self.name).field("user", &self.user).finish_non_exhaustive()
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// Some servers send `null` for an empty list.
fn list_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
