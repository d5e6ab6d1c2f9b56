//! A NATS server that is written by hand: a test answers its requests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

/// The answer to a request.
pub(crate) enum Answer {
    /// Nothing has subscribed its subject.
    NoResponders,
    /// A reply without headers.
    Json(String),
    /// A message of a stream, with these headers.
    Stored(String, Vec<u8>),
    /// No message follows in a stream.
    NoMessage,
}

impl Answer {
    pub(crate) fn error() -> Self {
        Self::error_of(400, 1)
    }

    /// An error of JetStream with these numbers.
    pub(crate) fn error_of(code: u16, err_code: u32) -> Self {
        Self::Json(format!("{{\"error\":{{\"code\":{code},\"err_code\":{err_code},\"description\":\"refused\"}}}}"))
    }

    /// The acknowledgement of a stream.
    pub(crate) fn ack(stream: &str, sequence: usize) -> Self {
        Self::Json(format!("{{\"stream\":\"{stream}\",\"seq\":{sequence}}}"))
    }

    /// A stream that is there.
    pub(crate) fn stream(name: &str, subjects: &str) -> Self {
        Self::Json(format!("{{\"config\":{{\"name\":\"{name}\",\"subjects\":[\"{subjects}\"]}},\"state\":{{}}}}"))
    }

    /// The headers and the payload.
    fn parts(self) -> (String, Vec<u8>) {
        match self {
            Self::NoResponders => ("NATS/1.0 503\r\n\r\n".to_owned(), Vec::new()),
            Self::NoMessage => ("NATS/1.0 404 Message Not Found\r\n\r\n".to_owned(), Vec::new()),
            Self::Json(json) => (String::new(), json.into_bytes()),
            Self::Stored(fields, payload) => (format!("NATS/1.0\r\n{fields}\r\n"), payload),
        }
    }
}

/// A server for one connection, which ends with it. Returns its address.
pub(crate) fn start<T: Send + 'static>(
    answer: impl FnMut(&str, &[u8], &mut T) -> Answer + Send + 'static,
    state: T,
) -> (String, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("nats://{}", listener.local_addr().expect("an address"));
    let serving = std::thread::spawn(move || serve(listener.accept().expect("a connection").0, answer, state));
    (url, serving)
}

fn serve<T>(stream: TcpStream, mut answer: impl FnMut(&str, &[u8], &mut T) -> Answer, mut state: T) -> T {
    let mut output = stream.try_clone().expect("a handle");
    let mut input = BufReader::new(stream);
    let mut send = move |bytes: &[u8]| drop(output.write_all(bytes));
    send(b"INFO {\"server_id\":\"a\",\"max_payload\":1048576,\"headers\":true,\"jetstream\":true}\r\n");
    let (mut sids, mut line) = (HashMap::new(), String::new());
    while input.read_line(&mut line).is_ok_and(|length| length > 0) {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["PING"] => send(b"PONG\r\n"),
            ["SUB", filter, sid] => drop(sids.insert(filter.trim_end_matches('*').to_owned(), sid.to_owned())),
            ["PUB", _, length] => drop(payload(&mut input, length)),
            ["PUB", subject, reply, length] => {
                let payload = payload(&mut input, length);
                let sid = sids.iter().find(|(prefix, _)| reply.starts_with(*prefix)).expect("an inbox").1;
                let (headers, payload) = answer(subject, &payload, &mut state).parts();
                let head = match headers.len() {
                    0 => format!("MSG {reply} {sid} {}\r\n", payload.len()),
                    length => format!("HMSG {reply} {sid} {length} {}\r\n", length + payload.len()),
                };
                send(&[head.as_bytes(), headers.as_bytes(), &payload, b"\r\n"].concat());
            }
            _ => {}
        }
        line.clear();
    }
    state
}

fn payload(input: &mut impl Read, length: &str) -> Vec<u8> {
    let length: usize = length.parse().expect("a number");
    let mut payload = vec![0; length + 2];
    input.read_exact(&mut payload).expect("a payload");
    payload.truncate(length);
    payload
}
