//! `ReceivesHeader`: the receiver in front of a codec, without the two queues that a filter needs.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use tidegate_codec::{Broadcast, Codec, CodecStatus, Input, Lifecycle, Output, OverError, ReceiveHint, Slice, Step};

use crate::error::Error;
use crate::header::Header;
use crate::policy::Policy;
use crate::receiver::Receiver;

/// The codec `C` behind a header: 8 bytes more than `C`, and nothing between it and the connection's queues.
///
/// The messages are those of `C`. Where the policy requires a header, `C` gets its
/// [`Opened`](Lifecycle::Opened) when the header has come. A task that sends before its first `recv` does not wait for
/// the header: [`ProxyHeaderFilter`](crate::ProxyHeaderFilter) holds such bytes back.
///
/// The header is kept until [`take_header`](ReceivesHeader::take_header):
///
/// ```
/// use std::sync::Arc;
/// use tidegate::framing::Lines;
/// use tidegate::proxy_protocol::{Networks, Policy, ReceivesHeader};
/// use tidegate::{Context, Handler, Outcome, Slice};
///
/// struct Whoami;
///
/// impl Handler<ReceivesHeader<Lines>> for Whoami {
///     type Post = ();
///
///     fn message(&mut self, _: Slice, cx: &mut Context<'_, ReceivesHeader<Lines>>) -> Outcome<ReceivesHeader<Lines>> {
///         let source = cx.codec_mut().take_header().and_then(|header| header.source());
///         let answer = source.map_or("yourself".into(), |source| source.to_string());
///         cx.send(answer.into()).into()
///     }
/// }
///
/// let policy = Arc::new(Policy::optional(Networks::local()));
/// let server = tidegate::Server::bind("127.0.0.1:0")?.start_each(move |_| {
///     let policy = policy.clone();
///     move |peer: &tidegate::Address| {
///         (ReceivesHeader::new(&policy, peer.ip().map(|address| address.ip()), Lines::new()), Whoami)
///     }
/// })?;
/// # server.drain(std::time::Duration::ZERO);
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Debug)]
pub struct ReceivesHeader<C> {
    receiver: Receiver,
    codec: C,
}

/// An error of the header, [`Filter`](OverError::Filter), or of the codec behind it.
pub type ReceivesHeaderError<E> = OverError<Error, E>;

impl<C: Codec> ReceivesHeader<C> {
    /// The codec of a new connection. `peer` is the address of the peer, `None` on a Unix socket.
    #[must_use]
    pub fn new(policy: &Arc<Policy>, peer: Option<IpAddr>, codec: C) -> Self {
        Self { receiver: Receiver::new(policy, peer), codec }
    }

    /// The header, once it has come.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        self.receiver.header()
    }

    /// Takes the header out. A connection that is idle afterwards keeps no memory for it.
    pub fn take_header(&mut self) -> Option<Header> {
        self.receiver.take_header()
    }

    /// The codec behind the header.
    #[must_use]
    pub fn inner(&self) -> &C {
        &self.codec
    }

    /// The codec behind the header.
    pub fn inner_mut(&mut self) -> &mut C {
        &mut self.codec
    }

    /// The codec alone, for a connection that goes on without this one. The header must have come.
    #[must_use]
    pub fn into_inner(self) -> C {
        self.codec
    }

    /// Receives the header. Returns whether the codec gets the bytes that follow.
    #[cold]
    fn receive(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<bool, ReceivesHeaderError<C::Error>> {
        let (is_required, drains) = (self.receiver.requires_header(), self.receiver.is_draining());
        if !self.receiver.receive(input, reply.now()).map_err(OverError::Filter)? {
            return Ok(false);
        }
        if is_required {
            self.codec.on(Lifecycle::Opened, reply).map_err(OverError::Codec)?;
            if drains {
                self.codec.on(Lifecycle::Drain, reply).map_err(OverError::Codec)?;
            }
        }
        Ok(true)
    }
}

impl<C: Codec> Codec for ReceivesHeader<C> {
    type In = C::In;
    type Out = C::Out;
    type Error = ReceivesHeaderError<C::Error>;

    fn protocol(&self) -> &'static str {
        self.codec.protocol()
    }

    #[inline(always)]
    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, Self::Error> {
        if self.receiver.is_waiting() && !self.receive(input, reply)? {
            return Ok(Step::NeedMore);
        }
        self.codec.decode(input, reply).map_err(OverError::Codec)
    }

    #[inline(always)]
    fn encode(&mut self, message: C::Out, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.codec.encode(message, out).map_err(OverError::Codec)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<C::In>, Self::Error> {
        if self.receiver.is_waiting() && !self.receive(input, reply)? {
            if !self.receiver.receive_eof(input).map_err(OverError::Filter)? {
                return Ok(Step::End);
            }
            self.receiver.pass();
        }
        self.codec.decode_eof(input, reply).map_err(OverError::Codec)
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Self::Error> {
        match event {
            Lifecycle::Opened => self.receiver.open(out.now()).map_err(OverError::Filter)?,
            Lifecycle::Resumed => self.receiver.resume(out.now()),
            Lifecycle::Drain => self.receiver.drain(),
            _ => {}
        }
        if self.receiver.requires_header() {
            // For the codec the connection has not begun.
            return Ok(());
        }
        self.codec.on(event, out).map_err(OverError::Codec)
    }

    #[inline]
    fn status(&self) -> CodecStatus {
        self.codec.status()
    }

    #[inline]
    fn bulk_bytes(&self) -> u64 {
        self.codec.bulk_bytes()
    }

    #[inline]
    fn receive_hint(&self) -> Option<ReceiveHint> {
        self.codec.receive_hint()
    }

    fn kept_bytes(&self) -> usize {
        self.codec.kept_bytes()
    }

    fn is_between_messages(&self) -> bool {
        !self.receiver.requires_header() && self.codec.is_between_messages()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match (self.receiver.poll_timeout(), self.codec.poll_timeout()) {
            (Some(header), Some(message)) => Some(header.min(message)),
            (header, message) => header.or(message),
        }
    }

    fn handle_timeout(&mut self, input: &Input, reply: &mut Output<'_>) -> Result<(), Self::Error> {
        self.receiver.handle_timeout(reply.now()).map_err(OverError::Filter)?;
        if self.codec.poll_timeout().is_some_and(|at| at <= reply.now()) {
            return self.codec.handle_timeout(input, reply).map_err(OverError::Codec);
        }
        Ok(())
    }
}

impl<C> Broadcast for ReceivesHeader<C>
where
    C: Codec + Broadcast<Out = <C as Codec>::Out, Error = <C as Codec>::Error>,
{
    fn encode_once(&mut self, message: Self::Out, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.codec.encode_once(message, out).map_err(OverError::Codec)
    }

    fn write_encoded(&mut self, bytes: Slice, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.codec.write_encoded(bytes, out).map_err(OverError::Codec)
    }
}

const _: () = assert!(size_of::<ReceivesHeader<u64>>() == 16);
