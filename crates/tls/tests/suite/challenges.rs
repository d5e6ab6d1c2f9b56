//! TLS-ALPN-01: the certificate of an authority that validates a name, and that of other clients.

use rustls::version::{TLS12, TLS13};
use tidegate_codec::Blame;
use tidegate_codec::Fault;
use tidegate_tls::{Certificates, Error, ServerConfig};

use crate::support::{Foreign, NAME, foreign_config, providers};

/// A chain and its key, as PEM.
fn self_signed() -> (String, String) {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// The certificate of a client that offers these protocols, or why there is none.
fn presented(server: &ServerConfig, tls12: bool, protocols: &[&str]) -> Result<Vec<u8>, String> {
    let mut config = foreign_config(if tls12 { &TLS12 } else { &TLS13 });
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let foreign = Foreign::try_new(server, config).map_err(|error| error.to_string())?;
    Ok(foreign.tls.peer_certificates().unwrap()[0].to_vec())
}

#[test]
fn only_a_client_that_offers_acme_tls_alone_gets_the_certificate_of_a_challenge() {
    for provider in providers() {
        let (usual, challenge) = (self_signed(), self_signed());
        for tls12 in [false, true] {
            let certificates = Certificates::issued_later(&provider);
            let server =
                ServerConfig::builder(&provider, certificates.clone()).alpn(["h2", "http/1.1"]).build().unwrap();
            assert!(presented(&server, tls12, &["h2"]).is_err(), "there is no certificate");
            certificates.set_challenge(&NAME.to_uppercase(), challenge.0.as_bytes(), challenge.1.as_bytes()).unwrap();
            let of_challenge = presented(&server, tls12, &["acme-tls/1"]).unwrap();
            certificates.replace_pem(usual.0.as_bytes(), usual.1.as_bytes()).unwrap();
            let of_others = presented(&server, tls12, &["acme-tls/1", "h2"]).unwrap();
            assert_ne!(of_challenge, of_others);
            for protocols in [&["h2"][..], &[], &["http/1.1", "acme-tls/1"]] {
                assert_eq!(presented(&server, tls12, protocols).unwrap(), of_others);
            }
            assert_eq!(presented(&server, tls12, &["acme-tls/1"]).unwrap(), of_challenge);
            certificates.clear_challenge(NAME);
            assert!(presented(&server, tls12, &["acme-tls/1"]).is_err(), "the challenge is over");
        }
    }
}

#[test]
fn certificates_of_files_answer_no_challenge() {
    for provider in providers() {
        let usual = self_signed();
        let certificates = Certificates::from_pem(&provider, usual.0.as_bytes(), usual.1.as_bytes()).unwrap();
        certificates.set_challenge(NAME, usual.0.as_bytes(), usual.1.as_bytes()).unwrap();
        let server = ServerConfig::builder(&provider, certificates).alpn(["h2"]).build().unwrap();
        assert!(presented(&server, false, &["acme-tls/1"]).is_err());
    }
}

#[test]
fn data_over_acme_tls_ends_the_connection() {
    for provider in providers() {
        let certificates = Certificates::issued_later(&provider);
        let server = ServerConfig::builder(&provider, certificates.clone()).alpn(["h2"]).build().unwrap();
        let (chain, key) = self_signed();
        certificates.set_challenge(NAME, chain.as_bytes(), key.as_bytes()).unwrap();
        for version in [&TLS12, &TLS13] {
            let mut config = foreign_config(version);
            config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
            let mut foreign = Foreign::new(&server, config);
            // The server would send so many bytes.
            std::io::Write::write_all(&mut foreign.tls.writer(), b"5\n").unwrap();
            let _ = foreign.exchange();
            assert!(foreign.server.is_write_closed());
        }
    }
    assert_eq!(Error::ChallengeData.blame(), Blame::Peer);
}
