//! The frames of a capture file, as another implementation reads them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use tidegate::bytelog::{ByteLog, Capture, CaptureOptions, ConnectionCapture, Role};
use tidegate::framing::{LengthField, Lines, Raw};
use tidegate::{Address, Context, Handler, Listener, Outcome, Over, Server, Slice};
use tidegate_testkit::Embedded;

use crate::support::{Echo, ReadFrame, TempFile};

fn address(text: &str) -> Option<SocketAddr> {
    Some(text.parse().expect("an address"))
}

/// Each side's bytes of a connection, by sequence numbers, in the file's order.
fn check_streams(frames: &[&ReadFrame]) -> [Vec<u8>; 2] {
    let [syn, answer, third, rest @ ..] = frames else { panic!("a handshake has three frames") };
    assert_eq!([&*syn.flags, &*answer.flags, &*third.flags], ["S", "S.", "."]);
    let (client, server) = (syn.from, syn.to);
    let mut next = [syn.sequence.wrapping_add(1), answer.sequence.wrapping_add(1)];
    assert_eq!((third.sequence, [answer.acknowledged, third.acknowledged]), (next[0], next));
    let mut streams = [Vec::new(), Vec::new()];
    for frame in rest {
        let side = usize::from(frame.from == server);
        assert_eq!((frame.from, frame.to), if side == 0 { (client, server) } else { (server, client) });
        assert_eq!((frame.sequence, frame.acknowledged), (next[side], next[1 - side]), "{frame:?}");
        next[side] = next[side].wrapping_add(frame.payload.len() as u32 + u32::from(frame.flags.contains('F')));
        streams[side].extend_from_slice(&frame.payload);
    }
    streams
}

#[test]
fn a_connection_is_a_stream_of_tcp_with_its_addresses() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    for (local, peer) in [("192.0.2.1:80", "198.51.100.7:5000"), ("[2001:db8::1]:80", "[2001:db8::7]:5000")] {
        for role in [Role::Server, Role::Client] {
            let file = TempFile::new();
            let capture = file.capture();
            let sink = capture.connection(role, address(local), address(peer));
            let lines = Lines::new().with_line_bytes_max(50_000);
            let mut pipe = Embedded::new(Over::new(ByteLog::new(sink), lines), Echo);
            pipe.receive(b"ebb\n");
            // An odd length, and more than a frame holds.
            let long = [&[b'x'; 40_000][..], b"\n"].concat();
            pipe.receive(&long);
            pipe.receive_fin();
            assert_eq!(pipe.take_written().len(), 40_005);
            drop(pipe);
            let counts = capture.finish().unwrap();
            let frames = file.frames();
            assert_eq!((counts.frames, counts.dropped), (frames.len() as u64, 0));
            let streams = check_streams(&frames.iter().collect::<Vec<_>>());
            let sent = [b"ebb\n", &long[..]].concat();
            assert!(streams == [sent.clone(), sent], "other bytes");
            let (server, client) = if role == Role::Server { (local, peer) } else { (peer, local) };
            assert_eq!((frames[0].from, frames[0].to), (client.parse().unwrap(), server.parse().unwrap()));
            let flags: Vec<_> = frames.iter().map(|frame| frame.flags.as_str()).collect();
            assert_eq!(flags[flags.len() - 2..], ["F.", "F."], "{flags:?}");
            let [first, last] = [&frames[0], &frames[frames.len() - 1]];
            assert!(first.time <= last.time && last.time < now + Duration::from_secs(3600), "{:?}", first.time);
        }
    }
}

#[test]
fn a_connection_that_breaks_ends_with_a_reset() {
    let file = TempFile::new();
    let capture = file.capture();
    let sink = capture.connection(Role::Server, None, None);
    let mut pipe = Embedded::new(Over::new(ByteLog::new(sink), Lines::new()), Echo);
    pipe.receive(b"ebb\n");
    pipe.reset();
    drop(pipe);
    capture.finish().unwrap();
    let frames = file.frames();
    let flags: Vec<_> = frames.iter().map(|frame| frame.flags.as_str()).collect();
    assert_eq!(flags, ["S", "S.", ".", "P.", "P.", "R."]);
    let documentation = |frame: &ReadFrame| frame.from.ip().to_string().starts_with("192.0.2.");
    assert!(frames.iter().all(documentation), "unknown addresses are those of documentation");
}

#[test]
fn a_connection_without_bytes_is_not_in_the_file() {
    let file = TempFile::new();
    let capture = file.capture();
    drop(Embedded::new(Over::new(ByteLog::new(capture.connection(Role::Server, None, None)), Lines::new()), Echo));
    assert_eq!(capture.finish().unwrap().frames, 0);
    assert!(file.frames().is_empty());
}

#[test]
fn only_the_owner_may_read_the_file_and_none_is_overwritten() {
    let file = TempFile::new();
    let capture = file.capture();
    assert_eq!(std::fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
    let error = Capture::create(&file.0, CaptureOptions::default()).expect_err("it is there");
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    capture.finish().unwrap();
}

#[test]
fn nothing_follows_the_end_of_a_capture() {
    let file = TempFile::new();
    let capture = file.capture();
    let sink = capture.connection(Role::Server, None, None);
    let mut pipe = Embedded::new(Over::new(ByteLog::new(sink), Lines::new()), Echo);
    pipe.receive(b"ebb\n");
    let counts = capture.finish().unwrap();
    pipe.receive(b"flow\n");
    pipe.receive_fin();
    assert_eq!(pipe.take_written(), b"ebb\nflow\n");
    drop(pipe);
    assert_eq!((capture.counts(), counts.frames, file.frames().len()), (counts, 5, 5));
}

type Logged<C> = Over<ByteLog<ConnectionCapture>, C>;

/// Echoes lines, until one says `BINARY`: then frames.
struct Text;

impl Handler<Logged<Lines>> for Text {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Logged<Lines>>) -> Outcome<Logged<Lines>> {
        if let Some(local) = cx.local().ok().and_then(|local| local.ip()) {
            cx.codec_mut().filter_mut().sink_mut().set_local(local);
        }
        Outcome::Continue
    }

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Logged<Lines>>) -> Outcome<Logged<Lines>> {
        if &*line == b"BINARY" {
            return Outcome::switch(|over: Logged<Lines>| (over.map(|_| LengthField::new(2)), Echo));
        }
        cx.send(line.into()).into()
    }
}

#[test]
fn many_connections_of_several_loops_are_in_one_file_through_a_switch() {
    let file = TempFile::new();
    let capture = file.capture();
    let captured = capture.clone();
    let listener = Listener::bind("127.0.0.1:0").unwrap().handle_each(move |_| {
        let capture = captured.clone();
        move |peer: &Address| {
            (Over::new(ByteLog::new(capture.connection(Role::Server, None, peer.ip())), Lines::new()), Text)
        }
    });
    let server = Server::new().loops(2).listener(listener).run().unwrap();
    let to = server.listeners()[0].addresses()[0].ip().unwrap();
    let talks: Vec<_> = (0..20_u8)
        .map(|number| {
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(to).unwrap();
                let line = format!("connection {number}\n");
                let frame = [&[0xc3, 0x50][..], &[number; 50_000]].concat();
                let sent = [line.as_bytes(), b"BINARY\n", &frame].concat();
                let mut reader = stream.try_clone().unwrap();
                let reading = std::thread::spawn(move || {
                    let mut answer = Vec::new();
                    reader.read_to_end(&mut answer).map(|_| answer)
                });
                stream.write_all(&sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let answer = reading.join().unwrap().unwrap();
                (stream.local_addr().unwrap(), sent, answer)
            })
        })
        .collect();
    let talks: Vec<_> = talks.into_iter().map(|talk| talk.join().unwrap()).collect();
    server.drain(Duration::from_secs(10));
    let counts = capture.finish().unwrap();
    assert_eq!(counts.dropped, 0);
    let frames = file.frames();
    for (peer, sent, answer) in talks {
        let its: Vec<_> = frames.iter().filter(|frame| [frame.from, frame.to].contains(&peer)).collect();
        assert_eq!((its[0].from, its[0].to), (peer, to));
        assert!(check_streams(&its) == [sent, answer], "other bytes from {peer}");
    }
}

#[test]
fn two_connections_with_the_same_addresses_are_distinct() {
    let file = TempFile::new();
    let capture = file.capture();
    for _ in 0..2 {
        let sink = capture.connection(Role::Server, address("192.0.2.1:80"), address("192.0.2.2:5000"));
        let mut pipe = Embedded::new(Over::new(ByteLog::new(sink), Raw), Echo);
        pipe.receive(b"ebb");
        pipe.receive_fin();
    }
    capture.finish().unwrap();
    let frames = file.frames();
    let [first, second]: [&ReadFrame; 2] =
        frames.iter().filter(|frame| frame.flags == "S").collect::<Vec<_>>().try_into().unwrap();
    assert_ne!(first.sequence, second.sequence);
}
