//! Handshakes: agreed parameters, and refusals.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ProtocolVersion, RootCertStore};
use tidegate::Over;
use tidegate::framing::Raw;
use tidegate_testkit::{CodecHarness, Embedded};
use tidegate_tls::{Certificates, ClientCertificates, ClientConfig, Provider, ServerConfig};

use crate::support::{Authority, Identity, NAME, Pair, VERSIONS, configurations, providers, serve, usual};

#[test]
fn both_providers_speak_both_versions_with_each_other() {
    for server_provider in providers() {
        for client_provider in providers() {
            for version in VERSIONS {
                let identity = Identity::self_signed();
                let mut roots = RootCertStore::empty();
                roots.add(identity.first.clone()).unwrap();
                let server = ServerConfig::builder(&server_provider, identity.certificates(&server_provider));
                let client = ClientConfig::builder(&client_provider, roots).unwrap().versions(&[version]);
                let mut pair = Pair::new(&(server.build().unwrap(), client.build().unwrap()), &[10_000]);
                pair.exchange(usize::MAX);
                let agreed = pair.agreed();
                assert_eq!(agreed.version, Some(version.version));
                assert_eq!(agreed.peer_certificate.as_deref(), Some(&*identity.first));
            }
        }
    }
}

#[test]
fn the_key_exchange_of_aws_lc_is_safe_against_quantum_computers() {
    let both = configurations(&Provider::aws_lc_rs(), |server| server, |client| client);
    let mut pair = Pair::new(&both, &[1]);
    let hello = pair.client.take_written();
    // The share of X25519MLKEM768 (0x11ec) is 1,216 bytes long.
    assert!(hello.len() > 1_216 && hello.windows(4).any(|bytes| bytes == [0x11, 0xec, 0x04, 0xc0]));
    pair.server.receive(&hello);
    pair.exchange(usize::MAX);
    assert_eq!(pair.done.get(), 1);
}

#[test]
fn a_server_without_the_clients_first_group_requests_another_hello() {
    let mut crypto = rustls::crypto::ring::default_provider();
    crypto.kx_groups = vec![rustls::crypto::ring::kx_group::SECP384R1];
    let provider = Provider::custom(Arc::new(crypto));
    let identity = Identity::self_signed();
    let server = ServerConfig::builder(&provider, identity.certificates(&provider)).build().unwrap();
    let client = ClientConfig::dangerous_builder_without_verification(&Provider::ring()).build().unwrap();
    let mut pair = Pair::new(&(server, client), &[1_000]);
    pair.exchange(1);
    assert_eq!(pair.agreed().version, Some(ProtocolVersion::TLSv1_3));
}

#[test]
fn both_sides_agree_on_the_servers_preferred_protocol() {
    for version in VERSIONS {
        let both = configurations(
            &Provider::ring(),
            |server| server.alpn(["h2", "http/1.1"]),
            |client| client.alpn(["http/1.1", "h2"]).versions(&[version]),
        );
        let mut pair = Pair::new(&both, &[1]);
        pair.exchange(usize::MAX);
        assert_eq!(pair.agreed().alpn.as_deref(), Some(&b"h2"[..]));
    }
}

#[test]
fn protocols_without_overlap_get_the_alert_for_that() {
    for version in VERSIONS {
        let both = configurations(
            &Provider::ring(),
            |server| server.alpn(["h2"]),
            |client| client.alpn(["mqtt"]).versions(&[version]),
        );
        let mut pair = Pair::new(&both, &[1]);
        pair.exchange(usize::MAX);
        assert!(pair.server.is_write_closed());
        let failure = pair.failure.borrow().clone().unwrap_or_default();
        assert!(failure.contains("NoApplicationProtocol"), "{failure}");
    }
}

#[test]
fn a_client_without_protocols_is_served_by_a_server_with_some() {
    let both = configurations(&Provider::ring(), |server| server.alpn(["h2"]), |client| client);
    let mut pair = Pair::new(&both, &[1]);
    pair.exchange(usize::MAX);
    assert_eq!(pair.agreed().alpn, None);
}

/// A server and a client for each way to request certificates of clients.
fn with_client_certificates(
    requests: impl Fn(Arc<RootCertStore>) -> ClientCertificates,
    identity: Option<&Identity>,
    authority: &Authority,
    version: &'static rustls::SupportedProtocolVersion,
) -> Pair {
    let provider = Provider::ring();
    let server = authority.sign(|_| {});
    let requests = requests(Arc::new(authority.roots.clone()));
    let server = ServerConfig::builder(&provider, server.certificates(&provider)).client_certificates(requests);
    let mut client = ClientConfig::builder(&provider, authority.roots.clone()).unwrap().versions(&[version]);
    if let Some(identity) = identity {
        client = client.identity_from_pem(identity.chain.as_bytes(), identity.key.as_bytes()).unwrap();
    }
    let mut pair = Pair::new(&(server.build().unwrap(), client.build().unwrap()), &[1_000]);
    pair.exchange(usize::MAX);
    pair
}

#[test]
fn certificates_of_clients_are_optional_or_required() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (own, foreign) = (authority.sign(|_| {}), other.sign(|_| {}));
    for version in VERSIONS {
        let optional = ClientCertificates::Optional;
        let required = ClientCertificates::Required;
        let ends = |identity: Option<&Identity>, requests: fn(Arc<RootCertStore>) -> ClientCertificates| {
            let pair = with_client_certificates(requests, identity, &authority, version);
            let reason = pair.failure.borrow().clone();
            (pair.done.get() == 1, reason.unwrap_or_default())
        };
        assert!(ends(None, optional).0 && ends(Some(&own), optional).0 && ends(Some(&own), required).0);
        let (served, reason) = ends(None, required);
        assert!(!served && (reason.contains("CertificateRequired") || reason.contains("HandshakeFailure")), "{reason}");
        for requests in [optional, required] {
            let (served, reason) = ends(Some(&foreign), requests);
            assert!(!served && (reason.contains("UnknownCA") || reason.contains("DecryptError")), "{reason}");
        }
    }
}

#[test]
fn a_server_knows_the_certificate_of_its_client() {
    let authority = Authority::new();
    let own = authority.sign(|_| {});
    let provider = Provider::ring();
    let requests = ClientCertificates::Required(Arc::new(authority.roots.clone()));
    let server = ServerConfig::builder(&provider, authority.sign(|_| {}).certificates(&provider));
    let server = server.client_certificates(requests).build().unwrap();
    let client = ClientConfig::builder(&provider, authority.roots.clone()).unwrap();
    let client = client.identity_from_pem(own.chain.as_bytes(), own.key.as_bytes()).unwrap().build().unwrap();
    let mut pair = Pair::new(&(server.clone(), client), &[1_000]);
    let seen = std::rc::Rc::new(std::cell::RefCell::new(None));
    let report = seen.clone();
    pair.server = Embedded::serving(Over::new(server.accept(), Raw), async move |mut channel: tidegate::Channel<_>| {
        channel.recv().await?;
        let codec = |codec: &mut Over<tidegate_tls::Tls, Raw>| {
            let tls = codec.filter();
            (tls.peer_certificates().map(|chain| chain[0].to_vec()), tls.server_name().map(str::to_owned))
        };
        *report.borrow_mut() = Some(channel.with_codec(codec)?);
        Ok::<_, tidegate::ChannelError>(())
    });
    pair.exchange(usize::MAX);
    let (certificate, name) = seen.borrow_mut().take().expect("the server has received a request");
    assert_eq!((certificate.as_deref(), name.as_deref()), (Some(&*own.first), Some(NAME)));
}

#[test]
fn a_handshake_that_does_not_finish_is_ended_at_its_limit() {
    let limit = Duration::from_secs(3);
    let (server, client) = configurations(
        &Provider::ring(),
        |server| server.handshake_timeout(limit),
        |client| client.handshake_timeout(limit),
    );
    for mut pipe in [
        Embedded::serving(Over::new(server.accept(), Raw), serve),
        Embedded::serving(Over::new(client.connect(NAME).unwrap(), Raw), serve),
    ] {
        // Bytes that arrive in between do not extend it.
        pipe.advance(Duration::from_millis(2_000));
        pipe.receive(&[22, 3]);
        pipe.advance(Duration::from_millis(990));
        assert!(!pipe.is_write_closed());
        pipe.advance(Duration::from_millis(20));
        assert!(pipe.is_write_closed());
    }
}

#[test]
fn an_established_connection_has_no_deadline_of_the_handshake() {
    let mut pair = Pair::new(&usual(), &[1_000, 1_000]);
    pair.exchange(usize::MAX);
    pair.server.advance(Duration::from_secs(100));
    pair.advance();
    pair.exchange(usize::MAX);
    assert_eq!(pair.done.get(), 2);
}

#[test]
fn a_reload_reaches_new_connections_and_leaves_those_that_are_established() {
    let folder = std::env::temp_dir().join(format!("tidegate-tls-under-load-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (chain, key) = (folder.join("site.pem"), folder.join("site.key"));
    let write = |identity: &Identity| {
        fs::write(&chain, &identity.chain).unwrap();
        fs::write(&key, &identity.key).unwrap();
    };
    let provider = Provider::ring();
    let mut identity = Identity::self_signed();
    write(&identity);
    let certificates = Certificates::from_files(&provider, [(&chain, &key)]).unwrap();
    let server = ServerConfig::builder(&provider, certificates.clone()).tickets(0).build().unwrap();
    let client = ClientConfig::dangerous_builder_without_verification(&provider).build().unwrap();
    let both = (server, client);
    let mut earlier = Vec::new();
    for round in 0..20 {
        let mut pair = Pair::new(&both, &[10_000, 10_000]);
        // In the middle of a handshake.
        let hello = pair.client.take_written();
        let in_use = identity.first.to_vec();
        pair.server.receive(&hello);
        if round % 3 == 2 {
            fs::write(&chain, "broken").unwrap();
            certificates.reload().unwrap_err();
            write(&identity);
        } else {
            identity = Identity::self_signed();
            write(&identity);
            certificates.reload().unwrap();
        }
        pair.exchange(usize::MAX);
        assert_eq!(pair.agreed().peer_certificate, Some(in_use), "round {round}");
        earlier.push(pair);
        for pair in &mut earlier {
            pair.server.receive(b"");
        }
    }
    for mut pair in earlier {
        pair.advance();
        pair.exchange(usize::MAX);
        assert_eq!(pair.done.get(), 2, "{:?}", pair.failure);
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn secrets_are_logged_on_request() {
    #[derive(Debug, Default)]
    struct Log(std::sync::Mutex<Vec<String>>);
    impl rustls::KeyLog for Log {
        fn log(&self, label: &str, random: &[u8], secret: &[u8]) {
            self.0.lock().unwrap().push(format!("{label} {} {}", random.len(), secret.len()));
        }
    }
    let (server_log, client_log) = (Arc::<Log>::default(), Arc::<Log>::default());
    let both = configurations(
        &Provider::ring(),
        |server| server.key_log(server_log.clone()),
        |client| client.key_log(client_log.clone()),
    );
    let mut pair = Pair::new(&both, &[1]);
    pair.exchange(usize::MAX);
    assert_eq!(pair.done.get(), 1);
    for log in [server_log, client_log] {
        let lines = log.0.lock().unwrap().clone();
        for label in ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_TRAFFIC_SECRET_0", "CLIENT_TRAFFIC_SECRET_0"] {
            assert!(lines.iter().any(|line| line.starts_with(label)), "{lines:?}");
        }
    }
}

#[test]
fn the_error_of_a_peer_that_speaks_no_tls_says_so() {
    let mut server = CodecHarness::new(Over::new(usual().0.accept(), Raw));
    let error = server.decode(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n").unwrap_err().to_string();
    assert!(error.contains("no TLS records") && error.contains("HTTP without TLS"), "{error}");
}
