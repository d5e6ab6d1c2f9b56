//! Frames, and streams that they are passed to.

use std::sync::Arc;

use tidegate::codec::{OverError, Step};
use tidegate::http1::{self, Incoming, client};
use tidegate::http3::{self, ClientStream, Config, Limits, ServerStream, StreamError, qpack, varint};
use tidegate_testkit::CodecHarness;

pub(crate) use crate::frames::{DATA, HEADERS, frame, headers};

/// A reserved type.
pub(crate) const RESERVED: u64 = 0x21;

/// The head of a request for `/tide`, with more fields.
pub(crate) fn request(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let start = [(":method", method), (":scheme", "https"), (":authority", "sea"), (":path", "/tide")];
    headers(&[&start, more].concat())
}

pub(crate) fn config(limits: Limits) -> Arc<Config> {
    Arc::new(Config::new(limits).extended_connect(true).grease(Some(7)))
}

pub(crate) fn server(limits: Limits) -> CodecHarness<ServerStream> {
    CodecHarness::new(http3::server_stream(&config(limits), ()))
}

pub(crate) fn client(extended_connect: bool) -> CodecHarness<ClientStream> {
    CodecHarness::new(http3::client_stream(&config(Limits::default()), Arc::default(), extended_connect))
}

/// An error of a pipeline: of the frames, or of the messages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Frames(StreamError),
    Messages(http1::Error),
}

impl From<OverError<StreamError, http1::Error>> for Failure {
    fn from(error: OverError<StreamError, http1::Error>) -> Self {
        match error {
            OverError::Filter(error) => Self::Frames(error),
            OverError::Codec(error) => Self::Messages(error),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// A message of a server in words. Pieces of a body are not apart.
pub(crate) fn render_request(message: &Incoming) -> String {
    match message {
        Incoming::Head(head) => format!("[{}]", text(head.bytes()).replace("\\r\\n", "|")),
        Incoming::Data(data) => text(data),
        Incoming::Trailers(trailers) => format!("[x: {}]", text(trailers.get("x").unwrap_or_default())),
        Incoming::End => "[end]".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A message of a client in words.
pub(crate) fn render_response(message: &client::Incoming) -> String {
    match message {
        client::Incoming::Interim(head) => format!("({})", head.status().code()),
        client::Incoming::Head(head) => format!("[{}]", head.status().code()),
        client::Incoming::Data(data) => text(data),
        client::Incoming::Trailers(trailers) => format!("[x: {}]", text(trailers.get("x").unwrap_or_default())),
        client::Incoming::End => "[end]".to_owned(),
    }
}

/// The messages that pieces of a stream become, and the end of the stream.
pub(crate) fn requests(stream: &mut CodecHarness<ServerStream>, pieces: &[&[u8]]) -> Result<String, Failure> {
    let mut rendered = String::new();
    for piece in pieces {
        let messages = stream.decode(piece)?;
        rendered.extend(messages.iter().map(render_request));
    }
    while let Step::Message(message) = stream.decode_eof()? {
        rendered += &render_request(&message);
    }
    Ok(rendered)
}

/// The same for a client whose request was sent.
pub(crate) fn responses(stream: &mut CodecHarness<ClientStream>, pieces: &[&[u8]]) -> Result<String, Failure> {
    let mut rendered = String::new();
    for piece in pieces {
        let messages = stream.decode(piece)?;
        rendered.extend(messages.iter().map(render_response));
    }
    while let Step::Message(message) = stream.decode_eof()? {
        rendered += &render_response(&message);
    }
    Ok(rendered)
}

/// Frames in words: the fields of HEADERS, the content of DATA.
pub(crate) fn frames(mut wire: &[u8]) -> String {
    let mut rendered = String::new();
    while !wire.is_empty() {
        let (kind, length) = varint::read(wire).expect("a type");
        wire = &wire[length..];
        let (bytes, length) = varint::read(wire).expect("a length");
        let (payload, rest) = wire[length..].split_at(usize::try_from(bytes).expect("a length"));
        wire = rest;
        match kind {
            DATA => rendered += &format!("<{}>", text(payload)),
            HEADERS => {
                let mut fields = Vec::new();
                let field = |name: &[u8], value: &[u8]| fields.push(format!("{}={}", text(name), text(value)));
                qpack::decode(payload, &mut Vec::new(), field).expect("a section");
                fields.retain(|field| !field.starts_with("date="));
                rendered += &format!("[{}]", fields.join("|"));
            }
            kind => rendered += &format!("({kind:#x})"),
        }
    }
    rendered
}
