//! `CodecHarness`: what an event loop does with one connection, without the loop and without the network.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::{RECEIVE_BYTES_MAX, Scratch};
use tidegate_codec::{Codec, FileRegion, Input, Outbound, Output, Pool, Step, Time, WritePosition};

/// A codec on a test stand: bytes are received as a loop receives them, through a [`Scratch`] and an [`Input`], and
/// what the codec writes is read back.
///
/// ```
/// use tidegate_codec::framing::Lines;
/// use tidegate_testkit::CodecHarness;
///
/// let mut stand = CodecHarness::new(Lines::new());
/// let lines = stand.visit(b"ebb\nflow\nsla")?;
/// assert_eq!(lines.len(), 2);
/// stand.encode("flood".into())?;
/// stand.flush()?;
/// assert_eq!(stand.take_sent(), b"flood\n");
/// # Ok::<(), tidegate_codec::framing::FramingError>(())
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

impl<C: Codec> CodecHarness<C> {
    /// Puts `codec` on a stand with a pool of its own.
    #[must_use]
    pub fn new(codec: C) -> Self {
        Self::with_pool(codec, &Pool::new())
    }

    /// Puts `codec` on a stand that takes its memory from `pool`.
    #[must_use]
    pub fn with_pool(codec: C, pool: &Pool) -> Self {
        let now = Instant::now();
        Self {
            codec,
            input: Input::new(),
            queue: Outbound::new(pool),
            scratch: Scratch::new(pool),
            pool: pool.clone(),
            time: Time::new(now, SystemTime::UNIX_EPOCH),
            now,
        }
    }

    /// Receives `bytes` and decodes all that is complete, then flushes and settles: a whole visit of a connection.
    ///
    /// # Errors
    /// That of decoding or flushing; the messages before it are lost. [`step`](CodecHarness::step) keeps them apart.
    ///
    /// # Panics
    /// As [`receive`](CodecHarness::receive).
    pub fn visit(&mut self, bytes: &[u8]) -> Result<Vec<C::In>, C::Error> {
        self.receive(bytes);
        let mut messages = Vec::new();
        while let Step::Message(message) = self.step()? {
            messages.push(message);
        }
        self.flush()?;
        self.compact();
        Ok(messages)
    }

    /// Receives `bytes` into the scratch and puts them behind what is unread.
    ///
    /// # Panics
    /// If there are more than a loop receives at once, [`RECEIVE_BYTES_MAX`].
    pub fn receive(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= RECEIVE_BYTES_MAX, "a loop receives at most {RECEIVE_BYTES_MAX} bytes at once");
        self.scratch.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.input.append(self.scratch.received(bytes.len()), &self.pool);
    }

    /// Decodes once. After an error, what the codec had to say to the peer is flushed.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn step(&mut self) -> Result<Step<C::In>, C::Error> {
        let step = self.codec.decode(&mut self.input, &mut Output::new(&mut self.queue, &self.pool, &self.time));
        self.last_word(step)
    }

    /// Decodes once after the peer has shut down its sending side.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn decode_eof(&mut self) -> Result<Step<C::In>, C::Error> {
        let step = self.codec.decode_eof(&mut self.input, &mut Output::new(&mut self.queue, &self.pool, &self.time));
        self.last_word(step)
    }

    /// Lets the codec make progress that nobody asked for.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn drive_handshake(&mut self) -> Result<(), C::Error> {
        let done =
            self.codec.drive_handshake(&mut self.input, &mut Output::new(&mut self.queue, &self.pool, &self.time));
        self.last_word(done)
    }

    /// Encodes a message and says up to where it reaches.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn encode(&mut self, message: C::Out) -> Result<WritePosition, C::Error> {
        self.codec.encode(message, &mut Output::new(&mut self.queue, &self.pool, &self.time))?;
        Ok(self.codec.mark(&self.queue))
    }

    /// Flushes the codec and the queue; pieces of files that a filter must see are read in bounded pieces.
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
            assert!(loaded.expect("the file is as long as its region"), "a file to load is one that comes first");
        }
        self.queue.flush();
        Ok(())
    }

    /// Says goodbye: the codec's last word, flushed.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn close(&mut self) -> Result<(), C::Error> {
        let done = self.codec.close(&mut Output::new(&mut self.queue, &self.pool, &self.time));
        self.queue.flush();
        done
    }

    /// Ends a visit: what is unread moves into memory of its own.
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

    /// Sends at most `bytes_max` of what was flushed, and returns it.
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

    /// Whether everything up to `mark` has been sent.
    #[must_use]
    pub fn is_flushed(&self, mark: WritePosition) -> bool {
        self.codec.wire_offset(mark).is_some_and(|offset| self.queue.sent().0 >= offset)
    }

    /// Calls the codec if the time it waits for has come.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn advance_time(&mut self, by: Duration) -> Result<(), C::Error> {
        self.now += by;
        self.time.advance(self.now, || SystemTime::UNIX_EPOCH);
        if self.codec.poll_timeout().is_none_or(|at| at > self.now) {
            return Ok(());
        }
        let done = self.codec.handle_timeout(&mut Output::new(&mut self.queue, &self.pool, &self.time));
        self.last_word(done)
    }

    /// Lets time pass in which decoding is suspended: the codec is told when it goes on, and is not asked meanwhile.
    pub fn suspend(&mut self, by: Duration) {
        self.now += by;
        self.time.advance(self.now, || SystemTime::UNIX_EPOCH);
        self.codec.restart_timeouts(self.now);
    }

    /// Whether nothing keeps what was received last. After [`compact`](CodecHarness::compact), and with everything sent and
    /// every message dropped, it has to be so.
    #[must_use]
    pub fn scratch_is_free(&mut self) -> bool {
        // A scratch that somebody still looks at is replaced, at another address, since the old one lives.
        let before = std::ptr::from_ref(&self.scratch.received(0)[..]).cast::<u8>();
        std::ptr::eq(before, self.scratch.space(0).as_ptr())
    }

    /// Gives the scratch back until the next receive.
    pub fn release_scratch(&mut self) {
        self.scratch.release();
    }

    /// Puts another codec in place of this one; bytes that were read come along.
    #[must_use]
    pub fn map<D: Codec>(self, to: impl FnOnce(C) -> D) -> CodecHarness<D> {
        let Self { codec, input, queue, scratch, pool, time, now } = self;
        CodecHarness { codec: to(codec), input, queue, scratch, pool, time, now }
    }

    /// The codec, and a view of the queue for it to write to.
    pub fn parts(&mut self) -> (&mut C, Output<'_>) {
        (&mut self.codec, Output::new(&mut self.queue, &self.pool, &self.time))
    }

    /// The codec.
    pub fn codec(&self) -> &C {
        &self.codec
    }

    /// What is unread.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// What waits to be sent.
    pub fn queue(&self) -> &Outbound {
        &self.queue
    }

    /// Where the memory comes from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The time on this stand.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// After an error the engine sends what is there, so what stages hold back is flushed. That this may fail again
    /// changes nothing.
    fn last_word<T>(&mut self, done: Result<T, C::Error>) -> Result<T, C::Error> {
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
