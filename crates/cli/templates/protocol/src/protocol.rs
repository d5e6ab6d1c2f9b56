//! The protocol, and a codec for each side.
//!
//! ```text
//! SET key value    OK, or FULL
//! GET key          VALUE value, or NONE
//! ```
//!
//! A key has no space. Any other line gets `ERROR`, and the connection closes.

use tidegate::codec::{Codec, Fault, Input, Output, Slice, Step};
use tidegate::framing::{FramingError, Lines};

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Set { key: String, value: String },
    Get { key: String },
}

/// A response of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    Ok,
    Full,
    Value(String),
    None,
}

/// The codec of the server.
#[derive(Debug, Clone)]
pub struct ServerCodec(Lines);

impl Default for ServerCodec {
    fn default() -> Self {
        Self(Lines::new().with_line_bytes_max(LINE_BYTES_MAX))
    }
}

impl Codec for ServerCodec {
    type In = Request;
    type Out = Response;
    type Error = ProtocolError;

    fn decode(
        &mut self,
        input: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<Request>, ProtocolError> {
        let step = self.0.decode(input, reply).map_err(ProtocolError::Line);
        // The peer gets a reason before the connection closes.
        step.and_then(|step| step.try_map(|line| parse_request(&line)))
            .inspect_err(|_| reply.write(b"ERROR\n"))
    }

    fn encode(&mut self, response: Response, out: &mut Output<'_>) -> Result<(), ProtocolError> {
        let line = match response {
            Response::Ok => "OK".into(),
            Response::Full => "FULL".into(),
            Response::None => "NONE".into(),
            Response::Value(value) => format!("VALUE {}", checked(&value)?),
        };
        self.0.encode(line.into(), out).map_err(ProtocolError::Line)
    }

    fn decode_eof(
        &mut self,
        input: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<Request>, ProtocolError> {
        // Half a line at the end of the input is a mistake of the peer.
        self.0
            .decode_eof(input, reply)
            .map_err(ProtocolError::Line)?
            .try_map(|line| parse_request(&line))
    }
}

/// The codec of a client.
#[derive(Debug, Clone)]
pub struct ClientCodec(Lines);

impl Default for ClientCodec {
    fn default() -> Self {
        Self(Lines::new().with_line_bytes_max(LINE_BYTES_MAX))
    }
}

impl Codec for ClientCodec {
    type In = Response;
    type Out = Request;
    type Error = ProtocolError;

    fn decode(
        &mut self,
        input: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<Response>, ProtocolError> {
        self.0
            .decode(input, reply)
            .map_err(ProtocolError::Line)?
            .try_map(|line| parse_response(&line))
    }

    fn encode(&mut self, request: Request, out: &mut Output<'_>) -> Result<(), ProtocolError> {
        let line = match &request {
            Request::Set { key, value } => format!("SET {} {}", checked_key(key)?, checked(value)?),
            Request::Get { key } => format!("GET {}", checked_key(key)?),
        };
        self.0.encode(line.into(), out).map_err(ProtocolError::Line)
    }

    fn decode_eof(
        &mut self,
        input: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<Response>, ProtocolError> {
        self.0
            .decode_eof(input, reply)
            .map_err(ProtocolError::Line)?
            .try_map(|line| parse_response(&line))
    }
}

/// Parses into a type that is always valid, so that the handler needs no checks.
fn parse_request(line: &Slice) -> Result<Request, ProtocolError> {
    let words: Vec<_> = text(line)?.splitn(3, ' ').collect();
    match words[..] {
        ["SET", key, value] if !key.is_empty() => Ok(Request::Set {
            key: key.into(),
            value: value.into(),
        }),
        ["GET", key] if !key.is_empty() => Ok(Request::Get { key: key.into() }),
        _ => Err(ProtocolError::Malformed),
    }
}

fn parse_response(line: &Slice) -> Result<Response, ProtocolError> {
    match text(line)? {
        "OK" => Ok(Response::Ok),
        "FULL" => Ok(Response::Full),
        "NONE" => Ok(Response::None),
        line => line
            .strip_prefix("VALUE ")
            .map(|value| Response::Value(value.into()))
            .ok_or(ProtocolError::Malformed),
    }
}

fn text(line: &Slice) -> Result<&str, ProtocolError> {
    std::str::from_utf8(line).map_err(|_| ProtocolError::Malformed)
}

/// A value that fits into a line: an application must not write a second line by a value with a line end.
fn checked(value: &str) -> Result<&str, ProtocolError> {
    if value.len() <= VALUE_BYTES_MAX && !value.contains(['\n', '\r']) {
        Ok(value)
    } else {
        Err(ProtocolError::Unsendable)
    }
}

fn checked_key(key: &str) -> Result<&str, ProtocolError> {
    if !key.is_empty() && key.len() <= KEY_BYTES_MAX && !key.contains([' ', '\n', '\r']) {
        Ok(key)
    } else {
        Err(ProtocolError::Unsendable)
    }
}

/// A failure of the protocol, with the side that it blames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Fault)]
pub enum ProtocolError {
    /// The peer has sent no line, or one that is too long.
    #[fault(from)]
    Line(FramingError),
    /// The peer has sent a line that is not of this protocol.
    #[fault(peer, "a line that is not of this protocol")]
    Malformed,
    /// The application has a key or a value that is too long, or that does not fit into one line.
    #[fault(caller, "a key or value that does not fit into a line")]
    Unsendable,
}

/// The longest key.
pub const KEY_BYTES_MAX: usize = 250;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 4096;
/// The longest line: a request to set.
const LINE_BYTES_MAX: usize = 8 + KEY_BYTES_MAX + VALUE_BYTES_MAX;
