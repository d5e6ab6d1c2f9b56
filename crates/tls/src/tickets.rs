//! `Tickets`: the keys that encrypt session tickets, which can be replaced at any time and grow old. `BoundTickets`: a ticket
//! is of no use elsewhere than where it was made, and not for ever.
//!
//! Read next: `ticket_keys.rs`, for keys that come from outside.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, SecureRandom};
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;
use rustls::{Error, RootCertStore, Tls13CipherSuite};

use crate::error::ConfigError;
use crate::provider::Provider;
use crate::ticket_keys::{SharedTickets, TicketKey, TicketKeys};

/// Keys that the server makes: the present one, and the one before it, which still decrypts. The present one is replaced when it
/// is [`KEYS_SECONDS_MAX`] old.
#[derive(Debug)]
pub(crate) struct Tickets {
    tickets: SharedTickets,
    keys: TicketKeys,
    random: &'static dyn SecureRandom,
    clock: Arc<dyn TimeProvider>,
    /// When the present key was made, in seconds of the clock.
    since: RwLock<u64>,
}

impl Tickets {
    pub(crate) fn new(
        suite: &'static Tls13CipherSuite,
        crypto: &CryptoProvider,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Self, ConfigError> {
        let (random, since) = (crypto.secure_random, RwLock::new(now(&*clock)?));
        let keys = TicketKeys::new([random_key(random)?])?;
        Ok(Self { tickets: SharedTickets::new(keys.clone(), suite, crypto), keys, random, clock, since })
    }

    /// A new key encrypts from now on.
    pub(crate) fn replace(&self) -> Result<(), ConfigError> {
        self.replace_if(now(&*self.clock)?, |_| true)
    }

    fn replace_if(&self, now: u64, is_due: impl FnOnce(u64) -> bool) -> Result<(), ConfigError> {
        let mut since = self.since.write().unwrap_or_else(PoisonError::into_inner);
        let age = now.saturating_sub(*since);
        // Another loop may have replaced it meanwhile.
        if is_due(age) {
            // A key that was not replaced in time has no time left.
            let before = self.keys.all().first().filter(|_| age < 2 * KEYS_SECONDS_MAX).cloned();
            self.keys.replace([random_key(self.random)?].into_iter().chain(before))?;
            *since = now;
        }
        Ok(())
    }

    /// Replaces the present key if it is due. Without a clock or without randomness the old one stays.
    fn renew(&self) {
        let Ok(now) = now(&*self.clock) else { return };
        let since = *self.since.read().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_sub(since) >= KEYS_SECONDS_MAX {
            let _ = self.replace_if(now, |age| age >= KEYS_SECONDS_MAX);
        }
    }

    /// The keys and their time, for a process that takes this one's place.
    pub(crate) fn state(&self) -> Vec<u8> {
        let since = *self.since.read().unwrap_or_else(PoisonError::into_inner);
        let keys = self.keys.all();
        since.to_be_bytes().into_iter().chain(keys.iter().flat_map(TicketKey::to_bytes)).collect()
    }

    /// Uses the keys of another process. Returns whether they are keys; otherwise nothing has changed.
    pub(crate) fn adopt(&self, state: &[u8]) -> bool {
        let Some((made, keys)) = state.split_first_chunk::<8>() else { return false };
        let keys: Option<Vec<_>> = keys.chunks(KEY_BYTES).map(TicketKey::from_bytes).collect();
        let mut since = self.since.write().unwrap_or_else(PoisonError::into_inner);
        if !keys.is_some_and(|keys| keys.len() <= 2 && self.keys.replace(keys).is_ok()) {
            return false;
        }
        *since = u64::from_be_bytes(*made);
        true
    }
}

fn now(clock: &dyn TimeProvider) -> Result<u64, Error> {
    Ok(clock.current_time().ok_or(Error::FailedToGetCurrentTime)?.as_secs())
}

fn random_key(random: &dyn SecureRandom) -> Result<TicketKey, ConfigError> {
    let mut bytes = [0; KEY_BYTES];
    random.fill(&mut bytes).map_err(Error::from)?;
    TicketKey::from_bytes(&bytes).ok_or(ConfigError::NoTicketKeys)
}

/// The length of a key.
const KEY_BYTES: usize = 80;

/// How long keys encrypt, six hours, and then decrypt.
const KEYS_SECONDS_MAX: u64 = 6 * 60 * 60;

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.renew();
        self.tickets.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.renew();
        self.tickets.decrypt(cipher)
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
