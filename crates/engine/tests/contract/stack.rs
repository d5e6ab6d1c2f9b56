//! The pipelines that scenarios run over: plain bytes, and bytes through filters.

mod proxied;
mod tls;
mod transport;

pub(crate) use self::proxied::Proxied;
pub(crate) use self::tls::Tls;
pub(crate) use self::transport::{MakeTransport, Transport};

use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Over, Pipeline, Slice};
use tidegate_testkit::filters::{RECORD_BYTES_MAX, ToyTls};

/// A pipeline of bytes, with the wire form of its other end, for a raw_peer socket.
///
/// A toy is a function of its bytes. Any other pipeline has a [`Transport`], which raw peers send the bytes of
/// scenarios through, so that those are their own wire form here.
pub(crate) trait Stack: 'static {
    type Codec: Pipeline<In = Slice, Out = Payload>;

    /// Its name in the names of tests.
    const NAME: &'static str;

    /// Whether bytes differ from their wire form.
    const FILTERED: bool;

    /// The transport of raw peers.
    const TRANSPORT: Option<MakeTransport> = None;

    /// The same pipeline with another codec on top.
    type With<C: Pipeline>: Pipeline<In = C::In, Out = C::Out, Codec = C::Codec>;

    fn server() -> Self::Codec;
    fn client() -> Self::Codec;

    fn server_with<C: Pipeline>(codec: C) -> Self::With<C>;
    fn client_with<C: Pipeline>(codec: C) -> Self::With<C>;

    /// The same pipeline with another codec on top, in the middle of a connection.
    fn map<C: Pipeline, D: Pipeline>(from: Self::With<C>, to: impl FnOnce(C) -> D) -> Self::With<D>;

    /// How many wire bytes, at least, a side sends for `plain` bytes, its hello included.
    fn wire_bytes(plain: usize) -> usize;

    /// The first bytes of a client.
    fn hello() -> Vec<u8>;

    /// At least two of the bytes that a client's handshake begins with.
    fn handshake_start() -> Vec<u8> {
        Self::hello()
    }

    /// Bytes that are no handshake, if there is one.
    fn broken_handshake() -> Option<Vec<u8>> {
        None
    }

    /// The wire form of a client's bytes, after its hello.
    fn encoded(plain: &[u8]) -> Vec<u8>;

    /// The wire form of a client's end.
    fn goodbye() -> Vec<u8>;

    /// The decoded bytes of a server, as far as they are complete.
    fn decoded(wire: &[u8]) -> Vec<u8>;
}

/// The wire form of bytes that a [`Transport`] carries.
macro_rules! as_they_are {
    () => {
        fn hello() -> Vec<u8> {
            Vec::new()
        }

        fn encoded(plain: &[u8]) -> Vec<u8> {
            plain.to_vec()
        }

        fn goodbye() -> Vec<u8> {
            Vec::new()
        }

        fn decoded(wire: &[u8]) -> Vec<u8> {
            wire.to_vec()
        }
    };
}

use as_they_are;

/// No filter between the application and the socket.
pub(crate) struct Plain;

impl Stack for Plain {
    type Codec = Raw;
    type With<C: Pipeline> = C;

    const NAME: &'static str = "plain";
    const FILTERED: bool = false;

    fn server() -> Raw {
        Raw
    }

    fn client() -> Raw {
        Raw
    }

    fn server_with<C: Pipeline>(codec: C) -> C {
        codec
    }

    fn client_with<C: Pipeline>(codec: C) -> C {
        codec
    }

    fn map<C: Pipeline, D: Pipeline>(from: C, to: impl FnOnce(C) -> D) -> D {
        to(from)
    }

    fn wire_bytes(plain: usize) -> usize {
        plain
    }

    as_they_are!();
}

/// A filter with a handshake, records and a goodbye.
pub(crate) struct Filtered;

impl Stack for Filtered {
    type Codec = Over<ToyTls, Raw>;
    type With<C: Pipeline> = Over<ToyTls, C>;

    const NAME: &'static str = "filtered";
    const FILTERED: bool = true;

    fn server() -> Self::Codec {
        Self::server_with(Raw)
    }

    fn client() -> Self::Codec {
        Self::client_with(Raw)
    }

    fn server_with<C: Pipeline>(codec: C) -> Over<ToyTls, C> {
        Over::new(ToyTls::server(KEY), codec)
    }

    fn client_with<C: Pipeline>(codec: C) -> Over<ToyTls, C> {
        Over::new(ToyTls::client(KEY), codec)
    }

    fn map<C: Pipeline, D: Pipeline>(from: Over<ToyTls, C>, to: impl FnOnce(C) -> D) -> Over<ToyTls, D> {
        from.map(to)
    }

    fn wire_bytes(plain: usize) -> usize {
        HELLO_BYTES + plain + 2 * plain.div_ceil(RECORD_BYTES_MAX)
    }

    fn hello() -> Vec<u8> {
        ToyTls::client_wire(KEY, b"", 1)[..HELLO_BYTES].to_vec()
    }

    fn encoded(plain: &[u8]) -> Vec<u8> {
        let wire = ToyTls::client_wire(KEY, plain, RECORD_BYTES);
        wire[HELLO_BYTES..wire.len() - GOODBYE_BYTES].to_vec()
    }

    fn goodbye() -> Vec<u8> {
        vec![0; GOODBYE_BYTES]
    }

    fn decoded(wire: &[u8]) -> Vec<u8> {
        let mut whole = wire.len().min(HELLO_BYTES);
        while let Some((length, rest)) = wire[whole..].split_first_chunk()
            && let length = usize::from(u16::from_be_bytes(*length))
            && rest.len() >= length
        {
            whole += 2 + length;
        }
        if whole < HELLO_BYTES { Vec::new() } else { ToyTls::decode_wire(KEY, &wire[..whole]).0 }
    }
}

const KEY: u8 = 0x5A;

/// Short records, so that one message is several.
const RECORD_BYTES: usize = 700;

const HELLO_BYTES: usize = 4;

/// A record without bytes.
const GOODBYE_BYTES: usize = 2;
