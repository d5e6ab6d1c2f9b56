//! The PROXY protocol, versions 1 and 2: a proxy announces the addresses of the connection that it relays, in a header
//! before all other bytes.
//!
//! The specification is `proxy-protocol.txt` of HAProxy.
//!
//! | for | there is |
//! |---|---|
//! | receiving a header below any codec or filter | [`ProxyHeaderFilter`], a [`Filter`](tidegate_codec::Filter) |
//! | receiving a header before a codec without other filters | [`ReceivesHeader`], a codec of 8 bytes more than its own |
//! | sending a header | [`SendsHeader`], a codec that begins with one; [`Builder`] makes the header |
//! | whose headers count | [`Policy`]: off, optional or required, and the trusted [`Networks`] |
//! | the content of a header | [`Header`], its addresses, and [`Tlv`] |
//!
//! A header decides the address that an application believes. So a header counts only from a trusted network: a peer
//! outside of them that sends one is refused, and so is a trusted peer that omits one where the policy requires it. This
//! crate repairs nothing: a header that is not exactly as specified ends the connection.
//!
//! Read next: `receiver.rs`, the state machine; then `v1.rs`, `v2.rs` and `tlv.rs` for the formats.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `receiver.rs` | the state machine of a connection that may begin with a header |
//! | `proxy_header_filter.rs` | `ProxyHeaderFilter`, the receiver as a filter |
//! | `receives_header.rs` | `ReceivesHeader`, the receiver in front of a codec |
//! | `sends_header.rs` | `SendsHeader`, a codec that begins with a header |
//! | `policy.rs` | `Policy`: off, optional, required; limits |
//! | `networks.rs` | `Networks`, whose headers count |
//! | `header.rs` | `Header`, a received header |
//! | `v1.rs` | the line of version 1 |
//! | `v2.rs` | the binary header of version 2 |
//! | `tlv.rs` | TLVs, and those within SSL |
//! | `crc32c.rs` | the checksum |
//! | `builder.rs` | `Builder`, headers to send |
//! | `error.rs` | errors by blame |

#![forbid(unsafe_code)]

mod builder;
mod crc32c;
mod error;
mod header;
mod networks;
mod policy;
mod proxy_header_filter;
mod receiver;
mod receives_header;
mod sends_header;
mod tlv;
mod v1;
mod v2;

pub use builder::{Builder, SslBuilder};
pub use error::{Error, Exceeded, Misuse, Violation};
pub use header::{Header, Transport, UnixAddresses, Version};
pub use networks::{InvalidNetwork, Networks};
pub use policy::{Limits, Policy};
pub use proxy_header_filter::ProxyHeaderFilter;
pub use receives_header::{ReceivesHeader, ReceivesHeaderError};
pub use sends_header::SendsHeader;
pub use tlv::{Ssl, Tlv, Tlvs};
