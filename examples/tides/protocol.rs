//! The protocol: lines of text, one codec for each side.
//!
//! ```text
//! SET brest 412     the water stands at 412 cm      OK, or FULL
//! GET brest         where does it stand?            AT brest 412, or UNKNOWN
//! LIST              all levels                      AT .. for each, then OK
//! WATCH             every level set from now on     OK, then AT .. for each
//! SAVE              to the server's disk            OK, or FAILED
//! ```
//!
//! Any other line gets `ERROR`, and the connection closes.

use tidegate::codec::{Broadcast, Codec, Fault, Input, Output, Slice, Step};
use tidegate::framing::{FramingError, Lines};

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Set { station: Box<str>, level: i32 },
    Get { station: Box<str> },
    List,
    Watch,
    Save,
}

/// An answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok,
    At { station: Box<str>, level: i32 },
    Unknown,
    Full,
    Failed,
}

/// The server's side.
#[derive(Debug)]
pub(crate) struct Tides(Lines);

impl Tides {
    pub(crate) const fn new() -> Self {
        Self(Lines::new().with_line_bytes_max(LINE_BYTES_MAX))
    }
}

impl Codec for Tides {
    type In = Request;
    type Out = Answer;
    type Error = Wrong;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Request>, Wrong> {
        let step = self.0.decode(input, reply).map_err(Wrong::Line);
        step.and_then(|step| step.try_map(|line| parse_request(text(&line)?))).inspect_err(|_| reply.write(b"ERROR\n"))
    }

    fn encode(&mut self, answer: Answer, out: &mut Output<'_>) -> Result<(), Wrong> {
        let line = match answer {
            Answer::Ok => "OK".into(),
            Answer::At { station, level } => format!("AT {} {level}", sayable(&station)?).into(),
            Answer::Unknown => "UNKNOWN".into(),
            Answer::Full => "FULL".into(),
            Answer::Failed => "FAILED".into(),
        };
        self.0.encode(line, out).map_err(Wrong::Line)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Request>, Wrong> {
        self.0.decode_eof(input, reply).map_err(Wrong::Line)?.try_map(|line| parse_request(text(&line)?))
    }
}

/// An answer has the same bytes for every connection.
impl Broadcast for Tides {}

/// The client's side.
#[derive(Debug)]
pub(crate) struct TidesClient(Lines);

impl TidesClient {
    pub(crate) const fn new() -> Self {
        Self(Lines::new().with_line_bytes_max(LINE_BYTES_MAX))
    }
}

impl Codec for TidesClient {
    type In = Answer;
    type Out = Request;
    type Error = Wrong;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Answer>, Wrong> {
        self.0.decode(input, reply).map_err(Wrong::Line)?.try_map(|line| parse_answer(text(&line)?))
    }

    fn encode(&mut self, request: Request, out: &mut Output<'_>) -> Result<(), Wrong> {
        let line = match request {
            Request::Set { station, level } => format!("SET {} {level}", sayable(&station)?).into(),
            Request::Get { station } => format!("GET {}", sayable(&station)?).into(),
            Request::List => "LIST".into(),
            Request::Watch => "WATCH".into(),
            Request::Save => "SAVE".into(),
        };
        self.0.encode(line, out).map_err(Wrong::Line)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Answer>, Wrong> {
        self.0.decode_eof(input, reply).map_err(Wrong::Line)?.try_map(|line| parse_answer(text(&line)?))
    }
}

/// A line, which has to be text.
fn text(line: &Slice) -> Result<&str, Wrong> {
    std::str::from_utf8(line).map_err(|_| Wrong::Malformed)
}

/// Parses into a type that is always valid: the application checks nothing further.
fn parse_request(line: &str) -> Result<Request, Wrong> {
    let words: Vec<_> = line.splitn(4, ' ').collect();
    match words[..] {
        ["SET", station, level] => Ok(Request::Set { station: named(station)?, level: number(level)? }),
        ["GET", station] => Ok(Request::Get { station: named(station)? }),
        ["LIST"] => Ok(Request::List),
        ["WATCH"] => Ok(Request::Watch),
        ["SAVE"] => Ok(Request::Save),
        _ => Err(Wrong::Malformed),
    }
}

fn parse_answer(line: &str) -> Result<Answer, Wrong> {
    let words: Vec<_> = line.splitn(4, ' ').collect();
    match words[..] {
        ["OK"] => Ok(Answer::Ok),
        ["AT", station, level] => Ok(Answer::At { station: named(station)?, level: number(level)? }),
        ["UNKNOWN"] => Ok(Answer::Unknown),
        ["FULL"] => Ok(Answer::Full),
        ["FAILED"] => Ok(Answer::Failed),
        _ => Err(Wrong::Malformed),
    }
}

fn number(text: &str) -> Result<i32, Wrong> {
    text.parse().map_err(|_| Wrong::Malformed)
}

/// A station that a peer has named.
fn named(station: &str) -> Result<Box<str>, Wrong> {
    if is_station(station) { Ok(station.into()) } else { Err(Wrong::Malformed) }
}

/// A station that is to be named to a peer. One with a space in it would be taken for two words.
fn sayable(station: &str) -> Result<&str, Wrong> {
    if is_station(station) { Ok(station) } else { Err(Wrong::Station) }
}

fn is_station(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=STATION_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_letter)
}

/// The errors, sorted by blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Fault)]
pub(crate) enum Wrong {
    #[fault(from)]
    Line(FramingError),
    #[fault(peer, "a line that means nothing")]
    Malformed,
    #[fault(caller, "a station is 1 to {STATION_BYTES_MAX} letters, digits and hyphens")]
    Station,
}

/// The longest station there is.
const STATION_BYTES_MAX: usize = 40;

/// The longest line: a word, a station, a level.
const LINE_BYTES_MAX: usize = 64;

const _: () = assert!("SET  ".len() + STATION_BYTES_MAX + "-2147483648".len() <= LINE_BYTES_MAX);
