//! The outbound half: encodes requests straight into the outbound queue.

use tidegate_codec::Output;

use super::request::{Outgoing, Parts, Request, StreamedRequest};
use super::{Client, EXPECTS, Ending, Outbound, PEER_HTTP_10, RequestKind, UNSOLICITED, WRITE_FAILED};
use crate::body::Inbound;
use crate::encode::{INLINE_BYTES_MAX, link, write_chunk, write_trailers};
use crate::error::Misuse;
use crate::fields::Fields;
use crate::head::Method;
use crate::response::{Body, Chunk};

impl Client {
    pub(super) fn send(&mut self, message: Outgoing, out: &mut Output<'_>) -> Result<(), Misuse> {
        match message {
            Outgoing::Request(request) => self.send_request(request, out),
            Outgoing::Head(head) => self.send_head(&head, out),
            Outgoing::Data(data) => self.send_data(data, out),
            Outgoing::Chunk(chunk) => self.send_chunk(chunk, out),
            Outgoing::Trailers(fields) => self.send_trailers(&fields, out),
            Outgoing::End => self.send_end(out),
        }
    }

    /// Whether a request may be sent now.
    pub(super) fn check_request(&self) -> Result<(), Misuse> {
        if self.ending == Ending::Last || matches!(self.inbound, Inbound::Closed | Inbound::Switched) {
            return Err(Misuse::NoMoreRequests);
        }
        if self.outbound != Outbound::Idle {
            return Err(Misuse::RequestUnderWay);
        }
        if self.ending == Ending::Closing || self.flags & UNSOLICITED != 0 {
            return Err(Misuse::NoMoreRequests);
        }
        // Between the head of a response and its end the next request would be pipelined as well.
        let in_response = u8::from(self.inbound != Inbound::Head);
        let switches = matches!(self.last_kind(), Some(RequestKind::Connect | RequestKind::Upgrade));
        if switches || self.count + in_response >= self.config.limits().pipeline_max {
            return Err(Misuse::PipelineFull);
        }
        Ok(())
    }

    fn check(&self, parts: &Parts, framing: Framing) -> Result<(), Misuse> {
        self.check_request()?;
        if !parts.has_host && self.config.host_line().is_empty() {
            return Err(Misuse::HostMissing);
        }
        let cannot_switch = matches!(parts.method, Method::Head | Method::Connect);
        if parts.upgrade.is_some() && cannot_switch || parts.fields.name_a_protocol() {
            return Err(Misuse::UpgradeForbidden);
        }
        match framing {
            Framing::None => Ok(()),
            // A peer echoes a TRACE with its body, and would read a body of CONNECT as the first bytes in the tunnel.
            _ if matches!(parts.method, Method::Trace | Method::Connect) => Err(Misuse::BodyForbidden),
            Framing::Chunked if self.flags & PEER_HTTP_10 != 0 => Err(Misuse::PeerTooOld),
            _ => Ok(()),
        }
    }

    fn send_request(&mut self, request: Request, out: &mut Output<'_>) -> Result<(), Misuse> {
        let Request { body, parts } = request;
        let framing = match body.len() {
            // A method that usually has a body announces an empty one (RFC 9110 §8.6).
            0 if matches!(parts.method, Method::Post | Method::Put | Method::Patch) => Framing::Length(0),
            0 => Framing::None,
            length => Framing::Length(length),
        };
        self.check(&parts, framing)?;
        self.begin(&parts, out);
        let memory = body.memory();
        if memory.len() as u64 == body.len() && memory.len() <= INLINE_BYTES_MAX {
            self.write_head(&parts, framing, false, memory, out);
        } else {
            self.write_head(&parts, framing, false, &[], out);
            link(body, out);
        }
        Ok(())
    }

    fn send_head(&mut self, head: &StreamedRequest, out: &mut Output<'_>) -> Result<(), Misuse> {
        let StreamedRequest { length, expects, parts } = head;
        let framing = length.map_or(Framing::Chunked, Framing::Length);
        self.check(parts, framing)?;
        if *expects && self.flags & PEER_HTTP_10 != 0 {
            return Err(Misuse::PeerTooOld);
        }
        self.begin(parts, out);
        // A request without a body must not wait for `100 Continue` (RFC 9110 §10.1.1).
        let expects = *expects && *length != Some(0);
        self.write_head(parts, framing, expects, &[], out);
        if expects {
            self.flags |= EXPECTS;
        }
        self.owed = length.unwrap_or(0);
        self.outbound = if length.is_some() { Outbound::Length } else { Outbound::Chunked };
        Ok(())
    }

    fn begin(&mut self, parts: &Parts, out: &Output<'_>) {
        if self.count == 0 && self.inbound == Inbound::Head {
            self.since = Some(out.now());
        }
        self.push_kind(match parts.method {
            _ if parts.upgrade.is_some() => RequestKind::Upgrade,
            Method::Head => RequestKind::Head,
            Method::Connect => RequestKind::Connect,
            _ => RequestKind::Usual,
        });
        if parts.close {
            self.take_no_more();
        }
    }

    fn send_data(&mut self, data: Body, out: &mut Output<'_>) -> Result<(), Misuse> {
        let length = data.len();
        match self.outbound {
            Outbound::Idle => return self.discard(false),
            // An empty chunk would be the last one.
            _ if length == 0 => return Ok(()),
            Outbound::Length if length > self.owed => return Err(Misuse::BodyTooLong),
            Outbound::Length => {
                self.owed -= length;
                link(data, out);
            }
            Outbound::Chunked => write_chunk(data, out),
        }
        // Once the body is sent the request no longer waits for `100 Continue`.
        self.flags &= !EXPECTS;
        Ok(())
    }

    fn send_chunk(&mut self, chunk: Chunk, out: &mut Output<'_>) -> Result<(), Misuse> {
        if self.outbound == Outbound::Chunked && !chunk.is_empty() {
            self.flags &= !EXPECTS;
            out.link_bytes(chunk.into_framed());
            return Ok(());
        }
        self.send_data(Body::Bytes(chunk.into_data()), out)
    }

    /// Discards a piece of a body that is no longer sent, since the peer has closed. Otherwise it is an error.
    fn discard(&mut self, is_end: bool) -> Result<(), Misuse> {
        if self.flags & WRITE_FAILED == 0 {
            return Err(Misuse::NoRequestUnderWay);
        }
        if is_end {
            self.flags &= !WRITE_FAILED;
        }
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
        self.end_request(out);
        Ok(())
    }

    fn send_end(&mut self, out: &mut Output<'_>) -> Result<(), Misuse> {
        match self.outbound {
            Outbound::Idle => return self.discard(true),
            Outbound::Length if self.owed > 0 => {
                // The peer would read the next request as the rest of this body.
                self.outbound = Outbound::Idle;
                self.close_down();
                return Err(Misuse::BodyTooShort);
            }
            Outbound::Length => {}
            Outbound::Chunked => out.write(b"0\r\n\r\n"),
        }
        self.end_request(out);
        Ok(())
    }

    fn end_request(&mut self, out: &Output<'_>) {
        self.flags &= !EXPECTS;
        self.outbound = Outbound::Idle;
        if self.inbound == Inbound::Head && self.count <= 1 {
            // From now on the peer owes a response.
            self.since = Some(out.now());
        }
        self.close_if_last();
    }

    /// Writes the head, and a short body after it, into one piece of memory.
    fn write_head(&self, parts: &Parts, framing: Framing, expects: bool, body: &[u8], out: &mut Output<'_>) {
        let host: &[u8] = if parts.has_host { b"" } else { self.config.host_line() };
        let fields = parts.fields.bytes();
        let content_type = parts.content_type.map_or("", |name| name.as_str());
        let upgrade = parts.upgrade.as_deref().unwrap_or_default();
        let known = parts.start.len() + host.len() + fields.len() + content_type.len() + upgrade.len() + body.len();
        let mut writer = out.writer(known + HEAD_SLACK_BYTES);
        writer.put(&parts.start);
        writer.put(host);
        let mut field = |name: &str, value: &str| {
            writer.put(name.as_bytes());
            writer.put(value.as_bytes());
            writer.put(b"\r\n");
        };
        match (upgrade, parts.close) {
            ("", false) => {}
            ("", true) => field("Connection: ", "close"),
            (upgrade, close) => {
                field("Connection: ", if close { "close, upgrade" } else { "upgrade" });
                field("Upgrade: ", upgrade);
            }
        }
        if expects {
            field("Expect: ", "100-continue");
        }
        if !content_type.is_empty() {
            field("Content-Type: ", content_type);
        }
        match framing {
            Framing::None => {}
            Framing::Length(length) => field("Content-Length: ", itoa::Buffer::new().format(length)),
            Framing::Chunked => field("Transfer-Encoding: ", "chunked"),
        }
        writer.put(fields);
        writer.put(b"\r\n");
        writer.put(body);
    }
}

/// How the body of a request is framed.
#[derive(Debug, Clone, Copy)]
enum Framing {
    None,
    Length(u64),
    Chunked,
}

/// The most bytes of a head beside its start, its fields and its body.
const HEAD_SLACK_BYTES: usize = 160;
