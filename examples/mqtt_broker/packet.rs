//! The control packets of MQTT 3.1.1, and the codec of a server.
//!
//! ```text
//! type u4, flags u4 | remaining length: 1 to 4 bytes of 7 bits | variable header, payload
//! ```

use std::sync::Arc;

use tidegate::Bytes;
use tidegate::codec::{Codec, Fault, Input, Output, Slice, Step};

/// A packet from a client.
#[derive(Debug)]
pub(crate) enum Request {
    Connect(Connect),
    /// Its identifier counts if its QoS is 1.
    Publish {
        message: Message,
        id: u16,
    },
    Acknowledge {
        id: u16,
    },
    Subscribe {
        id: u16,
        filters: Vec<(Box<str>, u8)>,
    },
    Unsubscribe {
        id: u16,
        filters: Vec<Box<str>>,
    },
    Ping,
    Disconnect,
}

/// CONNECT, without the user name and the password, which this broker does not check.
#[derive(Debug)]
pub(crate) struct Connect {
    pub(crate) client: Box<str>,
    pub(crate) clean: bool,
    /// Seconds; 0 is none.
    pub(crate) keep_alive: u16,
    pub(crate) will: Option<Message>,
}

/// An application message. Clones share topic and payload.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) topic: Arc<str>,
    pub(crate) payload: Bytes,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
}

impl Message {
    /// Bytes of memory, for the bounds of queues.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.topic.len() + self.payload.len()
    }
}

/// A packet to a client.
#[derive(Debug)]
pub(crate) enum Response {
    ConnectAck {
        present: bool,
        code: u8,
    },
    /// It has a packet identifier if its QoS is 1.
    Publish {
        message: Message,
        id: Option<u16>,
        duplicate: bool,
    },
    PublishAck {
        id: u16,
    },
    SubscribeAck {
        id: u16,
        codes: Vec<u8>,
    },
    UnsubscribeAck {
        id: u16,
    },
    PingResp,
}

/// The errors, sorted by blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Fault)]
pub(crate) enum PacketError {
    #[fault(limit, "a packet is longer than {PACKET_BYTES_MAX} bytes")]
    TooLong,
    #[fault(peer, "a malformed packet")]
    Malformed,
    #[fault(peer, "the protocol is not MQTT 3.1.1")]
    Version,
    #[fault(peer, "QoS 2 is not supported")]
    ExactlyOnce,
    #[fault(caller, "a packet is too long to be sent")]
    Unsendable,
}

/// The codec of a server.
#[derive(Debug, Default)]
pub(crate) struct Mqtt {
    is_connected: bool,
}

impl Codec for Mqtt {
    type In = Request;
    type Out = Response;
    type Error = PacketError;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Request>, PacketError> {
        let Some((head, length)) = fixed_header(input.bytes())? else { return Ok(Step::NeedMore) };
        // CONNECT is the first packet, and comes once (MQTT 3.1.1 §3.1). Others are refused before they are complete.
        if !self.is_connected && input.bytes()[0] >> 4 != CONNECT {
            return Err(PacketError::Malformed);
        }
        if input.len() < head + length {
            return Ok(Step::NeedMore);
        }
        let first = input.bytes()[0];
        input.consume(head);
        let body = input.take(length);
        let request = parse(first, &body).inspect_err(|error| {
            if *error == PacketError::Version {
                reply.write(&[0x20, 2, 0, UNACCEPTABLE_VERSION]);
            }
        })?;
        if matches!(request, Request::Connect(_)) && std::mem::replace(&mut self.is_connected, true) {
            return Err(PacketError::Malformed);
        }
        Ok(Step::Message(request))
    }

    fn encode(&mut self, response: Response, out: &mut Output<'_>) -> Result<(), PacketError> {
        match response {
            Response::ConnectAck { present, code } => out.write(&[0x20, 2, u8::from(present), code]),
            Response::PublishAck { id } => out.write_pieces((&[0x40, 2], &id.to_be_bytes())),
            Response::UnsubscribeAck { id } => out.write_pieces((&[0xb0, 2], &id.to_be_bytes())),
            Response::PingResp => out.write(&[0xd0, 0]),
            Response::SubscribeAck { id, codes } => {
                let (length, bytes) = remaining_length(2 + codes.len())?;
                out.write_pieces((&[0x90], &length[..bytes], &id.to_be_bytes(), &codes[..]));
            }
            Response::Publish { message, id, duplicate } => {
                let flags = 0x30 | u8::from(duplicate) << 3 | u8::from(id.is_some()) << 1 | u8::from(message.retain);
                let id = id.map(u16::to_be_bytes);
                let id = id.as_ref().map_or(&[][..], |id| &id[..]);
                let topic = u16::try_from(message.topic.len()).map_err(|_| PacketError::Unsendable)?;
                let rest = 2 + message.topic.len() + id.len() + message.payload.len();
                let (length, bytes) = remaining_length(rest)?;
                out.write_pieces((&[flags], &length[..bytes], &topic.to_be_bytes(), message.topic.as_bytes(), id));
                out.link_bytes(message.payload);
            }
        }
        Ok(())
    }
}

/// The bytes of the fixed header, and those behind it, once the header is complete.
fn fixed_header(bytes: &[u8]) -> Result<Option<(usize, usize)>, PacketError> {
    let mut length = 0;
    for (index, byte) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if length > PACKET_BYTES_MAX {
            return Err(PacketError::TooLong);
        }
        if byte & 0x80 == 0 {
            return Ok(Some((2 + index, length)));
        }
    }
    if bytes.len() > 4 { Err(PacketError::Malformed) } else { Ok(None) }
}

fn remaining_length(mut length: usize) -> Result<([u8; 4], usize), PacketError> {
    let mut bytes = [0; 4];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (length & 0x7f) as u8;
        length >>= 7;
        if length == 0 {
            return Ok((bytes, index + 1));
        }
        *byte |= 0x80;
    }
    Err(PacketError::Unsendable)
}

/// The rest of a packet's body, read field by field.
struct Fields<'a> {
    body: &'a Slice,
    at: usize,
}

impl Fields<'_> {
    fn take(&mut self, count: usize) -> Result<Slice, PacketError> {
        let end = self.at + count;
        if end > self.body.len() {
            return Err(PacketError::Malformed);
        }
        let field = self.body.slice(self.at..end);
        self.at = end;
        Ok(field)
    }

    fn u8(&mut self) -> Result<u8, PacketError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, PacketError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn bytes(&mut self) -> Result<Slice, PacketError> {
        let count = self.u16()?;
        self.take(count.into())
    }

    fn text(&mut self) -> Result<Box<str>, PacketError> {
        text(&self.bytes()?).map(Into::into)
    }

    fn rest(&mut self) -> Slice {
        let at = std::mem::replace(&mut self.at, self.body.len());
        self.body.slice(at..)
    }

    fn is_empty(&self) -> bool {
        self.at == self.body.len()
    }
}

fn text(bytes: &[u8]) -> Result<&str, PacketError> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or(PacketError::Malformed)
}

fn parse(first: u8, body: &Slice) -> Result<Request, PacketError> {
    let mut fields = Fields { body, at: 0 };
    let request = match (first >> 4, first & 0xf) {
        (CONNECT, 0) => Request::Connect(parse_connect(&mut fields)?),
        (3, flags) => parse_publish(flags, &mut fields)?,
        (4, 0) => Request::Acknowledge { id: fields.u16()? },
        (8, 2) => {
            let (id, mut filters) = (packet_id(&mut fields)?, Vec::new());
            while !fields.is_empty() {
                let filter = topic_filter(fields.text()?)?;
                filters.push((filter, Some(fields.u8()?).filter(|qos| *qos <= 2).ok_or(PacketError::Malformed)?));
            }
            check(!filters.is_empty())?;
            Request::Subscribe { id, filters }
        }
        (10, 2) => {
            let (id, mut filters) = (packet_id(&mut fields)?, Vec::new());
            while !fields.is_empty() {
                filters.push(topic_filter(fields.text()?)?);
            }
            check(!filters.is_empty())?;
            Request::Unsubscribe { id, filters }
        }
        (12, 0) => Request::Ping,
        (14, 0) => Request::Disconnect,
        (5..=7, _) => return Err(PacketError::ExactlyOnce),
        _ => return Err(PacketError::Malformed),
    };
    check(fields.is_empty())?;
    Ok(request)
}

fn check(holds: bool) -> Result<(), PacketError> {
    holds.then_some(()).ok_or(PacketError::Malformed)
}

fn packet_id(fields: &mut Fields<'_>) -> Result<u16, PacketError> {
    Some(fields.u16()?).filter(|id| *id != 0).ok_or(PacketError::Malformed)
}

fn parse_publish(flags: u8, fields: &mut Fields<'_>) -> Result<Request, PacketError> {
    let topic = topic(fields)?;
    let qos = flags >> 1 & 3;
    let id = match qos {
        0 => 0,
        1 => packet_id(fields)?,
        2 => return Err(PacketError::ExactlyOnce),
        _ => return Err(PacketError::Malformed),
    };
    // A copy: the message goes to other threads.
    let payload = fields.rest().to_bytes();
    Ok(Request::Publish { message: Message { topic, payload, qos, retain: flags & 1 != 0 }, id })
}

fn parse_connect(fields: &mut Fields<'_>) -> Result<Connect, PacketError> {
    if (&*fields.bytes()?, fields.u8()?) != (b"MQTT", 4) {
        return Err(PacketError::Version);
    }
    let flags = fields.u8()?;
    check(flags & 1 == 0)?;
    let (keep_alive, client, clean) = (fields.u16()?, fields.text()?, flags & 2 != 0);
    check(clean || !client.is_empty())?;
    let will = if flags & 4 != 0 {
        let (topic, payload, qos) = (topic(fields)?, fields.bytes()?, flags >> 3 & 3);
        check(qos <= 2)?;
        Some(Message { topic, payload: payload.to_bytes(), qos: qos.min(1), retain: flags & 32 != 0 })
    } else {
        check(flags & 0b11_1000 == 0)?;
        None
    };
    // The user name and the password.
    for bit in [128, 64] {
        if flags & bit != 0 {
            fields.bytes()?;
        }
    }
    Ok(Connect { client, clean, keep_alive, will })
}

fn topic(fields: &mut Fields<'_>) -> Result<Arc<str>, PacketError> {
    let bytes = fields.bytes()?;
    let topic = text(&bytes)?;
    check(!topic.is_empty() && !topic.contains(['#', '+']) && topic.split('/').count() <= LEVELS_MAX)?;
    Ok(topic.into())
}

/// `+` is a whole level, and `#` the whole last one (MQTT 3.1.1 §4.7.1).
fn topic_filter(filter: Box<str>) -> Result<Box<str>, PacketError> {
    let count = filter.split('/').count();
    let is_level = |(index, level): (usize, &str)| match level {
        "#" => index + 1 == count,
        "+" => true,
        other => !other.contains(['#', '+']),
    };
    check(!filter.is_empty() && count <= LEVELS_MAX && filter.split('/').enumerate().all(is_level))?;
    Ok(filter)
}

const CONNECT: u8 = 1;
/// The return code of CONNACK.
const UNACCEPTABLE_VERSION: u8 = 1;
/// The return code of CONNACK.
pub(crate) const SERVER_UNAVAILABLE: u8 = 3;
/// The return code of SUBACK.
pub(crate) const SUBSCRIPTION_FAILED: u8 = 0x80;
/// The longest packet, without its fixed header.
const PACKET_BYTES_MAX: usize = 256 * 1024;
/// The most levels of a topic: they bound the work of a look-up.
const LEVELS_MAX: usize = 16;
