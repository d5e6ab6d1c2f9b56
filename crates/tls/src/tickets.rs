//! `Tickets`: the keys that encrypt session tickets, which can be replaced at any time and grow old. `BoundTickets`: a ticket
//! is of no use elsewhere than where it was made, and not for ever.
//!
//! Read next: `ticket_keys.rs`, for keys that come from outside.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;
use rustls::{Error, RootCertStore};

use crate::provider::{MakeTickets, Provider};

/// The present keys, and those before them, which still decrypt. They are replaced when they are [`KEYS_SECONDS_MAX`]
/// old.
#[derive(Debug)]
pub(crate) struct Tickets {
    make: MakeTickets,
    clock: Arc<dyn TimeProvider>,
    keys: RwLock<Keys>,
}

#[derive(Debug, Clone)]
struct Keys {
    present: Arc<dyn ProducesTickets>,
    previous: Option<Arc<dyn ProducesTickets>>,
    /// When the present ones were made, in seconds of the clock.
    since: u64,
}

impl Tickets {
    pub(crate) fn new(make: MakeTickets, clock: Arc<dyn TimeProvider>) -> Result<Self, Error> {
        let since = clock.current_time().ok_or(Error::FailedToGetCurrentTime)?.as_secs();
        Ok(Self { make, clock, keys: RwLock::new(Keys { present: make()?, previous: None, since }) })
    }

    /// New keys encrypt from now on.
    pub(crate) fn replace(&self) -> Result<(), Error> {
        let now = self.clock.current_time().ok_or(Error::FailedToGetCurrentTime)?.as_secs();
        self.replace_if(now, |_| true)
    }

    fn replace_if(&self, now: u64, is_due: impl FnOnce(&Keys) -> bool) -> Result<(), Error> {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        // Another loop may have replaced them meanwhile.
        if is_due(&keys) {
            let present = std::mem::replace(&mut keys.present, (self.make)()?);
            // Keys that were not replaced in time have no time left.
            keys.previous = (keys.age(now) < 2 * KEYS_SECONDS_MAX).then_some(present);
            keys.since = now;
        }
        Ok(())
    }

    /// The keys of now. Without a clock or without randomness the old ones stay.
    fn keys(&self) -> Keys {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        let now = self.clock.current_time().map_or(keys.since, |now| now.as_secs());
        if keys.age(now) < KEYS_SECONDS_MAX {
            return keys;
        }
        match self.replace_if(now, |keys| keys.age(now) >= KEYS_SECONDS_MAX) {
            Ok(()) => self.keys.read().unwrap_or_else(PoisonError::into_inner).clone(),
            Err(_) => keys,
        }
    }
}

impl Keys {
    fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.since)
    }
}

/// How long keys encrypt, six hours, and then decrypt.
const KEYS_SECONDS_MAX: u64 = 6 * 60 * 60;

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.keys().present.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys().present.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys();
        keys.present.decrypt(cipher).or_else(|| keys.previous?.decrypt(cipher))
    }
}

/// Tickets that are bound to the authorities which vouch for clients, and to the time at which they were made.
///
/// A session that is resumed has the certificate of its client, which nothing verifies again. So a ticket is accepted only
/// where the same authorities vouch for clients in the same way. A handshake that is under way while the authorities change
/// makes a ticket of the old ones.
#[derive(Debug)]
pub(crate) struct BoundTickets {
    keys: Arc<dyn ProducesTickets>,
    binding: Vec<u8>,
    clock: Arc<dyn TimeProvider>,
}

impl BoundTickets {
    pub(crate) fn new(keys: Arc<dyn ProducesTickets>, binding: Vec<u8>, clock: Arc<dyn TimeProvider>) -> Self {
        Self { keys, binding, clock }
    }
}

impl ProducesTickets for BoundTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.keys.lifetime().min(LIFETIME_SECONDS)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let now = self.clock.current_time()?.as_secs();
        self.keys.encrypt(&[&now.to_be_bytes(), &self.binding[..], plain].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let bytes = self.keys.decrypt(cipher)?;
        let (made, rest) = bytes.split_first_chunk::<8>()?;
        let plain = rest.strip_prefix(&self.binding[..])?;
        // The clock of another server that shares the keys may be ahead.
        let age = self.clock.current_time()?.as_secs().saturating_sub(u64::from_be_bytes(*made));
        (age <= u64::from(LIFETIME_SECONDS)).then(|| plain.to_vec())
    }
}

/// A digest that distinguishes the tickets of different authorities. `mode` is how the authorities are used.
pub(crate) fn binding(provider: &Provider, mode: u8, roots: Option<&RootCertStore>) -> Vec<u8> {
    let mut anchors: Vec<Vec<u8>> = Vec::new();
    for root in roots.into_iter().flat_map(|roots| &roots.roots) {
        let constraints = root.name_constraints.as_deref().unwrap_or_default();
        let mut anchor = Vec::new();
        for part in [&*root.subject, &*root.subject_public_key_info, constraints] {
            anchor.extend((part.len() as u64).to_be_bytes());
            anchor.extend(part);
        }
        anchors.push(anchor);
    }
    // The order of certificates in a file changes nothing.
    anchors.sort();
    anchors.dedup();
    let mut digest = vec![mode];
    if !anchors.is_empty() {
        digest.extend(provider.digest(&anchors.concat()));
    }
    digest
}

/// How long a ticket is accepted: 12 hours.
pub(crate) const LIFETIME_SECONDS: u32 = 2 * KEYS_SECONDS_MAX as u32;
