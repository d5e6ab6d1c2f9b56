//! `Offer`: the connection of a request that asks for an upgrade, as tower services take it over.
//!
//! They find hyper's `OnUpgrade` among the extensions of the request, a type that only hyper makes. So hyper's server
//! makes it: it gets a request from memory, and a stream that swallows its response. Once the service has responded,
//! that stream is one end of a pipe, and a task of the loop moves bytes between the other end and the connection.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tidegate_codec::DynOver;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Channel, ReadHalf, WriteHalf};
use tidegate_http::{Response, Upgrade};
use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::closing::ClosingHandshake;

/// A connection that a service may take over.
pub(crate) struct Offer {
    /// hyper's server within its one request.
    hyper: Pin<Box<dyn Future<Output = ()>>>,
    /// Whether the service has accepted.
    accepted: Rc<Cell<bool>>,
    pipe: DuplexStream,
    /// Complete when the service has dropped the stream.
    dropped: DropNotice,
    /// It is for a WebSocket.
    is_websocket: bool,
}

impl Offer {
    /// Makes an offer: an `OnUpgrade` among the extensions of a request. If it is dropped, that reports an error.
    #[cold]
    pub(crate) fn make(extensions: &mut http::Extensions, is_websocket: bool) -> Option<Box<Self>> {
        let (pipe, end) = tokio::io::duplex(PIPE_BYTES);
        let (alive, dropped) = oneshot::channel();
        let accepted = Rc::new(Cell::new(false));
        let offered = Rc::new(RefCell::new(None));
        let respond = {
            let (accepted, offered) = (accepted.clone(), offered.clone());
            service_fn(move |request: http::Request<Incoming>| {
                offered.replace(Some(hyper::upgrade::on(request)));
                let accepted = accepted.clone();
                async move {
                    poll_fn(|_| if accepted.get() { Poll::Ready(()) } else { Poll::Pending }).await;
                    let mut response = http::Response::new(String::new());
                    *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
                    Ok::<_, Infallible>(response)
                }
            })
        };
        let port = Port { _alive: alive, request: REQUEST, is_server: true, end: TokioIo::new(end) };
        let connection =
            http1::Builder::new().header_read_timeout(None).serve_connection(port, respond).with_upgrades();
        let hyper = Box::pin(async move {
            if let Err(error) = connection.await {
                tracing::error!("an upgrade failed: {error}");
            }
        });
        let mut offer = Box::new(Self { hyper, accepted, pipe, dropped, is_websocket });
        offer.poll_hyper(|| offered.borrow().is_some());
        let on_upgrade: Option<OnUpgrade> = offered.take();
        debug_assert!(on_upgrade.is_some(), "hyper has called its service");
        extensions.insert(on_upgrade?);
        Some(offer)
    }

    /// Polls hyper until it is done, or `has_done` returns true. Returns whether it is done. It waits for nothing but
    /// the service, so nothing wakes it.
    fn poll_hyper(&mut self, has_done: impl Fn() -> bool) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        for _ in 0..POLLS_MAX {
            if self.hyper.as_mut().poll(cx).is_ready() {
                return true;
            }
            if has_done() {
                break;
            }
        }
        false
    }

    /// Upgrades the stream, and returns whether the service has kept it. A service that does not know of an extended
    /// CONNECT responds with 200 as to any request, and that would accept.
    pub(crate) fn is_kept(&mut self) -> bool {
        self.accepted.set(true);
        self.poll_hyper(|| false) && self.dropped.try_recv() == Err(TryRecvError::Empty)
    }

    /// The response with the handler that takes over the connection. It has the fields of the service's response.
    pub(crate) fn accept(mut self: Box<Self>, response: Response) -> Response {
        let upgrade = Upgrade::channel(Raw, move |channel| async move {
            let is_upgraded = self.accepted.replace(true) || self.poll_hyper(|| false);
            if !is_upgraded {
                return Err("hyper has not upgraded the stream".into());
            }
            connect(channel, self.pipe, self.dropped, ClosingHandshake::new(self.is_websocket)).await
        });
        response.with_upgrade(upgrade)
    }
}

/// The stream that hyper has. While it is a server it reads a request from memory, and writes to nowhere. Its stream of an
/// upgrade is one end of a pipe.
struct Port {
    /// Dropping it wakes the task that has the other end of the pipe, also once the pipe has ended.
    _alive: oneshot::Sender<Infallible>,
    /// The unread rest of the request that hyper reads.
    request: &'static [u8],
    /// Whether the stream is hyper's as a server: until hyper has written its response, and so before the service has the
    /// stream.
    is_server: bool,
    end: TokioIo<DuplexStream>,
}

impl Port {
    fn end(&mut self) -> Pin<&mut TokioIo<DuplexStream>> {
        Pin::new(&mut self.end)
    }
}

impl Read for Port {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_server {
            return self.end().poll_read(cx, buffer);
        }
        if self.request.is_empty() {
            return Poll::Pending;
        }
        let count = self.request.len().min(buffer.remaining());
        let (now, later) = self.request.split_at(count);
        buffer.put_slice(now);
        self.request = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Port {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_server {
            self.is_server = !bytes.ends_with(b"\r\n\r\n");
            return Poll::Ready(Ok(bytes.len()));
        }
        self.end().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end().poll_shutdown(cx)
    }
}

type Connection = DynOver<Raw>;

type DropNotice = oneshot::Receiver<Infallible>;

/// Moves bytes between a connection and the pipe, both ways, until both have ended or the service has dropped its end.
async fn connect(
    mut channel: Channel<Connection>,
    pipe: DuplexStream,
    mut dropped: DropNotice,
    closing: ClosingHandshake,
) -> Result<(), Box<dyn Error>> {
    // The service knows when its protocol is over. A WebSocket gets a close frame at a drain; another protocol may go on
    // until the deadline.
    channel.ignore_drain();
    let mut closed = pin!(closing.at_drain());
    let (reader, writer) = channel.split();
    let (from_service, to_service) = tokio::io::split(pipe);
    let mut inbound = pin!(receive(reader, to_service, &closing));
    let mut outbound = pin!(send(writer, from_service, &closing));
    let (mut has_received, mut has_sent) = (false, false);
    poll_fn(|cx| {
        // First, since it has the other two send the close frame and look for the peer's.
        let is_late = closed.as_mut().poll(cx).is_ready();
        if !has_received && let Poll::Ready(received) = inbound.as_mut().poll(cx) {
            received?;
            has_received = true;
        }
        if !has_sent && let Poll::Ready(sent) = outbound.as_mut().poll(cx) {
            sent?;
            has_sent = true;
        }
        if is_late || closing.is_answered() {
            return Poll::Ready(Ok(()));
        }
        // The service's bytes from before its drop of the stream are sent, and nothing reads the peer's bytes now.
        if has_sent && (has_received || Pin::new(&mut dropped).poll(cx).is_ready()) {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    })
    .await
}

/// Moves the peer's bytes to the service, up to the end of either.
async fn receive(
    mut reader: ReadHalf<Connection>,
    mut pipe: tokio::io::WriteHalf<DuplexStream>,
    closing: &ClosingHandshake,
) -> Result<(), Box<dyn Error>> {
    while let Some(bytes) = reader.recv().await? {
        closing.on_received(&bytes);
        if pipe.write_all(&bytes).await.is_err() {
            // The other direction finds that the service has dropped its end.
            return Ok(());
        }
    }
    // An error means that the service reads no more, and needs no end.
    let _ = pipe.shutdown().await;
    Ok(())
}

/// Moves the service's bytes to the peer, as fast as the peer reads, and the end behind them.
async fn send(
    mut writer: WriteHalf<Connection>,
    mut pipe: tokio::io::ReadHalf<DuplexStream>,
    closing: &ClosingHandshake,
) -> Result<(), Box<dyn Error>> {
    loop {
        writer.ready().await?;
        // The buffer is there only within a poll: a connection that is idle keeps none.
        let piece = poll_fn(|cx| {
            if let Some(frame) = closing.take_frame() {
                return Poll::Ready(Ok(Some(frame.to_vec())));
            }
            let mut memory = [0; PIECE_BYTES];
            let mut buffer = ReadBuf::new(&mut memory);
            ready!(Pin::new(&mut pipe).poll_read(cx, &mut buffer))?;
            let piece = buffer.filled();
            Poll::Ready(io::Result::Ok((!piece.is_empty()).then(|| closing.admit(piece).to_vec())))
        })
        .await?;
        let Some(piece) = piece else { break };
        if !piece.is_empty() {
            writer.send(piece.into())?;
        }
    }
    writer.shutdown_write();
    Ok(poll_fn(|cx| writer.poll_flush(cx)).await?)
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Offer")
    }
}

/// The request that hyper reads in place of the peer's. The service sees that of the peer.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: -\r\nConnection: upgrade\r\nUpgrade: -\r\n\r\n";

/// How many bytes may wait in each direction of the pipe.
const PIPE_BYTES: usize = 16 * 1024;

/// How many bytes of the service are moved at a time.
const PIECE_BYTES: usize = 8 * 1024;

/// How often hyper is polled until its state is the expected one. Twice is enough.
const POLLS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    use super::*;

    /// Takes the stream as soon as it is there, as a task on another thread may, and writes to it.
    struct Impatient(Mutex<Option<OnUpgrade>>, Mutex<Option<hyper::upgrade::Upgraded>>);

    impl Impatient {
        fn poll(self: &Arc<Self>) {
            let waker = Waker::from(self.clone());
            let mut on_upgrade = self.0.lock().unwrap().take().expect("it is polled until it is ready");
            match Pin::new(&mut on_upgrade).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(upgraded) => {
                    let mut stream = upgraded.expect("the offer is accepted");
                    let written = Pin::new(&mut stream).poll_write(&mut Context::from_waker(Waker::noop()), b"first");
                    assert!(matches!(written, Poll::Ready(Ok(5))));
                    *self.1.lock().unwrap() = Some(stream);
                }
                Poll::Pending => *self.0.lock().unwrap() = Some(on_upgrade),
            }
        }
    }

    impl Wake for Impatient {
        fn wake(self: Arc<Self>) {
            self.poll();
        }
    }

    #[test]
    fn bytes_that_the_service_writes_at_once_are_not_taken_for_a_response() {
        let mut extensions = http::Extensions::new();
        let mut offer = Offer::make(&mut extensions, false).expect("hyper makes one");
        let impatient = Arc::new(Impatient(Mutex::new(extensions.remove()), Mutex::default()));
        impatient.poll();
        offer.accepted.set(true);
        assert!(offer.poll_hyper(|| false));
        assert!(impatient.1.lock().unwrap().is_some(), "the stream is there");
        let (mut memory, cx) = ([0; 16], &mut Context::from_waker(Waker::noop()));
        let mut buffer = ReadBuf::new(&mut memory);
        assert!(Pin::new(&mut offer.pipe).poll_read(cx, &mut buffer).is_ready());
        assert_eq!(buffer.filled(), b"first");
    }
}
