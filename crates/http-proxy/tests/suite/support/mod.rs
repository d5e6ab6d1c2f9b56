//! A server of a router, and peers that play clients and upstreams.

#[expect(dead_code, reason = "the tests of the server use the rest of it")]
#[path = "../../../../http/tests/suite/support/http2_peer.rs"]
pub(crate) mod http2_peer;
pub(crate) mod http2_upstream;
pub(crate) mod prometheus;
pub(crate) mod proxy_peers;
#[path = "../../../../http/tests/suite/support/running.rs"]
mod running;
pub(crate) mod tunnel;

pub(crate) use self::running::{Running, split, start, start_with};
