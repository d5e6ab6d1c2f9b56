//! `Tunnel`: a stream behind a CONNECT that succeeded, whose bytes are those of another protocol (RFC 9113 §8.5, RFC
//! 8441 §5).

use std::convert::Infallible;

use tidegate_codec::{Filter, Input, Outbound, Output, Step};

use crate::frame_head::{FrameHead, HEAD_BYTES, flag, kind};
use crate::record::{Record, RecordKind};

/// The filter below another protocol's codec on an HTTP/2 or HTTP/3 stream: it takes bytes out of DATA, and puts bytes into it.
/// [`ServerStream::into_tunnel`](crate::ServerStream::into_tunnel) makes it.
#[derive(Debug)]
pub struct Tunnel(());

impl Tunnel {
    pub(crate) fn new() -> Self {
        Self(())
    }
}

impl Filter for Tunnel {
    type Error = Infallible;

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Infallible> {
        let Some(head) = FrameHead::read(wire.bytes()) else { return Ok(Step::NeedMore) };
        let length = HEAD_BYTES + head.length as usize;
        if wire.len() < length {
            return Ok(Step::NeedMore);
        }
        // The codec of the connection lets nothing but DATA pass, and has checked the length of the padding.
        if head.kind == kind::DATA {
            let (start, padding) = match wire.bytes().get(HEAD_BYTES) {
                Some(padding) if head.has(flag::PADDED) => (HEAD_BYTES + 1, usize::from(*padding)),
                _ => (HEAD_BYTES, 0),
            };
            wire.consume(start);
            let bytes = (length - start).saturating_sub(padding);
            wire.move_to(0..bytes, plain, reply.pool());
            wire.consume(length - start - bytes);
        } else {
            wire.consume(length);
        }
        Ok(Step::Message(()))
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Infallible> {
        // A pipeline flushes the stages above a filter first.
        let length = plain.pending();
        if length > 0 {
            out.write(&Record { kind: RecordKind::Data, ends: false, status: 0, length }.bytes());
            out.take_flushed(plain);
        }
        Ok(())
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), Infallible> {
        out.write(&Record { kind: RecordKind::Data, ends: true, status: 0, length: 0 }.bytes());
        Ok(())
    }

    fn allows_file_bypass(&self) -> bool {
        true
    }
}
