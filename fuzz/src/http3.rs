//! HTTP/3: the wire of a request stream or of a unidirectional stream, in either role; and any field sections.
//!
//! Any split yields the same messages or the same error. A field section that is decoded is encoded and decoded again to
//! the same fields.

use std::sync::Arc;
use std::time::Instant;

use tidegate_codec::Stages;
use tidegate_codec::Step;
use tidegate_http1::client;
use tidegate_http3::{CapsuleCodec, ClientStream, Config, Connection, Event, Limits, ServerStream, StreamError, qpack};
use tidegate_testkit::CodecHarness;

use crate::choices::Choices;

/// The first byte chooses the stream and the role, or capsules, the second one where the wire is split.
pub fn http3(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (kind, split) = (choices.byte(), usize::from(choices.byte()));
    let wire = choices.take(WIRE_BYTES_MAX);
    let limits =
        Limits { headers_max: 8, head_bytes_max: 600, reserved_bytes_max: 200, abuse_max: 20, ..Limits::default() };
    let config = Arc::new(Config::new(limits).extended_connect(true).grease(None));
    let (one, other) = wire.split_at(split.min(wire.len()));
    if kind >= CAPSULES {
        return assert_eq!(capsules(&[wire]), capsules(&[one, other]));
    }
    match kind % 4 {
        0 => assert_eq!(server(&config, &[wire]), server(&config, &[one, other])),
        1 => assert_eq!(client(&config, &[wire]), client(&config, &[one, other])),
        2 => assert_eq!(
            unidirectional(Connection::server(config.clone()), &[wire]),
            unidirectional(Connection::server(config), &[one, other])
        ),
        _ => assert_eq!(
            unidirectional(Connection::client(config.clone()), &[wire]),
            unidirectional(Connection::client(config), &[one, other])
        ),
    }
}

/// How a stream ends: the error of its frames, and whether the codec above had one.
type StreamEnd = (Option<StreamError>, bool);

fn server(config: &Arc<Config>, pieces: &[&[u8]]) -> StreamEnd {
    let mut stream: CodecHarness<ServerStream> = CodecHarness::new(tidegate_http3::server_stream(config, ()));
    let is_broken = read(&mut stream, pieces);
    (stream.codec().filter().failure(), is_broken)
}

fn client(config: &Arc<Config>, pieces: &[&[u8]]) -> StreamEnd {
    let pipeline = tidegate_http3::client_stream(config, Arc::default(), false);
    let mut stream: CodecHarness<ClientStream> = CodecHarness::new(pipeline);
    let request = client::Request::get("https://sea/").and_then(|request| request.host("sea")).expect("a request");
    stream.encode(client::Outgoing::Request(request)).expect("the first one");
    let is_broken = read(&mut stream, pieces);
    (stream.codec().filter().failure(), is_broken)
}

/// Whether the capsules of a tunnel are refused.
fn capsules(pieces: &[&[u8]]) -> bool {
    let mut stream: CodecHarness<CapsuleCodec> = CodecHarness::new(CapsuleCodec::new(100).for_session());
    read(&mut stream, pieces)
}

/// Decodes the pieces, and the end of the stream. Returns whether there was an error.
fn read<P: Stages>(stream: &mut CodecHarness<P>, pieces: &[&[u8]]) -> bool {
    if pieces.iter().any(|piece| stream.decode(piece).is_err()) {
        return true;
    }
    loop {
        match stream.decode_eof() {
            Ok(Step::Message(_)) => {}
            Ok(_) => return false,
            Err(_) => return true,
        }
    }
}

fn unidirectional(mut connection: Connection, pieces: &[&[u8]]) -> (Result<(), tidegate_http3::Error>, Vec<Event>) {
    let now = Instant::now();
    let read = pieces.iter().try_for_each(|piece| connection.handle_uni(2, piece, now));
    (read, std::iter::from_fn(|| connection.poll_event()).collect())
}

/// Field sections, each behind its length.
pub fn qpack(data: &[u8]) {
    let mut choices = Choices::new(data);
    while !choices.is_over() {
        let length = usize::from(choices.byte());
        let mut fields = Vec::new();
        let section = choices.take(length);
        let decoded =
            qpack::decode(section, &mut Vec::new(), |name, value| fields.push((name.to_vec(), value.to_vec())));
        if decoded.is_err() {
            continue;
        }
        let mut again = Vec::new();
        qpack::encode_prefix(&mut again);
        for (index, (name, value)) in fields.iter().enumerate() {
            qpack::encode(name, value, index % 2 == 1, &mut again);
        }
        let mut same = Vec::new();
        let decoded = qpack::decode(&again, &mut Vec::new(), |name, value| same.push((name.to_vec(), value.to_vec())));
        assert_eq!((decoded, same), (Ok(()), fields), "encoded fields are decoded");
    }
}

const WIRE_BYTES_MAX: usize = 2_000;

/// First bytes from here on choose capsules.
const CAPSULES: u8 = 250;
