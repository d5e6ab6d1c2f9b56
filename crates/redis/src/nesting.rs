//! `Nesting`: where in a value the next token stands, and whether it may stand there.
//!
//! Invariants: no level is counted down to zero and kept; a level of text is the innermost; an attribute is followed by a
//! value on its own level.

use crate::error::RedisError;
use crate::limits::ProtocolLimits;
use crate::token::{AggregateKind, Token};

/// The aggregates that are open around the next token.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nesting {
    levels: Vec<Level>,
    /// Values that were announced or came, of the whole message.
    elements: u64,
    /// Bytes of the chunks of the streamed string.
    text_bytes: u64,
    /// An attribute is complete, and its value follows.
    is_attributed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Level {
    /// So many values follow; more than zero.
    Counted { left: u64, is_attribute: bool },
    /// Values follow up to an end; for a map, whether a key without its value came.
    Streamed { kind: AggregateKind, is_odd: bool },
    /// Chunks of a string follow.
    Text,
}

impl Nesting {
    /// Whether a message is under way.
    pub(crate) fn is_open(&self) -> bool {
        !self.levels.is_empty() || self.is_attributed
    }

    /// Whether chunks of a string follow.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.levels.last(), Some(Level::Text))
    }

    /// Ends the message, and keeps the memory for the next one.
    pub(crate) fn clear(&mut self) {
        self.levels.clear();
        (self.elements, self.text_bytes, self.is_attributed) = (0, 0, false);
    }

    /// Moves behind a token. Returns whether the message is complete with it; then the nesting is clear.
    #[inline]
    pub(crate) fn advance(&mut self, token: Token, limits: &ProtocolLimits) -> Result<bool, RedisError> {
        if self.levels.is_empty() && matches!(token, Token::Scalar | Token::Bulk(..)) {
            self.is_attributed = false;
            self.elements = 0;
            return Ok(true);
        }
        let is_complete = self.advance_within(token, limits)?;
        if is_complete {
            self.clear();
        }
        Ok(is_complete)
    }

    fn advance_within(&mut self, token: Token, limits: &ProtocolLimits) -> Result<bool, RedisError> {
        if self.is_text() != matches!(token, Token::Chunk(_)) {
            return Err(RedisError::Stream);
        }
        match token {
            Token::Scalar | Token::Bulk(..) => self.value_ended(limits),
            Token::Aggregate(kind, values) => self.aggregate(kind, values, limits),
            Token::StreamedAggregate(kind) => {
                self.begin_value();
                self.push(Level::Streamed { kind, is_odd: false }, limits)
            }
            Token::StreamedString => {
                self.begin_value();
                self.text_bytes = 0;
                self.push(Level::Text, limits)
            }
            Token::Chunk(0) => {
                self.levels.pop();
                self.value_ended(limits)
            }
            Token::Chunk(bytes) => {
                self.text_bytes = self.text_bytes.saturating_add(bytes);
                let bytes_max = limits.bulk_bytes_max;
                if self.text_bytes > bytes_max { Err(RedisError::BulkTooLong { bytes_max }) } else { Ok(false) }
            }
            Token::StreamEnd => match self.levels.last() {
                _ if self.is_attributed => Err(RedisError::Attribute),
                Some(Level::Streamed { kind, is_odd }) if !is_odd || kind.values() == 1 => {
                    self.levels.pop();
                    self.value_ended(limits)
                }
                _ => Err(RedisError::Stream),
            },
        }
    }

    fn aggregate(&mut self, kind: AggregateKind, values: u64, limits: &ProtocolLimits) -> Result<bool, RedisError> {
        let is_attribute = kind == AggregateKind::Attribute;
        if kind == AggregateKind::Push && self.is_open() {
            return Err(RedisError::PushWithin);
        }
        self.count(values.saturating_add(u64::from(is_attribute)), limits)?;
        if !is_attribute {
            self.begin_value();
        }
        match values {
            0 if is_attribute => {
                self.is_attributed = true;
                Ok(false)
            }
            0 => self.value_ended(limits),
            left => self.push(Level::Counted { left, is_attribute }, limits),
        }
    }

    /// The value that an attribute is about has begun.
    fn begin_value(&mut self) {
        self.is_attributed = false;
    }

    fn push(&mut self, level: Level, limits: &ProtocolLimits) -> Result<bool, RedisError> {
        if self.levels.len() >= limits.depth_max as usize {
            return Err(RedisError::TooDeep { max: limits.depth_max });
        }
        self.levels.push(level);
        Ok(false)
    }

    fn count(&mut self, values: u64, limits: &ProtocolLimits) -> Result<(), RedisError> {
        self.elements = self.elements.saturating_add(values);
        let max = limits.elements_max;
        if self.elements > max { Err(RedisError::TooManyElements { max }) } else { Ok(()) }
    }

    /// A value has ended, and with it the aggregates whose last value it is.
    fn value_ended(&mut self, limits: &ProtocolLimits) -> Result<bool, RedisError> {
        self.begin_value();
        loop {
            match self.levels.last_mut() {
                None => return Ok(true),
                Some(Level::Counted { left, is_attribute }) => {
                    let is_attribute = *is_attribute;
                    *left -= 1;
                    if *left > 0 {
                        return Ok(false);
                    }
                    self.levels.pop();
                    if is_attribute {
                        self.is_attributed = true;
                        return Ok(false);
                    }
                }
                Some(Level::Streamed { is_odd, .. }) => {
                    *is_odd = !*is_odd;
                    self.count(1, limits)?;
                    return Ok(false);
                }
                Some(Level::Text) => return Err(RedisError::Stream),
            }
        }
    }
}
