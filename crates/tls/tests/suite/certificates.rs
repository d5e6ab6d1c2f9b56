//! Certificates that a client refuses, with the reason.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tidegate_tls::{Certificates, ClientConfig, ConfigError, Provider, ServerConfig};

use crate::support::{Authority, Identity, NAME, Pair, providers};

/// Why a client that trusts `roots` refuses a server with this identity; both sides have ended then.
fn refusal(provider: &Provider, roots: &RootCertStore, identity: &Identity, name: &str) -> String {
    let server = ServerConfig::builder(provider, identity.certificates(provider)).build().unwrap();
    let client = ClientConfig::builder(provider, roots.clone()).unwrap().build().unwrap();
    let mut pair = Pair::with_name(&server, &client, name, &[1]);
    pair.exchange(usize::MAX);
    assert_eq!(pair.done.get(), 0, "the client has accepted it");
    assert!(pair.client.is_write_closed(), "the client ends the connection");
    let reason = pair.failure.borrow().clone();
    reason.expect("the client reports why")
}

#[test]
fn roots_of_mozilla_vouch_for_no_authority_of_a_test() {
    for provider in providers() {
        let server = Authority::new().sign(|_| {}).certificates(&provider);
        let server = ServerConfig::builder(&provider, server).build().unwrap();
        let client = ClientConfig::builder_with_webpki_roots(&provider).unwrap().build().unwrap();
        let mut pair = Pair::with_name(&server, &client, NAME, &[1]);
        pair.exchange(usize::MAX);
        assert_eq!(pair.done.get(), 0, "the client has accepted it");
        let reason = pair.failure.borrow().clone().expect("the client reports why");
        assert!(reason.contains("UnknownIssuer"), "{reason}");
    }
}

#[test]
fn the_error_names_the_fault_of_a_certificate() {
    for provider in providers() {
        let authority = Authority::new();
        let valid = authority.sign(|_| {});
        let expired = authority.sign(|params| {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        });
        let future = authority.sign(|params| {
            (params.not_before, params.not_after) = (date_time_ymd(3001, 1, 1), date_time_ymd(3002, 1, 1));
        });
        let unknown = Authority::new().sign(|_| {});
        let cases = [
            (&expired, NAME, "expired"),
            (&future, NAME, "not valid yet"),
            (&valid, "other.test", "not valid for name"),
            (&Identity::self_signed(), NAME, "UnknownIssuer"),
            (&unknown, NAME, "BadSignature"),
        ];
        for (identity, name, expected) in cases {
            let reason = refusal(&provider, &authority.roots, identity, name);
            assert!(reason.contains(expected), "{reason} instead of {expected}");
        }
    }
}

#[test]
fn an_authority_is_no_server() {
    let authority = Authority::new();
    let identity = authority.sign(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let reason = refusal(&Provider::ring(), &authority.roots, &identity, NAME);
    assert!(reason.contains("CaUsedAsEndEntity"), "{reason}");
}

/// A certificate of a server that says that it is an authority, as `openssl req -x509` makes it.
fn authority_of_itself(change: impl FnOnce(&mut CertificateParams)) -> Identity {
    let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let made = params.self_signed(&key).unwrap();
    Identity { chain: made.pem(), key: key.serialize_pem(), first: made.der().clone() }
}

/// The output of a client with a root file that lists `listed`, towards a server with `identity`.
fn with_root_file(provider: &Provider, listed: &Identity, identity: &Identity, name: &str) -> Result<(), String> {
    let path = std::env::temp_dir().join(format!("tidegate-listed-{}.pem", std::process::id()));
    std::fs::write(&path, &listed.chain).unwrap();
    let server = ServerConfig::builder(provider, identity.certificates(provider)).build().unwrap();
    let client = ClientConfig::builder_with_root_file(provider, &path);
    std::fs::remove_file(&path).unwrap();
    let mut pair = Pair::with_name(&server, &client.unwrap().build().unwrap(), name, &[1]);
    pair.exchange(usize::MAX);
    let reason = pair.failure.borrow().clone();
    reason.map_or(Ok(()), Err)
}

#[test]
fn a_root_file_may_list_the_certificate_of_the_server_itself() {
    for provider in providers() {
        let listed = authority_of_itself(|_| {});
        assert_eq!(with_root_file(&provider, &listed, &listed, NAME), Ok(()));
        let expired = authority_of_itself(|params| {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        });
        for (listed, identity, name, expected) in [
            (&listed, &listed, "other.test", "not valid for name"),
            (&expired, &expired, NAME, "expired"),
            (&listed, &authority_of_itself(|_| {}), NAME, "CaUsedAsEndEntity"),
        ] {
            let refused = with_root_file(&provider, listed, identity, name).expect_err(expected);
            assert!(refused.contains(expected), "{refused} instead of {expected}");
        }
    }
}

#[test]
fn a_signature_by_sha1_is_refused() {
    let (chain, key) = (include_str!("fixtures/sha1.pem"), include_str!("fixtures/sha1.key"));
    let first = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    let identity = Identity { chain: chain.to_owned(), key: key.to_owned(), first };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(include_bytes!("fixtures/sha1-root.pem")).unwrap()).unwrap();
    for provider in providers() {
        let reason = refusal(&provider, &roots, &identity, NAME);
        assert!(reason.contains("SignatureAlgorithm"), "{reason}");
    }
}

#[test]
fn a_key_of_1024_bits_is_no_key_of_a_server() {
    for provider in providers() {
        let (chain, key) = (include_bytes!("fixtures/rsa1024.pem"), include_bytes!("fixtures/rsa1024.key"));
        let refused = Certificates::from_pem(&provider, chain, key);
        assert!(matches!(refused, Err(ConfigError::Key(..))), "{refused:?}");
    }
}

/// A chain of so many authorities below the root.
fn chain(links: usize) -> (RootCertStore, Identity) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_key = KeyPair::generate().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(params.self_signed(&root_key).unwrap().der().clone()).unwrap();
    let (mut text, mut issuer) = (String::new(), Issuer::new(params, root_key));
    for link in 0..links {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("authority {link}"));
        let key = KeyPair::generate().unwrap();
        text = params.signed_by(&key, &issuer).unwrap().pem() + &text;
        issuer = Issuer::new(params, key);
    }
    let key = KeyPair::generate().unwrap();
    let first = CertificateParams::new([NAME.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let identity = Identity { chain: first.pem() + &text, key: key.serialize_pem(), first: first.der().clone() };
    (roots, identity)
}

#[test]
fn a_chain_that_does_not_end_is_refused_in_bounded_time() {
    for provider in providers() {
        let (roots, identity) = chain(20);
        let reason = refusal(&provider, &roots, &identity, NAME);
        assert!(reason.contains("MaximumPathDepthExceeded") || reason.contains("UnknownIssuer"), "{reason}");
        // Longer than any message of a handshake may be.
        let (roots, identity) = chain(1);
        let identity = Identity { chain: identity.chain.clone() + &identity.chain.repeat(200), ..identity };
        let reason = refusal(&provider, &roots, &identity, NAME);
        assert!(reason.contains("HandshakePayloadTooLarge"), "{reason}");
    }
}

#[test]
fn a_client_without_verification_accepts_all_of_them() {
    let authority = Authority::new();
    let expired = authority.sign(|params| {
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    });
    let provider = Provider::ring();
    let server = ServerConfig::builder(&provider, expired.certificates(&provider)).build().unwrap();
    let client = ClientConfig::dangerous_builder_without_verification(&provider).build().unwrap();
    let mut pair = Pair::with_name(&server, &client, "any.test", &[1]);
    pair.exchange(usize::MAX);
    assert_eq!(pair.done.get(), 1);
}
