//! The certificate of a name, and the effect of a reload.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::watch::Watch;

/// A folder of the test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-tls-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a self-signed certificate for `names`, and its key.
    fn write(&self, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        let (chain, key) = self.paths(file);
        let (certificate, private) = self_signed(names);
        fs::write(&chain, certificate).unwrap();
        fs::write(&key, private).unwrap();
        (chain, key)
    }

    fn paths(&self, file: &str) -> (PathBuf, PathBuf) {
        (self.0.join(format!("{file}.pem")), self.0.join(format!("{file}.key")))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn self_signed(names: &[&str]) -> (String, String) {
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn provider() -> Provider {
    Provider::aws_lc_rs()
}

/// The certificate that a client gets which requests `name`.
fn chosen(certificates: &Certificates, name: Option<&str>) -> Vec<u8> {
    certificates.find(name).expect("there is a certificate").cert[0].to_vec()
}

fn certificate_in(path: &Path) -> Vec<u8> {
    CertificateDer::from_pem_file(path).unwrap().to_vec()
}

#[test]
fn a_name_gets_its_certificate_then_a_wildcard_then_the_first() {
    let folder = Folder::new("names");
    let files = [
        folder.write("first", &["first.example"]),
        folder.write("wild", &["*.example.org"]),
        folder.write("exact", &["exact.example.org", "other.test"]),
    ];
    let certificates = Certificates::from_files(&provider(), files.clone()).unwrap();
    let [first, wild, exact] = files.map(|(chain, _)| certificate_in(&chain));
    let expected = [
        (Some("first.example"), &first),
        (Some("exact.example.org"), &exact),
        (Some("EXACT.example.ORG"), &exact),
        (Some("other.test"), &exact),
        (Some("any.example.org"), &wild),
        (Some("example.org"), &first),
        (Some("a.b.example.org"), &first),
        (Some("unknown.test"), &first),
        (None, &first),
    ];
    for (name, certificate) in expected {
        assert_eq!(&chosen(&certificates, name), certificate, "{name:?}");
    }
}

#[test]
fn a_reload_replaces_the_certificates_for_all_handles() {
    let folder = Folder::new("reload");
    let (chain, key) = folder.write("site", &["site.test"]);
    let certificates = Certificates::from_files(&provider(), [(&chain, &key)]).unwrap();
    let (handle, old) = (certificates.clone(), certificate_in(&chain));
    folder.write("site", &["site.test"]);
    assert_eq!(chosen(&handle, None), old);
    certificates.reload().unwrap();
    assert_eq!(chosen(&handle, None), certificate_in(&chain));
    assert_ne!(chosen(&handle, None), old);
}

#[test]
fn broken_files_leave_the_certificates_as_they_are() {
    let folder = Folder::new("broken");
    let (chain, key) = folder.write("site", &["site.test"]);
    let (other, _) = folder.write("other", &["site.test"]);
    let certificates = Certificates::from_files(&provider(), [(&chain, &key)]).unwrap();
    let old = certificate_in(&chain);
    let (good_chain, good_key) = (fs::read(&chain).unwrap(), fs::read(&key).unwrap());

    let breaks = |chain_text: &[u8], key_text: &[u8], matches: fn(&ConfigError) -> bool| {
        fs::write(&chain, chain_text).unwrap();
        fs::write(&key, key_text).unwrap();
        let error = certificates.reload().expect_err("the files are broken");
        assert!(matches(&error), "{error:?}");
        assert_eq!(chosen(&certificates, None), old);
    };
    breaks(b"", &good_key, |error| matches!(error, ConfigError::NoCertificate(_)));
    breaks(&good_chain, b"", |error| matches!(error, ConfigError::NoKey(_)));
    breaks(&good_chain, &good_chain, |error| matches!(error, ConfigError::NoKey(_)));
    breaks(&fs::read(&other).unwrap(), &good_key, |error| matches!(error, ConfigError::KeyMismatch(_)));
    breaks(&good_chain[..good_chain.len() / 2], &good_key, |error| {
        matches!(error, ConfigError::Pem(_) | ConfigError::NoCertificate(_))
    });
    let garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    breaks(garbage, &good_key, |error| matches!(error, ConfigError::Certificate(_)));
    breaks(&vec![b'\n'; 2 << 20], &good_key, |error| matches!(error, ConfigError::TooLong(_)));
    fs::remove_file(&chain).unwrap();
    assert!(matches!(certificates.reload(), Err(ConfigError::Read(..))));
    assert_eq!(chosen(&certificates, None), old);
}

#[test]
fn every_cut_of_the_files_is_an_error_or_the_same_certificate() {
    let (chain, key) = self_signed(&["site.test"]);
    let whole = certificates(Path::new("chain"), chain.as_bytes()).unwrap();
    for end in 0..chain.len() {
        let made = Certificates::from_pem(&provider(), &chain.as_bytes()[..end], key.as_bytes());
        if let Ok(made) = made {
            assert_eq!(chosen(&made, None), whole[0].to_vec(), "cut at {end}");
        }
    }
    for end in 0..key.len() {
        let _ = Certificates::from_pem(&provider(), chain.as_bytes(), &key.as_bytes()[..end]);
    }
}

#[test]
fn a_watch_reads_files_again_when_they_change_and_ends_when_it_is_dropped() {
    let folder = Folder::new("watch");
    let (chain, key) = folder.write("site", &["site.test"]);
    let certificates = Certificates::from_files(&provider(), [(&chain, &key)]).unwrap();
    let watch = Watch::start(&certificates, std::time::Duration::from_millis(5)).unwrap();
    // Another length: the clock of a file system may be coarse.
    folder.write("site", &["site.test", "a-second-name.site.test"]);
    let new = certificate_in(&chain);
    while chosen(&certificates, None) != new {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    drop(watch);
    folder.write("site", &["third.test"]);
    assert_eq!(chosen(&certificates, None), new);
}

#[test]
fn certificates_that_are_issued_later_are_none_at_first_and_replace_each_other() {
    let certificates = Certificates::issued_later(&provider());
    assert!(certificates.find(Some("north.test")).is_none());
    for names in [["north.test"], ["south.test"]] {
        let (chain, key) = self_signed(&names);
        certificates.replace_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        let expected = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
        assert_eq!(chosen(&certificates, Some("north.test")), expected.to_vec());
    }
    // A key of another certificate changes nothing.
    let before = chosen(&certificates, None);
    let ((chain, _), (_, key)) = (self_signed(&["east.test"]), self_signed(&["east.test"]));
    assert!(matches!(certificates.replace_pem(chain.as_bytes(), key.as_bytes()), Err(ConfigError::KeyMismatch(_))));
    assert_eq!(chosen(&certificates, None), before);
    certificates.reload().unwrap();
    assert_eq!(chosen(&certificates, None), before);
}
