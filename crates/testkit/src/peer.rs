//! `Peer`: the other end of an [`Embedded`] connection, with a codec of its own.

use std::time::Duration;

use tidegate_buffer::RECEIVE_BYTES_MAX;
use tidegate_codec::{Pipeline, Step};

use crate::codec_harness::CodecHarness;
use crate::embedded::Embedded;

/// The peer of an [`Embedded`] connection, for a test that exchanges messages instead of bytes:
/// [`Embedded::peer`] makes one.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::Channel;
/// use tidegate_testkit::Embedded;
///
/// /// Answers every line with its length.
/// async fn lengths(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
///     while let Some(line) = channel.recv().await? {
///         channel.send(line.len().to_string().into())?;
///     }
///     Ok(())
/// }
///
/// let mut peer = Embedded::serving(Lines::new(), lengths).peer(Lines::new());
/// peer.send("flood".into())?;
/// peer.send("ebb".into())?;
/// assert_eq!(peer.recv()?.as_deref(), Some(&b"5"[..]));
/// assert_eq!(peer.recv()?.as_deref(), Some(&b"3"[..]));
/// assert!(peer.recv()?.is_none(), "nothing else has been written");
/// # Ok::<(), tidegate::framing::FramingError>(())
/// ```
#[derive(Debug)]
pub struct Peer<P: Send + 'static, C> {
    pipe: Embedded<P>,
    harness: CodecHarness<C>,
    /// Bytes that the connection has written and the codec has not received yet.
    unread: Vec<u8>,
    /// The codec has reported that no further message follows.
    has_ended: bool,
}

impl<P: Send + 'static, C: Pipeline> Peer<P, C> {
    pub(crate) fn new(pipe: Embedded<P>, codec: C) -> Self {
        Self { pipe, harness: CodecHarness::new(codec), unread: Vec::new(), has_ended: false }
    }

    /// The peer sends a message. While the codec shakes hands it keeps the message, and [`recv`](Self::recv) makes
    /// progress with the handshake.
    ///
    /// # Errors
    /// Those of the peer's codec.
    pub fn send(&mut self, message: C::Out) -> Result<(), C::Error> {
        self.drive()?;
        let encoded = self.harness.encode(message).and_then(|_| self.harness.flush());
        self.transmit();
        encoded
    }

    /// The next message from the connection, or `None` if it has written no complete one so far. The codec's own
    /// replies, such as an acknowledgement, are sent.
    ///
    /// # Errors
    /// Those of the peer's codec.
    pub fn recv(&mut self) -> Result<Option<C::In>, C::Error> {
        loop {
            self.drive()?;
            if self.has_ended {
                return Ok(None);
            }
            let no_more_bytes = self.unread.is_empty() && self.pipe.is_write_closed();
            let step = if no_more_bytes { self.harness.decode_eof() } else { self.harness.step() };
            let step = step.and_then(|step| self.harness.flush().map(|()| step));
            self.transmit();
            match step? {
                Step::Message(message) => return Ok(Some(message)),
                Step::NeedMore if self.unread.is_empty() => return Ok(None),
                Step::NeedMore => self.receive(),
                Step::End => self.has_ended = true,
            }
        }
    }

    /// The peer closes in order: the codec says its goodbye, if the protocol has one, and the stream ends. The
    /// connection may still write.
    ///
    /// # Errors
    /// Those of the peer's codec.
    pub fn close(&mut self) -> Result<(), C::Error> {
        let closed = self.harness.close();
        self.transmit();
        self.pipe.receive_fin();
        closed
    }

    /// Advances the clock of both ends, the connection's first.
    ///
    /// # Errors
    /// Those of the peer's codec: one of its timeouts may have expired.
    pub fn advance(&mut self, time: Duration) -> Result<(), C::Error> {
        self.pipe.advance(time);
        let done = self.harness.advance_time(time).and_then(|()| self.harness.flush());
        self.transmit();
        done
    }

    /// The connection, for everything else that a test does with it. Bytes that the test takes by
    /// [`take_written`](Embedded::take_written) do not reach this peer.
    pub fn pipe(&mut self) -> &mut Embedded<P> {
        &mut self.pipe
    }

    /// Exchanges bytes until a handshake is complete or waits for the connection.
    fn drive(&mut self) -> Result<(), C::Error> {
        loop {
            self.unread.extend(self.pipe.take_written());
            let driven = self.harness.drive_handshake().and_then(|()| self.harness.flush());
            let sent = self.transmit();
            driven?;
            if self.harness.codec().is_established() || (self.unread.is_empty() && !sent) {
                return Ok(());
            }
            self.receive();
        }
    }

    /// The codec receives the next bytes, as many as a loop receives at once.
    fn receive(&mut self) {
        let count = self.unread.len().min(RECEIVE_BYTES_MAX);
        self.harness.receive(&self.unread[..count]);
        self.unread.drain(..count);
        self.harness.compact();
    }

    /// The connection receives the codec's output. Returns whether there was any.
    fn transmit(&mut self) -> bool {
        let bytes = self.harness.take_sent();
        if !bytes.is_empty() {
            self.pipe.receive(&bytes);
            self.unread.extend(self.pipe.take_written());
        }
        !bytes.is_empty()
    }
}
