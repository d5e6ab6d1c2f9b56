//! A NATS server that is written by hand, whose stream is reported before it takes messages.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use bytes::Bytes;
use tidegate_backplane::Backplane;
use tidegate_engine::{Backplane as _, MessageForm, RoomMessage};

use crate::members::{limits, until};

/// Serves one connection until its end, and returns the texts that the stream has stored. Nothing answers the first `refused`
/// messages to the stream.
fn serve(stream: TcpStream, refused: usize) -> Vec<String> {
    let mut output = stream.try_clone().expect("a handle");
    let mut input = BufReader::new(stream);
    let mut send = move |text: &str| drop(output.write_all(text.as_bytes()));
    send("INFO {\"server_id\":\"a\",\"max_payload\":1048576,\"headers\":true,\"jetstream\":true}\r\n");
    let (mut sids, mut stored, mut line) = (HashMap::new(), Vec::new(), String::new());
    let mut unanswered = refused;
    while input.read_line(&mut line).is_ok_and(|length| length > 0) {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["PING"] => send("PONG\r\n"),
            ["SUB", filter, sid] => drop(sids.insert(filter.trim_end_matches('*').to_owned(), sid.to_owned())),
            ["PUB", _, length] => drop(payload(&mut input, length)),
            ["PUB", subject, reply, length] => {
                let payload = payload(&mut input, length);
                let sid = sids.iter().find(|(prefix, _)| reply.starts_with(*prefix)).expect("an inbox").1;
                let is_kept = subject.starts_with("tidegate.store.");
                if is_kept && unanswered > 0 {
                    unanswered -= 1;
                    send(&format!("HMSG {reply} {sid} 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"));
                } else {
                    let json = if is_kept {
                        // Behind the head of the envelope.
                        stored.push(String::from_utf8_lossy(&payload[28..]).into_owned());
                        format!("{{\"stream\":\"tidegate-history-10\",\"seq\":{}}}", stored.len())
                    } else if subject == "$JS.API.STREAM.INFO.tidegate-history-10" {
                        let config = "{\"name\":\"tidegate-history-10\",\"subjects\":[\"tidegate.store.10.7.*\"]}";
                        format!("{{\"config\":{config},\"state\":{{}}}}")
                    } else {
                        "{\"error\":{\"code\":400,\"err_code\":1,\"description\":\"no such stream\"}}".to_owned()
                    };
                    send(&format!("MSG {reply} {sid} {}\r\n{json}\r\n", json.len()));
                }
            }
            _ => {}
        }
        line.clear();
    }
    stored
}

fn payload(input: &mut impl Read, length: &str) -> Vec<u8> {
    let length: usize = length.parse().expect("a number");
    let mut payload = vec![0; length + 2];
    input.read_exact(&mut payload).expect("a payload");
    payload.truncate(length);
    payload
}

#[test]
fn messages_that_a_reported_stream_does_not_take_yet_are_sent_again_in_order() {
    for refused in [1, 3] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("nats://{}", listener.local_addr().expect("an address"));
        let node = Backplane::at(&url).expect("an address").spawn().expect("a thread");
        let publish = |text: &'static str, form| {
            let message = RoomMessage {
                bytes: Bytes::from_static(text.as_bytes()),
                form,
                is_announcement: form == MessageForm::Kick,
            };
            node.publish(&"tides".into(), &limits(10), message).expect("there is room");
        };
        // The kick waits for the server, and the messages that follow wait for the kick: they are one request.
        publish("\x03\u{7f}", MessageForm::Kick);
        ["ebb", "flood", "slack"].into_iter().for_each(|text| publish(text, MessageForm::Plain));
        let serving = std::thread::spawn(move || serve(listener.accept().expect("a connection").0, refused));
        until("all are published", || node.counts().published + node.counts().unconfirmed == 4);
        assert_eq!(node.counts().unconfirmed, 0);
        node.close();
        assert_eq!(serving.join().expect("no panic"), ["ebb", "flood", "slack"]);
    }
}
