//! Users whose passwords are hashes, through a server on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate::ConnectionRate;
use tidegate::http::{BasicAuth, Extension, Passwords, RateLimit, Router, Server, UserName};

/// Made by programs of other authors: ebb has the password flow, twice, and tide the password tide.
const USERS: &str = "# users\n\
    ebb:$2b$04$hFqqjJtkBGZQKeSiSyjQ3etF8dY3otUfeC.D.zA.DTbaUzKcEb3HG\n\
    slack:$2y$05$h/iP5m/Smf4XsKn8ftFN.eoED.AzFvdIlJ.0XpvOJGt0ciPHH/QXa\n\
    tide:$argon2id$v=19$m=64,t=1,p=1$n50hzTTfUqDi96I9Za1MOQ$CjZYtSalkgoflzliCaNQW7+xPo9/bsZNhXgEQ1pV/y8\n";

/// A client on one connection.
struct Peer(BufReader<TcpStream>);

impl Peer {
    fn connect(address: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(address).expect("a connection")))
    }

    /// The status of the response to a request with these credentials, in Base64, and its body.
    fn ask(&mut self, credentials: &str) -> (u16, String) {
        let request = format!("GET / HTTP/1.1\r\nHost: sea\r\nAuthorization: {credentials}\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).expect("the server reads");
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a line");
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest[..3].parse().expect("a status");
            } else if let Some(rest) = line.strip_prefix("Content-Length: ") {
                length = rest.trim_end().parse().expect("a length");
            } else if line == "\r\n" {
                let mut body = vec![0; length];
                self.0.read_exact(&mut body).expect("a body");
                return (status, String::from_utf8(body).expect("text"));
            }
        }
    }
}

/// Runs `test` with a server that requires a user.
fn with(users: &Passwords, test: impl FnOnce(SocketAddr)) {
    let users = users.clone();
    let router = move || {
        let greet = |Extension(UserName(name)): Extension<UserName>| format!("hello {name}");
        Router::new().get("/", greet).wrap(users.require("Harbour"))
    };
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).start(router).expect("a server");
    test(server.address().ip().expect("an IP address"));
    server.drain(Duration::ZERO);
}

fn users() -> Passwords {
    Passwords::parse(USERS).expect("users")
}

// `printf ebb:flow | base64`, and so on.
const EBB: &str = "Basic ZWJiOmZsb3c=";
const SLACK: &str = "basic c2xhY2s6Zmxvdw==";
const TIDE: &str = "Basic dGlkZTp0aWRl";
const WRONG: &str = "Basic ZWJiOmVlYg==";
const NOBODY: &str = "Basic bm9ib2R5OmZsb3c=";

#[test]
fn the_hashes_of_each_kind_are_checked_and_a_pair_that_was_right_once_alone() {
    let users = users();
    with(&users, |address| {
        let mut peer = Peer::connect(address);
        for _ in 0..5 {
            assert_eq!(peer.ask(EBB), (200, "hello ebb".to_owned()));
            assert_eq!(peer.ask(SLACK), (200, "hello slack".to_owned()));
            assert_eq!(peer.ask(TIDE), (200, "hello tide".to_owned()));
        }
    });
    assert_eq!(users.checks(), 3);
}

#[test]
fn a_wrong_password_a_name_of_no_user_and_no_credentials_get_401() {
    let users = users();
    with(&users, |address| {
        let mut peer = Peer::connect(address);
        assert_eq!((peer.ask(WRONG).0, peer.ask(NOBODY).0), (401, 401));
        // A name that no user has costs a check as well, so that its time is that of a wrong password.
        assert_eq!(users.checks(), 2);
        for none in ["Bearer ZWJiOmZsb3c=", "Basic !", "Basic", "Basic ZWJi", "Basic /w==", ""] {
            assert_eq!(peer.ask(none).0, 401, "{none}");
        }
        assert_eq!(users.checks(), 2);
        assert_eq!(peer.ask(EBB).0, 200);
        // A server behind this one may read the other field.
        assert_eq!(peer.ask(&format!("{EBB}\r\nAuthorization: {TIDE}")).0, 400);
    });
}

#[test]
fn ten_thousand_guesses_cost_as_many_checks_as_the_limit_allows() {
    let once_a_day = ConnectionRate { interval: Duration::from_secs(86_400), burst: 5 };
    let users = users().guesses(RateLimit::new(once_a_day));
    with(&users, |address| {
        let mut peer = Peer::connect(address);
        // The pair is known before the guesses begin.
        assert_eq!(peer.ask(EBB).0, 200);
        let statuses: Vec<_> = (0..10_000).map(|_| peer.ask(WRONG).0).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 4);
        assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 9_996);
        // Otherwise guesses without end would find the password of a user whose pair is known at that time.
        assert_eq!((peer.ask(EBB).0, peer.ask(TIDE).0), (429, 429), "a right guess is not told from a wrong one");
    });
    assert_eq!(users.checks(), 5);
}

#[test]
fn ten_thousand_guesses_at_passwords_in_the_clear_are_no_more_than_the_limit_allows() {
    let once_a_day = ConnectionRate { interval: Duration::from_secs(86_400), burst: 5 };
    let limit = RateLimit::new(once_a_day);
    let router = move || {
        let auth = BasicAuth::new("Harbour").user("ebb", "flow").guesses(limit.clone());
        Router::new().get("/", || "hello").with(auth)
    };
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).start(router).expect("a server");
    let mut peer = Peer::connect(server.address().ip().expect("an IP address"));
    // Right pairs do not count.
    assert!((0..100).all(|_| peer.ask(EBB).0 == 200));
    let statuses: Vec<_> = (0..10_000).map(|_| peer.ask(WRONG).0).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 5);
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 9_995);
    assert_eq!(peer.ask(EBB).0, 429, "a right guess is not told from a wrong one");
    server.drain(Duration::ZERO);
}
