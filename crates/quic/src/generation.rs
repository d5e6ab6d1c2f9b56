//! `Generation`: the state that the endpoints of a server share, and that a successor with the same sockets gets.
//!
//! A client's first packets have a connection id that the client chose. So the ids of handshakes under way are in a table,
//! which a successor gets; every other packet names its endpoint (`connection_ids.rs`).

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tidegate_codec::{EndpointGeneration, EndpointPlace};
use tidegate_tls::{self as tls, SealingKey};

use crate::connection_ids::{PacketDestination, destination};
use crate::error::ConfigError;
use crate::quinn::ConnectionId;

/// The generation of a server at one address.
pub(crate) struct Generation {
    tls: tls::ServerConfig,
    number: AtomicU8,
    secrets: RwLock<Secrets>,
    /// Handshakes of this generation: the id that the client has chosen, and the first one of this side.
    own: Mutex<HashMap<ConnectionId, EndpointPlace>>,
    /// The same of earlier ones.
    inherited: RwLock<HashMap<ConnectionId, EndpointPlace>>,
    has_inherited: AtomicBool,
    /// The endpoints of earlier generations that are there; `None` without a predecessor.
    living: RwLock<Option<Vec<EndpointPlace>>>,
    is_superseded: AtomicBool,
}

/// The secrets of stateless resets and of tokens, which all generations share, as they do the keys of session tickets.
#[derive(Clone, Copy)]
struct Secrets {
    reset: [u8; SECRET_BYTES],
    token: [u8; SECRET_BYTES],
}

impl Generation {
    /// The first generation, with secrets of its own.
    pub(crate) fn new(tls: &tls::ServerConfig) -> Result<Self, ConfigError> {
        let mut secrets = Secrets { reset: [0; SECRET_BYTES], token: [0; SECRET_BYTES] };
        for secret in [&mut secrets.reset, &mut secrets.token] {
            tls.provider().crypto().secure_random.fill(secret).map_err(|_| ConfigError::Tls)?;
        }
        Ok(Self {
            tls: tls.clone(),
            number: AtomicU8::new(0),
            secrets: RwLock::new(secrets),
            own: Mutex::default(),
            inherited: RwLock::default(),
            has_inherited: AtomicBool::new(false),
            living: RwLock::new(None),
            is_superseded: AtomicBool::new(false),
        })
    }

    /// The same configuration for another server.
    pub(crate) fn another(&self) -> Result<Self, ConfigError> {
        Self::new(&self.tls)
    }

    /// The keys of stateless resets and of tokens; `None` if the cryptography has no suitable suite.
    pub(crate) fn keys(&self) -> Option<[SealingKey; 2]> {
        let secrets = *self.secrets.read().unwrap_or_else(PoisonError::into_inner);
        let key = |secret| SealingKey::new(self.tls.provider(), secret);
        Some([key(&secrets.reset)?, key(&secrets.token)?])
    }

    /// A handshake has begun.
    fn add_handshake(&self, ids: &[ConnectionId; 2], place: EndpointPlace) {
        self.own().extend(ids.map(|id| (id, place)));
    }

    /// A handshake is over.
    fn remove_handshake(&self, ids: &[ConnectionId; 2]) {
        let mut own = self.own();
        for id in ids {
            own.remove(id);
        }
        if own.is_empty() {
            *own = HashMap::new();
        }
    }

    /// Whether an endpoint sends a stateless reset for an id that it does not know. Another endpoint may have a connection
    /// with an id that it chose: no reset may end that.
    pub(crate) fn may_reset(&self, chosen_by: EndpointPlace, own: EndpointPlace) -> bool {
        if chosen_by.generation == own.generation {
            return chosen_by == own;
        }
        let living = self.living.read().unwrap_or_else(PoisonError::into_inner);
        !self.is_superseded.load(Relaxed) && living.as_ref().is_some_and(|living| !living.contains(&chosen_by))
    }

    fn own(&self) -> MutexGuard<'_, HashMap<ConnectionId, EndpointPlace>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EndpointGeneration for Generation {
    fn number(&self) -> u8 {
        self.number.load(Relaxed)
    }

    fn endpoint_of(&self, payload: &[u8]) -> Option<EndpointPlace> {
        match destination(payload) {
            PacketDestination::Endpoint(place) => Some(place),
            PacketDestination::Establishing(id) if self.has_inherited.load(Relaxed) && id.len() <= ID_BYTES_MAX => {
                let inherited = self.inherited.read().unwrap_or_else(PoisonError::into_inner);
                inherited.get(&ConnectionId::new(id)).copied()
            }
            PacketDestination::Establishing(_) | PacketDestination::Unknown => None,
        }
    }

    fn state(&self) -> Vec<u8> {
        let secrets = *self.secrets.read().unwrap_or_else(PoisonError::into_inner);
        [&[STATE_VERSION, self.number()][..], &secrets.reset, &secrets.token, &self.tls.ticket_state()].concat()
    }

    fn succeed(&self, state: &[u8], living: &[EndpointPlace]) -> bool {
        let [STATE_VERSION, number, secrets @ ..] = state else { return false };
        let Some((reset, token)) = secrets.split_first_chunk() else { return false };
        let Some((token, tickets)) = token.split_first_chunk() else { return false };
        let is_free = |number: &u8| living.iter().all(|place| place.generation != *number);
        let Some(number) = (1..=u8::MAX).map(|step| number.wrapping_add(step)).find(is_free) else { return false };
        *self.secrets.write().unwrap_or_else(PoisonError::into_inner) = Secrets { reset: *reset, token: *token };
        *self.living.write().unwrap_or_else(PoisonError::into_inner) = Some(living.to_vec());
        // Without them sessions are not resumed.
        self.tls.adopt_ticket_state(tickets);
        self.number.store(number, Relaxed);
        true
    }

    fn supersede(&self) -> Vec<u8> {
        self.is_superseded.store(true, Relaxed);
        let inherited = self.inherited.read().unwrap_or_else(PoisonError::into_inner);
        let own = self.own();
        let mut bytes = Vec::new();
        for (id, place) in own.iter().chain(&*inherited).take(HANDSHAKES_MAX) {
            bytes.extend([place.generation, place.place, id.len() as u8]);
            bytes.extend_from_slice(id);
        }
        bytes
    }

    fn resume(&self) {
        // Nothing is left of the successor: a first generation knows of no other one that is there.
        self.living.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
        self.is_superseded.store(false, Relaxed);
    }

    fn inherit(&self, establishing: &[u8]) {
        let living = self.living.read().unwrap_or_else(PoisonError::into_inner);
        let mut inherited = self.inherited.write().unwrap_or_else(PoisonError::into_inner);
        let mut rest = establishing;
        while let [generation, place, length, after @ ..] = rest
            && let Some((id, after)) = after.split_at_checked(usize::from(*length))
            && id.len() <= ID_BYTES_MAX
            && inherited.len() < HANDSHAKES_MAX
        {
            let place = EndpointPlace { generation: *generation, place: *place };
            if living.as_ref().is_some_and(|living| living.contains(&place)) {
                inherited.insert(ConnectionId::new(id), place);
            }
            rest = after;
        }
        self.has_inherited.store(!inherited.is_empty(), Relaxed);
    }

    fn on_gone(&self, place: EndpointPlace) {
        if let Some(living) = &mut *self.living.write().unwrap_or_else(PoisonError::into_inner) {
            living.retain(|other| *other != place);
        }
        let mut inherited = self.inherited.write().unwrap_or_else(PoisonError::into_inner);
        inherited.retain(|_, other| *other != place);
        inherited.shrink_to_fit();
        self.has_inherited.store(!inherited.is_empty(), Relaxed);
    }
}

/// The ids of a handshake, in the table as long as this lives.
pub(crate) struct HandshakeIds {
    ids: [ConnectionId; 2],
    generation: Arc<Generation>,
}

impl HandshakeIds {
    /// Of a server.
    pub(crate) fn new(
        ids: [ConnectionId; 2],
        place: EndpointPlace,
        generation: Option<&Arc<Generation>>,
    ) -> Option<Box<Self>> {
        let generation = generation?.clone();
        generation.add_handshake(&ids, place);
        Some(Box::new(Self { ids, generation }))
    }
}

impl Drop for HandshakeIds {
    fn drop(&mut self) {
        self.generation.remove_handshake(&self.ids);
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The length of a secret.
const SECRET_BYTES: usize = 32;

/// The form of the state.
const STATE_VERSION: u8 = 1;

/// The longest connection id (RFC 9000 §17.2).
const ID_BYTES_MAX: usize = 20;

/// Ids of handshakes that a successor gets. A client whose id is not among them begins anew.
const HANDSHAKES_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    fn generation() -> Generation {
        let provider = tls::Provider::of_features().expect("a provider");
        let made = rcgen::generate_simple_self_signed(["sea.example".to_owned()]).expect("a certificate");
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let certificates = tls::Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes()).expect("sound");
        Generation::new(&tls::ServerConfig::builder(&provider, certificates).build().expect("sound"))
            .expect("randomness")
    }

    fn place(generation: u8, place: u8) -> EndpointPlace {
        EndpointPlace { generation, place }
    }

    fn initial(id: &[u8]) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, id.len() as u8], id].concat()
    }

    #[test]
    fn a_successor_has_the_secrets_and_a_number_that_no_living_generation_has() {
        let (first, second) = (generation(), generation());
        let digests = || [&first, &second].map(|own| own.keys().expect("keys").map(|key| key.digest(b"ebb")));
        assert_ne!(digests()[0], digests()[1]);
        assert!(second.succeed(&first.state(), &[place(0, 0), place(1, 0), place(2, 0)]));
        assert_eq!(digests()[0], digests()[1]);
        assert_eq!((first.number(), second.number()), (0, 3));
        assert_eq!(first.tls.ticket_state(), second.tls.ticket_state());
        let state = first.state();
        for broken in [&state[1..], &state[..2 * SECRET_BYTES + 1], &[]] {
            assert!(!second.succeed(broken, &[]));
        }
        assert_eq!(second.number(), 3);
        let all: Vec<_> = (0..=u8::MAX).map(|number| place(number, 0)).collect();
        assert!(!second.succeed(&state, &all), "no number is free");
    }

    #[test]
    fn a_successor_knows_the_handshakes_of_its_predecessors_until_these_are_gone() {
        let (first, second, third) = (generation(), generation(), generation());
        let id = |byte: u8| ConnectionId::new(&[byte; 8]);
        first.add_handshake(&[ConnectionId::new(&[1; 20]), id(2)], place(0, 1));
        first.add_handshake(&[id(3), id(4)], place(0, 0));
        first.remove_handshake(&[id(3), id(4)]);
        assert_eq!(first.endpoint_of(&initial(&[2; 8])), None, "they are for this generation");
        assert!(second.succeed(&first.state(), &[place(0, 0), place(0, 1)]));
        second.inherit(&first.supersede());
        assert_eq!(second.endpoint_of(&initial(&[1; 20])), Some(place(0, 1)));
        assert_eq!(second.endpoint_of(&initial(&[2; 8])), Some(place(0, 1)));
        assert_eq!(second.endpoint_of(&initial(&[3; 8])), None, "that one is over");
        assert_eq!(second.endpoint_of(&initial(&[5; 8])), None, "that one is new");
        second.add_handshake(&[id(6), id(7)], place(1, 0));
        assert!(third.succeed(&second.state(), &[place(0, 1), place(1, 0)]));
        third.inherit(&second.supersede());
        assert_eq!(third.endpoint_of(&initial(&[2; 8])), Some(place(0, 1)));
        assert_eq!(third.endpoint_of(&initial(&[7; 8])), Some(place(1, 0)));
        third.on_gone(place(0, 1));
        assert_eq!(third.endpoint_of(&initial(&[2; 8])), None);
        // Bytes that are no table of handshakes.
        third.inherit(&[0, 1, 200, 7]);
        third.inherit(&[0, 1]);
        assert_eq!(third.endpoint_of(&initial(&[6; 8])), Some(place(1, 0)));
    }

    #[test]
    fn no_endpoint_resets_a_connection_of_another_one_that_is_there() {
        let (first, second) = (generation(), generation());
        let (own, other, gone) = (place(1, 0), place(0, 0), place(0, 1));
        assert!(!first.may_reset(other, own), "a first generation knows of no other");
        assert!(second.succeed(&first.state(), &[other]));
        assert!(second.may_reset(own, own) && second.may_reset(gone, own));
        assert!(!second.may_reset(place(1, 1), own) && !second.may_reset(other, own));
        second.on_gone(other);
        assert!(second.may_reset(other, own));
        second.supersede();
        assert!(!second.may_reset(other, own) && !second.may_reset(place(2, 0), own));
        second.resume();
        assert!(second.may_reset(other, own));
        first.supersede();
        assert!(!first.may_reset(own, other), "the successor is there");
        first.resume();
        assert!(first.may_reset(own, other), "the successor has crashed");
    }
}
