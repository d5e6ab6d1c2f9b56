//! Sessions that are resumed, and those that are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use tidegate_tls::{ClientCertificates, ClientConfig, Provider, ServerConfig};

use crate::support::{Authority, Identity, Pair, VERSIONS, configurations, providers};

/// Whether each of three connections in a row has resumed the session of one before.
fn three(both: &(ServerConfig, ClientConfig)) -> [bool; 3] {
    [(); 3].map(|()| {
        let mut pair = Pair::new(both, &[1_000]);
        pair.exchange(usize::MAX);
        pair.agreed().is_resumed
    })
}

#[test]
fn sessions_are_resumed_by_tickets_in_both_versions() {
    for provider in providers() {
        for version in VERSIONS {
            let both = configurations(&provider, |server| server, |client| client.versions(&[version]));
            assert_eq!(three(&both), [false, true, true], "{version:?}");
        }
    }
}

#[test]
fn a_provider_without_tickets_remembers_sessions() {
    let provider = Provider::custom(rustls::crypto::ring::default_provider().into());
    for version in VERSIONS {
        let both = configurations(&provider, |server| server, |client| client.versions(&[version]));
        assert_eq!(three(&both), [false, true, true], "{version:?}");
    }
}

#[test]
fn no_tickets_mean_no_resumption() {
    for version in VERSIONS {
        let both = configurations(&Provider::ring(), |server| server.tickets(0), |client| client.versions(&[version]));
        assert_eq!(three(&both), [false; 3], "{version:?}");
    }
}

#[test]
fn a_ticket_of_other_keys_costs_a_full_handshake_and_nothing_else() {
    let provider = Provider::ring();
    let identity = Identity::self_signed();
    let mut roots = RootCertStore::empty();
    roots.add(identity.first.clone()).unwrap();
    for version in VERSIONS {
        let client = ClientConfig::builder(&provider, roots.clone()).unwrap().versions(&[version]).build().unwrap();
        // Each has keys of its own.
        let server = || ServerConfig::builder(&provider, identity.certificates(&provider)).build().unwrap();
        let one = (server(), client.clone());
        assert_eq!(three(&one), [false, true, true]);
        assert_eq!(three(&(server(), client)), [false, true, true]);
    }
}

#[test]
fn tickets_of_keys_that_were_replaced_are_accepted_once_more() {
    let provider = Provider::ring();
    for version in VERSIONS {
        let both = configurations(&provider, |server| server, |client| client.versions(&[version]));
        assert_eq!(three(&both), [false, true, true]);
        both.0.replace_ticket_keys().unwrap();
        // The ticket is of the previous keys.
        let mut pair = Pair::new(&both, &[1]);
        pair.exchange(usize::MAX);
        assert!(pair.agreed().is_resumed, "{version:?}");
        both.0.replace_ticket_keys().unwrap();
        both.0.replace_ticket_keys().unwrap();
        let mut pair = Pair::new(&both, &[1]);
        pair.exchange(usize::MAX);
        assert!(!pair.agreed().is_resumed, "{version:?}");
        assert_eq!(pair.done.get(), 1);
    }
}

#[test]
fn a_server_resumes_the_sessions_of_one_whose_keys_it_has_adopted() {
    for provider in providers() {
        let identity = Identity::self_signed();
        let mut roots = RootCertStore::empty();
        roots.add(identity.first.clone()).unwrap();
        for version in VERSIONS {
            let client = ClientConfig::builder(&provider, roots.clone()).unwrap().versions(&[version]).build().unwrap();
            let server = || ServerConfig::builder(&provider, identity.certificates(&provider)).build().unwrap();
            let (old, new) = ((server(), client.clone()), (server(), client));
            assert_eq!(three(&old), [false, true, true]);
            let state = old.0.ticket_state();
            assert_eq!(state.is_empty(), provider.name() == "custom");
            assert_eq!(new.0.adopt_ticket_state(&state), !state.is_empty());
            assert_eq!(three(&new), [!state.is_empty(), true, true], "{version:?}");
            for broken in [&state[..state.len().min(8)], &[0; 9], &[7; 8 + 3 * 80]] {
                assert!(!new.0.adopt_ticket_state(broken));
            }
            assert_eq!(new.0.ticket_state().is_empty(), state.is_empty());
        }
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
struct Clock(AtomicU64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
    }
}

#[test]
fn ticket_keys_grow_old_in_six_hours_and_decrypt_for_six_more() {
    const HOUR: u64 = 60 * 60;
    for provider in providers() {
        for version in VERSIONS {
            let identity = Identity::self_signed();
            let mut roots = RootCertStore::empty();
            roots.add(identity.first.clone()).unwrap();
            let clock = Arc::new(Clock(AtomicU64::new(UnixTime::now().as_secs())));
            let server = ServerConfig::builder(&provider, identity.certificates(&provider)).clock(clock.clone());
            let server = server.build().unwrap();
            let client = || {
                let client = ClientConfig::builder(&provider, roots.clone()).unwrap();
                client.versions(&[version]).build().unwrap()
            };
            let resumes = |client: &ClientConfig| {
                let mut pair = Pair::new(&(server.clone(), client.clone()), &[1]);
                pair.exchange(usize::MAX);
                pair.agreed().is_resumed
            };
            // Each has one connection without a ticket, and one with it.
            let clients = [client(), client(), client()];
            assert!(clients.iter().all(|client| !resumes(client)));
            clock.0.fetch_add(6 * HOUR - 1, Ordering::Relaxed);
            assert!(resumes(&clients[0]), "{version:?}: of the present keys");
            clock.0.fetch_add(1, Ordering::Relaxed);
            assert!(resumes(&clients[1]), "{version:?}: of the previous keys");
            clock.0.fetch_add(6 * HOUR, Ordering::Relaxed);
            assert!(!resumes(&clients[2]), "{version:?}: of earlier keys");
            // Nothing has used these for so long that they are too old at once.
            clock.0.fetch_add(12 * HOUR, Ordering::Relaxed);
            assert!(!resumes(&clients[2]), "{version:?}: of forgotten keys");
            assert!(resumes(&clients[2]), "{version:?}: of new keys");
        }
    }
}

#[test]
fn a_resumed_session_still_has_the_clients_certificate() {
    let authority = Authority::new();
    let (own, provider) = (authority.sign(|_| {}), Provider::ring());
    let requests = ClientCertificates::Required(Arc::new(authority.roots.clone()));
    let server = ServerConfig::builder(&provider, authority.sign(|_| {}).certificates(&provider));
    let server = server.client_certificates(requests).build().unwrap();
    let client = ClientConfig::builder(&provider, authority.roots.clone()).unwrap();
    let client = client.identity_from_pem(own.chain.as_bytes(), own.key.as_bytes()).unwrap();
    assert_eq!(three(&(server, client.build().unwrap())), [false, true, true]);
}
