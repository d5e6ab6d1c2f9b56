//! `Proxied`: the pipeline behind a header of the PROXY protocol, which the server requires.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::proxy_protocol::{Builder, Error, Limits, Networks, Policy, ProxyHeaderFilter};
use tidegate_codec::framing::Raw;
use tidegate_codec::{Filter, Input, Outbound, Output, Over, Pipeline, Step};

use super::transport::{MakeTransport, Transport};
use super::{Stack, as_they_are};

pub(crate) struct Proxied;

impl Stack for Proxied {
    type Codec = Over<End, Raw>;
    type With<C: Pipeline> = Over<End, C>;

    const NAME: &'static str = "proxied";
    const FILTERED: bool = true;
    const TRANSPORT: Option<MakeTransport> = Some(|| Box::new(Announcing(header())));

    fn server() -> Self::Codec {
        Self::server_with(Raw)
    }

    fn client() -> Self::Codec {
        Self::client_with(Raw)
    }

    fn server_with<C: Pipeline>(codec: C) -> Self::With<C> {
        let limits = Limits { header_timeout: Duration::from_secs(100_000), ..Limits::default() };
        let policy = Arc::new(Policy::required(Networks::local()).limits(limits));
        Over::new(End::Server(ProxyHeaderFilter::new(&policy, Some(Ipv4Addr::LOCALHOST.into()))), codec)
    }

    fn client_with<C: Pipeline>(codec: C) -> Self::With<C> {
        Over::new(End::Client(header()), codec)
    }

    fn map<C: Pipeline, D: Pipeline>(from: Self::With<C>, to: impl FnOnce(C) -> D) -> Self::With<D> {
        from.map(to)
    }

    fn wire_bytes(plain: usize) -> usize {
        plain
    }

    fn handshake_start() -> Vec<u8> {
        header()
    }

    fn broken_handshake() -> Option<Vec<u8>> {
        Some(b"GET / HTTP/1.1\r\n\r\n".to_vec())
    }

    as_they_are!();
}

/// A header of version 2 with some TLVs.
fn header() -> Vec<u8> {
    let header = Builder::new("192.0.2.1:50000".parse().expect("an address"), "198.51.100.1:443".parse().expect("one"));
    header.authority("tide.test").unique_id(b"ebb").checksum().build_v2().expect("a header")
}

/// Either end of a connection.
pub(crate) enum End {
    Server(ProxyHeaderFilter),
    /// The header, until it is written.
    Client(Vec<u8>),
}

impl Filter for End {
    type Error = Error;

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Error> {
        match self {
            Self::Server(strip) => strip.inbound(wire, plain, reply),
            Self::Client(_) if wire.is_empty() => Ok(Step::NeedMore),
            Self::Client(_) => {
                plain.append(wire.take_all(), reply.pool());
                Ok(Step::Message(()))
            }
        }
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Error> {
        match self {
            Self::Server(strip) => strip.outbound(plain, out),
            Self::Client(header) => {
                out.write(&std::mem::take(header));
                out.take_flushed(plain);
                Ok(())
            }
        }
    }

    fn decode_eof(&mut self, wire: &mut Input, reply: &mut Output<'_>) -> Result<(), Error> {
        match self {
            Self::Server(strip) => strip.decode_eof(wire, reply),
            Self::Client(_) => Ok(()),
        }
    }

    fn is_established(&self) -> bool {
        match self {
            Self::Server(strip) => strip.is_established(),
            Self::Client(header) => header.is_empty(),
        }
    }

    fn allows_file_bypass(&self) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Server(strip) => strip.poll_timeout(),
            Self::Client(_) => None,
        }
    }

    fn handle_timeout(&mut self, reply: &mut Output<'_>) -> Result<(), Error> {
        match self {
            Self::Server(strip) => strip.handle_timeout(reply),
            Self::Client(_) => Ok(()),
        }
    }
}

/// The bytes that a raw peer still has to send.
struct Announcing(Vec<u8>);

impl Transport for Announcing {
    fn outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    fn write(&mut self, plain: &[u8]) {
        self.0.extend_from_slice(plain);
    }

    fn receive(&mut self, wire: &[u8]) -> Result<Vec<u8>, String> {
        Ok(wire.to_vec())
    }

    fn close(&mut self) {}

    fn is_established(&self) -> bool {
        true
    }
}
