//! A command line as a `Command`.
//!
//! A line that is wrong gets an error as its response, and the connection goes on, as in memcached. Only where the length
//! of a value is no number it cannot: the bytes of the value would be read as commands.

use std::ops::Range;

use bytes::Bytes;
use tidegate_codec::Slice;
use tidegate_codec::framing::Payload;

use crate::command::{Arithmetic, Command, Retrieval, Store, StoreMode};
use crate::error::MemcachedError;
use crate::key::{Key, Keys};
use crate::line::{signed, unsigned, words};
use crate::meta::{MetaCommand, MetaFlags, MetaVerb};

/// The meaning of a line.
#[derive(Debug)]
pub(crate) enum CommandLine {
    /// A whole command.
    Whole(Command),
    /// A command whose value of so many bytes follows.
    BeforeValue(Command, u64),
    /// `quit`.
    Quit,
    /// The response is this error. Bytes of a value, if there is one, follow.
    Refused { error: &'static [u8], value_bytes: Option<u64>, no_reply: bool },
}

/// Parses a line without its end.
pub(crate) fn command_line(line: &Slice) -> Result<CommandLine, MemcachedError> {
    let mut places = words(line);
    let Some(verb) = places.next() else { return Ok(refused(UNKNOWN)) };
    let words = Words { line, places: places.take(WORDS_MAX).collect(), end: verb.end };
    // A key may have that name.
    let has_no_reply =
        !matches!(&line[verb.clone()], b"get" | b"gets" | b"gat" | b"gats" | b"mg" | b"md" | b"ma" | b"me");
    let (fewest, most) = counts(&line[verb.clone()]);
    if words.places.len() < fewest || words.places.len() > most {
        return Ok(refused(UNKNOWN));
    }
    let command = match &line[verb] {
        b"get" => words.retrieval(false, false),
        b"gets" => words.retrieval(true, false),
        b"gat" => words.retrieval(false, true),
        b"gats" => words.retrieval(true, true),
        b"set" => return words.store(StoreMode::Set),
        b"add" => return words.store(StoreMode::Add),
        b"replace" => return words.store(StoreMode::Replace),
        b"append" => return words.store(StoreMode::Append),
        b"prepend" => return words.store(StoreMode::Prepend),
        b"cas" => return words.store(StoreMode::Cas(0)),
        b"delete" => words.delete(),
        b"incr" => return Ok(words.count(false)),
        b"decr" => return Ok(words.count(true)),
        b"touch" => words.touch(),
        b"flush_all" => words.flush_all(),
        b"verbosity" => words.verbosity(),
        b"stats" => Some(Command::Stats(words.rest(0).into())),
        b"version" => Some(Command::Version),
        b"quit" => return Ok(CommandLine::Quit),
        b"mg" => words.meta(MetaVerb::Get),
        b"md" => words.meta(MetaVerb::Delete),
        b"ma" => words.meta(MetaVerb::Arithmetic),
        b"me" => words.meta(MetaVerb::Debug),
        b"ms" => return words.meta_set(),
        b"mn" => {
            Some(Command::Meta(MetaCommand { verb: MetaVerb::Noop, key: None, flags: MetaFlags::NONE, value: None }))
        }
        _ => return Ok(refused(UNKNOWN)),
    };
    Ok(match command {
        Some(command) => CommandLine::Whole(command),
        None if has_no_reply => words.malformed(None),
        None => refused(MALFORMED),
    })
}

/// How few and how many words a command has behind its verb. There is no value behind a line with another number.
fn counts(verb: &[u8]) -> (usize, usize) {
    match verb {
        b"set" | b"add" | b"replace" | b"append" | b"prepend" => (4, 5),
        b"cas" => (5, 6),
        b"incr" | b"decr" | b"touch" => (2, 3),
        b"gat" | b"gats" | b"ms" => (2, WORDS_MAX),
        b"delete" => (1, 3),
        b"flush_all" => (0, 2),
        b"verbosity" => (1, 2),
        b"version" | b"quit" => (0, 0),
        b"get" | b"gets" | b"mg" | b"md" | b"ma" | b"me" => (1, WORDS_MAX),
        _ => (0, WORDS_MAX),
    }
}

const fn refused(error: &'static [u8]) -> CommandLine {
    CommandLine::Refused { error, value_bytes: None, no_reply: false }
}

/// The words behind the verb of a line.
struct Words<'l> {
    line: &'l Slice,
    /// The first of them.
    places: Vec<Range<usize>>,
    /// The end of the verb.
    end: usize,
}

impl Words<'_> {
    fn word(&self, index: usize) -> Option<&[u8]> {
        self.places.get(index).map(|place| &self.line[place.clone()])
    }

    fn unsigned(&self, index: usize) -> Option<u64> {
        unsigned(self.word(index)?)
    }

    fn signed(&self, index: usize) -> Option<i64> {
        signed(self.word(index)?)
    }

    fn key(&self, index: usize) -> Option<Key> {
        Key::new(self.line.slice(self.places.get(index)?.clone())).ok()
    }

    /// The line from a word on.
    fn rest(&self, index: usize) -> Slice {
        let start = self.places.get(index).map_or(self.line.len(), |place| place.start);
        self.line.slice(start.max(self.end)..)
    }

    /// Whether the words end with `noreply` at this index, or before it without one; `None` if there are others.
    fn no_reply(&self, index: usize) -> Option<bool> {
        match self.word(index) {
            None => Some(false),
            Some(word) => (word == NO_REPLY && self.places.len() == index + 1).then_some(true),
        }
    }

    /// A wrong line, whose value of so many bytes follows. `noreply` hides its error, as that of any other response.
    fn malformed(&self, value_bytes: Option<u64>) -> CommandLine {
        let no_reply = self.places.last().is_some_and(|place| &self.line[place.clone()] == NO_REPLY);
        CommandLine::Refused { error: MALFORMED, value_bytes, no_reply }
    }

    fn retrieval(&self, with_cas: bool, touches: bool) -> Option<Command> {
        let expiry = if touches { Some(self.signed(0)?) } else { None };
        let keys = Keys::of_text(self.rest(usize::from(touches)).into())?;
        Some(Command::Get(Retrieval { keys, with_cas, expiry }))
    }

    fn store(&self, mode: StoreMode) -> Result<CommandLine, MemcachedError> {
        let value_bytes = self.unsigned(3).ok_or(MemcachedError::ValueLength)?;
        let command = || {
            let (mode, at) = match mode {
                StoreMode::Cas(_) => (StoreMode::Cas(self.unsigned(4)?), 5),
                mode => (mode, 4),
            };
            Some(Command::Store(Store {
                mode,
                key: self.key(0)?,
                flags: u32::try_from(self.unsigned(1)?).ok()?,
                expiry: self.signed(2)?,
                value: Payload::Bytes(Bytes::new()),
                no_reply: self.no_reply(at)?,
            }))
        };
        Ok(match command() {
            Some(command) => CommandLine::BeforeValue(command, value_bytes),
            None => self.malformed(Some(value_bytes)),
        })
    }

    fn delete(&self) -> Option<Command> {
        // Old clients send a time of zero behind the key.
        let at = 1 + usize::from(self.word(1) == Some(b"0"));
        Some(Command::Delete { key: self.key(0)?, no_reply: self.no_reply(at)? })
    }

    fn count(&self, is_decrement: bool) -> CommandLine {
        let (Some(key), Some(no_reply)) = (self.key(0), self.no_reply(2)) else { return self.malformed(None) };
        match self.unsigned(1) {
            Some(by) => CommandLine::Whole(Command::Count(Arithmetic { key, by, is_decrement, no_reply })),
            None => CommandLine::Refused { error: NO_NUMBER, value_bytes: None, no_reply },
        }
    }

    fn touch(&self) -> Option<Command> {
        Some(Command::Touch { key: self.key(0)?, expiry: self.signed(1)?, no_reply: self.no_reply(2)? })
    }

    fn flush_all(&self) -> Option<Command> {
        let delay = self.signed(0);
        let no_reply = self.no_reply(usize::from(delay.is_some()))?;
        Some(Command::FlushAll { delay: delay.unwrap_or(0), no_reply })
    }

    fn verbosity(&self) -> Option<Command> {
        Some(Command::Verbosity { level: self.unsigned(0)?, no_reply: self.no_reply(1)? })
    }

    fn meta(&self, verb: MetaVerb) -> Option<Command> {
        let flags = MetaFlags::new(self.rest(1)).ok()?;
        Some(Command::Meta(MetaCommand { verb, key: Some(self.key(0)?), flags, value: None }))
    }

    fn meta_set(&self) -> Result<CommandLine, MemcachedError> {
        let value_bytes = self.unsigned(1).ok_or(MemcachedError::ValueLength)?;
        let command = || {
            let (key, flags) = (Some(self.key(0)?), MetaFlags::new(self.rest(2)).ok()?);
            let value = Some(Payload::Bytes(Bytes::new()));
            Some(Command::Meta(MetaCommand { verb: MetaVerb::Set, key, flags, value }))
        };
        Ok(match command() {
            Some(command) => CommandLine::BeforeValue(command, value_bytes),
            None => CommandLine::Refused { error: MALFORMED, value_bytes: Some(value_bytes), no_reply: false },
        })
    }
}

const NO_REPLY: &[u8] = b"noreply";

const UNKNOWN: &[u8] = b"ERROR\r\n";
const MALFORMED: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
const NO_NUMBER: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";

/// Words that the parser keeps: as many as the longest command without a list has, and one too many.
const WORDS_MAX: usize = 7;
