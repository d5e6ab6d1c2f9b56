//! The contract that every codec keeps, as tests.
//!
//! A network delivers bytes in arbitrary pieces. So the same bytes, whole, byte by byte, at every split in two, and in
//! random pieces to a reader that pauses at random, must give the same messages, the same error and the same replies.
//! At the end no memory may be in use. A codec alone and a codec over a stack of filters are tested alike, since both
//! are a [`Pipeline`].
//!
//! ```
//! use tidegate::framing::Lines;
//! use tidegate_testkit::contract;
//!
//! let make = || Lines::new().with_line_bytes_max(64);
//! let seen = contract::check(make, b"ebb\r\nflow\n");
//! assert_eq!(seen.messages, [r#"b"ebb""#, r#"b"flow""#]);
//!
//! contract::never_panics(make, b"ebb\r\nflow\n", 100);
//! contract::refuses_before_allocating(make, &[b'x'; 100]);
//! ```
//!
//! A [`Contract`] sets further needs of a codec, such as a request that it sends first or answers of an application.
//!
//! A failure prints the split, or the seed of the pieces; `TIDEGATE_SEED` in the environment replays that seed.

mod mutate;
mod transcript;

use std::fmt::Debug;

use tidegate_buffer::RECEIVE_BYTES_MAX;
use tidegate_codec::{Fault, Output, Pipeline, Pool, Stages, Step};

use crate::codec_harness::CodecHarness;
use crate::random::{Random, seed};

pub use transcript::{Outcome, Transcript};

/// Checks that `wire` is decoded the same in whatever pieces it arrives; returns the decoded messages.
///
/// # Panics
/// If it is not, or if memory is still in use at the end.
pub fn check<C: Pipeline<In: Debug>>(make: impl Fn() -> C, wire: &[u8]) -> Transcript {
    Contract::new(make).check(wire)
}

/// Checks that the codec refuses `wire`, which declares or begins something too large, without taking memory for it.
///
/// # Panics
/// If it does not.
pub fn refuses_before_allocating<C: Pipeline<In: Debug>>(make: impl Fn() -> C, wire: &[u8]) -> Transcript {
    Contract::new(make).refuses_before_allocating(wire)
}

/// Checks that neither random bytes nor mutations of `valid` make the codec panic, loop without end, leak, or decode
/// differently in other pieces.
///
/// # Panics
/// If one does.
pub fn never_panics<C: Pipeline<In: Debug>>(make: impl Fn() -> C, valid: &[u8], rounds: usize) {
    Contract::new(make).never_panics(valid, rounds);
}

/// How one kind of codec is checked against the contract.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::Codec;
/// use tidegate_testkit::contract::Contract;
///
/// // A server that echoes, with lines rendered as text.
/// let echo = Contract::rendered(Lines::new, |line| String::from_utf8_lossy(line).into_owned())
///     .answer(|line, lines, out| lines.encode(line.into(), out).expect("a received line may be sent"));
/// let seen = echo.check(b"ebb\nflow\n");
/// assert_eq!(seen.messages, ["ebb", "flow"]);
/// assert_eq!(seen.replies, b"ebb\nflow\n");
/// ```
pub struct Contract<'a, C: Pipeline> {
    make: Box<dyn Fn() -> C + 'a>,
    render: Box<Render<'a, C>>,
    open: Box<Act<'a, C>>,
    answer: Box<Answer<'a, C>>,
    replies: Box<Normal<'a>>,
    seed: u64,
    rounds: usize,
    ends: bool,
}

type Render<'a, C> = dyn Fn(&<C as Stages>::In) -> String + 'a;
type Normal<'a> = dyn Fn(&[u8]) -> Vec<u8> + 'a;
type Act<'a, C> = dyn Fn(&mut C, &mut Output<'_>) + 'a;
type Answer<'a, C> = dyn Fn(<C as Stages>::In, &mut C, &mut Output<'_>) + 'a;

impl<'a, C: Pipeline<In: Debug>> Contract<'a, C> {
    /// Codecs come from `make`, and messages are compared by their `Debug` text.
    #[must_use]
    pub fn new(make: impl Fn() -> C + 'a) -> Self {
        Self::rendered(make, |message| format!("{message:?}"))
    }
}

impl<'a, C: Pipeline> Contract<'a, C> {
    /// Codecs come from `make`, and messages are compared by the text that `render` makes of them.
    #[must_use]
    pub fn rendered(make: impl Fn() -> C + 'a, render: impl Fn(&C::In) -> String + 'a) -> Self {
        Self {
            make: Box::new(make),
            render: Box::new(render),
            open: Box::new(|_, _| {}),
            answer: Box::new(|_, _, _| {}),
            replies: Box::new(<[u8]>::to_vec),
            seed: seed(),
            rounds: ROUNDS,
            ends: true,
        }
    }

    /// The application's action when the connection opens: a client sends its request.
    #[must_use]
    pub fn open(mut self, act: impl Fn(&mut C, &mut Output<'_>) + 'a) -> Self {
        self.open = Box::new(act);
        self
    }

    /// The application's action for each message.
    #[must_use]
    pub fn answer(mut self, act: impl Fn(C::In, &mut C, &mut Output<'_>) + 'a) -> Self {
        self.answer = Box::new(act);
        self
    }

    /// Replies are compared after `normal` has normalised them: for stacks whose bytes depend on when they are flushed,
    /// as TLS records do.
    #[must_use]
    pub fn replies(mut self, normal: impl Fn(&[u8]) -> Vec<u8> + 'a) -> Self {
        self.replies = Box::new(normal);
        self
    }

    /// The peer does not shut down its sending side after the last byte.
    #[must_use]
    pub fn stays_open(mut self) -> Self {
        self.ends = false;
        self
    }

    /// Random pieces come from this seed; unless set, from `TIDEGATE_SEED` or a fresh one.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How often [`check`](Contract::check) splits the bytes into random pieces; 64 times unless set.
    #[must_use]
    pub fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }

    /// Decodes `wire` whole, byte by byte, at every split in two (of a long wire, at the splits near its ends and at
    /// random ones) and in random pieces; returns the decoded messages.
    ///
    /// # Panics
    /// If two ways give different messages, errors or replies; if something refers to the scratch after a dispatch; if
    /// memory is in use at the end; if there are more messages than the bytes can encode.
    pub fn check(&self, wire: &[u8]) -> Transcript {
        let whole = self.run(wire, CheckPlan::whole(wire.len()));
        self.compare(wire, &whole, CheckPlan::bytewise(wire.len()));
        let mut random = Random::new(self.seed);
        for at in splits(wire.len(), &mut random) {
            self.compare(wire, &whole, CheckPlan::split(wire.len(), at));
        }
        for _ in 0..self.rounds {
            self.compare(wire, &whole, CheckPlan::random(wire.len(), random.bits()));
        }
        whole
    }

    /// Decodes `wire` whole and once in random pieces, from the [`seed`](Contract::seed); returns the decoded messages.
    /// This is the cheap check for a caller that itself tries many bytes and seeds, such as a fuzzer.
    ///
    /// # Panics
    /// As [`check`](Contract::check).
    pub fn check_once(&self, wire: &[u8]) -> Transcript {
        let whole = self.run(wire, CheckPlan::whole(wire.len()));
        self.compare(wire, &whole, CheckPlan::random(wire.len(), self.seed));
        whole
    }

    /// Decodes `wire`, whole and byte by byte, and checks two things: the codec refuses it before the peer ends, and at
    /// no time is more memory in use than the bytes themselves explain. Memory that does not come from the [`Pool`] is
    /// not counted.
    ///
    /// # Panics
    /// If one of them is not so.
    pub fn refuses_before_allocating(&self, wire: &[u8]) -> Transcript {
        let whole = self.refused(wire, CheckPlan::whole(wire.len()));
        assert_eq!(whole, self.refused(wire, CheckPlan::bytewise(wire.len())), "refused whole, and byte by byte");
        whole
    }

    /// Decodes random bytes and mutations of `valid`, `rounds` of them, each whole and in random pieces. Both ways must
    /// give the same messages, and either both or neither an error. The errors may differ, since several things can be
    /// wrong.
    ///
    /// # Panics
    /// If it is not so, or if the codec panics, leaks or does not end; the seed and the bytes are printed.
    pub fn never_panics(&self, valid: &[u8], rounds: usize) {
        let mut random = Random::new(self.seed);
        for round in 0..rounds {
            let wire = mutate::bytes(round, valid, &mut random);
            let whole = self.run(&wire, CheckPlan::whole(wire.len()));
            let plan = CheckPlan::random(wire.len(), random.bits());
            let name = plan.name.clone();
            let pieces = self.run(&wire, plan);
            let same = whole.messages == pieces.messages && whole.has_failed() == pieces.has_failed();
            assert!(same, "{}", whole.difference(&pieces, &name, &wire, self.seed));
        }
    }

    fn compare(&self, wire: &[u8], whole: &Transcript, plan: CheckPlan) {
        let name = plan.name.clone();
        let seen = self.run(wire, plan);
        assert!(*whole == seen, "{}", whole.difference(&seen, &name, wire, self.seed));
    }

    fn run(&self, wire: &[u8], mut plan: CheckPlan) -> Transcript {
        let _report = PrintOnPanic { name: plan.name.clone(), wire, seed: self.seed };
        let pool = Pool::new();
        let mut run = self.begin(&pool, wire.len());
        let (mut rest, mut paused) = (wire, false);
        while !rest.is_empty() && run.is_open() {
            let (piece, after) = rest.split_at(plan.next_piece(rest.len()));
            rest = after;
            run.harness.receive(piece);
            paused = plan.pauses();
            if paused {
                run.pause(plan.drives_handshake());
            } else {
                run.dispatch(plan.random.as_mut());
            }
        }
        if paused && !self.ends {
            run.dispatch(None);
        }
        if self.ends {
            run.on_eof();
        }
        let transcript = run.finish();
        assert_eq!(pool.ledger().used(), 0, "bytes of memory are held though everything was dropped");
        transcript
    }

    fn refused(&self, wire: &[u8], mut plan: CheckPlan) -> Transcript {
        let _report = PrintOnPanic { name: plan.name.clone(), wire, seed: self.seed };
        let pool = Pool::new();
        let mut run = self.begin(&pool, wire.len());
        let mut rest = wire;
        while !rest.is_empty() && run.is_open() {
            let (piece, after) = rest.split_at(plan.next_piece(rest.len()));
            rest = after;
            run.harness.receive(piece);
            let received = pool.ledger().used();
            run.dispatch(None);
            // Every stage may buffer the bytes once, and as much again while its buffer grows.
            let explained = 4 * wire.len() + ALLOWANCE_BYTES;
            let taken = pool.ledger().used().saturating_sub(received);
            assert!(taken <= explained, "{taken} bytes of memory were taken for {} received", wire.len());
            run.harness.release_scratch();
            let used = pool.ledger().used();
            assert!(used <= explained, "{used} bytes of memory are in use for {} received", wire.len());
        }
        let transcript = run.finish();
        assert!(transcript.has_failed(), "it was not refused: {transcript}");
        transcript
    }

    fn begin<'r>(&'r self, pool: &Pool, bytes: usize) -> Run<'r, 'a, C> {
        let mut harness = CodecHarness::with_pool((self.make)(), pool);
        let (codec, mut out) = harness.parts();
        (self.open)(codec, &mut out);
        let mut run =
            Run { contract: self, harness, seen: Transcript::default(), messages_max: bytes + EXTRA_MESSAGES_MAX };
        run.flush();
        run
    }
}

/// One connection under test.
struct Run<'r, 'a, C: Pipeline> {
    contract: &'r Contract<'a, C>,
    harness: CodecHarness<C>,
    seen: Transcript,
    messages_max: usize,
}

impl<C: Pipeline> Run<'_, '_, C> {
    fn is_open(&self) -> bool {
        self.seen.outcome == Outcome::Open
    }

    /// Acts as a loop after a receive: decodes all, flushes, compacts.
    fn dispatch(&mut self, mut random: Option<&mut Random>) {
        while self.is_open() {
            match self.harness.step() {
                Ok(Step::Message(message)) => self.message(message),
                Ok(Step::NeedMore) => break,
                Ok(Step::End) => self.seen.outcome = Outcome::Ended,
                Err(error) => self.fail(&error),
            }
            // A handler that pauses leaves the rest for a later dispatch.
            if random.as_mut().is_some_and(|random| random.once_in(8)) {
                self.harness.compact();
            }
        }
        self.flush();
        self.harness.compact();
        if self.harness.codec().buffered_bytes() == 0 {
            assert!(self.harness.scratch_is_free(), "after `compact` something still refers to the loop's scratch");
        }
    }

    /// Acts as a loop after a receive while the application has paused reading.
    fn pause(&mut self, drives_handshake: bool) {
        if drives_handshake && let Err(error) = self.harness.drive_handshake() {
            self.fail(&error);
        }
        self.flush();
        self.harness.compact();
    }

    fn on_eof(&mut self) {
        while self.is_open() {
            match self.harness.decode_eof() {
                Ok(Step::Message(message)) => self.message(message),
                Ok(Step::NeedMore) => self.seen.outcome = Outcome::Waiting,
                Ok(Step::End) => self.seen.outcome = Outcome::Ended,
                Err(error) => self.fail(&error),
            }
        }
        self.flush();
        self.harness.compact();
    }

    fn message(&mut self, message: C::In) {
        self.seen.messages.push((self.contract.render)(&message));
        let count = self.seen.messages.len();
        assert!(count <= self.messages_max, "{count} messages and no end: {}", self.seen);
        let (codec, mut out) = self.harness.parts();
        (self.contract.answer)(message, codec, &mut out);
    }

    fn fail(&mut self, error: &C::Error) {
        self.seen.outcome = Outcome::Failed { error: format!("{error:?}"), blame: error.blame() };
    }

    fn flush(&mut self) {
        if let Err(error) = self.harness.flush()
            && self.is_open()
        {
            self.fail(&error);
        }
        self.seen.replies.extend(self.harness.take_sent());
    }

    fn finish(mut self) -> Transcript {
        self.seen.replies = (self.contract.replies)(&self.seen.replies);
        self.seen
    }
}

/// The pieces in which bytes arrive.
struct CheckPlan {
    name: String,
    first: usize,
    then: usize,
    random: Option<Random>,
    longest: usize,
}

impl CheckPlan {
    fn whole(length: usize) -> Self {
        Self { name: "whole".into(), first: length, then: length, random: None, longest: 0 }
    }

    fn bytewise(length: usize) -> Self {
        Self { name: format!("byte by byte, {length} of them"), first: 1, then: 1, random: None, longest: 0 }
    }

    fn split(length: usize, at: usize) -> Self {
        Self { name: format!("split in two at byte {at}"), first: at, then: length - at, random: None, longest: 0 }
    }

    fn random(length: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        // Sometimes all pieces are short, sometimes few.
        let longest = (1 + length) >> random.below(6);
        let name = format!("in random pieces of at most {} bytes, with pauses", longest.max(1));
        Self { name, first: 0, then: 0, random: Some(random), longest: longest.max(1) }
    }

    /// How long the next piece is, with `rest` bytes left.
    fn next_piece(&mut self, rest: usize) -> usize {
        let length = match &mut self.random {
            Some(random) => 1 + random.below(self.longest),
            None => std::mem::replace(&mut self.first, self.then),
        };
        length.min(rest).min(RECEIVE_BYTES_MAX)
    }

    fn pauses(&mut self) -> bool {
        self.random.as_mut().is_some_and(|random| random.once_in(4))
    }

    fn drives_handshake(&mut self) -> bool {
        self.random.as_mut().is_some_and(|random| random.once_in(2))
    }
}

/// Where a wire of `length` bytes is split in two.
fn splits(length: usize, random: &mut Random) -> Vec<usize> {
    if length <= EVERY_SPLIT_BYTES_MAX {
        return (1..length).collect();
    }
    let edge = EVERY_SPLIT_BYTES_MAX / 4;
    let middle = (0..2 * edge).map(|_| edge + random.below(length - 2 * edge));
    (1..edge).chain(middle).chain(length - edge..length).collect()
}

/// Prints the bytes, the pieces and the seed when a codec panics, since the codec's message has none of them.
struct PrintOnPanic<'w> {
    name: String,
    wire: &'w [u8],
    seed: u64,
}

impl Drop for PrintOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let wire = transcript::shortened(self.wire, WIRE_PRINTED_MAX);
            eprintln!("bytes: {wire}\npieces: {}\nreplay: TIDEGATE_SEED={:#x}", self.name, self.seed);
        }
    }
}

/// How often a wire is split into random pieces.
const ROUNDS: usize = 64;

/// Up to this length, bytes are split in two at every place.
const EVERY_SPLIT_BYTES_MAX: usize = 4 * 1024;

/// How many messages a codec may return beyond one a byte: ends, and messages that it generates itself.
const EXTRA_MESSAGES_MAX: usize = 64;

/// Memory that a few bytes may take: some segments, for replies and for the stages of a stack.
const ALLOWANCE_BYTES: usize = 16 * 1024;

/// How many bytes are printed when a codec panics.
const WIRE_PRINTED_MAX: usize = 4 * 1024;
