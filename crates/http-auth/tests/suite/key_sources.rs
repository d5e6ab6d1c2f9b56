//! Key sets of files and URLs, and when they are read again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tidegate::http::auth::{InvalidKeys, Jwt, JwtKeys};
use tidegate::http::{Response, Router, StatusCode};
use tidegate_testkit::ClosedPort;

use crate::support::{Issuer, Running, base64, bearer, claims, jwks, start, status};

/// A file of its own, which goes with its test.
pub(crate) struct JwksFile(pub(crate) PathBuf);

impl JwksFile {
    pub(crate) fn new(text: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = Self(std::env::temp_dir().join(format!("tidegate-jwks-{}-{number}", std::process::id())));
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).expect("a file");
    }
}

impl Drop for JwksFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A server of a key set, whose answer the test changes.
struct KeyServer {
    server: Running,
    answer: Arc<Mutex<(StatusCode, String)>>,
    requests: Arc<AtomicU32>,
}

impl KeyServer {
    fn new(text: String) -> Self {
        let answer = Arc::new(Mutex::new((StatusCode::OK, text)));
        let requests = Arc::new(AtomicU32::new(0));
        let (answered, counted) = (answer.clone(), requests.clone());
        let server = start(move || {
            let (answered, counted) = (answered.clone(), counted.clone());
            Router::new().get("/keys", move || {
                counted.fetch_add(1, Ordering::SeqCst);
                let (status, text) = answered.lock().expect("a lock").clone();
                Response::text(text).with_status(status)
            })
        });
        Self { server, answer, requests }
    }

    fn answer(&self, status: StatusCode, text: &str) {
        *self.answer.lock().expect("a lock") = (status, text.to_owned());
    }

    fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }

    fn keys(&self) -> JwtKeys {
        JwtKeys::url(&self.server.url("/keys")).expect("a URL")
    }
}

fn guarded(keys: JwtKeys) -> Running {
    let jwt = Jwt::builder(keys).build().expect("rules");
    start(move || Router::new().get("/", || "in").wrap(jwt.require()))
}

fn ask(server: &Running, issuer: &Issuer, user: &str) -> String {
    status(&server.get("/", &bearer(&issuer.token(&claims(user))))).to_owned()
}

#[test]
fn an_url_is_asked_once_and_again_for_a_key_that_it_did_not_have() {
    let (first, second) = (Issuer::new("1"), Issuer::new("2"));
    let source = KeyServer::new(jwks(&[&first]));
    let server = guarded(source.keys().unknown_key_interval(Duration::ZERO));
    assert_eq!(source.requests(), 0);
    for user in ["ebb", "flow", "slack"] {
        assert_eq!(ask(&server, &first, user), "200");
    }
    assert_eq!(source.requests(), 1);
    source.answer(StatusCode::OK, &jwks(&[&second]));
    assert_eq!(ask(&server, &second, "ebb"), "200", "the issuer has a new key");
    assert_eq!(source.requests(), 2);
    assert_eq!(ask(&server, &first, "ebb"), "401", "and has withdrawn the old one, also for a token that was known");
}

#[test]
fn invented_keys_cause_no_flood_of_requests() {
    let (issuer, invented) = (Issuer::new("1"), Issuer::new("2"));
    let source = KeyServer::new(jwks(&[&issuer]));
    let server = guarded(source.keys());
    for user in 0..20 {
        assert_eq!(ask(&server, &invented, &user.to_string()), "401");
    }
    assert_eq!(source.requests(), 1, "the next read for an unknown key is a minute later");
    assert_eq!(ask(&server, &issuer, "ebb"), "200");
}

#[test]
fn keys_of_an_url_that_fails_stay_until_they_are_too_old() {
    let (issuer, invented) = (Issuer::new("1"), Issuer::new("2"));
    for (stale_max, expected) in [(Duration::from_secs(3600), "200"), (Duration::ZERO, "503")] {
        let source = KeyServer::new(jwks(&[&issuer]));
        let server =
            guarded(source.keys().refresh(Duration::ZERO).unknown_key_interval(Duration::ZERO).stale_max(stale_max));
        // With no age at all, the keys serve the request that has waited for them, if its turn is theirs.
        let _ = ask(&server, &issuer, "ebb");
        source.answer(StatusCode::INTERNAL_SERVER_ERROR, "");
        // This one waits for a read that fails.
        let _ = ask(&server, &invented, "ebb");
        assert_eq!(ask(&server, &issuer, "flow"), expected);
    }
}

#[test]
fn a_key_set_that_is_none_or_too_large_refuses_requests() {
    let issuer = Issuer::new("1");
    let secret =
        json!({"keys": [{"kty": "oct", "k": base64("a secret of at least thirty-two bytes"), "alg": "HS256"}]});
    for text in
        ["", "{}", "[]", r#"{"keys":[]}"#, &format!("{}{}", jwks(&[&issuer]), " ".repeat(300_000)), &secret.to_string()]
    {
        let source = KeyServer::new(text.to_owned());
        assert_eq!(ask(&guarded(source.keys()), &issuer, "ebb"), "503", "{}", text.len());
    }
}

#[test]
fn an_url_that_is_not_there_refuses_requests() {
    let closed = ClosedPort::tcp();
    let keys = JwtKeys::url(&format!("http://{}/keys", closed.address())).expect("a URL");
    assert_eq!(ask(&guarded(keys), &Issuer::new("1"), "ebb"), "503");
}

#[test]
fn a_client_that_leaves_stops_no_read() {
    let issuer = Issuer::new("1");
    let source = KeyServer::new(jwks(&[&issuer]));
    let server = guarded(source.keys());
    {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(server.0.address().ip().expect("TCP")).expect("a connection");
        let token = issuer.token(&claims("ebb"));
        write!(stream, "GET / HTTP/1.1\r\nHost: sea\r\n{}\r\n", bearer(&token)).expect("the server reads");
    }
    assert_eq!(ask(&server, &issuer, "flow"), "200");
    assert_eq!(source.requests(), 1);
}

#[test]
fn a_file_is_read_again_when_it_has_changed_and_kept_when_it_is_gone() {
    let (first, second) = (Issuer::new("1"), Issuer::new("2"));
    let file = JwksFile::new(&jwks(&[&first]));
    let keys = JwtKeys::file(&file.0).expect("keys").unknown_key_interval(Duration::ZERO);
    let server = guarded(keys);
    assert_eq!(ask(&server, &first, "ebb"), "200");
    // Of another length, so that it differs even within one tick of the file system's clock.
    file.write(&format!("{} ", jwks(&[&second])));
    assert_eq!(ask(&server, &second, "ebb"), "200");
    assert_eq!(ask(&server, &first, "ebb"), "401");
    file.write("{");
    assert_eq!(ask(&server, &first, "ebb"), "401");
    assert_eq!(ask(&server, &second, "flow"), "200", "a file with a mistake changes nothing");
}

#[test]
fn a_file_without_keys_is_a_mistake_at_the_start() {
    assert!(matches!(JwtKeys::file("/nonexistent/keys"), Err(InvalidKeys::Io(_))));
    assert!(matches!(JwtKeys::file(std::env::temp_dir()), Err(InvalidKeys::Io(_))));
    let short = json!({"keys": [{"kty": "oct", "k": base64("short")}]}).to_string();
    let encryption =
        json!({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "use": "enc"}, {"kty": "future"}]}).to_string();
    let many = json!({"keys": vec![Issuer::new("1").jwk(); 101]}).to_string();
    for (text, is_expected) in [
        ("", (|error| matches!(error, InvalidKeys::Json)) as fn(&InvalidKeys) -> bool),
        (r#"{"keys":[],"keys":[]}"#, |error| matches!(error, InvalidKeys::Json)),
        (r#"{"keys":[]}"#, |error| matches!(error, InvalidKeys::NoKey)),
        (&short, |error| matches!(error, InvalidKeys::NoKey)),
        (&encryption, |error| matches!(error, InvalidKeys::NoKey)),
        (&many, |error| matches!(error, InvalidKeys::TooLarge)),
    ] {
        let file = JwksFile::new(text);
        let error = JwtKeys::file(&file.0).expect_err("no keys");
        assert!(is_expected(&error), "{text}: {error}");
    }
}
