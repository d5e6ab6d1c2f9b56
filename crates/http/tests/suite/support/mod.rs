//! A server of a router, and a plain client; the modules play other peers.

pub(crate) mod embedded;
pub(crate) mod http2_peer;
#[expect(dead_code, reason = "the tests of the proxy use the rest of it")]
#[path = "../../../../http-proxy/tests/suite/support/proxy_peers.rs"]
pub(crate) mod proxy_peers;
pub(crate) mod running;

pub(crate) use self::embedded::ask;
pub(crate) use self::running::{Running, split, start};
pub(crate) mod http3_stage;
