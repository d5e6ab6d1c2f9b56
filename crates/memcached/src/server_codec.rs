//! `ServerCodec`: commands from bytes, and responses as bytes.
//!
//! ```text
//!   Line ──────────────▶ Await ── the last line of the response ──▶ Line
//!    │ └▶ Value ─────────▲
//!    └──▶ Discard: the value of a command that was refused ───────▶ Line
//! ```
//!
//! In `Await` the application has a command: nothing is decoded, so responses have the order of their commands. The
//! response to a command with `noreply` is dropped here. An application responds to each command alike.

use tidegate_codec::framing::Payload;
use tidegate_codec::{Codec, CodecStatus, Input, Output, Step};

use crate::command::{Command, Store};
use crate::error::MemcachedError;
use crate::limits::ProtocolLimits;
use crate::line::LineScan;
use crate::meta::{MetaCommand, MetaResponse, MetaVerb};
use crate::parse::{CommandLine, command_line};
use crate::response::Response;

/// The codec of a server. It yields a [`Command`] at a time, and waits for its [`Response`].
///
/// It answers lines that are wrong by itself, with the errors of memcached, and ends the connection on `quit`. A value
/// whose end is not where its length says ends the connection as well, behind `CLIENT_ERROR bad data chunk`: memcached
/// goes on, and reads the rest of the value as commands.
#[derive(Debug, Default)]
pub struct ServerCodec {
    limits: ProtocolLimits,
    scan: LineScan,
    state: ServerState,
}

#[derive(Debug, Default)]
enum ServerState {
    /// The next line is a command.
    #[default]
    Line,
    /// The value of this command follows, of so many bytes.
    Value(Box<Command>, usize),
    /// So many bytes of a value and its end are dropped.
    Discard(u64),
    /// The application has a command.
    Await(Visibility),
    /// The client has sent `quit`, or a value with a wrong end.
    Finished,
}

/// Which responses to a command are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    All,
    None,
    /// Those that a quiet meta command does not hide.
    NotHiddenBy(MetaVerb),
}

impl ServerCodec {
    /// A codec with these limits.
    #[must_use]
    pub fn new(limits: ProtocolLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    fn advance(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Command>, MemcachedError> {
        loop {
            match &mut self.state {
                ServerState::Line => {
                    let line = self.scan.line(input, self.limits.line_bytes_max);
                    let line = line.inspect_err(|_| reply.write(b"CLIENT_ERROR line too long\r\n"))?;
                    let Some(line) = line else { return Ok(Step::NeedMore) };
                    let line = command_line(&line).inspect_err(|_| reply.write(BAD_CHUNK))?;
                    if let Some(command) = self.begin(line, input.len(), reply) {
                        return Ok(Step::Message(command));
                    }
                }
                ServerState::Value(command, bytes) => {
                    let Some(end) = input.bytes().get(*bytes..*bytes + 2) else { return Ok(Step::NeedMore) };
                    if end != b"\r\n" {
                        self.state = ServerState::Finished;
                        reply.write(BAD_CHUNK);
                        return Err(MemcachedError::ValueEnd);
                    }
                    let value = input.take(*bytes);
                    input.consume(2);
                    match &mut **command {
                        Command::Store(store) => store.value = value.into(),
                        Command::Meta(meta) => meta.value = Some(value.into()),
                        _ => {}
                    }
                    let ServerState::Value(command, _) = std::mem::take(&mut self.state) else { continue };
                    return Ok(Step::Message(self.awaiting(*command)));
                }
                ServerState::Discard(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    input.consume(count);
                    *left -= count as u64;
                    if *left > 0 {
                        return Ok(Step::NeedMore);
                    }
                    self.state = ServerState::Line;
                }
                ServerState::Await(_) => return Ok(Step::NeedMore),
                ServerState::Finished => return Ok(Step::End),
            }
        }
    }

    /// Begins a command; returns it if it is whole. So many bytes behind its line have arrived.
    fn begin(&mut self, line: CommandLine, arrived: usize, reply: &mut Output<'_>) -> Option<Command> {
        match line {
            CommandLine::Whole(command) => return Some(self.awaiting(command)),
            CommandLine::BeforeValue(command, bytes) => match usize::try_from(bytes) {
                Ok(bytes) if bytes <= self.limits.value_bytes_max => {
                    let is_whole = arrived >= bytes + 2;
                    let command = if is_whole { command } else { command.kept(reply.pool()) };
                    self.state = ServerState::Value(Box::new(command), bytes);
                }
                _ => {
                    let no_reply = matches!(&command, Command::Store(Store { no_reply: true, .. }));
                    self.refuse(TOO_LARGE, Some(bytes), no_reply, reply);
                }
            },
            CommandLine::Quit => self.state = ServerState::Finished,
            CommandLine::Refused { error, value_bytes, no_reply } => self.refuse(error, value_bytes, no_reply, reply),
        }
        None
    }

    fn refuse(&mut self, error: &'static [u8], value_bytes: Option<u64>, no_reply: bool, reply: &mut Output<'_>) {
        if let Some(bytes) = value_bytes {
            self.state = ServerState::Discard(bytes.saturating_add(2));
        }
        if !no_reply {
            reply.write(error);
        }
    }

    fn awaiting(&mut self, command: Command) -> Command {
        self.state = ServerState::Await(match &command {
            Command::Meta(MetaCommand { verb, flags, .. }) if flags.is_quiet() => Visibility::NotHiddenBy(*verb),
            Command::Meta(_) => Visibility::All,
            command if command.is_quiet() => Visibility::None,
            _ => Visibility::All,
        });
        command
    }
}

impl Codec for ServerCodec {
    type In = Command;
    type Out = Response;
    type Error = MemcachedError;

    fn protocol(&self) -> &'static str {
        "memcached"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Command>, MemcachedError> {
        self.advance(input, reply)
    }

    /// # Errors
    /// [`MemcachedError::NothingAwaits`] without a command; [`MemcachedError::Text`] for a text with a line end,
    /// [`MemcachedError::Key`] for a key that is none.
    fn encode(&mut self, response: Response, out: &mut Output<'_>) -> Result<(), MemcachedError> {
        let ServerState::Await(visibility) = self.state else { return Err(MemcachedError::NothingAwaits) };
        let has_more = response.has_more();
        let is_visible = match (visibility, &response) {
            (Visibility::All, _) => true,
            (Visibility::None, _) => false,
            (Visibility::NotHiddenBy(verb), Response::Meta(meta)) => !verb.hides(meta.status),
            (Visibility::NotHiddenBy(_), _) => true,
        };
        if is_visible {
            write(response, out)?;
        }
        if !has_more {
            self.state = ServerState::Line;
        }
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Command>, MemcachedError> {
        match self.advance(input, reply)? {
            Step::NeedMore if matches!(self.state, ServerState::Await(_)) => Ok(Step::NeedMore),
            Step::NeedMore if input.is_empty() && matches!(self.state, ServerState::Line) => Ok(Step::End),
            Step::NeedMore => Err(MemcachedError::Truncated),
            step => Ok(step),
        }
    }

    fn status(&self) -> CodecStatus {
        CodecStatus {
            is_finished: matches!(self.state, ServerState::Finished),
            is_blocked: matches!(self.state, ServerState::Await(_)),
            ..CodecStatus::default()
        }
    }
}

/// Writes a line, with its value.
fn write(response: Response, out: &mut Output<'_>) -> Result<(), MemcachedError> {
    if let Some(line) = response.plain_line() {
        out.write(line);
        return Ok(());
    }
    match response {
        Response::Value { key, flags, cas, value } => {
            let key = crate::key::Key::new(key)?;
            let (mut numbers, mut length) = ([itoa::Buffer::new(); 2], itoa::Buffer::new());
            let [flag_digits, cas_digits] = &mut numbers;
            let (space, cas) = cas.map_or((&b""[..], ""), |cas| (b" ", cas_digits.format(cas)));
            let (flags, length) = (flag_digits.format(flags), length.format(value.as_ref().len()));
            out.write_pieces((b"VALUE ", key.as_ref(), b" ", flags.as_bytes()));
            out.write_pieces((b" ", length.as_bytes(), space, cas.as_bytes()));
            write_value(value, out);
        }
        Response::Stat { name, value } => {
            let (name, value) = (one_line(&name)?, one_line(&value)?);
            out.write_pieces((b"STAT ", name, b" ", value));
            out.write(b"\r\n");
        }
        Response::Number(number) => {
            out.write_pieces((itoa::Buffer::new().format(number).as_bytes(), b"\r\n"));
        }
        Response::Version(text) => out.write_pieces((b"VERSION ", one_line(&text)?, b"\r\n")),
        Response::ClientError(text) => out.write_pieces((b"CLIENT_ERROR ", one_line(&text)?, b"\r\n")),
        Response::ServerError(text) => out.write_pieces((b"SERVER_ERROR ", one_line(&text)?, b"\r\n")),
        Response::Meta(meta) => write_meta(meta, out),
        _ => {}
    }
    Ok(())
}

fn write_meta(response: MetaResponse, out: &mut Output<'_>) {
    let MetaResponse { status, flags, value } = response;
    out.write(status.letters());
    if let Some(value) = &value {
        out.write_pieces((b" ", itoa::Buffer::new().format(value.as_ref().len()).as_bytes()));
    }
    if !flags.text().is_empty() {
        out.write_pieces((b" ", flags.text()));
    }
    match value {
        Some(value) => write_value(value, out),
        None => out.write(b"\r\n"),
    }
}

/// Writes the end of a line, and the value behind it.
pub(crate) fn write_value(value: Payload, out: &mut Output<'_>) {
    out.write(b"\r\n");
    match value {
        Payload::Slice(value) => out.link(value),
        Payload::Bytes(value) | Payload::Encoded(value) => out.link_bytes(value),
    }
    out.write(b"\r\n");
}

fn one_line(text: &Payload) -> Result<&[u8], MemcachedError> {
    let text = text.as_ref();
    if text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) { Err(MemcachedError::Text) } else { Ok(text) }
}

const BAD_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

const _: () = assert!(size_of::<ServerCodec>() <= 48);
