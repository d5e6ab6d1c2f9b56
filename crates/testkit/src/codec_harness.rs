//! `CodecHarness`: drives one codec as an event loop drives it for a connection, without a loop and without a network.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::{RECEIVE_BYTES_MAX, Scratch};
use tidegate_codec::{FileRegion, Input, Lifecycle, Outbound, Output, Pipeline, Pool, Step, Time, WritePosition};

/// A codec in a test harness. The harness receives bytes as a loop does, through a [`Scratch`] and an [`Input`], and
/// returns the bytes that the codec writes.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate_testkit::CodecHarness;
///
/// let mut harness = CodecHarness::new(Lines::new());
/// let lines = harness.decode(b"ebb\nflow\nsla")?;
/// assert_eq!(lines.len(), 2);
/// harness.encode("flood".into())?;
/// harness.flush()?;
/// assert_eq!(harness.take_sent(), b"flood\n");
/// # Ok::<(), tidegate::framing::FramingError>(())
/// ```
#[derive(Debug)]
pub struct CodecHarness<C> {
    codec: C,
    input: Input,
    queue: Outbound,
    scratch: Scratch,
    pool: Pool,
    time: Time,
    now: Instant,
}

impl<C: Pipeline> CodecHarness<C> {
    /// A harness for `codec` with a pool of its own.
    #[must_use]
    pub fn new(codec: C) -> Self {
        Self::with_pool(codec, &Pool::new())
    }

    /// A harness for `codec` that takes its memory from `pool`.
    #[must_use]
    pub fn with_pool(codec: C, pool: &Pool) -> Self {
        let now = Instant::now();
        let mut harness = Self {
            codec,
            input: Input::new(),
            queue: Outbound::new(pool),
            scratch: Scratch::new(pool),
            pool: pool.clone(),
            time: Time::new(now, SystemTime::UNIX_EPOCH),
            now,
        };
        // An error comes again with the first step.
        let _ = harness.notify(Lifecycle::Opened);
        harness
    }

    /// Notifies the codec of an event of the connection, and flushes the output.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn notify(&mut self, event: Lifecycle) -> Result<(), C::Error> {
        let done = self.codec.on(event, &mut Output::new(&mut self.queue, &self.pool, &self.time));
        self.queue.flush();
        done
    }

    /// Receives `bytes`, decodes every complete message, then flushes and compacts: all that a loop does in one
    /// dispatch of a connection.
    ///
    /// # Errors
    /// That of decoding or flushing; the messages before it are lost. [`step`](CodecHarness::step) returns them singly.
    ///
    /// # Panics
    /// As [`receive`](CodecHarness::receive).
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Vec<C::In>, C::Error> {
        self.receive(bytes);
        let mut messages = Vec::new();
        while let Step::Message(message) = self.step()? {
            messages.push(message);
        }
        self.flush()?;
        self.compact();
        Ok(messages)
    }

    /// Receives `bytes` into the scratch and appends them to the unread input.
    ///
    /// # Panics
    /// If there are more bytes than a loop receives at once, [`RECEIVE_BYTES_MAX`].
    pub fn receive(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= RECEIVE_BYTES_MAX, "a loop receives at most {RECEIVE_BYTES_MAX} bytes at once");
        self.scratch.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.input.append(self.scratch.received(bytes.len()), &self.pool);
    }

    /// Decodes once. After an error, flushes the codec's output to the peer.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn step(&mut self) -> Result<Step<C::In>, C::Error> {
        let step = self.codec.decode(&mut self.input, &mut Output::new(&mut self.queue, &self.pool, &self.time));
        self.flush_on_error(step)
    }

    /// Decodes once after the peer has shut down its sending side.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn decode_eof(&mut self) -> Result<Step<C::In>, C::Error> {
        let step = self.codec.decode_eof(&mut self.input, &mut Output::new(&mut self.queue, &self.pool, &self.time));
        self.flush_on_error(step)
    }

    /// Drives the codec's handshake, as a loop does without a message to decode or to encode.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn drive_handshake(&mut self) -> Result<(), C::Error> {
        let done =
            self.codec.drive_handshake(&mut self.input, &mut Output::new(&mut self.queue, &self.pool, &self.time));
        self.flush_on_error(done)
    }

    /// Encodes a message and returns its write position.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn encode(&mut self, message: C::Out) -> Result<WritePosition, C::Error> {
        self.codec.encode(message, &mut Output::new(&mut self.queue, &self.pool, &self.time))?;
        Ok(self.codec.write_position(&self.queue))
    }

    /// Flushes the codec and the queue. Files that a filter transforms are read in bounded pieces.
    ///
    /// # Errors
    /// Those of the codec.
    ///
    /// # Panics
    /// If a file cannot be read, or is shorter than its region.
    pub fn flush(&mut self) -> Result<(), C::Error> {
        loop {
            self.codec.flush(&mut Output::new(&mut self.queue, &self.pool, &self.time))?;
            let Some(files) = self.codec.file_to_load() else { break };
            let loaded = files.load_file(FILE_PIECE_BYTES, read_file);
            assert!(loaded.expect("the file is as long as its region"), "a file to load comes first in its queue");
        }
        self.queue.flush();
        Ok(())
    }

    /// Closes the codec in order and flushes its closing bytes.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn close(&mut self) -> Result<(), C::Error> {
        self.notify(Lifecycle::Close)
    }

    /// Ends a dispatch: unread input moves out of the scratch into memory of its own.
    pub fn compact(&mut self) {
        self.input.compact(&self.pool);
        self.codec.compact(&self.pool);
    }

    /// Sends everything that was flushed, and returns it.
    ///
    /// # Panics
    /// As [`flush`](CodecHarness::flush), where a file is sent.
    pub fn take_sent(&mut self) -> Vec<u8> {
        self.take_sent_up_to(usize::MAX)
    }

    /// Sends at most `bytes_max` of the flushed bytes, and returns them.
    ///
    /// # Panics
    /// As [`flush`](CodecHarness::flush), where a file is sent.
    pub fn take_sent_up_to(&mut self, bytes_max: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while sent.len() < bytes_max {
            self.queue.load_file(FILE_PIECE_BYTES, read_file).expect("the file is as long as its region");
            let Some(front) = self.queue.front() else { break };
            let length = front.len().min(bytes_max - sent.len());
            sent.extend_from_slice(&front[..length]);
            self.queue.advance(length as u64);
        }
        sent
    }

    /// Whether everything up to `position` has been sent.
    #[must_use]
    pub fn is_flushed(&self, position: WritePosition) -> bool {
        self.codec.wire_offset(position).is_some_and(|offset| self.queue.sent().0 >= offset)
    }

    /// Advances the clock, and calls the codec if its deadline has passed.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn advance_time(&mut self, by: Duration) -> Result<(), C::Error> {
        self.now += by;
        self.time.advance(self.now, || SystemTime::UNIX_EPOCH);
        if self.codec.poll_timeout().is_none_or(|at| at > self.now) {
            return Ok(());
        }
        let done = self.codec.handle_timeout(&self.input, &mut Output::new(&mut self.queue, &self.pool, &self.time));
        self.flush_on_error(done)
    }

    /// Advances the clock while decoding is suspended: the codec's deadline is not checked meanwhile, and the codec
    /// re-arms its timeouts when decoding resumes.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn suspend(&mut self, by: Duration) -> Result<(), C::Error> {
        self.now += by;
        self.time.advance(self.now, || SystemTime::UNIX_EPOCH);
        self.notify(Lifecycle::Resumed)
    }

    /// Whether nothing refers to the bytes that were received last. This must hold after
    /// [`compact`](CodecHarness::compact), once everything is sent and every message dropped.
    #[must_use]
    pub fn scratch_is_free(&mut self) -> bool {
        // A scratch that still has a view is replaced. The new one has another address, since the old one lives.
        let before = std::ptr::from_ref(&self.scratch.received(0)[..]).cast::<u8>();
        std::ptr::eq(before, self.scratch.space(0).as_ptr())
    }

    /// Gives the scratch back until the next receive.
    pub fn release_scratch(&mut self) {
        self.scratch.release();
    }

    /// Replaces the codec by the result of `to`; input and queue stay.
    #[must_use]
    pub fn map<D: Pipeline>(self, to: impl FnOnce(C) -> D) -> CodecHarness<D> {
        let Self { codec, input, queue, scratch, pool, time, now } = self;
        let mut harness = CodecHarness { codec: to(codec), input, queue, scratch, pool, time, now };
        let _ = harness.notify(Lifecycle::Opened);
        harness
    }

    /// The codec, and an output over the queue.
    pub fn parts(&mut self) -> (&mut C, Output<'_>) {
        (&mut self.codec, Output::new(&mut self.queue, &self.pool, &self.time))
    }

    /// The codec.
    pub fn codec(&self) -> &C {
        &self.codec
    }

    /// The codec, mutable.
    pub fn codec_mut(&mut self) -> &mut C {
        &mut self.codec
    }

    /// The unread input.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// The outbound queue.
    pub fn queue(&self) -> &Outbound {
        &self.queue
    }

    /// The pool that the memory comes from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The time of this harness.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// After an error the engine sends the queue, so the stages flush their buffers. A second error here is ignored.
    fn flush_on_error<T>(&mut self, done: Result<T, C::Error>) -> Result<T, C::Error> {
        if done.is_err() {
            let _ = self.flush();
            self.queue.flush();
        }
        done
    }
}

fn read_file(region: &FileRegion, bytes: &mut [u8]) -> std::io::Result<usize> {
    region.file.read_at(bytes, region.offset)
}

/// Bytes of a file that are read at once.
const FILE_PIECE_BYTES: usize = 16 * 1024;
