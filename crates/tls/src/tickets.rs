//! `Tickets`: the keys that encrypt session tickets, which can be replaced at any time.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::Error;
use rustls::server::ProducesTickets;

use crate::provider::MakeTickets;

/// The present keys, and those before them, which still decrypt. Either replaces its own keys every six hours.
#[derive(Debug)]
pub(crate) struct Tickets {
    make: MakeTickets,
    keys: RwLock<Keys>,
}

#[derive(Debug, Clone)]
struct Keys {
    present: Arc<dyn ProducesTickets>,
    previous: Option<Arc<dyn ProducesTickets>>,
}

impl Tickets {
    pub(crate) fn new(make: MakeTickets) -> Result<Self, Error> {
        Ok(Self { make, keys: RwLock::new(Keys { present: make()?, previous: None }) })
    }

    /// New keys encrypt from now on.
    pub(crate) fn replace(&self) -> Result<(), Error> {
        let present = (self.make)()?;
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let previous = std::mem::replace(&mut keys.present, present);
        keys.previous = Some(previous);
        Ok(())
    }

    fn keys(&self) -> Keys {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

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
