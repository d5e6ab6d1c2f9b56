//! `Client::url`: the server of a client as a URL.

use std::net::Ipv6Addr;

use tidegate_engine::ConnectError;

use crate::client::builder::ClientBuilder;
use crate::client::handle::Client;

impl Client {
    /// A client of `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, as other clients read it: port 6379 and database 0
    /// unless the URL has others; `%XX` in the user and the password is a byte. `unix:PATH` is one too.
    ///
    /// `rediss` needs the pipeline with TLS: [`to`](Self::to) and [`start_with`](ClientBuilder::start_with).
    ///
    /// # Errors
    /// [`ConnectError::Target`], with the server but without the password, if it is no such URL.
    pub fn url(url: &str) -> Result<ClientBuilder, ConnectError> {
        if url.starts_with("unix:") {
            return Self::to(url);
        }
        let shown = || ConnectError::Target(url.rsplit('@').next().unwrap_or_default().into());
        let rest = url.get(..SCHEME.len()).filter(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
        let rest = rest.and_then(|_| url.get(SCHEME.len()..)).ok_or_else(shown)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, server) =
            authority.rsplit_once('@').map_or((None, authority), |(login, server)| (Some(login), server));
        let has_port = server.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        if server.is_empty() || server.starts_with(':') || path.contains(['?', '#']) {
            return Err(shown());
        }
        let is_bare_ipv6 = server.parse::<Ipv6Addr>().is_ok();
        let target = match has_port {
            true if is_bare_ipv6 => return Err(shown()),
            true => server.to_owned(),
            false => format!("{server}:{USUAL_PORT}"),
        };
        let mut builder = Self::to(&target)?;
        if !path.is_empty() {
            builder = builder.database(path.parse().map_err(|_| shown())?);
        }
        let Some(login) = login else { return Ok(builder) };
        let (user, password) = login.split_once(':').ok_or_else(shown)?;
        let user = String::from_utf8(decoded(user).ok_or_else(shown)?).map_err(|_| shown())?;
        if !user.is_empty() {
            builder = builder.user(user);
        }
        Ok(builder.password(decoded(password).ok_or_else(shown)?))
    }
}

/// Decodes `%XX`.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let hex = part.get(..2).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    Some(bytes)
}

const SCHEME: &str = "redis://";
const USUAL_PORT: u16 = 6379;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_other_clients_read_them() {
        for url in [
            "redis://a",
            "redis://a/",
            "REDIS://a:1/15",
            "redis://:se%40cret@[::1]/2",
            "redis://me:a:b@a",
            "redis://[::1]:7",
            "unix:/run/redis",
        ] {
            assert!(Client::url(url).is_ok(), "{url}");
        }
        for (url, shown) in [
            ("", "''"),
            ("a:6379", "'a:6379'"),
            ("rediss://a", "'rediss://a'"),
            ("redis://", "'redis://'"),
            ("redis://:6379", "'redis://:6379'"),
            ("redis://a/x", "'redis://a/x'"),
            ("redis://a/0?b", "'redis://a/0?b'"),
            ("redis://::1", "'redis://::1'"),
            ("redis://me:secret%zz@a", "'a'"),
            ("redis://secret@a", "'a'"),
            ("redis://me:secret@a/x", "'a/x'"),
        ] {
            let error = Client::url(url).expect_err(url).to_string();
            assert!(error.contains(shown) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn percent_encoded_bytes_are_decoded() {
        assert_eq!(decoded("a%40%ff").as_deref(), Some(&b"a@\xff"[..]));
        for wrong in ["%", "%4", "%+4", "%zz"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
