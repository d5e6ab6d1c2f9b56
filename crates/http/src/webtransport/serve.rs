//! The task of a session: it reads the capsules of the session's stream beside the future of the application.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use tidegate_codec::DynOver;
use tidegate_engine::{Channel, ReadHalf, SessionError};
use tidegate_http3::{Capsule, CapsuleCodec, ErrorCode};

use super::session::{Http3, WebTransportClose, WebTransportSession};

/// The receiving half of the stream of a session.
type CapsuleReader = ReadHalf<DynOver<CapsuleCodec>>;

/// Serves the session whose request has the stream of this channel.
pub(super) async fn serve<F, E>(
    channel: Channel<DynOver<CapsuleCodec>>,
    serve: impl FnOnce(WebTransportSession) -> F,
) -> Result<(), Box<dyn Error>>
where
    F: Future<Output = Result<(), E>>,
    E: Into<Box<dyn Error>>,
{
    let Ok((session, mut reader)) = begin(channel) else { return Ok(()) };
    let _ending = EndOnDrop(session.clone());
    let mut served = pin!(serve(session.clone()));
    let served = poll_fn(|cx| {
        read_capsules(&session, &mut reader, cx);
        served.as_mut().poll(cx)
    });
    match served.await {
        Ok(()) => {
            session.close(0, "");
            Ok(())
        }
        Err(error) => {
            reader.reset(ErrorCode::INTERNAL_ERROR.0);
            Err(error.into())
        }
    }
}

/// The session whose request has the stream of this channel, and the half that reads its capsules. A request that cannot have
/// one is reset.
pub(super) fn begin(
    mut channel: Channel<DynOver<CapsuleCodec>>,
) -> Result<(WebTransportSession, CapsuleReader), SessionError> {
    let Some((connection, number)) = channel.session::<Http3>() else {
        channel.reset(ErrorCode::REQUEST_REJECTED.0);
        return Err(SessionError::Closed);
    };
    if let Err(code) = connection.with(|endpoint, _| endpoint.begin_session(number))? {
        tracing::debug!(%code, "a session of WebTransport is refused");
        channel.reset(code.0);
        return Err(SessionError::Closed);
    }
    // A drain is announced to the peer, and the application ends the session in time.
    channel.ignore_drain();
    let (reader, writer) = channel.split();
    Ok((WebTransportSession::new(connection, number, writer), reader))
}

/// Reads the capsules of a session until it is over.
pub(super) async fn drive(session: &WebTransportSession, mut reader: CapsuleReader) {
    let _ending = EndOnDrop(session.clone());
    poll_fn(|cx| {
        read_capsules(session, &mut reader, cx);
        session.poll_over(cx)
    })
    .await;
}

/// Reads the capsules that have come, and notices the end of the session.
fn read_capsules(session: &WebTransportSession, reader: &mut CapsuleReader, cx: &mut Context<'_>) {
    if reader.is_draining() {
        session.drain(true);
    }
    for _ in 0..CAPSULES_PER_POLL_MAX {
        if session.is_over() {
            return;
        }
        match reader.poll_recv(cx) {
            Poll::Pending => return,
            Poll::Ready(Ok(Some(Capsule::Datagram(payload)))) => session.add_datagram(&payload),
            Poll::Ready(Ok(Some(Capsule::DrainSession))) => session.drain(false),
            Poll::Ready(Ok(Some(Capsule::CloseSession { code, reason }))) => {
                session.end(Some(WebTransportClose { code, reason }));
            }
            // A capsule that a session has no use for.
            Poll::Ready(Ok(Some(_))) => {}
            // The end of the stream without a capsule is a close without an error.
            Poll::Ready(Ok(None)) => session.end(Some(WebTransportClose::default())),
            Poll::Ready(Err(_)) => session.end(None),
        }
    }
    cx.waker().wake_by_ref();
}

/// The session is over if its task ends, by a panic or otherwise.
struct EndOnDrop(WebTransportSession);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(None);
    }
}

/// Capsules that are read before other tasks have their turn.
const CAPSULES_PER_POLL_MAX: usize = 64;
