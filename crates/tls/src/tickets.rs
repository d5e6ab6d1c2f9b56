//! `Tickets`: the keys that encrypt session tickets, which can be replaced at any time and grow old.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::Error;
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;

use crate::provider::MakeTickets;

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
