//! `ClientCodec`: responses from bytes, and commands as bytes.

use tidegate_codec::framing::Payload;
use tidegate_codec::{Codec, Input, Output, Pool, Slice, Step};

use crate::command::{Arithmetic, Command, Retrieval, Store, StoreMode};
use crate::error::MemcachedError;
use crate::key::Key;
use crate::limits::ProtocolLimits;
use crate::line::{LineScan, kept, unsigned, words};
use crate::meta::{MetaCommand, MetaFlags, MetaResponse, MetaStatus, MetaVerb};
use crate::response::Response;
use crate::server_codec::write_value;

/// The codec of a client. It takes [`Command`]s, and yields each line of their [`Response`]s in the order of the commands.
///
/// A response that no command awaits ends the connection: a client that took it for the next one would give wrong
/// answers from then on. Quiet meta commands may have no response, so the codec counts on nothing until the response to
/// the next [`MetaVerb::Noop`].
///
/// ```
/// use tidegate::memcached::{ClientCodec, Command, Key, Response};
/// use tidegate_testkit::CodecHarness;
///
/// let mut client = CodecHarness::new(ClientCodec::default());
/// client.encode(Command::get(Key::new("tide")?))?;
/// let lines = client.decode(b"VALUE tide 0 3\r\nebb\r\nEND\r\n")?;
/// let [Response::Value { value, .. }, Response::End] = &lines[..] else { panic!("{lines:?}") };
/// assert_eq!(value.as_ref(), b"ebb");
/// # Ok::<(), tidegate::memcached::MemcachedError>(())
/// ```
#[derive(Debug, Default)]
pub struct ClientCodec {
    limits: ProtocolLimits,
    scan: LineScan,
    /// A line whose value of so many bytes follows.
    partial: Option<Box<(Response, usize)>>,
    awaited: Awaited,
}

/// The responses that are still to come.
#[derive(Debug, Default)]
struct Awaited {
    /// Responses that come for certain.
    certain: u32,
    /// Those of `mn` among them.
    certain_noops: u32,
    /// A command was sent that may get no response, and the response to a later `mn` has not arrived.
    is_uncertain: bool,
    /// Commands `mn` since then.
    noops: u32,
    /// A command that may get no response was sent behind the last of those.
    is_quiet_behind: bool,
    /// Commands behind the last of those that get a response.
    behind: u32,
}

impl Awaited {
    fn sent(&mut self, command: &Command) {
        let verb = if let Command::Meta(meta) = command { Some(meta.verb) } else { None };
        match (verb, command.is_quiet()) {
            (Some(_), true) => {
                if !self.is_uncertain {
                    self.noops = self.certain_noops;
                }
                (self.is_uncertain, self.is_quiet_behind) = (true, true);
            }
            (None, true) => {}
            (Some(MetaVerb::Noop), false) if self.is_uncertain => {
                self.noops = self.noops.saturating_add(1);
                (self.is_quiet_behind, self.behind) = (false, 0);
            }
            (_, false) if self.is_uncertain => self.behind = self.behind.saturating_add(1),
            (verb, false) => {
                self.certain_noops = self.certain_noops.saturating_add(u32::from(verb == Some(MetaVerb::Noop)));
                self.certain = self.certain.saturating_add(1);
            }
        }
    }

    fn received(&mut self, response: &Response) -> Result<(), MemcachedError> {
        if self.is_uncertain {
            let is_noop = matches!(response, Response::Meta(MetaResponse { status: MetaStatus::Noop, .. }));
            self.noops = self.noops.saturating_sub(u32::from(is_noop));
            if is_noop && self.noops == 0 && !self.is_quiet_behind {
                *self = Self { certain: self.behind, ..Self::default() };
            }
            return Ok(());
        }
        let left = self.certain.checked_sub(1).ok_or(MemcachedError::Unsolicited)?;
        if !response.has_more() {
            let is_noop = matches!(response, Response::Meta(MetaResponse { status: MetaStatus::Noop, .. }));
            self.certain_noops = self.certain_noops.saturating_sub(u32::from(is_noop));
            self.certain = left;
        }
        Ok(())
    }
}

impl ClientCodec {
    /// A codec with these limits.
    #[must_use]
    pub fn new(limits: ProtocolLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Whether the server still has to respond to a command.
    #[must_use]
    pub fn is_awaiting(&self) -> bool {
        self.awaited.certain > 0 || self.awaited.is_uncertain
    }

    /// Begins a line, behind which so many bytes have arrived.
    fn line(&mut self, line: &Slice, arrived: usize, pool: &Pool) -> Result<Step<Response>, MemcachedError> {
        match parse(line).ok_or(MemcachedError::ResponseLine)? {
            (response, None) => Ok(Step::Message(response)),
            (response, Some(bytes)) => {
                let bytes_max = self.limits.value_bytes_max;
                let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= bytes_max);
                let bytes = bytes.ok_or(MemcachedError::ValueTooLong { bytes_max })?;
                let response = if arrived >= bytes + 2 { response } else { kept_response(response, pool) };
                self.partial = Some(Box::new((response, bytes)));
                Ok(Step::NeedMore)
            }
        }
    }

    fn value(&mut self, input: &mut Input) -> Result<Step<Response>, MemcachedError> {
        let Some((_, bytes)) = self.partial.as_deref() else { return Ok(Step::NeedMore) };
        let Some(end) = input.bytes().get(*bytes..*bytes + 2) else { return Ok(Step::NeedMore) };
        if end != b"\r\n" {
            self.partial = None;
            return Err(MemcachedError::ValueEnd);
        }
        let Some((mut response, bytes)) = self.partial.take().map(|partial| *partial) else {
            return Ok(Step::NeedMore);
        };
        let taken = input.take(bytes).into();
        input.consume(2);
        match &mut response {
            Response::Value { value, .. } => *value = taken,
            Response::Meta(meta) => meta.value = Some(taken),
            _ => {}
        }
        Ok(Step::Message(response))
    }
}

impl Codec for ClientCodec {
    type In = Response;
    type Out = Command;
    type Error = MemcachedError;

    fn protocol(&self) -> &'static str {
        "memcached"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Response>, MemcachedError> {
        let mut step = Step::NeedMore;
        if self.partial.is_none() {
            let Some(line) = self.scan.line(input, self.limits.line_bytes_max)? else { return Ok(Step::NeedMore) };
            step = self.line(&line, input.len(), reply.pool())?;
        }
        if self.partial.is_some() {
            step = self.value(input)?;
        }
        if let Step::Message(response) = &step {
            self.awaited.received(response)?;
        }
        Ok(step)
    }

    /// # Errors
    /// [`MemcachedError::Text`] if the name of statistics has a line end, or a meta command lacks its key.
    fn encode(&mut self, command: Command, out: &mut Output<'_>) -> Result<(), MemcachedError> {
        match &command {
            Command::Meta(meta) if meta.key.is_none() && meta.verb != MetaVerb::Noop => {
                return Err(MemcachedError::Key);
            }
            Command::Stats(group) if group.as_ref().iter().any(u8::is_ascii_control) => {
                return Err(MemcachedError::Text);
            }
            _ => {}
        }
        self.awaited.sent(&command);
        write(command, out);
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Response>, MemcachedError> {
        match self.decode(input, reply)? {
            Step::NeedMore if input.is_empty() && self.partial.is_none() => Ok(Step::End),
            Step::NeedMore => Err(MemcachedError::Truncated),
            step => Ok(step),
        }
    }
}

/// The same response in memory of its own, while its value is not there.
fn kept_response(response: Response, pool: &Pool) -> Response {
    match response {
        Response::Value { key, flags, cas, value } => Response::Value { key: kept(key, pool), flags, cas, value },
        Response::Meta(meta) => Response::Meta(MetaResponse { flags: meta.flags.kept(pool), ..meta }),
        other => other,
    }
}

/// A line of a response, and the bytes of the value behind it.
fn parse(line: &Slice) -> Option<(Response, Option<u64>)> {
    let mut places = words(line);
    let first = places.next()?;
    let rest = |place: Option<std::ops::Range<usize>>| match place {
        Some(place) => Payload::from(line.slice(place.start..)),
        None => EMPTY,
    };
    let number = |places: &mut dyn Iterator<Item = std::ops::Range<usize>>| unsigned(&line[places.next()?]);
    let plain = match &line[first] {
        b"VALUE" => {
            let key = line.slice(places.next()?).into();
            let (flags, bytes) = (u32::try_from(number(&mut places)?).ok()?, number(&mut places)?);
            let cas = places.next().map(|place| unsigned(&line[place]).ok_or(())).transpose().ok()?;
            return Some((Response::Value { key, flags, cas, value: EMPTY }, Some(bytes)));
        }
        b"STAT" => {
            let name = line.slice(places.next()?).into();
            Response::Stat { name, value: rest(places.next()) }
        }
        b"END" => Response::End,
        b"STORED" => Response::Stored,
        b"NOT_STORED" => Response::NotStored,
        b"EXISTS" => Response::Exists,
        b"NOT_FOUND" => Response::NotFound,
        b"DELETED" => Response::Deleted,
        b"TOUCHED" => Response::Touched,
        b"OK" => Response::Ok,
        b"VERSION" => Response::Version(rest(places.next())),
        b"ERROR" => Response::Error,
        b"CLIENT_ERROR" => Response::ClientError(rest(places.next())),
        b"SERVER_ERROR" => Response::ServerError(rest(places.next())),
        letters if letters.len() == 2 => {
            let status = MetaStatus::ALL.into_iter().find(|status| status.letters() == letters)?;
            let bytes = if status == MetaStatus::Value { Some(number(&mut places)?) } else { None };
            let flags = MetaFlags::new(rest(places.next())).ok()?;
            return Some((Response::Meta(MetaResponse::new(status, flags)), bytes));
        }
        digits => Response::Number(unsigned(digits)?),
    };
    Some((plain, None))
}

/// A text without bytes.
const EMPTY: Payload = Payload::Bytes(bytes::Bytes::new());

fn write(command: Command, out: &mut Output<'_>) {
    let no_reply = |no_reply: bool| if no_reply { &b" noreply\r\n"[..] } else { b"\r\n" };
    let mut digits = itoa::Buffer::new();
    match command {
        Command::Get(Retrieval { keys, with_cas, expiry }) => {
            let verb = match (expiry, with_cas) {
                (None, false) => "get ",
                (None, true) => "gets ",
                (Some(_), false) => "gat ",
                (Some(_), true) => "gats ",
            };
            out.write(verb.as_bytes());
            if let Some(expiry) = expiry {
                out.write_pieces((digits.format(expiry).as_bytes(), b" "));
            }
            out.write_pieces((keys.text(), b"\r\n"));
        }
        Command::Store(store) => write_store(store, out),
        Command::Delete { key, no_reply: quiet } => {
            out.write_pieces((b"delete ", key.as_ref(), no_reply(quiet)));
        }
        Command::Count(Arithmetic { key, by, is_decrement, no_reply: quiet }) => {
            out.write_pieces((if is_decrement { b"decr " } else { b"incr " }, key.as_ref(), b" "));
            out.write_pieces((digits.format(by).as_bytes(), no_reply(quiet)));
        }
        Command::Touch { key, expiry, no_reply: quiet } => {
            out.write_pieces((b"touch ", key.as_ref(), b" "));
            out.write_pieces((digits.format(expiry).as_bytes(), no_reply(quiet)));
        }
        Command::FlushAll { delay, no_reply: quiet } => {
            out.write_pieces((b"flush_all ", digits.format(delay).as_bytes(), no_reply(quiet)));
        }
        Command::Stats(group) if group.as_ref().is_empty() => out.write(b"stats\r\n"),
        Command::Stats(group) => out.write_pieces((b"stats ", group.as_ref(), b"\r\n")),
        Command::Version => out.write(b"version\r\n"),
        Command::Verbosity { level, no_reply: quiet } => {
            out.write_pieces((b"verbosity ", digits.format(level).as_bytes(), no_reply(quiet)));
        }
        Command::Meta(meta) => write_meta(meta, out),
    }
}

fn write_store(store: Store, out: &mut Output<'_>) {
    let Store { mode, key, flags, expiry, value, no_reply } = store;
    let mut digits = itoa::Buffer::new();
    out.write_pieces((mode.verb().as_bytes(), b" ", key.as_ref(), b" "));
    out.write_pieces((digits.format(flags).as_bytes(), b" "));
    out.write_pieces((digits.format(expiry).as_bytes(), b" "));
    out.write(digits.format(value.as_ref().len()).as_bytes());
    if let StoreMode::Cas(version) = mode {
        out.write_pieces((b" ", digits.format(version).as_bytes()));
    }
    if no_reply {
        out.write(b" noreply");
    }
    write_value(value, out);
}

fn write_meta(command: MetaCommand, out: &mut Output<'_>) {
    let MetaCommand { verb, key, flags, value } = command;
    out.write(verb.letters());
    if let Some(key) = key.as_ref().filter(|_| verb != MetaVerb::Noop) {
        out.write_pieces((b" ", Key::as_ref(key)));
    }
    let value = value.filter(|_| verb == MetaVerb::Set).or_else(|| (verb == MetaVerb::Set).then(|| "".into()));
    if let Some(value) = &value {
        out.write_pieces((b" ", itoa::Buffer::new().format(value.as_ref().len()).as_bytes()));
    }
    if !flags.text().is_empty() && verb != MetaVerb::Noop {
        out.write_pieces((b" ", flags.text()));
    }
    match value {
        Some(value) => write_value(value, out),
        None => out.write(b"\r\n"),
    }
}

const _: () = assert!(size_of::<ClientCodec>() <= 56);
