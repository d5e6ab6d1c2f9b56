//! `Command`: the arguments of a command, as a view of the received bytes.
//!
//! Invariants: `name_end` is where the first argument ends. `wire` holds `count` bulk strings, `$3\r\nGET\r\n` and so on, that the codec has checked. An inline command
//! is brought into that form.

use std::fmt;

use bytes::Bytes;
use tidegate_buffer::Slice;

use crate::number;

/// A whole command.
///
/// It is a view: it keeps the memory alive in which it was received, and stays on its loop. It has one argument at least,
/// the name.
#[derive(Clone)]
pub struct Command {
    wire: CommandBytes,
    count: u32,
    /// Where the name begins and ends. Both the handler and the application look at it.
    name: (u32, u32),
}

#[derive(Clone)]
enum CommandBytes {
    /// As received.
    View(Slice),
    /// In memory of their own.
    Owned(Bytes),
}

impl Command {
    pub(crate) fn new(wire: Slice, count: u32) -> Self {
        Self::with(CommandBytes::View(wire), count)
    }

    pub(crate) fn owned(wire: Bytes, count: u32) -> Self {
        Self::with(CommandBytes::Owned(wire), count)
    }

    #[inline]
    fn with(wire: CommandBytes, count: u32) -> Self {
        let mut all = Arguments { rest: wire.bytes(), left: count };
        let length = all.next().unwrap_or_default().len();
        let end = (wire.bytes().len() - all.rest.len()).saturating_sub(2);
        Self { wire, count, name: ((end - length) as u32, end as u32) }
    }

    /// The name, as the peer has written it.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &[u8] {
        let (start, end) = self.name;
        &self.wire()[start as usize..end as usize]
    }

    /// How many arguments there are, the name included; one at least.
    #[must_use]
    #[inline]
    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// The argument at a place; the name is at 0.
    #[must_use]
    pub fn argument(&self, at: usize) -> Option<&[u8]> {
        match at {
            0 => Some(self.name()),
            at => self.arguments().nth(at - 1),
        }
    }

    /// All arguments, the name first.
    #[must_use]
    #[inline]
    pub fn iter(&self) -> Arguments<'_> {
        Arguments { rest: self.wire(), left: self.count }
    }

    /// The arguments behind the name.
    #[must_use]
    #[inline]
    pub fn arguments(&self) -> Arguments<'_> {
        Arguments { rest: &self.wire()[self.name.1 as usize + 2..], left: self.count - 1 }
    }

    /// The bulk strings as they were received, without the head of the array.
    #[must_use]
    #[inline]
    pub fn wire(&self) -> &[u8] {
        self.wire.bytes()
    }

    /// The same command in memory that may be kept on this loop: see [`Slice::detach`].
    #[must_use]
    pub fn detach(self) -> Self {
        let wire = match self.wire {
            CommandBytes::View(slice) => CommandBytes::View(slice.detach()),
            owned @ CommandBytes::Owned(_) => owned,
        };
        Self { wire, ..self }
    }
}

impl CommandBytes {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::View(slice) => slice,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl<'a> IntoIterator for &'a Command {
    type Item = &'a [u8];
    type IntoIter = Arguments<'a>;

    fn into_iter(self) -> Arguments<'a> {
        self.iter()
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|argument| argument.escape_ascii().to_string())).finish()
    }
}

/// The arguments of a [`Command`], one after the other.
#[derive(Debug, Clone)]
pub struct Arguments<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        // The shortest lengths have one or two digits.
        let (length, head) = match self.rest {
            [_, digit, b'\r', ..] => (usize::from(digit.wrapping_sub(b'0')), 4),
            [_, ten, one, b'\r', ..] => {
                (usize::from(ten.wrapping_sub(b'0')) * 10 + usize::from(one.wrapping_sub(b'0')), 5)
            }
            rest => {
                let end = rest.iter().position(|&byte| byte == b'\r')?;
                (usize::try_from(number::length(rest.get(1..end)?).ok()?).ok()?, end + 2)
            }
        };
        let argument = self.rest.get(head..head + length)?;
        self.rest = self.rest.get(head + length + 2..)?;
        Some(argument)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Arguments<'_> {}
