//! `BodyCollector`: the bytes of a body that is read as a whole, up to a limit, charged to its connection.

use tidegate_engine::{Account, ConnectionCharge};

use crate::error::BodyError;

/// Bytes that are collected, up to a limit.
pub struct BodyCollector {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// The connection whose memory they are.
    account: Option<Account>,
    charge: Option<Box<ConnectionCharge>>,
}

impl BodyCollector {
    /// At most so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, account: None, charge: None }
    }

    /// The bytes count as memory of the connection with this account.
    #[must_use]
    pub fn charged_to(mut self, account: Option<Account>) -> Self {
        self.account = account;
        self
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// [`BodyError::TooLong`]: the bytes exceed the limit.
    pub fn add(&mut self, piece: &[u8]) -> Result<(), BodyError> {
        if piece.len() > self.bytes_max - self.bytes.len() {
            return Err(BodyError::TooLong);
        }
        self.bytes.extend_from_slice(piece);
        match &mut self.charge {
            Some(charge) => charge.resize(self.bytes.capacity()),
            None => self.charge = self.account.as_ref().and_then(|account| charge(account, self.bytes.capacity())),
        }
        Ok(())
    }

    /// The bytes, which no longer count.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes, and their charge.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u8>, Option<Box<ConnectionCharge>>) {
        (self.bytes, self.charge)
    }
}

/// Counts the bytes of a body as memory of its connection, if they are worth it.
#[must_use]
pub fn charge(account: &Account, bytes: usize) -> Option<Box<ConnectionCharge>> {
    (bytes >= CHARGED_BYTES_MIN).then(|| Box::new(account.charge(bytes)))
}

/// A shorter body does not count: its request takes as much memory, which does not count either.
const CHARGED_BYTES_MIN: usize = 1024;
