//! The task of a UDP tunnel: passes datagrams on between the tunnel and the socket to its target.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_buffer::{DatagramErrorReason, Ecn, LocalAddress, Transmit};
use tidegate_codec::later;
use tidegate_engine::task::{self, Sleep};
use tidegate_engine::{DatagramChannel, SessionError};
use tidegate_http3::{Capsule, ErrorCode, varint};

use super::counts::{TunnelCounters, TunnelPlace, add, count};
use crate::capsules::CapsuleTunnel;

/// A tunnel whose target has a socket.
pub(super) struct Relay {
    pub(super) tunnel: CapsuleTunnel,
    pub(super) socket: DatagramChannel,
    /// The address of the target.
    pub(super) target: SocketAddr,
    pub(super) place: TunnelPlace,
    pub(super) idle_timeout: Duration,
    /// When a datagram has passed.
    pub(super) last: Instant,
}

/// Why a tunnel ends.
enum RelayEnd {
    /// The client has ended it.
    Client,
    /// No datagram has passed for too long.
    Idle,
    /// The network reports that the target cannot be reached, or the socket is closed.
    Unreachable,
    /// A datagram without a context, or with more bytes than one of UDP has.
    Malformed,
}

impl Relay {
    /// Passes datagrams on until the tunnel ends.
    pub(super) async fn run(mut self) -> Result<(), Box<dyn Error>> {
        let mut idle = pin!(task::sleep_until(later(self.last, self.idle_timeout)));
        let end = poll_fn(|cx| self.poll(idle.as_mut(), cx)).await;
        match end {
            RelayEnd::Client => {}
            RelayEnd::Idle => count(&self.counters().expired),
            // RFC 9298 §3.1: the end of the socket is the end of the stream.
            RelayEnd::Unreachable => {
                count(&self.counters().unreachable);
                self.tunnel.reset(ErrorCode::CONNECT_ERROR);
            }
            RelayEnd::Malformed => self.tunnel.reset(ErrorCode::DATAGRAM_ERROR),
        }
        Ok(())
    }

    fn counters(&self) -> &TunnelCounters {
        self.place.counters()
    }

    fn poll(&mut self, mut idle: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        for _ in 0..DATAGRAMS_PER_POLL_MAX {
            while let Some(error) = self.socket.next_error() {
                use DatagramErrorReason::{PortUnreachable, Unreachable};
                match error.reason {
                    PortUnreachable | Unreachable => return Poll::Ready(RelayEnd::Unreachable),
                    _ => count(&self.counters().dropped),
                }
            }
            let received = match self.tunnel.poll_recv(cx) {
                Poll::Ready(Ok(Some(capsule))) => match self.on_capsule(capsule) {
                    Ok(()) => true,
                    Err(end) => return Poll::Ready(end),
                },
                Poll::Ready(Ok(None) | Err(_)) => return Poll::Ready(RelayEnd::Client),
                Poll::Pending => false,
            };
            match self.socket.poll_recv_from(cx) {
                // Others may send in the moment before the socket is connected.
                Poll::Ready(Ok(datagram)) if !is_of(self.target, datagram.source) => count(&self.counters().dropped),
                Poll::Ready(Ok(datagram)) => self.on_target(&datagram.payload, datagram.truncated),
                Poll::Ready(Err(_)) => return Poll::Ready(RelayEnd::Unreachable),
                Poll::Pending if !received => {
                    if idle.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    let until = later(self.last, self.idle_timeout);
                    if task::now() >= until {
                        return Poll::Ready(RelayEnd::Idle);
                    }
                    idle.set(task::sleep_until(until));
                }
                Poll::Pending => {}
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes a datagram of the client on. Datagrams of unknown contexts are dropped (RFC 9298 §4).
    fn on_capsule(&mut self, capsule: Capsule) -> Result<(), RelayEnd> {
        let Capsule::Datagram(datagram) = capsule else { return Ok(()) };
        let Some(payload) = read_payload(&datagram).map_err(|Malformed| RelayEnd::Malformed)? else {
            count(&self.counters().dropped);
            return Ok(());
        };
        self.last = task::now();
        let bytes = payload.len();
        let transmit = Transmit {
            payload: payload.into(),
            destination: None,
            local: LocalAddress::default(),
            ecn: Ecn::NotCapable,
            segment_size: None,
            ancillary: None,
        };
        let dropped = self.socket.dropped();
        // If too many datagrams wait, this one takes the place of another.
        let is_sent = self.socket.send(transmit).is_ok() && self.socket.dropped() == dropped;
        if !is_sent {
            count(&self.counters().dropped);
            return Ok(());
        }
        count(&self.counters().sent);
        add(&self.counters().sent_bytes, bytes);
        Ok(())
    }

    /// Passes a datagram of the target on. One that is too long for the path is dropped, as a router does (RFC 9298 §6.1).
    fn on_target(&mut self, payload: &[u8], is_truncated: bool) {
        self.last = task::now();
        let dropped = self.tunnel.dropped();
        let is_sent = !is_truncated && send_payload(&mut self.tunnel, payload).is_ok();
        let is_passed = is_sent && self.tunnel.dropped() == dropped;
        if is_passed {
            count(&self.counters().received);
            add(&self.counters().received_bytes, payload.len());
        } else {
            count(&self.counters().dropped);
        }
    }
}

/// Whether a datagram is of the target.
fn is_of(target: SocketAddr, source: SocketAddr) -> bool {
    (target.ip(), target.port()) == (source.ip(), source.port())
}

/// An HTTP datagram that is none of UDP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The payload of UDP in an HTTP datagram (RFC 9298 §5); `None` if its context is another one.
pub(super) fn read_payload(datagram: &Bytes) -> Result<Option<Bytes>, Malformed> {
    let (context, length) = varint::read(datagram).ok_or(Malformed)?;
    if context != UDP_CONTEXT {
        return Ok(None);
    }
    let payload = datagram.slice(length..);
    if payload.len() > UDP_BYTES_MAX { Err(Malformed) } else { Ok(Some(payload)) }
}

/// Sends a payload of UDP.
pub(super) fn send_payload(tunnel: &mut CapsuleTunnel, payload: &[u8]) -> Result<(), SessionError> {
    tunnel.send_datagram_parts(&[&[UDP_CONTEXT as u8], payload])
}

/// The context whose datagrams are payloads of UDP.
const UDP_CONTEXT: u64 = 0;

/// The longest payload of UDP (RFC 9298 §5).
pub(super) const UDP_BYTES_MAX: usize = 65_527;

/// Datagrams of each direction that are passed on before other tasks have their turn.
const DATAGRAMS_PER_POLL_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_has_a_context_and_the_payload_a_bound() {
        let read = |bytes: &'static [u8]| read_payload(&Bytes::from_static(bytes));
        assert_eq!(read(b"\0ebb"), Ok(Some(Bytes::from_static(b"ebb"))));
        assert_eq!(read(b"\0"), Ok(Some(Bytes::new())), "a datagram of UDP may be empty");
        assert_eq!(read(b"\x40\0ebb"), Ok(Some(Bytes::from_static(b"ebb"))), "a long form of the context");
        assert_eq!(read(b"\x02ebb"), Ok(None));
        assert_eq!(read(b""), Err(Malformed));
        assert_eq!(read(b"\x40"), Err(Malformed));
        let of = |bytes: usize| read_payload(&[&[0][..], &vec![7; bytes]].concat().into());
        assert!(of(UDP_BYTES_MAX).is_ok_and(|payload| payload.is_some_and(|payload| payload.len() == UDP_BYTES_MAX)));
        assert_eq!(of(UDP_BYTES_MAX + 1), Err(Malformed));
    }
}
