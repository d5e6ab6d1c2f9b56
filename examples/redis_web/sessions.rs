//! Sessions of users in Redis: a random cookie names the key, which expires when the user has been away for a while.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate::Bytes;
use tidegate::http::{IntoResponse, Next, Request, Response, StatusCode};
use tidegate::redis::{Client, ClientError};

/// The sessions of a service. Clones share the client.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    client: Client,
    idle: Duration,
    is_secure: bool,
}

/// The session of a request, as an extension. It is stored after the function, if that has changed it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Session(Arc<Mutex<SessionState>>);

#[derive(Debug, Default)]
struct SessionState {
    /// None before the session is stored for the first time.
    id: Option<String>,
    values: BTreeMap<String, String>,
    is_changed: bool,
    is_rotated: bool,
    is_ended: bool,
}

/// The values of a session would have too many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionFull;

impl Session {
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.state().values.get(name).cloned()
    }

    /// Stores a value.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<(), SessionFull> {
        let mut state = self.state();
        let others = state.values.iter().filter(|(other, _)| *other != name);
        let bytes: usize = others.map(|(name, value)| name.len() + value.len()).sum();
        if bytes + name.len() + value.len() > VALUES_BYTES_MAX {
            return Err(SessionFull);
        }
        state.values.insert(name.to_owned(), value.to_owned());
        state.is_changed = true;
        Ok(())
    }

    /// Gives the session another id: at each login, so that an id that another client has set or seen before is worthless.
    pub(crate) fn rotate(&self) {
        self.state().is_rotated = true;
    }

    /// Ends the session: at the logout.
    pub(crate) fn end(&self) {
        self.state().is_ended = true;
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions {
    /// Sessions that end when a user has been away for `idle`. `is_secure`: browsers send the cookie over TLS alone.
    pub(crate) fn new(client: Client, idle: Duration, is_secure: bool) -> Self {
        Self { client, idle, is_secure }
    }

    /// Middleware. While Redis does not answer, a request with a cookie gets a 503: as an anonymous one it could show a user
    /// that the login is gone, or lose a change.
    pub(crate) async fn around(&self, mut request: Request, next: Next) -> Response {
        let session = match id_of(&request) {
            Some(id) => match self.load(&id).await {
                Ok(session) => session,
                Err(_) => return unavailable(),
            },
            None => Session::default(),
        };
        request.extensions_mut().insert(session.clone());
        let mut response = next.run(request).await;
        match self.store(&session).await {
            Ok(None) => response,
            // The function has made a response for a session that is not stored.
            Err(_) => unavailable(),
            Ok(Some(cookie)) => match response.add_header("Set-Cookie", cookie) {
                Ok(()) => response,
                Err(error) => error.into_response(),
            },
        }
    }

    /// The session of an id, which then lasts for another while. An id that Redis does not have is no session: ids come from
    /// this service only.
    async fn load(&self, id: &str) -> Result<Session, ClientError> {
        let key = key_of(id);
        let get = self.client.cmd("GET").arg(&key).timeout(DEADLINE).send();
        let expire = self.client.cmd("EXPIRE").arg(&key).arg(self.idle.as_secs().to_string());
        let expire = expire.timeout(DEADLINE).send();
        let stored: Option<Bytes> = tidegate::redis::FromReply::from_reply(get.await?)?;
        expire.await?;
        let Some(values) = stored.and_then(|stored| decode(&stored)) else { return Ok(Session::default()) };
        let state = SessionState { id: Some(id.to_owned()), values, ..SessionState::default() };
        Ok(Session(Arc::new(Mutex::new(state))))
    }

    /// Stores the changes of the function, and returns the cookie, if it changes.
    async fn store(&self, session: &Session) -> Result<Option<String>, Box<dyn std::error::Error>> {
        let SessionState { id, values, is_changed, is_rotated, is_ended } = std::mem::take(&mut *session.state());
        if is_ended {
            if let Some(id) = &id {
                self.client.cmd("DEL").arg(key_of(id)).idempotent().timeout(DEADLINE).await?;
            }
            return Ok(Some(self.cookie("", "; Max-Age=0")));
        }
        let set = |id: &str, condition: &str| {
            let command = self.client.cmd("SET").arg(key_of(id)).arg(encode(&values));
            let command = command.arg("EX").arg(self.idle.as_secs().to_string()).arg(condition);
            command.idempotent().timeout(DEADLINE)
        };
        match id {
            Some(id) if !is_rotated => {
                if !is_changed || set(&id, "XX").fetch::<Option<Bytes>>().await?.is_some() {
                    return Ok(None);
                }
                // Another request has ended the session meanwhile, and it stays ended.
                Ok(Some(self.cookie("", "; Max-Age=0")))
            }
            None if !is_changed => Ok(None),
            before => {
                let id = new_id()?;
                set(&id, "NX").await?;
                if let Some(before) = before {
                    self.client.cmd("DEL").arg(key_of(&before)).idempotent().timeout(DEADLINE).await?;
                }
                Ok(Some(self.cookie(&id, "")))
            }
        }
    }

    fn cookie(&self, id: &str, end: &str) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Lax{secure}{end}")
    }
}

/// The id in the cookie of a request, if it has the form of one.
fn id_of(request: &Request) -> Option<String> {
    let cookies = request.header_str("cookie")?.split(';');
    let id = { cookies }.find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))?;
    let is_id = id.len() == 2 * ID_BYTES && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_id.then(|| id.to_owned())
}

fn key_of(id: &str) -> String {
    format!("session:{id}")
}

fn new_id() -> io::Result<String> {
    let mut bytes = [0; ID_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Each text behind its length.
fn encode(values: &BTreeMap<String, String>) -> String {
    values.iter().flat_map(|(name, value)| [name, value]).map(|text| format!("{}:{text}", text.len())).collect()
}

fn decode(stored: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut rest = std::str::from_utf8(stored).ok()?;
    let mut text = || {
        let (length, after) = rest.split_once(':')?;
        let (text, after) = after.split_at_checked(length.parse().ok()?)?;
        rest = after;
        Some(text.to_owned())
    };
    let mut values = BTreeMap::new();
    while let Some(name) = text() {
        values.insert(name, text()?);
    }
    rest.is_empty().then_some(values)
}

fn unavailable() -> Response {
    match Response::status(StatusCode::SERVICE_UNAVAILABLE).header("Retry-After", "1") {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

const COOKIE: &str = "sid";
/// 128 bits cannot be guessed.
const ID_BYTES: usize = 16;
/// Bytes of the names and values of one session. It stops a user from filling Redis.
const VALUES_BYTES_MAX: usize = 4096;
const DEADLINE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_others_are_none() {
        let values = BTreeMap::from([("name".to_owned(), "3:a\u{e9}".to_owned()), (String::new(), "b".to_owned())]);
        assert_eq!(decode(encode(&values).as_bytes()), Some(values));
        assert_eq!(decode(b""), Some(BTreeMap::new()));
        for wrong in ["x", "1:", "1:a", "1:a1", "1:a9:b", "99999999999999999999:a", "1:\u{e9}1:a", "1:a1:bx"] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
