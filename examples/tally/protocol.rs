//! The protocol: frames on the wire, requests and responses to the handler.
//!
//! ```text
//! length u16 | version u8 = 1 | kind u8 | body          all big endian, the length counts what follows it
//!   request  0x01 add      amount u32, name
//!            0x02 ask      name
//!   response 0x81 total    u64
//!            0x80 refused  why, as text; the connection closes
//! ```

use std::fmt;

use tidegate::framing::{FramingError, LengthField};
use tidegate::{Blame, Codec, Fault, Input, Output, Slice, Step};

/// What a client wants. A name is a view of what was received: whoever keeps it copies it.
#[derive(Debug)]
pub(crate) enum Request {
    Add { name: Slice, amount: u32 },
    Ask { name: Slice },
}

/// What it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Response {
    Total(u64),
}

/// The codec: a framing that exists already, and what is in the frames.
#[derive(Debug, Clone)]
pub(crate) struct Protocol(LengthField);

impl Protocol {
    pub(crate) const fn new() -> Self {
        // A longer frame is refused as soon as its length is there, before any of it is waited for.
        Self(LengthField::builder(2).frame_bytes_max(FRAME_BYTES_MAX).build())
    }

    /// Says to the peer what it did wrong. The connection closes once that was sent.
    fn refuse(error: Error, reply: &mut Output<'_>) -> Error {
        let why: &[u8] = match error {
            Error::Framing(_) => b"bad frame",
            Error::Version(_) => b"unsupported version",
            Error::Malformed => b"malformed request",
        };
        write(REFUSED, why, reply);
        error
    }
}

impl Codec for Protocol {
    type In = Request;
    type Out = Response;
    type Error = Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Request>, Error> {
        let frame = match self.0.decode(input, reply) {
            Ok(Step::Message(frame)) => frame,
            Ok(Step::More | Step::End) => return Ok(Step::More),
            Err(error) => return Err(Self::refuse(Error::Framing(error), reply)),
        };
        parse(&frame).map(Step::Message).map_err(|error| Self::refuse(error, reply))
    }

    fn encode(&mut self, Response::Total(total): Response, out: &mut Output<'_>) -> Result<(), Error> {
        write(TOTAL, &total.to_be_bytes(), out);
        Ok(())
    }

    fn end(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Request>, Error> {
        match self.decode(input, reply)? {
            Step::More if input.is_empty() => Ok(Step::End),
            // Half a request: the client means to be done, and is not.
            Step::More => Err(Error::Framing(FramingError::Truncated { bytes: input.len() })),
            step => Ok(step),
        }
    }
}

/// Parses into a type that cannot be wrong, so that the handler has nothing left to check.
fn parse(frame: &Slice) -> Result<Request, Error> {
    let [version, kind, body @ ..] = &**frame else { return Err(Error::Malformed) };
    let name = |start: usize| if start < frame.len() { Ok(frame.slice(start..)) } else { Err(Error::Malformed) };
    match (*version, *kind, body) {
        (VERSION, ADD, [a, b, c, d, ..]) => {
            Ok(Request::Add { amount: u32::from_be_bytes([*a, *b, *c, *d]), name: name(6)? })
        }
        (VERSION, ASK, _) => Ok(Request::Ask { name: name(2)? }),
        (VERSION, ..) => Err(Error::Malformed),
        (other, ..) => Err(Error::Version(other)),
    }
}

/// Writes a frame straight into the connection's queue: no message is kept, and no buffer stands in between.
fn write(kind: u8, body: &[u8], out: &mut Output<'_>) {
    let length = (2 + body.len()) as u16;
    let mut writer = out.writer(2 + usize::from(length));
    writer.put(&length.to_be_bytes());
    writer.put(&[VERSION, kind]);
    writer.put(body);
}

/// What can be wrong with what a peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    Framing(FramingError),
    Version(u8),
    Malformed,
}

impl Fault for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::Framing(error) => error.blame(),
            Self::Version(_) | Self::Malformed => Blame::Peer,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(error) => error.fmt(f),
            Self::Version(version) => write!(f, "version {version} is not spoken here"),
            Self::Malformed => f.write_str("a request that is not one"),
        }
    }
}

impl std::error::Error for Error {}

const VERSION: u8 = 1;
const ADD: u8 = 0x01;
const ASK: u8 = 0x02;
const TOTAL: u8 = 0x81;
const REFUSED: u8 = 0x80;

/// Length included; a name has at most 120 bytes.
const FRAME_BYTES_MAX: usize = 128;
