//! `Habits`: a codec of lines with commands for its peer.

use std::fmt;
use std::time::Instant;

use tidegate_codec::framing::{Lines, Payload};
use tidegate_codec::{Blame, Codec, CodecStatus, Fault, Input, Lifecycle, Output, Slice, Step};

/// Lines, with everything else that a protocol may do: the codec answers `reply N` with N bytes; it refuses `error`
/// with final bytes; `panic` panics, in either direction; `end` ends the messages; `quit` finishes the protocol.

#[derive(Debug, Default)]
pub(crate) struct Habits {
    pub(crate) lines: Lines,
    pub(crate) reports_finish: bool,
    pub(crate) is_close_delimited: bool,
    pub(crate) deadline: Option<Instant>,
    /// How often its timeouts were restarted.
    pub(crate) restarts: u32,
    pub(crate) ended: bool,
    pub(crate) finished: bool,
}

impl Codec for Habits {
    type In = Slice;
    type Out = Payload;
    type Error = Habit;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, Habit> {
        loop {
            if self.ended {
                return Ok(Step::End);
            }
            let line = match self.lines.decode(input, reply).map_err(|_| Habit::Refused)? {
                Step::Message(line) => line,
                other => return Ok(other),
            };
            match &*line {
                b"error" => {
                    reply.write(b"sorry\n");
                    return Err(Habit::Refused);
                }
                b"panic" => panic!("the codec panics on request"),
                b"end" => self.ended = true,
                b"quit" => self.finished = true,
                command if command.starts_with(b"reply ") => {
                    let count = std::str::from_utf8(&command[6..]).expect("digits").parse().expect("a number");
                    reply.write(&vec![b'r'; count]);
                }
                _ => return Ok(Step::Message(line)),
            }
        }
    }

    fn encode(&mut self, line: Payload, out: &mut Output<'_>) -> Result<(), Habit> {
        if let Payload::Bytes(bytes) = &line {
            assert!(&bytes[..] != b"panic", "the codec panics on request");
        }
        self.lines.encode(line, out).map_err(|_| Habit::Refused)
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Habit> {
        match event {
            Lifecycle::Resumed => {
                self.restarts += 1;
                self.deadline = self.deadline.map(|_| out.now() + PATIENCE);
            }
            Lifecycle::Fail => out.write(b"failed\n"),
            _ => {}
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        CodecStatus {
            is_finished: self.finished,
            reports_finish: self.reports_finish,
            is_close_delimited: self.is_close_delimited,
            ..CodecStatus::default()
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    fn handle_timeout(&mut self, _: &Input, reply: &mut Output<'_>) -> Result<(), Habit> {
        assert!(self.deadline.take().is_some_and(|at| at <= reply.now()), "called before its time");
        reply.write(b"late\n");
        Err(Habit::Late)
    }
}

#[derive(Debug)]
pub(crate) enum Habit {
    Refused,
    Late,
}

impl Fault for Habit {
    fn blame(&self) -> Blame {
        match self {
            Self::Refused => Blame::Peer,
            Self::Late => Blame::Limit,
        }
    }
}

impl fmt::Display for Habit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::Late => "late",
        })
    }
}

impl std::error::Error for Habit {}

/// How long a peer may take, once decoding runs.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
