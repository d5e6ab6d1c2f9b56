//! The outbound half: messages to frames, and messages for many connections.
//!
//! A server's payload is linked into the queue where it is large, and copied with its header where it is short. A
//! client's payload is masked on its way into the queue.
//!
//! An encoded broadcast has both forms of the message, since connections differ in their negotiated extensions:
//!
//! ```text
//! length of the plain frame (4), plain frame, compressed frame or nothing
//! ```

use std::time::Duration;

use tidegate_buffer::{LINK_BYTES_MIN, Slice};
use tidegate_codec::framing::Payload;
use tidegate_codec::{Broadcast, Output};

use crate::close::Close;
use crate::codec::{CLIENT, CLOSE_RECEIVED, CLOSE_SENT, QUEUED, SENDS_PIECES, SENDS_TEXT, WebSocket};
use crate::error::{Error, Exceeded, Misuse};
use crate::frame::{CONTROL_BYTES_MAX, Header, Opcode};
use crate::mask;
use crate::message::{Kind, Message, Piece};
use crate::permessage_deflate::{compress_alone, compression};
use crate::utf8::{Invalid, Utf8};

impl WebSocket {
    /// Encodes a message.
    #[inline]
    pub(crate) fn send(&mut self, message: Message, out: &mut Output<'_>) -> Result<(), Error> {
        if self.has(CLOSE_SENT) {
            return Err(Misuse::Closed.into());
        }
        match message {
            Message::Text(text) => self.send_whole(Opcode::Text, text.into_payload(), out),
            Message::Binary(payload) => self.send_whole(Opcode::Binary, payload, out),
            Message::Piece(piece) => self.send_piece(piece, out),
            Message::Ping(payload) => self.send_control(Opcode::Ping, &payload, out),
            Message::Pong(payload) => self.send_control(Opcode::Pong, &payload, out),
            Message::Close(close) => self.send_close(close.as_ref(), out),
        }
    }

    #[inline]
    fn send_whole(&mut self, opcode: Opcode, payload: Payload, out: &mut Output<'_>) -> Result<(), Error> {
        if self.has(SENDS_PIECES) {
            return Err(Misuse::MessageUnfinished.into());
        }
        if let Some(compressed) = self.compressed_form(payload.as_ref(), out)? {
            self.write_data(header(opcode, true, true), compressed.into(), out);
        } else {
            self.write_data(header(opcode, true, false), payload, out);
        }
        Ok(())
    }

    /// The compressed form of a message, if compression was negotiated and the message is worth it.
    #[inline]
    fn compressed_form(&mut self, payload: &[u8], out: &Output<'_>) -> Result<Option<Vec<u8>>, Error> {
        let Some(deflate) = &mut self.deflate else { return Ok(None) };
        let least = self.config.deflate.as_ref().map_or(0, |settings| settings.compress_bytes_min);
        if payload.len() < least || !deflate.may_compress() {
            return Ok(None);
        }
        deflate.compress(payload, out.pool()).map(Some)
    }

    fn send_piece(&mut self, piece: Piece, out: &mut Output<'_>) -> Result<(), Error> {
        let is_text = piece.kind == Kind::Text;
        let is_first = !self.has(SENDS_PIECES);
        if !is_first && self.has(SENDS_TEXT) != is_text {
            return Err(Misuse::MessageUnfinished.into());
        }
        if is_text {
            let mut state = if is_first { Utf8::default() } else { self.sent_text };
            state.check(piece.bytes.as_ref()).map_err(|Invalid| Misuse::Utf8)?;
            if piece.is_last && !state.is_complete() {
                return Err(Misuse::Utf8.into());
            }
            self.sent_text = state;
        }
        self.set(SENDS_PIECES, !piece.is_last);
        self.set(SENDS_TEXT, is_text);
        let opcode = match (is_first, is_text) {
            (false, _) => Opcode::Continuation,
            (true, true) => Opcode::Text,
            (true, false) => Opcode::Binary,
        };
        self.write_data(header(opcode, piece.is_last, false), piece.bytes, out);
        Ok(())
    }

    fn send_control(&mut self, opcode: Opcode, payload: &Payload, out: &mut Output<'_>) -> Result<(), Error> {
        let payload = payload.as_ref();
        if payload.len() > CONTROL_BYTES_MAX {
            return Err(Misuse::ControlTooLong.into());
        }
        self.write_frame(opcode, payload, out);
        Ok(())
    }

    fn send_close(&mut self, close: Option<&Close>, out: &mut Output<'_>) -> Result<(), Error> {
        let Some(close) = close else {
            self.close_without_code(out);
            return Ok(());
        };
        check_close(close)?;
        self.close(close.code(), close.reason(), out);
        Ok(())
    }

    /// A close frame is sent: that of the peer is awaited, if it has not come.
    pub(crate) fn await_close(&mut self, out: &Output<'_>) {
        self.set(CLOSE_SENT, true);
        self.note_queue(out);
        if !self.has(CLOSE_RECEIVED) {
            self.until = out.now().checked_add(self.config.close_timeout);
        }
    }

    /// Takes note of whether a frame that the peer has to answer follows many bytes.
    pub(crate) fn note_queue(&mut self, out: &Output<'_>) {
        self.set(QUEUED, out.pending() >= QUEUED_BYTES_MIN);
    }

    /// The time for the answer to a ping or to a close frame has come. While bytes wait, the peer may not have received that
    /// frame; it has to take bytes at the least rate of the connection. It has the whole time once none wait.
    #[cold]
    pub(crate) fn expire(&mut self, time: Duration, exceeded: Exceeded, out: &Output<'_>) -> Result<(), Error> {
        let waits = out.pending() > 0;
        if !waits && !self.has(QUEUED) {
            return Err(exceeded.into());
        }
        self.set(QUEUED, waits);
        self.until = out.now().checked_add(time);
        Ok(())
    }

    /// Writes a short frame that is a message by itself.
    pub(crate) fn write_frame(&mut self, opcode: Opcode, payload: &[u8], out: &mut Output<'_>) {
        let header = header(opcode, true, false);
        if self.has(CLIENT) { write_masked(header, payload, out) } else { write_copied(header, payload, out) }
    }

    #[inline]
    fn write_data(&mut self, header: Header, payload: Payload, out: &mut Output<'_>) {
        if !self.has(CLIENT) && payload.as_ref().len() <= CONTROL_BYTES_MAX {
            // Its length is in the second byte.
            let bytes = payload.as_ref();
            out.write_pieces((&[header.first_byte(), bytes.len() as u8][..], bytes));
        } else if self.has(CLIENT) {
            write_masked(header, payload.as_ref(), out);
        } else if payload.as_ref().len() < LINK_BYTES_MIN {
            write_copied(header, payload.as_ref(), out);
        } else {
            let (bytes, length) = Header { length: payload.as_ref().len() as u64, ..header }.write();
            out.write(&bytes[..length]);
            match payload {
                Payload::Slice(slice) => out.link(slice),
                Payload::Bytes(bytes) | Payload::Encoded(bytes) => out.link_bytes(bytes),
            }
        }
    }
}

/// A header whose length is not known yet.
fn header(opcode: Opcode, is_final: bool, is_compressed: bool) -> Header {
    Header { opcode, is_final, is_compressed, length: 0, mask: None }
}

fn check_close(close: &Close) -> Result<(), Misuse> {
    if !close.code().is_sendable() {
        return Err(Misuse::CloseCode(close.code().0));
    }
    if close.reason().len() > CONTROL_BYTES_MAX - 2 {
        return Err(Misuse::CloseReason);
    }
    Ok(())
}

/// A close frame for many connections, which has one form.
fn encode_close_once(close: Option<&Close>, out: &mut Output<'_>) -> Result<(), Error> {
    let payload = match close {
        Some(close) => {
            check_close(close)?;
            [&close.code().0.to_be_bytes(), close.reason().as_bytes()].concat()
        }
        None => Vec::new(),
    };
    // Its length is in the second byte.
    let frame = [header(Opcode::Close, true, false).first_byte(), payload.len() as u8];
    let length = frame.len() as u32 + payload.len() as u32;
    out.write(&length.to_be_bytes());
    out.write_pieces((&frame[..], &payload[..]));
    Ok(())
}

#[inline]
fn write_copied(header: Header, payload: &[u8], out: &mut Output<'_>) {
    let (bytes, length) = Header { length: payload.len() as u64, ..header }.write();
    out.write_pieces((&bytes[..length], payload));
}

fn write_masked(header: Header, payload: &[u8], out: &mut Output<'_>) {
    let mut mask = mask::new_key();
    let (bytes, length) = Header { length: payload.len() as u64, mask: Some(mask), ..header }.write();
    out.write(&bytes[..length]);
    for part in payload.chunks(MASKED_BYTES_MAX) {
        let written = out.write_with(part.len(), |space| {
            mask::copy(part, space, &mut mask);
            Ok::<_, std::convert::Infallible>(part.len())
        });
        match written {
            Ok(_) => {}
            Err(never) => match never {},
        }
    }
}

impl Broadcast for WebSocket {
    /// Encodes both forms of the message. `self` is a server's codec with the configuration of the connections; it
    /// compresses if its configuration has [`deflate`](crate::Config::deflate), whatever was negotiated.
    fn encode_once(&mut self, message: Message, out: &mut Output<'_>) -> Result<(), Error> {
        if self.has(CLIENT) {
            return Err(Misuse::ClientBroadcast.into());
        }
        let (opcode, payload) = match message {
            Message::Text(text) => (Opcode::Text, text.into_payload()),
            Message::Binary(payload) => (Opcode::Binary, payload),
            Message::Ping(payload) if payload.as_ref().len() <= CONTROL_BYTES_MAX => (Opcode::Ping, payload),
            Message::Ping(_) => return Err(Misuse::ControlTooLong.into()),
            Message::Close(close) => return encode_close_once(close.as_ref(), out),
            _ => return Err(Misuse::NoBroadcast.into()),
        };
        let settings = self
            .config
            .deflate
            .as_ref()
            .filter(|settings| !opcode.is_control() && payload.as_ref().len() >= settings.compress_bytes_min);
        let compressed = settings.map(|settings| compress_alone(settings, payload.as_ref())).transpose()?;
        let plain = Header { length: payload.as_ref().len() as u64, ..header(opcode, true, false) };
        let length = plain.write().1 + payload.as_ref().len();
        let Ok(length) = u32::try_from(length) else { return Err(Misuse::NoBroadcast.into()) };
        out.write(&length.to_be_bytes());
        self.write_data(plain, payload, out);
        if let Some(compressed) = compressed {
            self.write_data(header(opcode, true, true), compressed.into(), out);
        }
        Ok(())
    }

    fn write_encoded(&mut self, bytes: Slice, out: &mut Output<'_>) -> Result<(), Error> {
        if self.has(CLIENT) {
            return Err(Misuse::ClientBroadcast.into());
        }
        if self.has(CLOSE_SENT) {
            return Err(Misuse::Closed.into());
        }
        let Some((length, forms)) = bytes.split_first_chunk::<4>() else { return Err(Misuse::NoBroadcast.into()) };
        let plain = u32::from_be_bytes(*length) as usize;
        if plain == 0 || plain > forms.len() {
            return Err(Misuse::NoBroadcast.into());
        }
        // Control frames may stand between the pieces of a message (RFC 6455 §5.4).
        let is_close = forms.first() == Some(&header(Opcode::Close, true, false).first_byte());
        if self.has(SENDS_PIECES) && !is_close {
            return Err(Misuse::MessageUnfinished.into());
        }
        if is_close {
            self.await_close(out);
        }
        let (begin, end) = (length.len(), length.len() + plain);
        let made_with = self.config.deflate.as_ref().map(|settings| compression(settings, settings.window_bits));
        let takes_compressed = match (&self.deflate, made_with) {
            (Some(deflate), Some(made_with)) => deflate.takes_shared(made_with),
            _ => false,
        };
        let range = if takes_compressed && end < bytes.len() { end..bytes.len() } else { begin..end };
        out.link_shared(bytes.slice(range));
        Ok(())
    }
}

/// Bytes that are masked at a time.
const MASKED_BYTES_MAX: usize = 16 * 1024;

/// So many bytes before a ping or a close frame may take as long as its answer may.
const QUEUED_BYTES_MIN: u64 = 16 * 1024;
