//! Authorities of clients that are replaced, and keys of tickets that come from outside.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, SupportedProtocolVersion};
use tidegate_tls::{
    ClientAuthorities, ClientCertificates, ClientConfig, ConfigError, Provider, ServerConfig, TicketKey, TicketKeys,
    Watch,
};

use crate::support::{Authority, Identity, Pair, VERSIONS, providers};

/// One connection: whether it resumed a session, or why it failed.
fn connect(server: &ServerConfig, client: &ClientConfig) -> Result<bool, String> {
    let mut pair = Pair::new(&(server.clone(), client.clone()), &[1_000]);
    pair.exchange(usize::MAX);
    ended(&pair)
}

fn ended(pair: &Pair) -> Result<bool, String> {
    match &*pair.failure.borrow() {
        Some(reason) => Err(reason.clone()),
        None => Ok(pair.agreed().is_resumed),
    }
}

/// A client with a certificate, of a server whose certificate `authority` has signed.
fn client(
    provider: &Provider,
    authority: &Authority,
    own: &Identity,
    version: &'static SupportedProtocolVersion,
) -> ClientConfig {
    let client = ClientConfig::builder(provider, authority.roots.clone()).unwrap().versions(&[version]);
    client.identity_from_pem(own.chain.as_bytes(), own.key.as_bytes()).unwrap().build().unwrap()
}

/// The roots of several authorities.
fn roots(all: &[&Authority]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.roots.extend(all.iter().flat_map(|authority| authority.roots.roots.iter().cloned()));
    roots
}

/// Providers that make tickets, and one whose server remembers sessions.
fn all_providers() -> [Provider; 3] {
    let [one, other] = providers();
    [one, other, Provider::custom(rustls::crypto::ring::default_provider().into())]
}

#[test]
fn a_client_of_a_withdrawn_authority_is_refused_although_it_has_a_ticket() {
    let (old, new) = (Authority::new(), Authority::new());
    let (of_old, of_new) = (old.sign(|_| {}), new.sign(|_| {}));
    for provider in all_providers() {
        for version in VERSIONS {
            let authorities = ClientAuthorities::new(old.roots.clone()).unwrap();
            let server = ServerConfig::builder(&provider, old.sign(|_| {}).certificates(&provider));
            let clients = ClientCertificates::RequiredBy(authorities.clone());
            let server = server.client_certificates(clients).build().unwrap().alpn_or(["tide"]);
            let (withdrawn, accepted) =
                (client(&provider, &old, &of_old, version), client(&provider, &old, &of_new, version));
            assert_eq!(connect(&server, &withdrawn), Ok(false));
            assert_eq!(connect(&server, &withdrawn), Ok(true), "{provider:?} {version:?}");
            assert!(connect(&server, &accepted).is_err(), "{provider:?} {version:?}");
            authorities.replace(new.roots.clone()).unwrap();
            let refused = connect(&server, &withdrawn).expect_err("its authority is withdrawn");
            assert!(refused.contains("UnknownCA") || refused.contains("DecryptError"), "{version:?} {refused}");
            assert_eq!(connect(&server, &accepted), Ok(false));
            assert_eq!(connect(&server, &accepted), Ok(true), "{provider:?} {version:?}");
        }
    }
}

#[test]
fn a_handshake_that_is_under_way_makes_no_ticket_for_the_authorities_that_follow() {
    let (old, new) = (Authority::new(), Authority::new());
    let own = old.sign(|_| {});
    for provider in all_providers() {
        for version in VERSIONS {
            let authorities = ClientAuthorities::new(old.roots.clone()).unwrap();
            let server = ServerConfig::builder(&provider, old.sign(|_| {}).certificates(&provider));
            let clients = ClientCertificates::OptionalBy(authorities.clone());
            let server = server.client_certificates(clients).build().unwrap();
            let client = client(&provider, &old, &own, version);
            let mut pair = Pair::new(&(server.clone(), client.clone()), &[1_000]);
            authorities.replace(roots(&[&old, &new])).unwrap();
            pair.exchange(usize::MAX);
            assert_eq!(ended(&pair), Ok(false));
            assert_eq!(
                connect(&server, &client),
                Ok(false),
                "{provider:?} {version:?}: a ticket of the old authorities"
            );
            assert_eq!(connect(&server, &client), Ok(true), "{provider:?} {version:?}");
            // The same authorities, read again in another order, change nothing.
            authorities.replace(roots(&[&new, &old])).unwrap();
            let again = connect(&server, &client);
            assert_eq!(again, Ok(provider.name() != "custom"), "{provider:?} {version:?}");
        }
    }
}

#[test]
fn authorities_are_read_again_and_a_broken_file_changes_nothing() {
    let (old, new) = (Authority::new(), Authority::new());
    let file = Folder::new("authorities");
    file.write("ca.pem", old.sign(|_| {}).chain.as_bytes());
    let authorities = ClientAuthorities::from_files([file.path("ca.pem")]).unwrap();
    authorities.reload().unwrap();
    file.write("ca.pem", b"nothing");
    assert!(matches!(authorities.reload(), Err(ConfigError::NoCertificate(_))));
    file.write("ca.pem", new.sign(|_| {}).chain.as_bytes());
    authorities.reload().unwrap();
    assert!(matches!(ClientAuthorities::new(RootCertStore::empty()), Err(ConfigError::NoRoots)));
    assert!(matches!(authorities.replace(RootCertStore::empty()), Err(ConfigError::NoRoots)));
}

#[test]
fn a_watch_reads_authorities_and_ticket_keys_again() {
    let authority = Authority::new();
    let (folder, provider) = (Folder::new("watch-authorities"), Provider::ring());
    // A certificate that vouches for itself is a root too.
    let clients = [Identity::self_signed(), Identity::self_signed()];
    folder.write("ca.pem", clients[0].chain.as_bytes());
    folder.write("1.key", &[1; 80]);
    let authorities = ClientAuthorities::from_files([folder.path("ca.pem")]).unwrap();
    let keys = TicketKeys::from_files([folder.path("1.key")]).unwrap();
    let identity = authority.sign(|_| {});
    let server = |keys: &TicketKeys| {
        let server = ServerConfig::builder(&provider, identity.certificates(&provider)).ticket_keys(keys);
        server.client_certificates(ClientCertificates::OptionalBy(authorities.clone())).build().unwrap()
    };
    let (server, next) = (server(&keys), server(&TicketKeys::new([TicketKey::from_bytes(&[2; 48]).unwrap()]).unwrap()));
    let new_client = || ClientConfig::builder(&provider, authority.roots.clone()).unwrap().build().unwrap();
    let client = new_client();
    assert_eq!([connect(&server, &client), connect(&server, &client)], [Ok(false), Ok(true)]);
    let watches = (
        Watch::start(&authorities, Duration::from_millis(5)).unwrap(),
        Watch::start(&keys, Duration::from_millis(5)).unwrap(),
    );
    folder.write("ca.pem", format!("{}{}", clients[0].chain, clients[1].chain).as_bytes());
    // Sessions of before are not resumed from the moment at which the thread has read the file.
    while connect(&server, &client).unwrap() {}
    assert_eq!(connect(&server, &client), Ok(true));
    folder.write("1.key", &[2; 48]);
    // A handshake that resumes by the old key may end with a ticket of the new one, so each session here is a new one. The
    // next server has the new key alone.
    let has_new_key = || {
        let client = new_client();
        assert_eq!(connect(&server, &client), Ok(false));
        connect(&next, &client).unwrap()
    };
    while !has_new_key() {}
    drop(watches);
}

fn key(byte: u8) -> TicketKey {
    TicketKey::from_bytes(&[byte; 80]).unwrap()
}

#[test]
fn servers_with_the_same_ticket_keys_resume_each_others_sessions() {
    let (authority, other) = (Authority::new(), Authority::new());
    let own = authority.sign(|_| {});
    for provider in all_providers() {
        for version in VERSIONS {
            let client = client(&provider, &authority, &own, version);
            let identity = authority.sign(|_| {});
            let server = |clients: ClientCertificates, keys: &TicketKeys| {
                let server = ServerConfig::builder(&provider, identity.certificates(&provider));
                server.client_certificates(clients).ticket_keys(keys).build().unwrap()
            };
            let required = |all: &[&Authority]| ClientCertificates::Required(Arc::new(roots(all)));
            let [first, second] = [(); 2].map(|()| TicketKeys::new([key(1)]).unwrap());
            let servers = [server(required(&[&authority]), &first), server(required(&[&authority]), &second)];
            assert_eq!(connect(&servers[0], &client), Ok(false));
            assert_eq!(connect(&servers[1], &client), Ok(true), "{provider:?} {version:?}: another server");
            // Other authorities, or another use of them, are not those that vouched for the client.
            let more = server(required(&[&authority, &other]), &second);
            assert_eq!(connect(&more, &client), Ok(false), "{provider:?} {version:?}: other authorities");
            let optional = ClientCertificates::Optional(Arc::new(authority.roots.clone()));
            assert_eq!(connect(&server(optional, &second), &client), Ok(false), "{version:?}: optional");
            assert_eq!(connect(&server(ClientCertificates::NotRequested, &second), &client), Ok(false));
            assert_eq!(connect(&servers[0], &client), Ok(false), "{version:?}: a session without a certificate");
        }
    }
}

#[test]
fn ticket_keys_are_rotated_and_an_old_one_decrypts_while_it_is_listed() {
    let authority = Authority::new();
    let own = authority.sign(|_| {});
    let folder = Folder::new("ticket-keys");
    for provider in providers() {
        for version in VERSIONS {
            let client = client(&provider, &authority, &own, version);
            folder.write("1.key", &[1; 80]);
            folder.write("2.key", &[0; 48]);
            let keys = TicketKeys::from_files([folder.path("1.key"), folder.path("2.key")]).unwrap();
            let server = ServerConfig::builder(&provider, authority.sign(|_| {}).certificates(&provider));
            let server = server.ticket_keys(&keys).build().unwrap();
            assert_eq!(connect(&server, &client), Ok(false));
            assert_eq!(connect(&server, &client), Ok(true));
            folder.write("1.key", &[2; 48]);
            folder.write("2.key", &[1; 80]);
            server.replace_ticket_keys().unwrap();
            assert_eq!(connect(&server, &client), Ok(true), "{version:?}: the second file has the key");
            folder.write("2.key", &[7; 79]);
            let error = keys.reload().expect_err("it is no key").to_string();
            assert!(error.contains("2.key") && error.contains("80 or 48"), "{error}");
            assert_eq!(connect(&server, &client), Ok(true), "{version:?}: a broken file changes nothing");
            keys.replace([key(9)]).unwrap();
            assert_eq!(connect(&server, &client), Ok(false), "{version:?}: no key is left");
        }
    }
    assert!(matches!(TicketKeys::new([]), Err(ConfigError::NoTicketKeys)));
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
fn a_ticket_of_shared_keys_ends_after_twelve_hours() {
    let (authority, provider) = (Authority::new(), Provider::ring());
    let own = authority.sign(|_| {});
    let keys = TicketKeys::new([key(1)]).unwrap();
    for version in VERSIONS {
        let clock = Arc::new(Clock(AtomicU64::new(UnixTime::now().as_secs())));
        let server = ServerConfig::builder(&provider, authority.sign(|_| {}).certificates(&provider));
        let server = server.ticket_keys(&keys).clock(clock.clone()).build().unwrap();
        let clients = [(); 2].map(|()| client(&provider, &authority, &own, version));
        assert_eq!(clients.each_ref().map(|client| connect(&server, client)), [Ok(false), Ok(false)]);
        clock.0.fetch_add(12 * 60 * 60, Ordering::Relaxed);
        assert_eq!(connect(&server, &clients[0]), Ok(true), "{version:?}");
        clock.0.fetch_add(1, Ordering::Relaxed);
        assert_eq!(connect(&server, &clients[1]), Ok(false), "{version:?}");
    }
}

/// A folder for the files of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
