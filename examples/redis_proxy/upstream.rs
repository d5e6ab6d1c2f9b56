//! The connections of a loop to the upstream.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use tidegate::ConnectError;
use tidegate::redis::{Client, ClientBuilder, ClientError, ClientLimits, OutgoingReply, ReplyBudget, Version};

/// The upstream, as one loop has it.
pub(crate) struct Upstream {
    pub(crate) target: String,
    pub(crate) password: Option<Box<[u8]>>,
    /// Replies that wait for the clients of this loop.
    pub(crate) budget: ReplyBudget,
    /// Those that wait for one client.
    pub(crate) client_bytes_max: usize,
    shared: RefCell<HashMap<ConnectionKey, Client>>,
}

/// Clients share a connection if these are the same for them: the version decides the form of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionKey {
    pub(crate) version: Version,
    pub(crate) database: u32,
}

impl Upstream {
    pub(crate) fn new(target: &str, password: Option<&str>, client_bytes_max: usize) -> Self {
        Self {
            target: target.to_owned(),
            password: password.map(|password| password.as_bytes().into()),
            budget: ReplyBudget::new(WAITING_BYTES_MAX),
            client_bytes_max,
            shared: RefCell::default(),
        }
    }

    /// The shared connection. It connects with its first command.
    pub(crate) fn shared(&self, key: ConnectionKey) -> Result<Client, ConnectError> {
        if let Some(client) = self.shared.borrow().get(&key) {
            return Ok(client.clone());
        }
        let client = self.builder(key)?.start();
        self.shared.borrow_mut().insert(key, client.clone());
        Ok(client)
    }

    /// Checks that the upstream has this database.
    pub(crate) async fn check_database(&self, key: ConnectionKey) -> Result<(), OutgoingReply> {
        self.check_database_within(key, TIMEOUT).await
    }

    /// The shared connections of this loop.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.shared.borrow().len()
    }

    pub(crate) async fn check_database_within(
        &self,
        key: ConnectionKey,
        timeout: Duration,
    ) -> Result<(), OutgoingReply> {
        let is_new = !self.shared.borrow().contains_key(&key);
        let client = self.shared(key).map_err(|error| error_for(&error))?;
        let result = client.cmd("PING").timeout(timeout).await;
        if result.is_err() && is_new {
            // A client that chooses numbers at random must not leave a connection for each, also while the upstream is down.
            self.shared.borrow_mut().remove(&key);
        }
        match result {
            Ok(_) => Ok(()),
            Err(ClientError::NotSent(tidegate::redis::Failure::Refused)) => {
                Err(OutgoingReply::error("ERR DB index is out of range"))
            }
            Err(error) => Err(error_for_failure(&error)),
        }
    }

    fn builder(&self, key: ConnectionKey) -> Result<ClientBuilder, ConnectError> {
        let mut builder = Client::to(&self.target)?.name("redis_proxy").database(key.database).limits(LIMITS);
        if let Some(password) = &self.password {
            builder = builder.password(password.clone());
        }
        Ok(if key.version == Version::Resp2 { builder.resp2() } else { builder }.timeout(TIMEOUT))
    }
}

/// The reply to a command without a reply of the upstream: it says whether the command may have been executed.
pub(crate) fn error_for_failure(error: &ClientError) -> OutgoingReply {
    match error {
        ClientError::NotSent(failure) => {
            OutgoingReply::error(format!("ERR proxy: the command was not executed: {failure}"))
        }
        error => OutgoingReply::error(format!("ERR proxy: {error}")),
    }
}

/// The reply if there is no connection for a command.
pub(crate) fn error_for(error: &dyn std::error::Error) -> OutgoingReply {
    let text = error.to_string().replace(['\r', '\n'], " ");
    OutgoingReply::error(format!("ERR proxy: the command was not executed: {text}"))
}

/// How long a command may take; a blocking one has no such bound.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Commands that wait for the upstream, of all clients of one loop.
const LIMITS: ClientLimits = ClientLimits { commands_max: 65_536, bytes_max: 128 << 20 };

/// Replies that wait for the clients of one loop. The client whose reply exceeds it is disconnected.
const WAITING_BYTES_MAX: usize = 512 << 20;
