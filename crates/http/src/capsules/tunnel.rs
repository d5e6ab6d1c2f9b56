//! `CapsuleTunnel`: capsules and datagrams on the stream of a request.

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tidegate_codec::{DatagramRefused, DynOver, Pipeline, StreamNumber};
use tidegate_engine::{Channel, ChannelError, EndpointSession, ReadHalf, SessionError, WriteHalf};
use tidegate_http3::{Capsule, CapsuleCodec};

use crate::extended_client::Http3;

/// A tunnel of capsules and HTTP datagrams (RFC 9297), over any HTTP version.
///
/// Over HTTP/3 datagrams are those of QUIC if both sides accept them: they may be lost, and may come in another order. Otherwise
/// they are capsules on the stream.
///
/// An own client has one [by](Self::new) the channel of its upgraded response, or by a [`CapsuleClient`](crate::CapsuleClient).
#[derive(Debug)]
pub struct CapsuleTunnel {
    reader: CapsuleReader,
    writer: CapsuleWriter,
}

/// The half of a [`CapsuleTunnel`] that receives. Once it is dropped, the loop receives nothing more.
pub struct CapsuleReader {
    half: ReadHalf<DynOver<CapsuleCodec>>,
    quic: Option<Rc<QuicRequest>>,
    /// Datagrams of QUIC and capsules take turns.
    takes_capsule: bool,
}

/// The half of a [`CapsuleTunnel`] that sends. Dropping it ends this side of the stream, once all capsules were sent.
pub struct CapsuleWriter {
    half: WriteHalf<DynOver<CapsuleCodec>>,
    quic: Option<Rc<QuicRequest>>,
    dropped: u64,
}

/// The request of a tunnel over HTTP/3.
pub(super) struct QuicRequest {
    connection: EndpointSession<Http3>,
    number: StreamNumber,
}

impl QuicRequest {
    /// That of a stream whose connection accepts datagrams: its datagrams are read from now on.
    pub(super) fn of<C: Pipeline>(channel: &Channel<C>) -> Option<Self> {
        let (connection, number) = channel.session::<Http3>()?;
        let begun = connection.with(|endpoint, _| endpoint.begin_datagrams(number));
        matches!(begun, Ok(Ok(()))).then_some(Self { connection, number })
    }

    /// The next datagram; `None` once the request is over.
    pub(super) fn poll_datagram(&self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let polled = self.connection.with(|endpoint, _| endpoint.poll_datagram_of_request(self.number, cx));
        polled.unwrap_or(Poll::Ready(None))
    }

    /// Sends a datagram whose payload is these parts in a row.
    pub(super) fn send_datagram(&self, payload: &[&[u8]]) -> Result<Result<(), DatagramRefused>, SessionError> {
        self.connection.with(|endpoint, _| endpoint.send_datagram_of_request(self.number, payload))
    }
}

impl Drop for QuicRequest {
    fn drop(&mut self) {
        let number = self.number;
        // A connection that is over has no datagrams, and one that is being dispatched drops them with the stream.
        let _ended = self.connection.with(|endpoint, _| endpoint.end_datagrams(number));
    }
}

impl CapsuleTunnel {
    /// The tunnel on a channel, such as that of a client's response:
    /// `response.into_channel(CapsuleCodec::new(16 * 1024))`.
    ///
    /// A drain does not end its messages: [`is_draining`](Self::is_draining) reports it.
    #[must_use]
    pub fn new(mut channel: Channel<DynOver<CapsuleCodec>>) -> Self {
        let quic = QuicRequest::of(&channel).map(Rc::new);
        channel.ignore_drain();
        let (reader, writer) = channel.split();
        let reader = CapsuleReader { half: reader, quic: quic.clone(), takes_capsule: false };
        Self { reader, writer: CapsuleWriter { half: writer, quic, dropped: 0 } }
    }

    /// The next capsule or datagram. `None` behind the last one. The future may be dropped at any time, and loses nothing.
    ///
    /// # Errors
    /// [`ChannelError`] if the tunnel breaks.
    pub async fn recv(&mut self) -> Result<Option<Capsule>, ChannelError> {
        self.reader.recv().await
    }

    /// As [`recv`](Self::recv), for a future of the caller.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Capsule>, ChannelError>> {
        self.reader.poll_recv(cx)
    }

    /// As [`CapsuleWriter::send_datagram`].
    ///
    /// # Errors
    /// As [`CapsuleWriter::send_datagram`].
    pub fn send_datagram(&mut self, payload: &[u8]) -> Result<(), SessionError> {
        self.writer.send_datagram(payload)
    }

    pub(crate) fn send_datagram_parts(&mut self, payload: &[&[u8]]) -> Result<(), SessionError> {
        self.writer.send_datagram_parts(payload)
    }

    /// As [`CapsuleWriter::send`].
    ///
    /// # Errors
    /// As [`CapsuleWriter::send`].
    pub fn send(&mut self, capsule: Capsule) -> Result<(), SessionError> {
        self.writer.send(capsule)
    }

    /// As [`CapsuleWriter::datagram_bytes_max`].
    #[must_use]
    pub fn datagram_bytes_max(&self) -> Option<usize> {
        self.writer.datagram_bytes_max()
    }

    /// As [`CapsuleWriter::dropped`].
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.writer.dropped()
    }

    /// Whether the server drains, so that the tunnel should end soon.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.reader.half.is_draining()
    }

    /// Two halves, for two tasks.
    #[must_use]
    pub fn split(self) -> (CapsuleReader, CapsuleWriter) {
        (self.reader, self.writer)
    }

    /// Breaks the tunnel: resets its stream, or its connection over HTTP/1.1. Over HTTP/3 with this code.
    pub fn reset(self, code: tidegate_http3::ErrorCode) {
        match self.reader.quic {
            Some(_) => self.reader.half.reset(code.0),
            None => self.reader.half.abort(),
        }
    }
}

impl CapsuleReader {
    /// As [`CapsuleTunnel::recv`].
    ///
    /// # Errors
    /// As [`CapsuleTunnel::recv`].
    pub async fn recv(&mut self) -> Result<Option<Capsule>, ChannelError> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`CapsuleTunnel::poll_recv`].
    ///
    /// # Errors
    /// As [`CapsuleTunnel::recv`].
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Capsule>, ChannelError>> {
        let takes_capsule = std::mem::take(&mut self.takes_capsule);
        let of_stream = if takes_capsule { self.half.poll_recv(cx) } else { Poll::Pending };
        // The end of the stream comes behind the datagrams that wait.
        if matches!(of_stream, Poll::Ready(Ok(Some(_)) | Err(_))) {
            return of_stream;
        }
        if let Poll::Ready(Some(datagram)) = self.poll_datagram(cx) {
            self.takes_capsule = true;
            return Poll::Ready(Ok(Some(Capsule::Datagram(datagram))));
        }
        if takes_capsule { of_stream } else { self.half.poll_recv(cx) }
    }

    fn poll_datagram(&self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let Some(quic) = &self.quic else { return Poll::Pending };
        quic.poll_datagram(cx)
    }
}

impl CapsuleWriter {
    /// Sends a datagram. While too many bytes of capsules wait to be sent, a datagram that would be one more is
    /// [dropped](Self::dropped); of datagrams of QUIC, the oldest is.
    ///
    /// # Errors
    /// [`SessionError::Datagram`] if it is too long for the path, as it never is on a stream; [`SessionError::Closed`].
    pub fn send_datagram(&mut self, payload: &[u8]) -> Result<(), SessionError> {
        self.send_datagram_parts(&[payload])
    }

    /// The same with a payload that is these parts in a row.
    pub(crate) fn send_datagram_parts(&mut self, payload: &[&[u8]]) -> Result<(), SessionError> {
        if let Some(quic) = &self.quic {
            match quic.send_datagram(payload)? {
                Ok(()) => return Ok(()),
                Err(DatagramRefused::Unsupported) => {}
                Err(refused) => return Err(SessionError::Datagram(refused)),
            }
        }
        if !self.half.is_writable() {
            self.dropped += 1;
            return Ok(());
        }
        self.send(Capsule::Datagram(Bytes::from(payload.concat())))
    }

    /// Sends a capsule.
    ///
    /// # Errors
    /// [`SessionError::Closed`], also if too many bytes wait to be sent; [`ready`](Self::ready) waits before.
    pub fn send(&mut self, capsule: Capsule) -> Result<(), SessionError> {
        self.half.send(capsule).map(drop).map_err(|_| SessionError::Closed)
    }

    /// Waits until few enough bytes wait to be sent.
    ///
    /// # Errors
    /// [`ChannelError`] if the tunnel breaks.
    pub async fn ready(&mut self) -> Result<(), ChannelError> {
        self.half.ready().await
    }

    /// How many bytes a datagram may have now. It changes with the path. `None` if it is a capsule, whose bound is the peer's.
    #[must_use]
    pub fn datagram_bytes_max(&self) -> Option<usize> {
        let quic = self.quic.as_ref()?;
        quic.connection.with(|endpoint, _| endpoint.datagram_bytes_max_of_request(quic.number)).ok().flatten()
    }

    /// Datagrams that were dropped since too many bytes of capsules wait to be sent.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl fmt::Debug for CapsuleReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapsuleReader").field("has_datagrams", &self.quic.is_some()).finish_non_exhaustive()
    }
}

impl fmt::Debug for CapsuleWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapsuleWriter").field("dropped", &self.dropped).finish_non_exhaustive()
    }
}
