//! `SendsHeader`: a codec whose connection begins with a header that this side sends.

use std::time::Instant;

use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Output, Step};

/// The codec `C` on a connection that begins with a header, as a proxy uses it towards its servers.
///
/// The header is written when the connection opens, before everything else, and its memory is returned.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::proxy_protocol::{SendsHeader, Builder};
///
/// let header = Builder::new("192.0.2.1:50000".parse()?, "198.51.100.1:7000".parse()?).build_v2()?;
/// let codec = SendsHeader::new(header, Lines::new());
/// # drop(codec);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SendsHeader<C> {
    header: Option<Box<[u8]>>,
    codec: C,
}

impl<C: Codec> SendsHeader<C> {
    /// A codec that begins with `header`, as a [`Builder`](crate::Builder) makes it.
    #[must_use]
    pub fn new(header: Vec<u8>, codec: C) -> Self {
        Self { header: Some(header.into()), codec }
    }

    /// The codec behind the header.
    #[must_use]
    pub fn inner(&self) -> &C {
        &self.codec
    }

    /// The codec behind the header.
    pub fn inner_mut(&mut self) -> &mut C {
        &mut self.codec
    }
}

impl<C: Codec> Codec for SendsHeader<C> {
    type In = C::In;
    type Out = C::Out;
    type Error = C::Error;

    fn protocol(&self) -> &'static str {
        self.codec.protocol()
    }

    #[inline]
    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, C::Error> {
        self.codec.decode(input, reply)
    }

    #[inline]
    fn encode(&mut self, message: C::Out, out: &mut Output<'_>) -> Result<(), C::Error> {
        self.codec.encode(message, out)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, C::Error> {
        self.codec.decode_eof(input, reply)
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), C::Error> {
        if event == Lifecycle::Opened
            && let Some(header) = self.header.take()
        {
            out.write(&header);
        }
        self.codec.on(event, out)
    }

    #[inline]
    fn status(&self) -> CodecStatus {
        self.codec.status()
    }

    fn kept_bytes(&self) -> usize {
        self.codec.kept_bytes()
    }

    fn is_between_messages(&self) -> bool {
        self.codec.is_between_messages()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.codec.poll_timeout()
    }

    fn handle_timeout(&mut self, input: &Input, reply: &mut Output<'_>) -> Result<(), C::Error> {
        self.codec.handle_timeout(input, reply)
    }
}
