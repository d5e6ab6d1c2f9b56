//! `Receiver`: the state machine of a connection that may begin with a header. 8 bytes, and memory of its own while the
//! header is awaited or kept.
//!
//! ```text
//!             the header is complete            the application takes it
//!   Waiting ───────────────────────────▶ Received ───────────────────────▶ Passed
//!      └───────── there is no header, and need not be one ──────────────────▲
//! ```
//!
//! Once it has passed, all bytes belong to the codec above. A peer that is not trusted is refused when the connection
//! opens, where the policy requires a header, and otherwise when its first bytes are those of a header.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use tidegate_codec::Input;

use crate::error::{Error, Exceeded, Violation};
use crate::header::Header;
use crate::policy::{Limits, Policy, Presence};
use crate::{v1, v2};

/// The state; `None` once the connection has passed without a header, or its header was taken.
#[derive(Debug)]
pub(crate) struct Receiver(Option<Box<Phase>>);

#[derive(Debug)]
enum Phase {
    Waiting(Waiting),
    Received(Header),
}

#[derive(Debug)]
struct Waiting {
    policy: Arc<Policy>,
    is_trusted: bool,
    /// When the time for the header began.
    since: Option<Instant>,
    /// How many bytes are known to have no line end.
    seen: u8,
    /// The connection drains.
    drains: bool,
}

impl Receiver {
    pub(crate) fn new(policy: &Arc<Policy>, peer: Option<IpAddr>) -> Self {
        if policy.presence() == Presence::Off {
            return Self(None);
        }
        let is_trusted = policy.trusted().contains(peer);
        let waiting = Waiting { policy: policy.clone(), is_trusted, since: None, seen: 0, drains: false };
        Self(Some(Box::new(Phase::Waiting(waiting))))
    }

    fn waiting(&self) -> Option<&Waiting> {
        if let Some(Phase::Waiting(waiting)) = self.0.as_deref() { Some(waiting) } else { None }
    }

    fn waiting_mut(&mut self) -> Option<&mut Waiting> {
        if let Some(Phase::Waiting(waiting)) = self.0.as_deref_mut() { Some(waiting) } else { None }
    }

    /// Whether the bytes do not belong to the codec above yet.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.0.as_deref(), Some(Phase::Waiting(_)))
    }

    /// Whether a header has to come first.
    pub(crate) fn requires_header(&self) -> bool {
        self.waiting().is_some_and(|waiting| waiting.policy.presence() == Presence::Required)
    }

    pub(crate) fn header(&self) -> Option<&Header> {
        if let Some(Phase::Received(header)) = self.0.as_deref() { Some(header) } else { None }
    }

    /// Takes the header out, with its memory.
    pub(crate) fn take_header(&mut self) -> Option<Header> {
        let taken = self.0.take_if(|phase| matches!(**phase, Phase::Received(_)))?;
        if let Phase::Received(header) = *taken { Some(header) } else { None }
    }

    /// The connection opens.
    pub(crate) fn open(&mut self, now: Instant) -> Result<(), Error> {
        let Some(waiting) = self.waiting_mut() else { return Ok(()) };
        if waiting.policy.presence() == Presence::Required {
            if !waiting.is_trusted {
                return Err(Error::Peer(Violation::Untrusted));
            }
            waiting.since.get_or_insert(now);
        }
        Ok(())
    }

    /// The connection drains.
    pub(crate) fn drain(&mut self) {
        if let Some(waiting) = self.waiting_mut() {
            waiting.drains = true;
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.waiting().is_some_and(|waiting| waiting.drains)
    }

    /// Waiting begins anew after the application or the loop had suspended it.
    pub(crate) fn resume(&mut self, now: Instant) {
        if let Some(waiting) = self.waiting_mut() {
            waiting.since = waiting.since.map(|_| now);
        }
    }

    /// Takes the header off the input, as soon as it is complete. Returns whether the bytes that follow belong to the
    /// codec above.
    pub(crate) fn receive(&mut self, input: &mut Input, now: Instant) -> Result<bool, Error> {
        self.open(now)?;
        let Some(waiting) = self.waiting_mut() else { return Ok(true) };
        let is_required = waiting.policy.presence() == Presence::Required;
        let bytes = input.bytes();
        let parsed = match Start::of(bytes) {
            Start::Unclear if bytes.is_empty() => return Ok(false),
            Start::Unclear => None,
            Start::Other if is_required => return Err(Error::Peer(Violation::Missing)),
            Start::Other => {
                self.0 = None;
                return Ok(true);
            }
            _ if !waiting.is_trusted => return Err(Error::Peer(Violation::Untrusted)),
            Start::One => v1::parse(bytes, &mut waiting.seen)?,
            Start::Two => v2::parse(bytes, waiting.policy.header_limits())?,
        };
        let Some((header, length)) = parsed else {
            waiting.since.get_or_insert(now);
            return Ok(false);
        };
        input.consume(length);
        self.0 = Some(Box::new(Phase::Received(header)));
        Ok(true)
    }

    /// The peer has ended the stream, and [`receive`](Self::receive) needs more bytes. Returns whether the bytes that are
    /// left belong to the codec above.
    pub(crate) fn receive_eof(&mut self, input: &Input) -> Result<bool, Error> {
        let begins = match Start::of(input.bytes()) {
            // A check whether the server listens, which proxies make as well.
            Start::Unclear if input.is_empty() => return Ok(!self.requires_header()),
            Start::Unclear => self.requires_header(),
            Start::One | Start::Two => true,
            Start::Other => false,
        };
        if self.is_waiting() && begins {
            return Err(Error::Peer(Violation::Truncated));
        }
        Ok(true)
    }

    /// Gives up waiting: the bytes that are left belong to the codec above.
    pub(crate) fn pass(&mut self) {
        if self.is_waiting() {
            self.0 = None;
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.waiting()?;
        waiting.since?.checked_add(waiting.policy.header_limits().header_timeout)
    }

    pub(crate) fn handle_timeout(&self, now: Instant) -> Result<(), Error> {
        match self.poll_timeout() {
            Some(at) if at <= now => Err(Error::Limit(Exceeded::Time)),
            _ => Ok(()),
        }
    }
}

/// The kind of the first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// They may become a header.
    Unclear,
    One,
    Two,
    Other,
}

impl Start {
    fn of(bytes: &[u8]) -> Self {
        if bytes.starts_with(v1::START) {
            Self::One
        } else if bytes.starts_with(v2::START) {
            Self::Two
        } else if v1::START.starts_with(bytes) || v2::START.starts_with(bytes) {
            Self::Unclear
        } else {
            Self::Other
        }
    }
}

impl Header {
    /// The header in `bytes`, which has to be the whole of it, within the default [`Limits`](crate::Limits).
    ///
    /// # Errors
    /// As a receiver's. [`Violation::Truncated`](crate::Violation::Truncated) if the header is incomplete, and
    /// [`Violation::Missing`](crate::Violation::Missing) if there is none, or more behind it.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let parsed = match Start::of(bytes) {
            Start::One => v1::parse(bytes, &mut 0)?,
            Start::Two => v2::parse(bytes, &Limits::default())?,
            Start::Unclear => None,
            Start::Other => return Err(Error::Peer(Violation::Missing)),
        };
        let (header, length) = parsed.ok_or(Error::Peer(Violation::Truncated))?;
        if length == bytes.len() { Ok(header) } else { Err(Error::Peer(Violation::Missing)) }
    }
}

const _: () = assert!(size_of::<Receiver>() == 8);
