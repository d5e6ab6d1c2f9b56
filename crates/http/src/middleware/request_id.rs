//! `RequestIds`: an id for each request, which its response, logs and further requests carry.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tidegate_http1::{Fields, InvalidField};
use tidegate_proxy_protocol::Networks;

use super::{Middleware, RequestInfo};
use crate::field_names::is_of_connection;
use crate::request::Request;
use crate::request_id::RequestId;
use crate::response::Response;

/// Gives each request an id: that of its field `X-Request-Id`, or a new one. The response carries it in the same field.
/// Functions find it among the request's [`extensions`](crate::Request::extensions), as a [`RequestId`].
///
/// A reverse proxy passes it on to its upstreams.
///
/// A value of a peer is taken if it is 1 to 128 letters, digits, `-`, `_`, `.`, `:`, `/`, `+` or `=`. Behind proxies of
/// your own, use [`trusting`](Self::trusting); behind none, [`ignoring_peers`](Self::ignoring_peers).
pub struct RequestIds {
    /// `None` for `X-Request-Id`.
    field: Option<Arc<str>>,
    trusted: Trusted,
    seed: RandomState,
    next: Cell<u64>,
}

/// The peers whose ids are taken.
#[derive(Debug)]
enum Trusted {
    All,
    Some(Networks),
    None,
}

impl RequestIds {
    /// Takes the ids of peers.
    #[must_use]
    pub fn new() -> Self {
        Self { field: None, trusted: Trusted::All, seed: RandomState::new(), next: Cell::new(0) }
    }

    /// Gives each request a new id, whatever the peer has sent.
    #[must_use]
    pub fn ignoring_peers(self) -> Self {
        Self { trusted: Trusted::None, ..self }
    }

    /// The name of the field, in place of `X-Request-Id`.
    ///
    /// ```
    /// use tidegate::http::{RequestIds, Router};
    ///
    /// let router = Router::new().get("/", || "hello").with(RequestIds::new().field("X-Correlation-Id")?);
    /// # drop(router);
    /// # Ok::<(), tidegate::http::InvalidField>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidField`] if it is no name of a field, or one that the codec writes.
    pub fn field(self, name: &str) -> Result<Self, InvalidField> {
        if is_of_connection(name.as_bytes()) {
            return Err(InvalidField::Reserved);
        }
        Fields::new().push(name, "")?;
        Ok(Self { field: Some(name.into()), ..self })
    }

    /// Takes the ids of peers in these networks alone, and gives the requests of all others new ones.
    ///
    /// ```
    /// use tidegate::http::{RequestIds, Router};
    /// use tidegate::proxy_protocol::Networks;
    ///
    /// let ids = RequestIds::new().trusting(Networks::local());
    /// let router = Router::new().get("/", || "hello").with(ids);
    /// # drop(router);
    /// ```
    #[must_use]
    pub fn trusting(self, networks: Networks) -> Self {
        Self { trusted: Trusted::Some(networks), ..self }
    }

    fn trusts(&self, request: &Request) -> bool {
        match &self.trusted {
            Trusted::All => true,
            Trusted::Some(networks) => networks.contains(request.peer().ip().map(|address| address.ip())),
            Trusted::None => false,
        }
    }

    /// 128 bits that no other request has: a keyed hash of a number.
    fn generate(&self) -> RequestId {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        let mut id = [0; 32];
        for (digits, half) in id.chunks_exact_mut(16).zip([number, !number]) {
            let hash = self.seed.hash_one(half);
            digits[..8].copy_from_slice(&hex((hash >> 32) as u32));
            digits[8..].copy_from_slice(&hex(hash as u32));
        }
        self.named(std::str::from_utf8(&id).expect("hexadecimal digits"))
    }

    fn named(&self, id: &str) -> RequestId {
        RequestId::new(id, self.field.clone())
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for RequestIds {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        let name = self.field.as_deref().unwrap_or(RequestId::FIELD);
        let given = if self.trusts(request) { request.header_str(name).filter(|id| is_id(id)) } else { None };
        let id = given.map_or_else(|| self.generate(), |id| self.named(id));
        request.set_id(id);
        Ok(())
    }

    fn after(&self, info: &RequestInfo, response: &mut Response) {
        if let Some(id) = info.request().id()
            && response.field(id.field()).is_none()
        {
            // It was checked, or made here.
            response.fields.push_valid(id.field(), id.as_str().as_bytes());
        }
    }
}

/// The eight hexadecimal digits of a number. The formatter of the standard library costs ten times as much.
fn hex(number: u32) -> [u8; 8] {
    // One digit in each byte.
    let mut digits = u64::from(number);
    digits = (digits | digits << 16) & 0x0000_ffff_0000_ffff;
    digits = (digits | digits << 8) & 0x00ff_00ff_00ff_00ff;
    digits = (digits | digits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let are_letters = ((digits + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    let from_nine_to_a = u64::from(b'a' - b'9' - 1);
    (digits + 0x3030_3030_3030_3030 + are_letters * from_nine_to_a).to_be_bytes()
}

fn is_id(text: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte))
}

impl fmt::Debug for RequestIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestIds").field("trusted", &self.trusted).finish_non_exhaustive()
    }
}
const ID_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        for number in (0..=16).flat_map(|shift| [0x9abc_def0_u32.rotate_left(2 * shift), 1 << shift, u32::MAX >> shift])
        {
            assert_eq!(hex(number), *format!("{number:08x}").as_bytes());
        }
    }

    #[test]
    fn ids_are_distinct() {
        let ids = RequestIds::new();
        let mut made: Vec<_> = (0..1000).map(|_| ids.generate().as_str().to_owned()).collect();
        assert!(made.iter().all(|id| id.len() == 32 && is_id(id)));
        made.sort();
        made.dedup();
        assert_eq!(made.len(), 1000);
    }
}
