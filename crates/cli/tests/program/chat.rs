//! `/chat`: the origins that may open a WebSocket, a room's messages, its history, and its bounds.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::load::{any_response, errors, load_until};
use crate::support::program::{PATIENCE, Program};

/// A guest in a room, as a browser would be one.
pub(crate) struct Guest(TcpStream);

/// A frame of the server: its first byte, and its payload.
type Frame = (u8, Vec<u8>);

impl Guest {
    /// Opens a WebSocket, or returns the status line of the refusal.
    fn open(address: SocketAddr, query: &str, fields: &str) -> Result<Self, String> {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let request = format!(
            "GET /chat/ws?{query} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a response");
            head.push(byte[0]);
        }
        let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
        if line.contains(" 101 ") { Ok(Self(stream)) } else { Err(line) }
    }

    pub(crate) fn enter(address: SocketAddr, room: &str, name: &str) -> Self {
        Self::open(address, &format!("room={room}&name={name}"), "").expect("it is accepted")
    }

    pub(crate) fn say(&mut self, text: &str) {
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 126).expect("a short text");
        // A mask of zeros leaves the bytes as they are.
        let frame = [&[0x81, 0x80 | length, 0, 0, 0, 0], text.as_bytes()].concat();
        self.0.write_all(&frame).expect("it is sent");
    }

    fn frame(&mut self) -> Frame {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).expect("a frame");
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).expect("a length");
                u16::from_be_bytes(length).into()
            }
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).expect("a payload");
        (head[0], payload)
    }

    fn event(&mut self) -> Value {
        let (first, payload) = self.frame();
        assert_eq!(first, 0x81, "a text: {payload:?}");
        serde_json::from_slice(&payload).expect("JSON")
    }

    /// The next event of a kind; others are skipped.
    pub(crate) fn event_of(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event();
            if event["type"] == kind {
                return event;
            }
        }
    }
}

#[test]
fn guests_see_each_other_and_the_last_messages() {
    let program = Program::serve(&["--loops", "2", "--chat-history", "3"]);
    let address = program.ip();
    let mut ana = Guest::enter(address, "reef", "Ana+%C3%84");
    let present = ana.event();
    assert_eq!(
        (&present["type"], &present["name"], &present["count"]),
        (&"present".into(), &"Ana Ä".into(), &1.into())
    );
    for text in ["one", "two", "three", "<b>four</b> \"ä\""] {
        ana.say(text);
        let message = ana.event_of("message");
        assert_eq!((&message["name"], &message["text"]), (&"Ana Ä".into(), &text.into()));
        assert!(message["at"].as_u64() > Some(1_000_000_000_000), "{message}");
    }
    // Blank messages are none, and other rooms have none of this.
    ana.say("  ");
    let mut elsewhere = Guest::enter(address, "harbour", "Cem");
    assert_eq!(elsewhere.event()["names"], serde_json::json!(["Cem"]));

    let mut ben = Guest::enter(address, "reef", "Ben");
    assert_eq!(ben.event()["names"], serde_json::json!(["Ana Ä", "Ben"]));
    let history: Vec<_> = (0..3).map(|_| ben.event()["text"].clone()).collect();
    assert_eq!(history, ["two", "three", "<b>four</b> \"ä\""]);
    let joined = ana.event_of("joined");
    assert_eq!((&joined["name"], &joined["count"]), (&"Ben".into(), &2.into()));
    ben.say("ahoy");
    assert_eq!(ana.event_of("message")["text"], "ahoy");
    drop(ben);
    let left = ana.event_of("left");
    assert_eq!((&left["name"], &left["count"]), (&"Ben".into(), &1.into()));
}

#[test]
fn guests_without_a_name_have_different_numbers_whatever_their_loop() {
    let program = Program::serve(&["--loops", "4"]);
    let mut guests: Vec<_> = (0..16).map(|_| Guest::enter(program.ip(), "reef", "")).collect();
    let names: BTreeSet<_> = guests.iter_mut().map(|guest| guest.event()["name"].to_string()).collect();
    assert_eq!(names.len(), guests.len(), "{names:?}");
}

#[test]
fn pages_of_other_sites_and_bad_names_are_refused() {
    let program = Program::serve(&["--loops", "1", "--chat-origin", "https://reef.example"]);
    let address = program.ip();
    let own = format!("Origin: http://{address}\r\n");
    for (query, fields, refusal) in [
        ("", &own[..], None),
        ("room=reef", "", None),
        ("", "Origin: https://reef.example\r\n", None),
        ("", "Origin: https://sea.example\r\n", Some("403")),
        ("", "Origin: null\r\n", Some("403")),
        ("", "Origin: https://reef.example\r\nOrigin: https://reef.example\r\n", Some("400")),
        ("", "Content-Length: 1\r\n", Some("400")),
        ("name=a%0Ab", "", Some("400")),
        ("name=%FF", "", None),
        ("room=0123456789012345678901234567890123456789x", "", Some("400")),
        ("name=a&name=b", "", None),
    ] {
        match (Guest::open(address, query, fields), refusal) {
            (Ok(_), None) => {}
            (Err(line), Some(status)) if line.contains(status) => {}
            // A query that cannot be read is refused, or read as it can be: it opens no other room.
            (Err(line), None) if line.contains("400") && query.contains('%') | query.contains('&') => {}
            (opened, _) => panic!("{query:?} {fields:?}: {:?}", opened.err()),
        }
    }
}

#[test]
fn too_many_messages_are_refused_and_then_end_the_connection() {
    let program = Program::serve(&["--loops", "1", "--chat-rate", "1"]);
    let mut guest = Guest::enter(program.ip(), "reef", "Ana");
    for _ in 0..3 {
        guest.say("ahoy");
    }
    let kinds: Vec<_> = (0..5).map(|_| guest.event()["type"].clone()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "refused").count(), 1, "{kinds:?}");
    // 8 KiB are more than a message may have.
    let long = [&[0x81, 0xFE, 0x20, 0, 0, 0, 0, 0][..], &[b'x'; 8192]].concat();
    guest.0.write_all(&long).expect("it is sent");
    let (first, payload) = guest.frame();
    assert_eq!((first, &payload[..2]), (0x88, &1009_u16.to_be_bytes()[..]));

    let mut flood = Guest::enter(program.ip(), "reef", "Ben");
    let close = std::thread::scope(|scope| {
        let mut writer = flood.0.try_clone().expect("a socket");
        scope.spawn(move || {
            let frame = [0x81, 0x81, 0, 0, 0, 0, b'x'];
            while writer.write_all(&frame).is_ok() {}
        });
        let close = loop {
            let (first, payload) = flood.frame();
            if first == 0x88 {
                break payload;
            }
        };
        let _ = flood.0.shutdown(std::net::Shutdown::Both);
        close
    });
    assert_eq!(close[..2], 1008_u16.to_be_bytes());
}

#[test]
fn a_load_counts_the_messages_of_a_room() {
    let program = Program::serve(&["--loops", "2", "--chat-rate", "1000000"]);
    let url = format!("ws://{}/chat/ws?room=load", program.ip());
    for arguments in
        [&["-c", "10"][..], &["-c", "3", "-t", "3", "--pipeline", "4", "--message-bytes", "1024"], &["-c", "1"]]
    {
        let (code, figures, log) = load_until(&[arguments, &["--broadcast", &url]].concat(), any_response);
        assert_eq!((code, errors(&figures), &log[..]), (Some(0), vec![], &[][..]), "{arguments:?}");
    }
}
