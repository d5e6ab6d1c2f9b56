//! `Opening`: the codec of a connection until its upstream is known.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use tidegate_codec::sniff::{FIRST_BYTES_MAX, Match};
use tidegate_codec::{Blame, Codec, CodecStatus, Fault, Input, Output, Step};

use super::client_hello::{ClientHello, HelloError, read_client_hello};
use super::routes::FirstBytesRule;

/// The beginning of a connection: first bytes, a ClientHello, or nothing. It takes no byte, so that the next codec gets all of them.
#[derive(Debug)]
pub struct Opening {
    /// Rules for the first bytes, until one matches or none does.
    rules: Arc<Vec<FirstBytesRule>>,
    /// The longest ClientHello; zero if none is read.
    hello_bytes_max: u32,
    /// Bytes that have to be there before another look is of use.
    needed: u32,
    is_complete: bool,
}

/// The beginning of a connection is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The server name of the ClientHello, if it has been read and has one.
    pub server_name: Option<String>,
    /// The first rule for [first bytes](super::Routes::when) that matches, by its place.
    pub rule: Option<usize>,
}

/// Why a connection ends before it has an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpeningError {
    /// Its first bytes are no ClientHello.
    Hello(HelloError),
    /// The client has ended the stream within the ClientHello.
    Truncated,
}

impl Opening {
    /// Reads a ClientHello of at most so many bytes, the headers of its records included.
    #[must_use]
    pub fn hello(bytes_max: u32) -> Self {
        Self { rules: Arc::default(), hello_bytes_max: bytes_max.max(1), needed: 0, is_complete: false }
    }

    /// Reads nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self { rules: Arc::default(), hello_bytes_max: 0, needed: 0, is_complete: false }
    }

    /// Compares the first bytes with these rules before anything else.
    pub(crate) fn with_rules(mut self, rules: &Arc<Vec<FirstBytesRule>>) -> Self {
        self.rules = rules.clone();
        self
    }

    /// The first rule that matches, or that needs more bytes. At the end of the stream no more come.
    fn first_rule(&self, input: &Input, is_end: bool) -> Step<usize> {
        if input.is_empty() {
            return Step::NeedMore;
        }
        let first = &input.bytes()[..input.len().min(FIRST_BYTES_MAX)];
        let is_all = is_end || first.len() == FIRST_BYTES_MAX;
        for (index, FirstBytesRule { rule, .. }) in self.rules.iter().enumerate() {
            match rule(first) {
                Match::Matched => return Step::Message(index),
                Match::NeedMore if !is_all => return Step::NeedMore,
                _ => {}
            }
        }
        Step::End
    }

    fn advance(&mut self, input: &Input, is_end: bool) -> Result<Step<Opened>, OpeningError> {
        if self.is_complete {
            return Ok(Step::NeedMore);
        }
        if !self.rules.is_empty() {
            match self.first_rule(input, is_end) {
                Step::NeedMore => return Ok(Step::NeedMore),
                Step::Message(rule) => {
                    self.is_complete = true;
                    return Ok(Step::Message(Opened { server_name: None, rule: Some(rule) }));
                }
                Step::End => self.rules = Arc::default(),
            }
        }
        let mut server_name = None;
        if self.hello_bytes_max > 0 {
            if input.len() < self.needed as usize {
                return Ok(Step::NeedMore);
            }
            match read_client_hello(input.bytes(), self.hello_bytes_max as usize).map_err(OpeningError::Hello)? {
                ClientHello::NeedMore(needed) => {
                    self.needed = u32::try_from(needed).unwrap_or(u32::MAX);
                    // Bytes that are no TLS are refused with the first of them.
                    self.needed = if needed <= FIRST_BYTES { 0 } else { self.needed };
                    return Ok(Step::NeedMore);
                }
                ClientHello::Complete(name) => server_name = name,
            }
        }
        self.is_complete = true;
        Ok(Step::Message(Opened { server_name, rule: None }))
    }
}

impl Codec for Opening {
    type In = Opened;
    type Out = Infallible;
    type Error = OpeningError;

    fn protocol(&self) -> &'static str {
        "l4"
    }

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Opened>, OpeningError> {
        self.advance(input, false)
    }

    fn encode(&mut self, nothing: Infallible, _: &mut Output<'_>) -> Result<(), OpeningError> {
        match nothing {}
    }

    /// A client that ends the stream before its first byte has only checked whether the server listens.
    fn decode_eof(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Opened>, OpeningError> {
        match self.advance(input, true)? {
            Step::NeedMore if !self.is_complete && input.is_empty() => Ok(Step::End),
            Step::NeedMore if !self.is_complete => Err(OpeningError::Truncated),
            step => Ok(step),
        }
    }

    /// The bytes behind the beginning stay in the kernel until the upstream is there.
    fn status(&self) -> CodecStatus {
        CodecStatus { is_blocked: self.is_complete, ..CodecStatus::default() }
    }
}

impl Fault for OpeningError {
    fn blame(&self) -> Blame {
        match self {
            Self::Hello(HelloError::TooLong) => Blame::Limit,
            _ => Blame::Peer,
        }
    }
}

impl fmt::Display for OpeningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(error) => error.fmt(f),
            Self::Truncated => f.write_str("the client has ended the stream within the ClientHello"),
        }
    }
}

impl std::error::Error for OpeningError {}

/// The header of a record.
const FIRST_BYTES: usize = 5;
