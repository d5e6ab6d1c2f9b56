//! The protocol: frames on the wire, requests and responses as messages, one codec for each side.
//!
//! ```text
//! length u16 | version u8 = 1 | kind u8 | body          all big endian, the length counts what follows it
//!   request  0x01 add      amount u32, name
//!            0x02 ask      name
//!   response 0x81 total    u64
//!            0x80 refused  the reason, as text; the connection closes
//! ```

use tidegate::codec::{Codec, Fault, Input, Output, Slice, Step};
use tidegate::framing::{FramingError, LengthField};

/// A request. On the server a name is a view of the receive buffer, which the service copies to keep it; a client has
/// owned names.
#[derive(Debug)]
pub(crate) enum Request<Name> {
    Add { name: Name, amount: u32 },
    Ask { name: Name },
}

/// A response.
#[derive(Debug)]
pub(crate) enum Response {
    Total(u64),
    Refused(Slice),
}

/// The server's side: a length-field framing, and the content of the frames.
#[derive(Debug, Clone)]
pub(crate) struct ServerSide(LengthField);

impl ServerSide {
    pub(crate) const fn new() -> Self {
        Self(FRAMES)
    }

    /// Sends the reason to the peer. The connection closes once that was sent.
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
        // An incomplete request at the end of input is an error of the framing.
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

/// Parses into a type that is always valid, so that the handler needs no checks.
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

/// Writes a frame directly into the connection's queue, without an intermediate message or buffer.
fn write(kind: u8, body: &[&[u8]], out: &mut Output<'_>) {
    let length = 2 + body.iter().map(|part| part.len()).sum::<usize>();
    let mut writer = out.writer(2 + length);
    writer.put(&(length as u16).to_be_bytes());
    writer.put(&[VERSION, kind]);
    for part in body {
        writer.put(part);
    }
}

/// Errors in received and in outgoing messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Fault)]
pub(crate) enum Error {
    #[fault(from)]
    Framing(FramingError),
    #[fault(peer, "version {0} is not supported")]
    Version(u8),
    #[fault(peer, "malformed message")]
    Malformed,
    #[fault(caller, "a name has at most {TEXT_BYTES_MAX} bytes")]
    TooLong,
}

const VERSION: u8 = 1;
const ADD: u8 = 0x01;
const ASK: u8 = 0x02;
const TOTAL: u8 = 0x81;
const REFUSED: u8 = 0x80;

/// A longer frame is refused as soon as its length has arrived, before the rest is buffered.
const FRAMES: LengthField = LengthField::builder(2).frame_bytes_max(FRAME_BYTES_MAX).build();

/// The maximum length of a frame, the length field included.
const FRAME_BYTES_MAX: usize = 128;

/// The space for a name next to an amount.
const TEXT_BYTES_MAX: usize = FRAME_BYTES_MAX - 8;
