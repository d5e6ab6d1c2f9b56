//! The fast path of the most common response: 200, with a content type, without fields, with a short body, on a
//! connection that stays open. It writes the same fields as `encode.rs`, without the checks there.

use tidegate_buffer::Short;
use tidegate_codec::Output;

use crate::body::Inbound;
use crate::encode::INLINE_BYTES_MAX;
use crate::error::Misuse;
use crate::progress::ENDING;
use crate::response::{ContentType, Outgoing, Parts, Response};
use crate::server::{CONNECT, HEAD, HTTP_10, KEEPS_ALIVE, Outbound, READS_AHEAD, Server};
use crate::status::Status;

impl Server {
    /// Writes a message, if it is valid now. A response is not moved out of its message, since it is large. Where a
    /// caller creates and sends a response in one place the compiler evaluates most of the checks, so all of them are
    /// inlined there.
    #[inline(always)]
    pub(crate) fn send(&mut self, message: Outgoing, out: &mut Output<'_>) -> Result<(), Misuse> {
        if self.takes_fast_path()
            && let Outgoing::Response(response) = &message
            && let Some((content_type, body)) = response.fast_path()
        {
            self.send_fast_path(content_type, body, out);
            // Saves the drop code of a message that owns nothing.
            if response.has_no_allocation() {
                std::mem::forget(message);
            } else {
                discard(message);
            }
            return Ok(());
        }
        self.send_any(message, out)
    }

    /// Whether the connection and its request allow the fast path.
    #[inline(always)]
    fn takes_fast_path(&self) -> bool {
        const SPECIAL: u16 = HTTP_10 | HEAD | CONNECT | READS_AHEAD | ENDING;
        self.outbound == Outbound::Owed
            && self.inbound == Inbound::Await
            && self.flags & (KEEPS_ALIVE | SPECIAL) == KEEPS_ALIVE
    }

    /// Writes the same fields as `send_response`, in one piece and without checks. It is not inlined, since it is the same for
    /// every caller.
    #[inline(never)]
    fn send_fast_path(&mut self, content_type: ContentType, body: &[u8], out: &mut Output<'_>) {
        let (start, content_type) = (self.config.kept_ok_start(), content_type.as_str().as_bytes());
        let date = out.time().date();
        out.write_pieces((
            start,
            date,
            b"\r\nContent-Type: ",
            content_type,
            b"\r\nContent-Length: ",
            length_and_end(body.len()),
            body,
        ));
        self.outbound = Outbound::Idle;
        self.since = Some(out.now());
        self.next_request();
    }
}

impl Response {
    /// Content type and body of a response for the fast path: 200, with a content type, without fields, and with a
    /// short body.
    #[inline(always)]
    fn fast_path(&self) -> Option<(ContentType, &[u8])> {
        let Parts { fields, content_type, status, close } = &self.parts;
        let body = self.body.short()?;
        let is_plain = *status == Status::OK && !close && fields.is_empty();
        content_type.filter(|_| is_plain).map(|content_type| (content_type, body))
    }
}

/// The length of a short body in digits, followed by the end of the head.
#[inline]
fn length_and_end(length: usize) -> Short {
    const END: u64 = u32::from_le_bytes(*b"\r\n\r\n") as u64;
    const _: () = assert!(INLINE_BYTES_MAX < 10_000, "four digits");
    let pair = |number: usize| u64::from(PAIRS[number % 100]);
    let (digits, count) = match length {
        0..10 => (pair(length) >> 8, 1),
        10..100 => (pair(length), 2),
        100..1000 => (pair(length / 100) >> 8 | pair(length) << 8, 3),
        _ => (pair(length / 100) | pair(length) << 16, 4),
    };
    Short::new((digits | END << (8 * count)).to_le_bytes(), count + 4)
}

/// The two digits of each number below a hundred, the first in the lower byte.
static PAIRS: [u16; 100] = {
    let mut pairs = [0; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = u16::from_le_bytes([b'0' + number as u8 / 10, b'0' + number as u8 % 10]);
        number += 1;
    }
    pairs
};

#[inline(never)]
fn discard(message: Outgoing) {
    drop(message);
}
