//! Chains that are refused.

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd};

use super::*;

/// An authority, and the certificate that it issues for names.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// The chain and the key for these names.
    fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.use_authority_key_identifier_extension = true;
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let first = params.signed_by(&key, &self.issuer).unwrap().pem();
        (format!("{first}{}", self.pem), key.serialize_pem())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        roots
    }
}

fn provider() -> Provider {
    Provider::aws_lc_rs()
}

fn checked(
    (chain, key): &(String, String),
    names: &[&str],
    roots: Option<&RootCertStore>,
) -> Result<IssuedChain, InvalidChain> {
    let chain = IssuedChain::parse(chain.as_bytes())?;
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    chain.check_identity(&provider(), key.as_bytes(), &names)?;
    chain.check_signatures(&provider(), roots, SystemTime::now())?;
    Ok(chain)
}

#[test]
fn a_chain_for_its_key_and_its_names_passes() {
    let authority = Authority::new();
    let signed = authority.sign(&["a.test", "192.0.2.7"], |_| {});
    for roots in [None, Some(authority.roots())] {
        let chain = checked(&signed, &["192.0.2.7", "a.test"], roots.as_ref()).unwrap();
        assert!(chain.identifier().is_some());
    }
}

#[test]
fn another_key_and_a_name_too_few_are_refused() {
    let authority = Authority::new();
    let signed = authority.sign(&["a.test"], |_| {});
    assert_eq!(checked(&signed, &["a.test", "b.test"], None).err(), Some(InvalidChain::Name));
    assert_eq!(checked(&signed, &["192.0.2.7"], None).err(), Some(InvalidChain::Name));
    let other = authority.sign(&["a.test"], |_| {});
    assert_eq!(checked(&(signed.0, other.1), &["a.test"], None).err(), Some(InvalidChain::Key));
}

#[test]
fn signatures_of_others_and_wrong_dates_and_uses_are_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let signed = authority.sign(&["a.test"], |_| {});
    assert_eq!(checked(&signed, &["a.test"], Some(&other.roots())).err(), Some(InvalidChain::Signature));
    // The issuer in the chain is not the one that signed.
    let first = signed.0.strip_suffix(&authority.pem).unwrap();
    let wrong = (format!("{first}{}", other.pem), signed.1.clone());
    assert_eq!(checked(&wrong, &["a.test"], None).err(), Some(InvalidChain::Signature));
    let dates: [fn(&mut CertificateParams); 3] = [
        |params| params.not_after = date_time_ymd(2001, 1, 1),
        |params| params.not_before = date_time_ymd(3001, 1, 1),
        |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
    ];
    for change in dates {
        let signed = authority.sign(&["a.test"], change);
        assert_eq!(checked(&signed, &["a.test"], None).err(), Some(InvalidChain::Signature));
    }
}

#[test]
fn a_certificate_alone_passes_unless_roots_say_otherwise() {
    let authority = Authority::new();
    let (chain, key) = authority.sign(&["a.test"], |_| {});
    let alone = (chain.strip_suffix(&authority.pem).unwrap().to_owned(), key);
    checked(&alone, &["a.test"], None).unwrap();
    checked(&alone, &["a.test"], Some(&authority.roots())).unwrap();
    let other = Authority::new().roots();
    assert_eq!(checked(&alone, &["a.test"], Some(&other)).err(), Some(InvalidChain::Signature));
}

#[test]
fn texts_that_are_no_chain_are_refused_at_every_cut() {
    let authority = Authority::new();
    let (chain, _) = authority.sign(&["a.test"], |_| {});
    for text in ["", "hello", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", &chain.repeat(6)] {
        assert!(IssuedChain::parse(text.as_bytes()).is_err(), "{text:?}");
    }
    for end in 0..chain.len() {
        // A cut may leave the first certificate whole. Nothing panics.
        let _ = IssuedChain::parse(&chain.as_bytes()[..end]);
    }
}
