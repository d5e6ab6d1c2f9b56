//! Users of a database: a name and a password open a session, and requests need one. A table in memory stands for the database;
//! [`Database`] is the place for a real one.
//!
//! ```text
//! cargo run --example sign_in                  # checks itself, and ends
//! cargo run --example sign_in -- 127.0.0.1:8080
//! curl -i -d 'name=ebb&password=flow' http://127.0.0.1:8080/session
//! curl -b 'session=TOKEN' http://127.0.0.1:8080/me
//! ```

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use argon2::password_hash::{PasswordHash, PasswordHasher, SaltString};
use argon2::{Argon2, PasswordVerifier};
use serde::Deserialize;
use tidegate::http::{
    Extension, Form, IntoResponse, Next, Path, RateLimit, Request, Response, Router, Server, State, StatusCode, route,
};
use tidegate::{ConnectionRate, ServerHandle, blocking};

/// The tables. Each method is one query, which may take its time: it runs on a thread for blocking work.
#[derive(Default)]
struct Database {
    /// Hashes of passwords, by name.
    users: Mutex<HashMap<String, String>>,
    /// Names and ends of sessions, by the hash of their token.
    sessions: Mutex<HashMap<u64, (String, Instant)>>,
    token_hash: std::hash::RandomState,
}

/// The user who sent a request.
#[derive(Clone)]
struct User(String);

#[derive(Deserialize)]
struct Credentials {
    name: String,
    password: String,
}

impl Database {
    fn hash_of(&self, name: &str) -> Option<String> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn add_user(&self, name: &str, password: &str) -> Result<(), Box<dyn Error>> {
        let salt = SaltString::encode_b64(&random::<16>()?).map_err(|error| error.to_string())?;
        let hash = Argon2::default().hash_password(password.as_bytes(), &salt).map_err(|error| error.to_string())?;
        self.users.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), hash.to_string());
        Ok(())
    }

    /// Opens a session. The table has no token, so a reader of the table gets no session.
    fn open_session(&self, name: &str) -> io::Result<String> {
        let token: String = random::<32>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        sessions.retain(|_, (_, end)| now < *end);
        sessions.insert(self.key(&token), (name.to_owned(), now + SESSION));
        Ok(token)
    }

    fn user_of(&self, token: &str) -> Option<String> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, end) = sessions.get(&self.key(token))?;
        (Instant::now() < *end).then(|| name.clone())
    }

    fn close_session(&self, token: &str) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key(token));
    }

    fn key(&self, token: &str) -> u64 {
        std::hash::BuildHasher::hash_one(&self.token_hash, token)
    }
}

fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

type Tables = State<Arc<Database>>;

/// `POST /session`: checks a name and a password. A name that no user has takes as long as one that a user has.
async fn sign_in(State(database): Tables, Form(given): Form<Credentials>) -> Result<Response, StatusCode> {
    let database = Arc::clone(&database);
    let opened = blocking(move || {
        let hash = database.hash_of(&given.name);
        let parsed = PasswordHash::new(hash.as_deref().unwrap_or(NOBODY)).ok()?;
        let is_right = Argon2::default().verify_password(given.password.as_bytes(), &parsed).is_ok();
        (is_right && hash.is_some()).then(|| database.open_session(&given.name))
    });
    let token = match opened.await {
        Ok(Some(Ok(token))) => token,
        Ok(None) => return Err(StatusCode::UNAUTHORIZED),
        Ok(Some(Err(_))) | Err(_) => return Err(StatusCode::SERVICE_UNAVAILABLE),
    };
    let cookie = format!("session={token}; HttpOnly; Secure; SameSite=Lax; Path=/; Max-Age={}", SESSION.as_secs());
    let created = Response::status(StatusCode::CREATED).header("Set-Cookie", cookie);
    created.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

/// Lets requests with a session pass.
async fn with_session(State(database): Tables, mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = session_token(&request).ok_or(StatusCode::UNAUTHORIZED)?;
    let database = Arc::clone(&database);
    let found = blocking(move || database.user_of(&token)).await;
    let name = found.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?.ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(User(name));
    Ok(next.run(request).await)
}

fn session_token(request: &Request) -> Option<String> {
    let cookies = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("cookie"));
    let mut pairs = cookies.filter_map(|(_, value)| std::str::from_utf8(value).ok()).flat_map(|line| line.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix("session=").map(str::to_owned))
}

/// `GET /me`
fn me(Extension(User(name)): Extension<User>) -> String {
    format!("{name}\n")
}

/// `GET /users/{name}`: only the user itself. A session says who asks, and the function what that one may do.
fn user(Extension(User(name)): Extension<User>, Path(asked): Path<String>) -> Result<String, StatusCode> {
    if name == asked { Ok(format!("all about {name}\n")) } else { Err(StatusCode::FORBIDDEN) }
}

/// `DELETE /session`
async fn sign_out(State(database): Tables, request: Request) -> Result<impl IntoResponse, StatusCode> {
    let token = session_token(&request).ok_or(StatusCode::UNAUTHORIZED)?;
    let database = Arc::clone(&database);
    blocking(move || database.close_session(&token)).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The routes: all but `POST /session` need a session. Ten guesses at once, and one a second, are for one address.
fn router(database: &Arc<Database>, guesses: &RateLimit) -> Router<Arc<Database>> {
    let inside = Router::with_state(database.clone())
        .get("/me", me)
        .get("/users/{name}", user)
        .delete("/session", sign_out)
        .wrap(with_session);
    let sign_in = route(sign_in).rate_limit(guesses.clone()).body_bytes_max(4096);
    Router::with_state(database.clone()).post("/session", sign_in).nest("/in", inside)
}

fn serve(address: &str) -> Result<ServerHandle, Box<dyn Error>> {
    let database = Arc::<Database>::default();
    database.add_user("ebb", "flow")?;
    let guesses = RateLimit::new(ConnectionRate::per_second(1).burst(10));
    Ok(Server::bind(address)?.start(move || router(&database, &guesses))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(address) => {
            let server = serve(&address)?;
            println!("listening on http://{}", server.address());
            server.wait();
            Ok(())
        }
        None => check(),
    }
}

fn check() -> Result<(), Box<dyn Error>> {
    let server = serve("127.0.0.1:0")?;
    let ask = |line: &str, fields: &str, body: &str| -> io::Result<String> {
        let mut stream = TcpStream::connect(server.address().to_string())?;
        let form = format!("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n", body.len());
        write!(stream, "{line} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n{fields}{form}\r\n{body}")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    let status = |response: &str| response.split(' ').nth(1).unwrap_or_default().to_owned();
    assert_eq!(status(&ask("GET /in/me", "", "")?), "401");
    assert_eq!(status(&ask("GET /in/me", "Cookie: session=guessed\r\n", "")?), "401");
    assert_eq!(status(&ask("POST /session", "", "name=ebb&password=wrong")?), "401");
    assert_eq!(status(&ask("POST /session", "", "name=nobody&password=flow")?), "401");
    let opened = ask("POST /session", "", "name=ebb&password=flow")?;
    let token = opened.split("session=").nth(1).and_then(|rest| rest.split(';').next()).ok_or("a session")?;
    let cookie = format!("Cookie: session={token}\r\n");
    assert!(ask("GET /in/me", &cookie, "")?.ends_with("\r\n\r\nebb\n"));
    assert!(ask("GET /in/users/ebb", &cookie, "")?.ends_with("\r\n\r\nall about ebb\n"));
    assert_eq!(status(&ask("GET /in/users/flow", &cookie, "")?), "403");
    assert_eq!(status(&ask("DELETE /in/session", &cookie, "")?), "204");
    assert_eq!(status(&ask("GET /in/me", &cookie, "")?), "401");
    server.drain(Duration::ZERO);
    println!("all is as expected");
    Ok(())
}

/// How long a session lasts.
const SESSION: Duration = Duration::from_secs(8 * 3600);

/// The hash that is checked for a name that no user has.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$VG8pOw2wHgFDyK6JGPgKVMLmkiK9s2c5ZTdY8m6kBGo";

#[test]
fn the_example_checks_itself() -> Result<(), Box<dyn Error>> {
    check()
}
