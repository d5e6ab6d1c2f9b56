//! `OutgoingCommand`: a client's messages. Arguments are bytes of any kind.

use bytes::Bytes;
use tidegate_buffer::LINK_BYTES_MIN;
use tidegate_codec::Output;
use tidegate_codec::framing::Payload;

use crate::command::Command;
use crate::error::RedisError;
use crate::outgoing_reply::{bulk, head, write_payload};

/// A part of a command, or a whole one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OutgoingCommand {
    /// A whole command.
    Whole(CommandBuffer),
    /// The head of a command with so many arguments, the name included, which follow.
    Begin(u32),
    /// An argument of the command that was begun.
    Argument(Payload),
    /// The head of an argument of so many bytes, which follow as [`Data`](Self::Data).
    ArgumentHead(u64),
    /// Bytes of the argument whose head was sent last.
    Data(Payload),
}

impl From<CommandBuffer> for OutgoingCommand {
    fn from(command: CommandBuffer) -> Self {
        Self::Whole(command)
    }
}

/// A command that is written argument by argument: one allocation for short ones.
///
/// ```
/// use tidegate::redis::{ClientCodec, CommandBuffer};
/// use tidegate_testkit::CodecHarness;
///
/// let mut client = CodecHarness::new(ClientCodec::default());
/// client.encode(CommandBuffer::new("SET").arg("brest").arg(412.to_string()).into())?;
/// client.flush()?;
/// assert_eq!(client.take_sent(), b"*3\r\n$3\r\nSET\r\n$5\r\nbrest\r\n$3\r\n412\r\n");
/// # Ok::<(), tidegate::redis::RedisError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandBuffer {
    /// The bulk strings, without the linked arguments.
    wire: Vec<u8>,
    count: u32,
    /// Long arguments, and the offsets in `wire` where they belong.
    linked: Vec<(usize, Bytes)>,
}

impl CommandBuffer {
    /// A command with this name and no other argument.
    #[must_use]
    pub fn new(name: impl AsRef<[u8]>) -> Self {
        Self { wire: Vec::with_capacity(COMMAND_BYTES), count: 0, linked: Vec::new() }.arg(name)
    }

    /// Adds an argument, of any bytes.
    #[must_use]
    pub fn arg(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.add_head(bytes.len());
        self.wire.extend_from_slice(bytes);
        self.wire.extend_from_slice(b"\r\n");
        self
    }

    /// Adds an argument that is linked into the queue instead of copied, if it is long.
    #[must_use]
    pub fn shared_arg(mut self, bytes: Bytes) -> Self {
        if bytes.len() < LINK_BYTES_MIN {
            return self.arg(bytes);
        }
        self.add_head(bytes.len());
        self.linked.push((self.wire.len(), bytes));
        self.wire.extend_from_slice(b"\r\n");
        self
    }

    /// How many arguments it has, the name included.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Its arguments, the name included.
    #[cfg(feature = "client")]
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        let (mut at, mut linked) = (0, self.linked.iter());
        let mut next_linked = linked.next();
        std::iter::from_fn(move || {
            let head = self.wire.get(at..).filter(|rest| !rest.is_empty())?;
            let digits = head.iter().skip(1).take_while(|byte| byte.is_ascii_digit());
            let (digits, bytes) =
                digits.fold((0, 0_usize), |(count, bytes), digit| (count + 1, bytes * 10 + usize::from(digit - b'0')));
            // A dollar sign, the digits, and a line break stand before the bytes.
            let from = at + 1 + digits + 2;
            if let Some((_, argument)) = next_linked.filter(|(place, _)| *place == from) {
                next_linked = linked.next();
                at = from + 2;
                return Some(&**argument);
            }
            at = from + bytes + 2;
            self.wire.get(from..from + bytes)
        })
    }

    /// The bytes that it keeps in memory.
    #[cfg(feature = "client")]
    pub(crate) fn memory(&self) -> usize {
        self.wire.len() + self.linked.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    }

    fn add_head(&mut self, bytes: usize) {
        self.wire.push(b'$');
        self.wire.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
        self.wire.extend_from_slice(b"\r\n");
        self.count += 1;
    }

    fn write(self, out: &mut Output<'_>) {
        if self.linked.is_empty() && self.wire.len() < LINK_BYTES_MIN {
            out.write_pieces(("*", itoa::Buffer::new().format(self.count), "\r\n", &*self.wire));
            return;
        }
        head(b'*', self.count.into(), out);
        let (wire, mut from) = (Bytes::from(self.wire), 0);
        for (at, bytes) in self.linked {
            out.link_bytes(wire.slice(from..at));
            out.link_bytes(bytes);
            from = at;
        }
        out.link_bytes(wire.slice(from..));
    }
}

/// The same command again: a proxy passes it on.
impl From<&Command> for CommandBuffer {
    fn from(command: &Command) -> Self {
        Self { wire: command.wire().to_vec(), count: command.count() as u32, linked: Vec::new() }
    }
}

/// The state of the outbound half of a client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommandEncoder {
    arguments_left: u32,
    /// Bytes that are missing from the argument whose head was written.
    data_left: u64,
}

impl CommandEncoder {
    pub(crate) fn encode(&mut self, message: OutgoingCommand, out: &mut Output<'_>) -> Result<(), RedisError> {
        let is_within = self.arguments_left > 0 || self.data_left > 0;
        match message {
            OutgoingCommand::Whole(command) if !is_within => command.write(out),
            OutgoingCommand::Begin(arguments) if !is_within && arguments > 0 => {
                self.arguments_left = arguments;
                head(b'*', arguments.into(), out);
            }
            OutgoingCommand::Argument(bytes) if self.data_left == 0 && is_within => {
                self.arguments_left -= 1;
                bulk(b'$', &[], bytes, out);
            }
            OutgoingCommand::ArgumentHead(bytes) if self.data_left == 0 && is_within => {
                (self.arguments_left, self.data_left) = (self.arguments_left - 1, bytes);
                head(b'$', bytes, out);
                if bytes == 0 {
                    out.write(b"\r\n");
                }
            }
            OutgoingCommand::Data(bytes) if self.data_left > 0 => {
                let left = self.data_left.checked_sub(bytes.as_ref().len() as u64).ok_or(RedisError::NotDue)?;
                self.data_left = left;
                write_payload(bytes, out);
                if left == 0 {
                    out.write(b"\r\n");
                }
            }
            _ => return Err(RedisError::NotDue),
        }
        Ok(())
    }
}

/// Room for a usual command.
const COMMAND_BYTES: usize = 64;
