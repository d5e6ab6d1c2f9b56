//! Certificates that are issued and renewed.

use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tidegate::acme::{Acme, ChallengeKind, DnsProvider, InvalidAcme};
use tidegate::tls::Provider;

use crate::authority::{Authority, AuthorityState};
use crate::support::{Folder, builder, presented, serve, serve_http, wait_for, wait_for_failure};

#[test]
fn tls_alpn_01_issues_a_certificate_for_all_names() {
    let (authority, folder) = (Authority::start(), Folder::new());
    let acme = builder(&authority, &folder).build().expect("settings");
    let server = serve(&acme, &authority);
    assert!(presented(&server, "a.test", &["http/1.1"]).is_err(), "there is no certificate yet");
    let _running = acme.start().expect("a thread");
    let status = wait_for(&acme, |status| status.issued == 1);
    assert_eq!((status.failures, status.last_error), (0, None));
    assert_eq!(acme.names(), ["a.test", "b.test"]);
    let chain = presented(&server, "b.test", &["http/1.1"]).expect("a certificate");
    assert_eq!(chain.len(), 2);
    assert_eq!(presented(&server, "a.test", &[]).expect("a certificate"), chain);
    // The challenge is over: neither does an authority get its certificate, nor the usual one.
    assert!(presented(&server, "a.test", &["acme-tls/1"]).is_err());
    // A client that offers another protocol too is none of an authority.
    assert_eq!(presented(&server, "a.test", &["acme-tls/1", "http/1.1"]).expect("a certificate"), chain);
}

#[test]
fn http_01_issues_a_certificate_and_other_requests_pass() {
    let (authority, folder) = (Authority::start(), Folder::new());
    let acme = builder(&authority, &folder).challenges([ChallengeKind::Http01]).build().expect("settings");
    let _server = serve_http(&acme, &authority);
    let _running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
    assert_eq!(authority.requests("POST /challenge/0/0/http-01"), 1);
    // The orders of a certificate that is in use, and its failures, are gone.
    assert_eq!((folder.files("order").len(), folder.files("failures").len()), (0, 0));
    assert_eq!((folder.files("account").len(), folder.files("certificate").len()), (1, 1));
}

/// The name servers of the authority's state.
struct Zone(Arc<Mutex<AuthorityState>>);

impl DnsProvider for Zone {
    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        self.0.lock().unwrap().records.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str, value: &str) -> io::Result<()> {
        self.0.lock().unwrap().records.retain(|(known, text)| known != name || text != value);
        Ok(())
    }
}

#[test]
fn dns_01_issues_a_wildcard_and_removes_its_records() {
    let (authority, folder) = (Authority::start(), Folder::new());
    authority.lock().offers = vec!["dns-01"];
    let zone = Zone(authority.state.clone());
    let builder = builder(&authority, &folder).names(["*.a.test"]).challenges([ChallengeKind::Dns01]);
    let acme = builder.dns(zone).build().expect("settings");
    let _running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
    assert_eq!(acme.names(), ["*.a.test", "a.test", "b.test"]);
    // The authority of the tests takes the first validation for all.
    assert_eq!(authority.requests("POST /challenge/0/0/dns-01"), 1);
    let server = serve(&acme, &authority);
    assert!(presented(&server, "ebb.a.test", &["http/1.1"]).is_ok());
    wait_for(&acme, |_| authority.lock().records.is_empty());
}

/// Name servers that cannot be changed.
struct FixedZone;

impl DnsProvider for FixedZone {
    fn set(&self, _: &str, _: &str) -> io::Result<()> {
        Err(io::Error::other("the zone is read-only"))
    }

    fn remove(&self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_record_that_cannot_be_set_is_the_reason_of_the_failure() {
    let (authority, folder) = (Authority::start(), Folder::new());
    authority.lock().offers = vec!["dns-01"];
    let builder = builder(&authority, &folder).challenges([ChallengeKind::Dns01]);
    let acme = builder.dns(FixedZone).build().expect("settings");
    let _running = acme.start().expect("a thread");
    let reason = wait_for_failure(&acme);
    assert_eq!(reason, "the record of DNS-01 cannot be set: the zone is read-only");
}

/// Name servers of which a part takes the record before the call fails. It reports its calls.
struct HalfZone(mpsc::Sender<(&'static str, String, Option<String>)>);

impl HalfZone {
    fn report(&self, call: &'static str, value: &str) {
        let thread = std::thread::current().name().map(str::to_owned);
        // The test is over.
        let _ = self.0.send((call, value.to_owned(), thread));
    }
}

impl DnsProvider for HalfZone {
    fn set(&self, _: &str, value: &str) -> io::Result<()> {
        self.report("set", value);
        Err(io::Error::other("one server of two does not answer"))
    }

    fn remove(&self, _: &str, value: &str) -> io::Result<()> {
        self.report("remove", value);
        Ok(())
    }
}

#[test]
fn a_record_whose_setting_fails_is_removed_and_each_call_has_its_own_thread() {
    let (authority, folder) = (Authority::start(), Folder::new());
    authority.lock().offers = vec!["dns-01"];
    let (calls, called) = mpsc::channel();
    let builder = builder(&authority, &folder).challenges([ChallengeKind::Dns01]);
    let acme = builder.dns(HalfZone(calls)).build().expect("settings");
    let _running = acme.start().expect("a thread");
    let next = || called.recv_timeout(Duration::from_secs(120)).expect("a call");
    let (call, value, thread) = next();
    assert_eq!((call, thread.as_deref()), ("set", Some("acme-dns")));
    while next().0 != "remove" {}
    assert!(!value.is_empty());
}

/// A provider that panics.
struct PanickingZone;

impl DnsProvider for PanickingZone {
    fn set(&self, _: &str, _: &str) -> io::Result<()> {
        panic!("a bug of the provider")
    }

    fn remove(&self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_provider_that_panics_fails_the_attempt() {
    let (authority, folder) = (Authority::start(), Folder::new());
    authority.lock().offers = vec!["dns-01"];
    let builder = builder(&authority, &folder).challenges([ChallengeKind::Dns01]);
    let acme = builder.dns(PanickingZone).build().expect("settings");
    let _running = acme.start().expect("a thread");
    assert_eq!(wait_for_failure(&acme), "the record of DNS-01 cannot be set: the provider of DNS-01 panics");
}

#[test]
fn of_several_kinds_of_challenges_each_attempt_has_the_next() {
    let (authority, folder) = (Authority::start(), Folder::new());
    let kinds = [ChallengeKind::TlsAlpn01, ChallengeKind::Http01];
    let acme = builder(&authority, &folder).challenges(kinds).build().expect("settings");
    // Nothing answers TLS there.
    let _server = serve_http(&acme, &authority);
    let _running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
    assert_eq!(authority.requests("POST /challenge/0/0/tls-alpn-01"), 1);
    assert!(authority.requests("POST /challenge/1/0/http-01") >= 1);
}

#[test]
fn a_failed_validation_is_reported_by_its_cause_and_the_next_order_is_another() {
    let (authority, folder) = (Authority::start(), Folder::new());
    let acme = builder(&authority, &folder).build().expect("settings");
    let _plain = serve_http(&acme, &authority);
    let running = acme.start().expect("a thread");
    let reason = wait_for_failure(&acme);
    assert!(reason.starts_with("the authority refuses: API error: "), "{reason}");
    wait_for(&acme, |status| status.failed >= 2);
    let server = serve(&acme, &authority);
    wait_for(&acme, |status| status.issued == 1 && status.failures == 0);
    assert!(authority.requests("POST /order") > 2);
    assert_eq!(authority.lock().accounts, 1);
    assert!(presented(&server, "a.test", &["http/1.1"]).is_ok());
    drop(running);
}

#[test]
fn a_certificate_is_renewed_before_it_expires_and_the_old_one_stays_until_then() {
    let (authority, folder) = (Authority::start(), Folder::new());
    // Two thirds are over in the moment of issuance.
    authority.lock().lifetime = (Duration::from_secs(7000), Duration::from_secs(10_000));
    let acme = builder(&authority, &folder).build().expect("settings");
    let server = serve(&acme, &authority);
    let mut ends = Vec::new();
    let running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued >= 1);
    let first = presented(&server, "a.test", &["http/1.1"]).expect("a certificate");
    ends.push(acme.status().not_after);
    // The dates of certificates have seconds: one of the same second is no newer one.
    wait_for(&acme, |status| status.failed > 0 || status.issued >= 2);
    assert!(presented(&server, "a.test", &["http/1.1"]).is_ok());
    authority.lock().lifetime = (Duration::from_secs(0), Duration::from_secs(20_000));
    let now = acme.status().issued;
    wait_for(&acme, |status| status.issued > now && status.failures == 0);
    let second = presented(&server, "a.test", &["http/1.1"]).expect("a certificate");
    assert_ne!(first, second);
    assert!(acme.status().not_after > ends[0]);
    drop(running);
}

#[test]
fn the_window_of_the_authority_has_a_certificate_renewed_at_once() {
    let (authority, folder) = (Authority::start(), Folder::new());
    authority.lock().window = Some(("2001-01-01T00:00:00Z".into(), "2001-01-02T00:00:00Z".into()));
    let acme = builder(&authority, &folder).build().expect("settings");
    let server = serve(&acme, &authority);
    let _running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued >= 1);
    // Each certificate is due at once. Another one is newer, once the clock has another second.
    wait_for(&acme, |status| status.issued >= 2);
    assert!(authority.requests("GET /renewal/") >= 1);
    let replaced =
        authority.lock().replaced.first().cloned().expect("the order names the certificate that it replaces");
    assert_eq!(replaced.split('.').count(), 2);
    assert!(presented(&server, "a.test", &["http/1.1"]).is_ok());
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let (authority, folder) = (Authority::start(), Folder::new());
    let with = |directory: &str| {
        let provider = Provider::aws_lc_rs();
        Acme::builder(&provider, authority.client(), directory, folder.store()).names(["a.test"])
    };
    assert!(matches!(with("http://127.0.0.1/dir").build(), Err(InvalidAcme::Directory)));
    assert!(matches!(with("https://a.test/").challenges([]).build(), Err(InvalidAcme::NoChallenges)));
    assert!(matches!(with("https://a.test/").names(["*.a.test"]).build(), Err(InvalidAcme::Wildcard(_))));
    let many = (0..101).map(|number| format!("n{number}.test"));
    assert!(matches!(with("https://a.test/").names(many).build(), Err(InvalidAcme::TooManyNames)));
}

#[test]
fn one_certificate_is_renewed_once_at_a_time() {
    let (authority, folder) = (Authority::start(), Folder::new());
    let acme = builder(&authority, &folder).build().expect("settings");
    let _server = serve(&acme, &authority);
    let running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
    assert_eq!(acme.start().err().map(|error| error.kind()), Some(io::ErrorKind::AlreadyExists));
    drop(running);
    drop(acme.start().expect("another thread"));
}
