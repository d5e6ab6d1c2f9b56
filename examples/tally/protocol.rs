//! The protocol: frames on the wire; requests and responses to those who speak it, one codec for each side.
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

/// What a client wants. To the server a name is a view of what was received, and whoever keeps it copies it; a client
/// has names of its own.
#[derive(Debug)]
pub(crate) enum Request<Name> {
    Add { name: Name, amount: u32 },
    Ask { name: Name },
}

/// What it is told.
#[derive(Debug)]
pub(crate) enum Response {
    Total(u64),
    Refused(Slice),
}

/// The server's side: a framing that exists already, and what is in the frames.
#[derive(Debug, Clone)]
pub(crate) struct ServerSide(LengthField);

impl ServerSide {
    pub(crate) const fn new() -> Self {
        Self(FRAMES)
    }

    /// Says to the peer what it did wrong. The connection closes once that was sent.
    fn refuse(error: Error, reply: &mut Output<'_>) -> Error {
        let why: &[u8] = match error {
            Error::Framing(_) => b"bad frame",
            Error::Version(_) => b"unsupported version",
            Error::Malformed | Error::TooLong => b"malformed request",
        };
        write(REFUSED, &[why], reply);
        error
    }
}

impl Codec for ServerSide {
    type In = Request<Slice>;
    type Out = Response;
    type Error = Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, Error> {
        let frame = self.0.decode(input, reply).map_err(Error::Framing);
        frame.and_then(|frame| frame.try_map(|frame| parse_request(&frame))).map_err(|error| Self::refuse(error, reply))
    }

    fn encode(&mut self, response: Response, out: &mut Output<'_>) -> Result<(), Error> {
        match response {
            Response::Total(total) => write(TOTAL, &[&total.to_be_bytes()], out),
            Response::Refused(why) => write(REFUSED, &[checked(&why)?], out),
        }
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Self::In>, Error> {
        // Half a request: the client means to be done, and is not. The framing says so.
        let frame = self.0.decode_eof(input, reply).map_err(Error::Framing)?;
        frame.try_map(|frame| parse_request(&frame)).map_err(|error| Self::refuse(error, reply))
    }
}

/// The client's side.
#[derive(Debug, Clone)]
pub(crate) struct ClientSide(LengthField);

impl ClientSide {
    pub(crate) const fn new() -> Self {
        Self(FRAMES)
    }
}

impl Codec for ClientSide {
    type In = Response;
    type Out = Request<String>;
    type Error = Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Response>, Error> {
        self.0.decode(input, reply).map_err(Error::Framing)?.try_map(|frame| parse_response(&frame))
    }

    fn encode(&mut self, request: Request<String>, out: &mut Output<'_>) -> Result<(), Error> {
        match &request {
            Request::Add { name, amount } => write(ADD, &[&amount.to_be_bytes(), checked(name.as_bytes())?], out),
            Request::Ask { name } => write(ASK, &[checked(name.as_bytes())?], out),
        }
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Response>, Error> {
        self.0.decode_eof(input, reply).map_err(Error::Framing)?.try_map(|frame| parse_response(&frame))
    }
}

/// Parses into a type that cannot be wrong, so that the handler has nothing left to check.
fn parse_request(frame: &Slice) -> Result<Request<Slice>, Error> {
    let name = |start: usize| if start < frame.len() { Ok(frame.slice(start..)) } else { Err(Error::Malformed) };
    match *kind_and_body(frame)? {
        [ADD, a, b, c, d, ..] => Ok(Request::Add { amount: u32::from_be_bytes([a, b, c, d]), name: name(6)? }),
        [ASK, ..] => Ok(Request::Ask { name: name(2)? }),
        _ => Err(Error::Malformed),
    }
}

fn parse_response(frame: &Slice) -> Result<Response, Error> {
    match *kind_and_body(frame)? {
        [TOTAL, ref total @ ..] => {
            total.try_into().map(|total| Response::Total(u64::from_be_bytes(total))).map_err(|_| Error::Malformed)
        }
        [REFUSED, ..] => Ok(Response::Refused(frame.slice(2..))),
        _ => Err(Error::Malformed),
    }
}

fn kind_and_body(frame: &[u8]) -> Result<&[u8], Error> {
    match frame {
        [VERSION, rest @ ..] => Ok(rest),
        [other, ..] => Err(Error::Version(*other)),
        [] => Err(Error::Malformed),
    }
}

/// A name or a text that fits into a frame.
fn checked(text: &[u8]) -> Result<&[u8], Error> {
    if text.len() <= TEXT_BYTES_MAX { Ok(text) } else { Err(Error::TooLong) }
}

/// Writes a frame straight into the connection's queue: no message is kept, and no buffer stands in between.
fn write(kind: u8, body: &[&[u8]], out: &mut Output<'_>) {
    let length = 2 + body.iter().map(|part| part.len()).sum::<usize>();
    let mut writer = out.writer(2 + length);
    writer.put(&(length as u16).to_be_bytes());
    writer.put(&[VERSION, kind]);
    for part in body {
        writer.put(part);
    }
}

/// What can be wrong with what a peer sends, and with what is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    Framing(FramingError),
    Version(u8),
    Malformed,
    TooLong,
}

impl Fault for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::Framing(error) => error.blame(),
            Self::Version(_) | Self::Malformed => Blame::Peer,
            Self::TooLong => Blame::Caller,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(error) => error.fmt(f),
            Self::Version(version) => write!(f, "version {version} is not spoken here"),
            Self::Malformed => f.write_str("a message that is not one"),
            Self::TooLong => write!(f, "a name has at most {TEXT_BYTES_MAX} bytes"),
        }
    }
}

impl std::error::Error for Error {}

const VERSION: u8 = 1;
const ADD: u8 = 0x01;
const ASK: u8 = 0x02;
const TOTAL: u8 = 0x81;
const REFUSED: u8 = 0x80;

/// A longer frame is refused as soon as its length is there, before any of it is waited for.
const FRAMES: LengthField = LengthField::builder(2).frame_bytes_max(FRAME_BYTES_MAX).build();

/// Length included.
const FRAME_BYTES_MAX: usize = 128;

/// What is left for a name beside an amount.
const TEXT_BYTES_MAX: usize = FRAME_BYTES_MAX - 8;
