//! An authority that breaks the rules: the attempt fails, the certificate in use stays, and nothing panics.

use std::time::Duration;

use tidegate::acme::Acme;

use crate::authority::{Authority, AuthorityState, Fault};
use crate::support::{Folder, Running, builder, limits, presented, serve, wait_for, wait_for_failure};

/// Why the attempt fails after this change of the authority, and that one without it succeeds afterwards.
fn refusal(change: impl FnOnce(&Authority)) -> String {
    let (authority, folder) = (Authority::start(), Folder::new());
    change(&authority);
    let acme = builder(&authority, &folder).build().expect("settings");
    let server = serve(&acme, &authority);
    let running = acme.start().expect("a thread");
    let reason = wait_for_failure(&acme);
    {
        let mut state = authority.lock();
        let usual = AuthorityState::usual();
        (state.change, state.rewrites_chain, state.offers) = (usual.change, usual.rewrites_chain, usual.offers);
        (state.token, state.stuck, state.lifetime) = (usual.token, None, usual.lifetime);
        state.faults.clear();
    }
    wait_for(&acme, |status| status.issued == 1);
    assert!(presented(&server, "a.test", &["http/1.1"]).is_ok());
    drop(running);
    reason
}

fn raw(status: u16, body: &[u8]) -> Fault {
    Fault::Raw(status, vec![("Replay-Nonce", "stale".to_owned())], body.to_vec())
}

#[test]
fn malformed_responses_fail_the_attempt() {
    let bodies: [&[u8]; 6] = [b"", b"hello", b"{", b"[]", b"{\"status\":7}", b"\xff\xfe"];
    for endpoint in ["dir", "account", "order", "authz", "challenge", "finalize"] {
        for (status, body) in [200, 400, 500].into_iter().zip(bodies.iter().cycle()) {
            let reason = refusal(|authority| authority.fault(endpoint, raw(status, body)));
            assert!(reason.contains("malformed"), "{endpoint} {status} {body:?}: {reason}");
        }
    }
}

#[test]
fn a_directory_with_other_urls_is_refused() {
    for url in ["http://127.0.0.1/nonce", "not a url", "https://", "\\u0000", "file:///etc/passwd"] {
        let body = format!(
            "{{\"newNonce\":\"{url}\",\"newAccount\":\"https://127.0.0.1:1/a\",\"newOrder\":\"https://127.0.0.1:1/o\"}}"
        );
        let reason = refusal(|authority| authority.fault("dir", raw(200, body.as_bytes())));
        assert!(reason.contains("the directory lacks a URL"), "{url}: {reason}");
    }
}

#[test]
fn a_huge_body_is_cut_off() {
    let huge = vec![b' '; 300 * 1024];
    for endpoint in ["dir", "order", "cert"] {
        let reason = refusal(|authority| authority.fault(endpoint, raw(200, &huge)));
        assert!(reason.contains("long"), "{endpoint}: {reason}");
    }
}

#[test]
fn a_stale_nonce_is_tried_again_and_not_for_ever() {
    let (authority, folder) = (Authority::start(), Folder::new());
    for _ in 0..2 {
        authority.fault("order", Fault::Problem(400, "badNonce", None));
    }
    let acme = builder(&authority, &folder).build().expect("settings");
    let _server = serve(&acme, &authority);
    let running = acme.start().expect("a thread");
    assert_eq!(wait_for(&acme, |status| status.issued == 1).failures, 0);
    drop(running);

    let reason = refusal(|authority| {
        (0..9).for_each(|_| authority.fault("order", Fault::Problem(400, "badNonce", None)));
    });
    assert!(reason.contains("badNonce"), "{reason}");
    // A nonce source that has none.
    let reason = refusal(|authority| authority.fault("nonce", Fault::Raw(200, Vec::new(), Vec::new())));
    assert!(reason.contains("nonce"), "{reason}");
}

#[test]
fn a_wrong_chain_is_refused_and_the_old_certificate_stays() {
    type Rewrite = fn(&AuthorityState, String) -> String;
    let rewrites: [(Rewrite, &str); 4] = [
        (|state, chain| chain.replace(state.issuer_pem(), &AuthorityState::other_root()), "not signed"),
        (|_, _| AuthorityState::other_root(), "another key"),
        (|_, _| "hello".to_owned(), "no PEM"),
        (|_, chain| chain.repeat(6), "no PEM"),
    ];
    for (rewrite, expected) in rewrites {
        let reason = refusal(|authority| authority.lock().rewrites_chain = rewrite);
        assert!(reason.contains(expected), "{reason}");
    }
    let reason = refusal(|authority| {
        authority.lock().change = |params| {
            params.subject_alt_names.pop();
        };
    });
    assert!(reason.contains("lacks a name"), "{reason}");
    let reason = refusal(|authority| authority.lock().lifetime = (Duration::from_secs(9), Duration::from_secs(8)));
    assert!(reason.contains("not valid now"), "{reason}");
}

#[test]
fn a_chain_of_another_authority_than_expected_is_refused() {
    let (authority, folder) = (Authority::start(), Folder::new());
    let roots = |pem: &str| {
        use tidegate::tls::rustls::pki_types::CertificateDer;
        use tidegate::tls::rustls::pki_types::pem::PemObject;
        let mut roots = tidegate::tls::rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")).expect("a root");
        roots
    };
    let acme = builder(&authority, &folder).issuers(roots(&AuthorityState::other_root())).build().expect("settings");
    let _server = serve(&acme, &authority);
    let running = acme.start().expect("a thread");
    assert!(wait_for_failure(&acme).contains("not signed"));
    drop(running);
    let own = roots(authority.lock().issuer_pem());
    let acme = builder(&authority, &folder).issuers(own).build().expect("settings");
    let _server = serve(&acme, &authority);
    let _running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
}

#[test]
fn an_order_that_is_never_ready_ends_with_the_attempt_and_is_continued() {
    for state in ["pending", "processing", "ready"] {
        let (authority, folder) = (Authority::start(), Folder::new());
        authority.lock().stuck = Some(state);
        let mut short = limits();
        short.attempt_timeout = Duration::from_millis(300);
        let acme = builder(&authority, &folder).limits(short).build().expect("settings");
        let _server = serve(&acme, &authority);
        let _running = acme.start().expect("a thread");
        let reason = wait_for_failure(&acme);
        assert!(reason.contains("took too long"), "{state}: {reason}");
        // On a busy machine an attempt can end before the client has received the URL of its order.
        let uses_order = |line: &String| ["/order/", "/authz/", "/finalize/"].iter().any(|part| line.contains(part));
        wait_for(&acme, |_| authority.lock().log.iter().any(uses_order));
        let orders = || authority.lock().log.iter().filter(|line| *line == "POST /order").count();
        let before = orders();
        authority.lock().stuck = None;
        wait_for(&acme, |status| status.issued == 1);
        assert_eq!(orders(), before, "{state}");
    }
}

#[test]
fn challenges_that_are_missing_or_odd_are_refused() {
    let reason = refusal(|authority| authority.lock().offers = vec!["dns-01"]);
    assert!(reason.contains("no configured kind"), "{reason}");
    let reason = refusal(|authority| authority.lock().offers = Vec::new());
    assert!(reason.contains("no configured kind"), "{reason}");
    let reason = refusal(|authority| authority.lock().token = "../../etc/passwd");
    assert!(reason.contains("token"), "{reason}");
    let foreign = br#"{"status":"pending","identifier":{"type":"dns","value":"bank.test"},"challenges":
        [{"type":"tls-alpn-01","url":"https://127.0.0.1:1/","token":"abc","status":"pending"}]}"#;
    let reason = refusal(|authority| authority.fault("authz", raw(200, foreign)));
    assert!(reason.contains("a name that the order does not have"), "{reason}");
}

#[test]
fn a_retry_after_beyond_all_bounds_is_bounded() {
    let (authority, folder) = (Authority::start(), Folder::new());
    for wait in ["18446744073709551615", "99999999999999999999999"] {
        let mut bounded = limits();
        bounded.retry_after_max = Duration::from_millis(5);
        authority.fault("order", Fault::Problem(429, "rateLimited", Some(wait)));
        let acme = builder(&authority, &folder).limits(bounded).build().expect("settings");
        let server: Running = serve(&acme, &authority);
        let running = acme.start().expect("a thread");
        wait_for(&acme, |status| status.issued == 1);
        drop((running, server));
        folder.files("certificate").iter().for_each(|path| std::fs::remove_file(path).expect("a file"));
    }
    // An order asks for a wait as well; it has bounds of its own.
    authority.lock().waits_for = Some(u64::MAX);
    let acme: Acme = builder(&authority, &folder).build().expect("settings");
    let _server = serve(&acme, &authority);
    let _running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
}

#[test]
fn an_authority_that_is_not_there_or_not_trusted_is_reported() {
    let (authority, other, folder) = (Authority::start(), Authority::start(), Folder::new());
    let provider = tidegate::tls::Provider::aws_lc_rs();
    for (client, directory) in
        [(other.client(), authority.directory()), (authority.client(), "https://127.0.0.1:1/dir".to_owned())]
    {
        let builder = Acme::builder(&provider, client, &directory, folder.store());
        let acme = builder.names(["a.test"]).limits(limits()).build().expect("settings");
        let running = acme.start().expect("a thread");
        let reason = wait_for_failure(&acme);
        assert!(reason.contains("cannot be reached"), "{reason}");
        drop(running);
    }
}

#[test]
fn text_of_the_authority_is_short_and_has_no_control_characters() {
    let detail = format!("one\\ntwo\\u001b[31m{}", "x".repeat(5000));
    let body = format!("{{\"type\":\"urn:ietf:params:acme:error:malformed\",\"detail\":\"{detail}\",\"status\":403}}");
    let reason = refusal(|authority| authority.fault("order", raw(403, body.as_bytes())));
    assert!(reason.len() < 600 && !reason.chars().any(char::is_control), "{reason}");
}

#[test]
fn an_order_that_fails_each_time_gives_place_to_another_one() {
    let (authority, folder) = (Authority::start(), Folder::new());
    (0..4).for_each(|_| authority.fault("cert", raw(500, b"crash")));
    let acme = builder(&authority, &folder).build().expect("settings");
    let _server = serve(&acme, &authority);
    let _running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
    assert_eq!(authority.requests("POST /cert/0"), 4);
    assert_eq!(authority.requests("POST /cert/1"), 1);
}
