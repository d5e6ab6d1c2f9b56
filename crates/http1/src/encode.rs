//! The outbound half: encodes responses straight into the outbound queue.

use tidegate_buffer::Cursor;
use tidegate_codec::Output;

use crate::body::Inbound;
use crate::error::{Error, Misuse};
use crate::fields::{Fields, OwnFields};
use crate::progress::Ending;
use crate::refusals::Refusal;
use crate::response::{Body, Chunk, ContentType, Interim, Outgoing, Parts, Response, StreamedResponse};
use crate::server::{CONNECT, EXPECTS, HAS_MORE_INPUT, HEAD, HTTP_10, KEEPS_ALIVE, Outbound, READS_AHEAD, Server};
use crate::status::Status;

impl Server {
    /// Writes any message.
    #[inline(never)]
    pub(crate) fn send_any(&mut self, message: Outgoing, out: &mut Output<'_>) -> Result<(), Misuse> {
        match message {
            Outgoing::Response(mut response) => self.send_response(&mut response, out),
            Outgoing::Head(head) => self.send_head(&head, out),
            Outgoing::Data(data) => self.send_data(data, out),
            Outgoing::Chunk(chunk) => self.send_chunk(chunk, out),
            Outgoing::Trailers(fields) => self.send_trailers(&fields, out),
            Outgoing::End => self.send_end(out),
            Outgoing::Continue => self.send_continue(out),
            Outgoing::Interim(interim) => self.send_interim(&interim, out),
        }
    }

    /// Sends the peer a response with the status of the error, unless a response has begun, and ends the connection.
    #[cold]
    pub(crate) fn refuse(&mut self, error: Error, reply: &mut Output<'_>) -> Error {
        self.refuse_request(error, &[], reply)
    }

    /// The same for a request that begins with these bytes.
    #[cold]
    pub(crate) fn refuse_request(&mut self, error: Error, input: &[u8], reply: &mut Output<'_>) -> Error {
        if let (Some(status), Outbound::Idle | Outbound::Owed) = (error.status(), self.outbound) {
            self.config.refusals().add(status);
            Refusal::record(status, error.text(), input);
            self.write_last(status, error.text(), reply);
        }
        self.outbound = Outbound::Idle;
        self.inbound = Inbound::Closed;
        error
    }

    /// Sends the peer a 500, if a response is owed and none of it was written, and ends the connection.
    #[cold]
    pub(crate) fn give_up(&mut self, out: &mut Output<'_>) {
        if self.outbound == Outbound::Owed {
            self.write_last(Status::INTERNAL_SERVER_ERROR, "the server failed to answer", out);
        }
        self.outbound = Outbound::Idle;
        self.inbound = Inbound::Closed;
    }

    fn write_last(&mut self, status: Status, text: &'static str, out: &mut Output<'_>) {
        self.write_whole(&mut Response::new(status).content_type(ContentType::TEXT).body(text).close(), out);
    }

    #[inline(never)]
    fn send_response(&mut self, response: &mut Response, out: &mut Output<'_>) -> Result<(), Misuse> {
        let status = response.parts.status;
        self.check_head(&response.parts)?;
        if !status.allows_body() && !response.body.is_empty() {
            return Err(Misuse::BodyForbidden);
        }
        self.write_whole(response, out);
        self.complete(status, out);
        Ok(())
    }

    #[inline]
    fn write_whole(&mut self, response: &mut Response, out: &mut Output<'_>) {
        let Response { body, parts } = response;
        let memory = body.memory();
        let length = if let Body::File(region) = &*body { region.length } else { memory.len() as u64 };
        let framing = match parts.status.code() {
            101 | 204 => Framing::None,
            304 if length == 0 => Framing::None,
            200..=299 if self.flags & CONNECT != 0 => Framing::None,
            _ => Framing::Length(length),
        };
        self.decide_close(parts, true);
        let inline = memory.len() as u64 == length && memory.len() <= INLINE_BYTES_MAX;
        if self.flags & HEAD != 0 || matches!(framing, Framing::None) {
            // In a tunnel the peer would read a body as tunnelled bytes.
            self.write_head(parts, framing, &[], out);
        } else if inline {
            self.write_head(parts, framing, memory, out);
        } else {
            self.write_head(parts, framing, &[], out);
            link(std::mem::replace(body, Body::Empty), out);
        }
    }

    #[cold]
    fn send_head(&mut self, head: &StreamedResponse, out: &mut Output<'_>) -> Result<(), Misuse> {
        let StreamedResponse { length, parts } = head;
        self.check_head(parts)?;
        let tunnel = self.flags & CONNECT != 0 && (200..300).contains(&parts.status.code());
        let framing = match *length {
            _ if tunnel || matches!(parts.status.code(), 101 | 204) => Framing::None,
            // A 205 has no content, but the peer must see its length (RFC 9110 §15.3.6).
            _ if parts.status == Status::RESET_CONTENT => Framing::Length(0),
            Some(length) => Framing::Length(length),
            None if parts.status.code() == 304 => Framing::None,
            None if self.flags & HTTP_10 != 0 => Framing::UntilClose,
            None => Framing::Chunked,
        };
        if matches!(framing, Framing::UntilClose) {
            self.flags &= !KEEPS_ALIVE;
        }
        self.decide_close(parts, matches!(framing, Framing::None));
        self.write_head(parts, framing, &[], out);
        if !tunnel {
            // A CONNECT that was refused does not become a tunnel when its response ends.
            self.flags &= !CONNECT;
        }
        self.owed = 0;
        self.outbound = match framing {
            _ if self.flags & HEAD != 0 && parts.status != Status::SWITCHING_PROTOCOLS => Outbound::Suppressed,
            Framing::None => {
                self.complete(parts.status, out);
                return Ok(());
            }
            Framing::Length(_) if !parts.status.allows_body() => Outbound::Suppressed,
            Framing::Length(length) => {
                self.owed = length;
                Outbound::Length
            }
            Framing::Chunked => Outbound::Chunked,
            Framing::UntilClose => Outbound::UntilClose,
        };
        Ok(())
    }

    fn send_data(&mut self, data: Body, out: &mut Output<'_>) -> Result<(), Misuse> {
        let length = data.len();
        match self.outbound {
            Outbound::Idle | Outbound::Owed => return Err(Misuse::NoResponse),
            Outbound::Suppressed => {}
            Outbound::Length if length > self.owed => return Err(Misuse::BodyTooLong),
            Outbound::Length => {
                self.owed -= length;
                link(data, out);
            }
            Outbound::UntilClose => link(data, out),
            // An empty chunk would be the last one.
            Outbound::Chunked if length == 0 => {}
            Outbound::Chunked => write_chunk(data, out),
        }
        Ok(())
    }

    fn send_chunk(&mut self, chunk: Chunk, out: &mut Output<'_>) -> Result<(), Misuse> {
        if self.outbound == Outbound::Chunked {
            out.link_bytes(chunk.into_framed());
            return Ok(());
        }
        self.send_data(Body::Bytes(chunk.into_data()), out)
    }

    fn send_end(&mut self, out: &mut Output<'_>) -> Result<(), Misuse> {
        match self.outbound {
            Outbound::Idle | Outbound::Owed => return Err(Misuse::NoResponse),
            Outbound::Length if self.owed > 0 => {
                self.outbound = Outbound::Idle;
                self.inbound = Inbound::Closed;
                return Err(Misuse::BodyTooShort);
            }
            Outbound::Chunked => out.write(b"0\r\n\r\n"),
            Outbound::Length | Outbound::Suppressed | Outbound::UntilClose => {}
        }
        self.complete(Status::OK, out);
        Ok(())
    }

    fn send_trailers(&mut self, fields: &Fields, out: &mut Output<'_>) -> Result<(), Misuse> {
        if !fields.are_trailers() {
            return Err(Misuse::TrailerForbidden);
        }
        if self.outbound != Outbound::Chunked || fields.is_empty() {
            // Only a chunked body can have trailers.
            return self.send_end(out);
        }
        write_trailers(fields, out);
        self.complete(Status::OK, out);
        Ok(())
    }

    /// Writes nothing to an HTTP/1.0 peer, since HTTP/1.0 has no interim responses (RFC 9110 §15.2).
    fn send_interim(&mut self, interim: &Interim, out: &mut Output<'_>) -> Result<(), Misuse> {
        if self.outbound != Outbound::Owed {
            return Err(Misuse::NoRequest);
        }
        if !interim.status.is_interim() || interim.status == Status::CONTINUE {
            return Err(Misuse::InterimStatus);
        }
        if self.flags & HTTP_10 == 0 {
            let mut writer = out.writer(interim.fields.bytes().len() + HEAD_SLACK_BYTES);
            put_status_line(interim.status, &mut writer);
            if interim.fields.name_a_protocol() {
                writer.put(b"Connection: upgrade\r\n");
            }
            writer.put(interim.fields.bytes());
            writer.put(b"\r\n");
        }
        Ok(())
    }

    fn send_continue(&mut self, out: &mut Output<'_>) -> Result<(), Misuse> {
        if self.outbound != Outbound::Owed || self.flags & EXPECTS == 0 {
            return Err(Misuse::ContinueUnexpected);
        }
        self.flags &= !EXPECTS;
        // Until now the peer waited for `100 Continue`, so its body is not late.
        self.since = Some(out.now());
        out.write(CONTINUE);
        Ok(())
    }

    #[inline]
    fn check_head(&self, parts: &Parts) -> Result<(), Misuse> {
        match self.outbound {
            Outbound::Owed if parts.status.is_interim() => Err(Misuse::InterimStatus),
            Outbound::Owed if parts.status == Status::SWITCHING_PROTOCOLS => self.check_switch(parts),
            Outbound::Owed => Ok(()),
            Outbound::Idle => Err(Misuse::NoRequest),
            _ => Err(Misuse::ResponseUnderWay),
        }
    }

    /// Whether the response may switch to another protocol. The application must check that the request asks for it.
    #[cold]
    fn check_switch(&self, parts: &Parts) -> Result<(), Misuse> {
        if self.inbound != Inbound::Await || self.ahead().count() > 0 {
            return Err(Misuse::SwitchTooEarly);
        }
        if self.flags & HTTP_10 != 0 {
            return Err(Misuse::PeerTooOld);
        }
        if parts.fields.name_a_protocol() { Ok(()) } else { Err(Misuse::SwitchUnnamed) }
    }

    /// Decides whether the connection closes after the response that is about to be written. If the response is
    /// `whole`, the rest of the request's body is skipped, or the connection closes; otherwise request and response may
    /// continue in parallel.
    #[inline]
    fn decide_close(&mut self, parts: &Parts, whole: bool) {
        let may_stay = match self.ending() {
            Ending::Open => true,
            Ending::Closing => self.ahead().count() > 0,
            _ => self.flags & HAS_MORE_INPUT != 0,
        };
        // A client may have sent bytes of the tunnel behind its CONNECT, and they must not be read as requests (RFC 9931 §6).
        let is_refused_tunnel = self.flags & CONNECT != 0 && !(200..300).contains(&parts.status.code());
        let stays = may_stay && self.flags & KEEPS_ALIVE != 0 && !parts.close && !is_refused_tunnel;
        let may_skip = || if whole { self.can_skip() } else { self.flags & EXPECTS == 0 };
        if !stays || (self.inbound != Inbound::Await && !may_skip()) {
            self.flags &= !KEEPS_ALIVE;
        }
    }

    /// Writes the head, and a short body after it, into one piece of memory.
    #[inline]
    fn write_head(&self, parts: &Parts, framing: Framing, body: &[u8], out: &mut Output<'_>) {
        let date = out.time().date();
        let fields = parts.fields.bytes();
        let content_type = parts.content_type.map_or("", ContentType::as_str).as_bytes();
        let known = self.config.ok_start().len() + fields.len() + content_type.len() + body.len();
        let mut writer = out.writer(known + HEAD_SLACK_BYTES);
        let own = parts.fields.own();
        if own.is_any() {
            self.put_start_beside(own, parts.status, date, &mut writer);
        } else {
            if parts.status == Status::OK {
                writer.put(self.config.ok_start());
            } else {
                self.put_continue_before(parts.status, &mut writer);
                put_status_line(parts.status, &mut writer);
                writer.put(self.config.after_status());
            }
            writer.put(date);
        }
        if !content_type.is_empty() {
            writer.put(b"\r\nContent-Type: ");
            writer.put(content_type);
        }
        let switches = parts.status == Status::SWITCHING_PROTOCOLS;
        let names_timeout = !switches && !self.config.keep_alive().is_empty();
        if self.flags & KEEPS_ALIVE == 0 && !switches {
            writer.put(b"\r\nConnection: close");
        } else if names_timeout {
            writer.put(self.config.keep_alive());
        } else if self.flags & HTTP_10 != 0 {
            writer.put(b"\r\nConnection: keep-alive");
        }
        if !fields.is_empty() {
            if parts.fields.name_a_protocol() {
                let has_connection = names_timeout || self.flags & (KEEPS_ALIVE | HTTP_10) != KEEPS_ALIVE && !switches;
                writer.put(if has_connection { b", upgrade" } else { b"\r\nConnection: upgrade" });
            }
            writer.put(b"\r\n");
            writer.put(&fields[..fields.len() - 2]);
        }
        match framing {
            Framing::Length(length) => {
                writer.put(b"\r\nContent-Length: ");
                writer.put(itoa::Buffer::new().format(length).as_bytes());
                writer.put(b"\r\n\r\n");
            }
            Framing::Chunked => writer.put(b"\r\nTransfer-Encoding: chunked\r\n\r\n"),
            Framing::None | Framing::UntilClose => writer.put(b"\r\n\r\n"),
        }
        writer.put(body);
    }

    /// The start of a head whose fields have a `Date` or a `Server` of the application. Responses that a proxy passes on have
    /// the `Date` of their origin.
    #[inline(never)]
    fn put_start_beside(&self, own: OwnFields, status: Status, date: &[u8], writer: &mut Cursor<'_>) {
        if status == Status::OK
            && !own.server
            && let Some(start) = self.config.ok_start().strip_suffix(b"\r\nDate: ")
        {
            return writer.put(start);
        }
        self.put_continue_before(status, writer);
        // Each line begins with the end of the one before.
        match status.line().and_then(|line| line.strip_suffix("\r\n")) {
            Some(line) => writer.put(line.as_bytes()),
            None => {
                writer.put(b"HTTP/1.1 ");
                writer.put(itoa::Buffer::new().format(status.code()).as_bytes());
                writer.put(b" ");
            }
        }
        // Without a name and without alternatives there is nothing before the date.
        let server = self.config.after_status().strip_suffix(b"\r\nDate: ").filter(|_| !own.server);
        if let Some(server) = server {
            writer.put(b"\r\n");
            writer.put(server);
        } else {
            writer.put(self.config.alternatives());
        }
        if !own.date {
            writer.put(b"\r\nDate: ");
            writer.put(date);
        }
    }

    /// `100 Continue` comes before 101 (RFC 9110 §7.8).
    fn put_continue_before(&self, status: Status, writer: &mut Cursor<'_>) {
        if status == Status::SWITCHING_PROTOCOLS && self.flags & EXPECTS != 0 {
            writer.put(CONTINUE);
        }
    }

    /// The response is complete. Continues with the next request, or ends the connection.
    #[inline]
    fn complete(&mut self, status: Status, out: &Output<'_>) {
        self.outbound = Outbound::Idle;
        self.since = Some(out.now());
        let tunnel = self.flags & CONNECT != 0 && (200..300).contains(&status.code());
        if status == Status::SWITCHING_PROTOCOLS || tunnel {
            self.inbound = Inbound::Switched;
        } else if self.flags & KEEPS_ALIVE == 0 {
            self.inbound = Inbound::Closed;
        } else if self.inbound == Inbound::Await {
            if self.flags & READS_AHEAD == 0 { self.next_request() } else { self.next_ahead() }
        } else {
            self.skip_body();
        }
    }
}

/// How the body of a response is framed.
#[derive(Debug, Clone, Copy)]
enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

fn put_status_line(status: Status, writer: &mut Cursor<'_>) {
    match status.line() {
        Some(line) => writer.put(line.as_bytes()),
        None => {
            writer.put(b"HTTP/1.1 ");
            writer.put(itoa::Buffer::new().format(status.code()).as_bytes());
            writer.put(b" \r\n");
        }
    }
}

pub(crate) fn link(body: Body, out: &mut Output<'_>) {
    match body {
        Body::Empty => {}
        Body::Static(bytes) => out.link_static(bytes),
        Body::Bytes(bytes) => out.link_bytes(bytes),
        Body::Slice(slice) => out.link(slice),
        Body::File(region) => out.link_file(region),
    }
}

pub(crate) fn write_chunk(data: Body, out: &mut Output<'_>) {
    let (line, start) = chunk_size_line(data.len());
    if let Some(bytes) = data.short() {
        return out.write_pieces((&line[start..], bytes, b"\r\n"));
    }
    out.write(&line[start..]);
    link(data, out);
    out.write(b"\r\n");
}

/// Writes the last chunk, and the trailer section after it.
pub(crate) fn write_trailers(fields: &Fields, out: &mut Output<'_>) {
    out.write_pieces((b"0\r\n", fields.bytes(), b"\r\n"));
}

/// The line before a chunk, and its start in the array.
fn chunk_size_line(size: u64) -> ([u8; 18], usize) {
    let mut line = *b"0000000000000000\r\n";
    let (mut start, mut rest) = (16, size);
    while rest > 0 {
        start -= 1;
        line[start] = b"0123456789abcdef"[(rest % 16) as usize];
        rest /= 16;
    }
    (line, start)
}

pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Bodies up to this length are copied after their head.
pub(crate) const INLINE_BYTES_MAX: usize = tidegate_buffer::LINK_BYTES_MIN - 1;

/// The most bytes of a head beside its configured start, its content type, its fields and its body: a status line, the
/// date, and the fields about length and connection.
const HEAD_SLACK_BYTES: usize = 192;
