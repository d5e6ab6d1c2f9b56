//! Protocol sniffing: which protocol a connection speaks, from its first bytes.
//!
//! A [`Sniffer`] is a codec that looks at the first bytes and consumes none of them. Its only message is the value of
//! the [rule](Rules::rule) that matches; the application then continues the connection with another codec, which
//! decodes the same bytes. `Protocols` of the engine does that for a listener.
//!
//! **Decisions.** Rules are evaluated in order, and a rule that [needs more](Match::NeedMore) bytes stops the
//! evaluation: a later rule is never preferred because its protocol is recognised by fewer bytes. `Matched` and
//! `NotMatched` are final, so a rule that does not match is not called again. At the limit of bytes, at the end of the
//! stream and at the deadline, a rule that needs more does not match, and a later one may. Where no rule matches, the
//! sniffer yields the value of [`otherwise`](Rules::otherwise), or fails with a [`SniffError`], which closes the
//! connection.
//!
//! A rule sees at most [`bytes_max`](Rules::bytes_max) bytes, and the sniffer has a [deadline](Rules::deadline).
//! Nothing is allocated for a length that the peer claims.
//!
//! Read next: `rules.rs`, the rules for common protocols.

mod rules;

use std::convert::Infallible;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_buffer::Input;

pub use self::rules::{http1, http2, proxy, proxy_v1, proxy_v2, starts_with, tls};
use crate::codec::{Codec, Lifecycle, Step};
use crate::fault::{Blame, Fault};
use crate::output::Output;

/// A rule's verdict on the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// The bytes begin the protocol, whatever follows.
    Matched,
    /// The bytes do not begin the protocol, whatever follows.
    NotMatched,
    /// More bytes decide.
    NeedMore,
}

/// The rules of a [`Sniffer`], with a value for each; the sniffers of many connections share them.
///
/// A rule is a function from the first bytes, of which there is at least one, to a [`Match`]. It is called again with
/// all bytes each time when some have arrived, so it should need few.
///
/// ```
/// use std::rc::Rc;
/// use std::time::{Instant, SystemTime};
/// use tidegate::codec::{Codec, Input, Outbound, Output, Pool, Step, Time};
/// use tidegate::sniff::{self, Match, Rules, Sniffer};
///
/// #[derive(Debug, Clone, PartialEq)]
/// enum Protocol {
///     Http,
///     Telemetry,
///     Lines,
/// }
///
/// /// A protocol whose first byte is its version, 1 or 2, and whose second byte is zero.
/// fn telemetry(first: &[u8]) -> Match {
///     match first {
///         [1 | 2] => Match::NeedMore,
///         [1 | 2, 0, ..] => Match::Matched,
///         _ => Match::NotMatched,
///     }
/// }
///
/// let rules = Rules::new()
///     .rule(sniff::http1, Protocol::Http)
///     .rule(telemetry, Protocol::Telemetry)
///     .otherwise(Protocol::Lines);
/// let mut sniffer = Sniffer::new(Rc::new(rules));
///
/// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
/// let (mut queue, mut input) = (Outbound::new(&pool), Input::new());
/// let mut out = Output::new(&mut queue, &pool, &time);
/// input.append(pool.copy(&[2]), &pool);
/// assert_eq!(sniffer.decode(&mut input, &mut out)?, Step::NeedMore);
/// input.append(pool.copy(&[0, 7]), &pool);
/// assert_eq!(sniffer.decode(&mut input, &mut out)?, Step::Message(Protocol::Telemetry));
/// assert_eq!(input.bytes(), [2, 0, 7], "the next codec decodes them");
/// # Ok::<(), tidegate::sniff::SniffError>(())
/// ```
pub struct Rules<T> {
    rules: Vec<(Box<Rule>, T)>,
    otherwise: Option<T>,
    when_silent: Option<T>,
    bytes_max: usize,
    deadline: Duration,
}

type Rule = dyn Fn(&[u8]) -> Match;

/// How many of the first bytes rules see by default: [`Rules::bytes_max`]. The rules of this module need at most 46.
pub const FIRST_BYTES_MAX: usize = 256;

/// By when a rule has to match by default: [`Rules::deadline`].
pub const DEADLINE: Duration = Duration::from_secs(5);

impl<T> Default for Rules<T> {
    fn default() -> Self {
        Self { rules: Vec::new(), otherwise: None, when_silent: None, bytes_max: FIRST_BYTES_MAX, deadline: DEADLINE }
    }
}

impl<T> Rules<T> {
    /// No rules: no connection matches.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule behind the others, with the value that the sniffer yields if the rule is the first that matches.
    #[must_use]
    pub fn rule(mut self, rule: impl Fn(&[u8]) -> Match + 'static, value: T) -> Self {
        self.rules.push((Box::new(rule), value));
        self
    }

    /// The value for a connection whose bytes match no rule, instead of an error. Undecided bytes count as such: where
    /// a rule still needs more at the most bytes, at the deadline, or at the end of the peer's stream. A peer that
    /// sends no byte is the subject of [`when_silent`](Self::when_silent).
    #[must_use]
    pub fn otherwise(mut self, value: T) -> Self {
        self.otherwise = Some(value);
        self
    }

    /// The value for a connection from which no byte has arrived at the deadline, instead of an error: for a protocol
    /// in which the server speaks first.
    #[must_use]
    pub fn when_silent(mut self, value: T) -> Self {
        self.when_silent = Some(value);
        self
    }

    /// How many of the first bytes rules see; default [`FIRST_BYTES_MAX`], at least one. A rule that needs more does
    /// not match, nor does a rule behind it.
    #[must_use]
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max.max(1);
        self
    }

    /// How long a peer may take until a rule matches; default [`DEADLINE`]. Over a filter, that includes the filter's
    /// handshake.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

impl<T> fmt::Debug for Rules<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("rules", &self.rules.len())
            .field("bytes_max", &self.bytes_max)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The codec of a connection whose protocol is not known yet: yields one value, and consumes no byte.
///
/// It encodes nothing. A connection that the peer ends before it has sent a byte ends without an error.
#[derive(Debug)]
pub struct Sniffer<T> {
    rules: Rc<Rules<T>>,
    /// When the deadline is, once the connection is open.
    until: Option<Instant>,
    /// The first rule that may still match.
    next: u32,
    is_late: bool,
    is_decided: bool,
}

/// The verdict after a look at the bytes.
enum Verdict<T> {
    Decided(T),
    Undecided,
}

impl<T: Clone + 'static> Sniffer<T> {
    /// A sniffer with these rules. The deadline begins at [`Lifecycle::Opened`].
    #[must_use]
    pub fn new(rules: Rc<Rules<T>>) -> Self {
        Self { rules, until: None, next: 0, is_late: false, is_decided: false }
    }

    /// Looks at the first bytes. `undecided` is the error if a rule needs more bytes than there will be.
    fn look(&mut self, bytes: &[u8], undecided: Option<SniffError>) -> Result<Verdict<T>, SniffError> {
        let rules = &*self.rules;
        let undecided = undecided.or((bytes.len() >= rules.bytes_max).then_some(SniffError::TooManyBytes));
        let first = &bytes[..bytes.len().min(rules.bytes_max)];
        let left = rules.rules.get(self.next as usize..).unwrap_or_default();
        let mut error = SniffError::NoMatch;
        for (rule, value) in left {
            match rule(first) {
                Match::Matched => return Ok(Verdict::Decided(value.clone())),
                Match::NotMatched => self.next += 1,
                Match::NeedMore => match undecided {
                    None => return Ok(Verdict::Undecided),
                    // No more will come, so this rule does not match, and a later one may.
                    Some(at_limit) => error = at_limit,
                },
            }
        }
        rules.otherwise.clone().map(Verdict::Decided).ok_or(error)
    }

    fn step(&mut self, verdict: Verdict<T>) -> Step<T> {
        match verdict {
            Verdict::Undecided => Step::NeedMore,
            Verdict::Decided(value) => {
                self.is_decided = true;
                Step::Message(value)
            }
        }
    }
}

impl<T: Clone + 'static> Codec for Sniffer<T> {
    type In = T;
    type Out = Infallible;
    type Error = SniffError;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<T>, SniffError> {
        if self.is_decided {
            // The application did not switch: no second message, and no busy loop.
            return Ok(Step::End);
        }
        let verdict = match (input.is_empty(), self.is_late) {
            (true, false) => Verdict::Undecided,
            (true, true) => self.rules.when_silent.clone().map(Verdict::Decided).ok_or(SniffError::Silent)?,
            (false, is_late) => self.look(input.bytes(), is_late.then_some(SniffError::Late))?,
        };
        Ok(self.step(verdict))
    }

    fn encode(&mut self, message: Infallible, _: &mut Output<'_>) -> Result<(), SniffError> {
        match message {}
    }

    fn decode_eof(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<T>, SniffError> {
        if self.is_decided || input.is_empty() {
            return Ok(Step::End);
        }
        let verdict = self.look(input.bytes(), Some(SniffError::Ended))?;
        Ok(self.step(verdict))
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), SniffError> {
        if event == Lifecycle::Opened {
            self.until = out.now().checked_add(self.rules.deadline);
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.until.filter(|_| !self.is_late && !self.is_decided)
    }

    /// The loop decodes after every timeout, and the next call of [`decode`](Codec::decode) decides.
    fn handle_timeout(&mut self, _: &Input, _: &mut Output<'_>) -> Result<(), SniffError> {
        self.is_late = true;
        Ok(())
    }
}

/// Why a connection matches no rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SniffError {
    /// The first bytes begin none of the protocols.
    NoMatch,
    /// The peer has ended its stream within the bytes that would decide.
    Ended,
    /// A rule needs more bytes than [`Rules::bytes_max`].
    TooManyBytes,
    /// The peer had sent too few bytes at the deadline.
    Late,
    /// The peer had sent no byte at the deadline.
    Silent,
}

impl Fault for SniffError {
    fn blame(&self) -> Blame {
        match self {
            Self::NoMatch | Self::Ended => Blame::Peer,
            Self::TooManyBytes | Self::Late | Self::Silent => Blame::Limit,
        }
    }
}

impl fmt::Display for SniffError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMatch => "the first bytes begin no protocol of this listener",
            Self::Ended => "the peer ended its stream before its protocol was recognised",
            Self::TooManyBytes => "the protocol was not recognised within the most bytes that are looked at",
            Self::Late => "the protocol was not recognised before the deadline",
            Self::Silent => "the peer sent no byte before the deadline",
        })
    }
}

impl std::error::Error for SniffError {}

const _: () = assert!(size_of::<Sniffer<usize>>() <= 32);

#[cfg(test)]
mod tests;
