//! WebTransport over HTTP/3 (draft-ietf-webtrans-http3): sessions on extended CONNECT, their streams and datagrams.
//!
//! A session is a request that became a tunnel of [capsules](crate::CapsuleCodec). Its streams are streams of QUIC whose first
//! bytes name it. [`Endpoint`](crate::Endpoint) reads those bytes, and holds the streams back until the application accepts
//! them: their bytes stay in the windows of QUIC, and stop the peer. Datagrams wait in a queue of their session.
//!
//! | file | holds |
//! |---|---|
//! | `sessions.rs` | the sessions and streams of a connection |
//! | `endpoint.rs` | the methods of `Endpoint` about them |
//! | `preamble.rs` | the first bytes of a stream |
//! | `codes.rs` | application codes as HTTP/3 codes, and back |
//! | `limits.rs` | `WebTransportLimits` |

mod codes;
mod endpoint;
mod limits;
mod preamble;
mod sessions;

pub use self::codes::{from_http3, to_http3};
pub use self::limits::WebTransportLimits;
pub(crate) use self::sessions::WebTransport;
