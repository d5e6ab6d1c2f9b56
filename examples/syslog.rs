//! A syslog receiver (RFC 5424): over UDP (RFC 5426), and over TCP with octet counting (RFC 6587 §3.4.1).
//!
//! ```text
//! cargo run --example syslog                              # sends itself messages, prints them and exits
//! cargo run --release --example syslog -- 127.0.0.1:5514  # prints messages until it is killed
//! logger --rfc5424 --server 127.0.0.1 --port 5514 --udp "the tide is out"
//! logger --rfc5424 --server 127.0.0.1 --port 5514 --tcp --octet-count "the tide is in"
//! ```
//!
//! The framing is a codec, so the handler of a connection and that of a datagram get the same bytes. A message is a view of
//! these bytes.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::error::Error;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::sync::mpsc::{self, SyncSender};
use std::time::{Duration, Instant};

use tidegate::codec::{Datagram, Fault, Input, Output, Step, Transmits};
use tidegate::sys::DatagramOptions;
use tidegate::{Address, Codec, Endpoint, EndpointListener, Listener, Server, ServerHandle, Slice};

type Any = Box<dyn Error>;

/// A message: the fields of its head, its structured data as it came, and its text.
#[derive(Debug, PartialEq, Eq)]
struct Message<'a> {
    facility: u8,
    severity: u8,
    timestamp: &'a str,
    host: &'a str,
    application: &'a str,
    process: &'a str,
    kind: &'a str,
    data: &'a str,
    text: &'a str,
}

impl<'a> Message<'a> {
    /// Reads a message: `<PRI>1 TIMESTAMP HOSTNAME APP-NAME PROCID MSGID DATA TEXT`. `None` if it is none.
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (priority, rest) = text.strip_prefix('<')?.split_once('>')?;
        let is_number = matches!(priority.len(), 1..=3) && priority.bytes().all(|byte| byte.is_ascii_digit());
        let priority: u8 = if is_number { priority.parse().ok().filter(|priority| *priority <= 191)? } else { None? };
        let mut fields = rest.strip_prefix("1 ")?.splitn(6, ' ');
        let mut next = || fields.next().filter(|field| !field.is_empty());
        // PRINTUSASCII: nothing that a terminal or a reader of lines takes for something else.
        let mut head = || next().filter(|field| field.bytes().all(|byte| byte.is_ascii_graphic()));
        let (timestamp, host, application, process, kind) = (head()?, head()?, head()?, head()?, head()?);
        let (data, text) = structured_data(next()?)?;
        // A byte order mark says that the text is UTF-8, as all of the message is here.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (facility, severity) = (priority / 8, priority % 8);
        Some(Self { facility, severity, timestamp, host, application, process, kind, data, text })
    }
}

/// Splits the structured data, `-` or elements in brackets, from the text behind it.
fn structured_data(rest: &str) -> Option<(&str, &str)> {
    let mut end = usize::from(rest.starts_with('-'));
    while rest[end..].starts_with('[') {
        let (mut is_quoted, mut is_escaped) = (false, false);
        let close = rest[end..].bytes().position(|byte| {
            let was_escaped = is_escaped;
            is_escaped = byte == b'\\' && is_quoted && !was_escaped;
            is_quoted ^= byte == b'"' && !was_escaped;
            byte == b']' && !is_quoted
        })?;
        end += close + 1;
    }
    let (data, text) = rest.split_at(end);
    let text = if text.is_empty() { text } else { text.strip_prefix(' ')? };
    (end > 0).then_some((data, text))
}

/// Octet counting: the length of each message in decimal digits, and a space before it.
#[derive(Debug)]
struct OctetCounting {
    message_bytes_max: usize,
}

/// Why a connection ends.
#[derive(Debug, Fault)]
enum FrameError {
    #[fault(peer, "a message begins with its length, a number without leading zeros, and a space")]
    Length,
    #[fault(limit, "a message has {bytes} bytes, and {bytes_max} are the limit")]
    TooLong { bytes: usize, bytes_max: usize },
    #[fault(peer, "the sender has ended the stream within a message")]
    Truncated,
}

impl Codec for OctetCounting {
    type In = Slice;
    type Out = Infallible;
    type Error = FrameError;

    fn protocol(&self) -> &'static str {
        "syslog"
    }

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, FrameError> {
        let digits = input.bytes().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = &input.bytes()[..digits];
        if digits > DIGITS_MAX || length.starts_with(b"0") || (digits == 0 && !input.is_empty()) {
            return Err(FrameError::Length);
        }
        match input.bytes().get(digits) {
            None => return Ok(Step::NeedMore),
            Some(b' ') => {}
            Some(_) => return Err(FrameError::Length),
        }
        let bytes = length.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
        let bytes_max = self.message_bytes_max;
        if bytes > bytes_max {
            return Err(FrameError::TooLong { bytes, bytes_max });
        }
        if input.len() < digits + 1 + bytes {
            return Ok(Step::NeedMore);
        }
        input.consume(digits + 1);
        Ok(Step::Message(input.take(bytes)))
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, FrameError> {
        match self.decode(input, reply)? {
            Step::NeedMore if input.is_empty() => Ok(Step::End),
            Step::NeedMore => Err(FrameError::Truncated),
            step => Ok(step),
        }
    }

    /// A receiver sends nothing.
    fn encode(&mut self, nothing: Infallible, _: &mut Output<'_>) -> Result<(), FrameError> {
        match nothing {}
    }
}

/// Messages that came as datagrams.
struct Datagrams {
    lines: SyncSender<String>,
}

impl Endpoint for Datagrams {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        report(&self.lines, &datagram.payload, &datagram.source.ip().to_string());
    }

    fn poll_transmit(&mut self, _now: Instant, _transmits: &mut Transmits) {}
}

/// Sends a line about a message to the printer. A sender chooses the bytes of a message, so control characters are escaped.
fn report(lines: &SyncSender<String>, bytes: &[u8], from: &str) {
    let line = match Message::read(bytes) {
        Some(message) => {
            let Message { facility, severity, host, application, text, .. } = message;
            format!("{from} {facility}.{severity} {host} {application}: {}", text.escape_debug())
        }
        None => format!("{from} {} bytes are no message of RFC 5424", bytes.len()),
    };
    // Nothing waits for the printer: a line that finds its queue full is lost, as a datagram would be.
    let _ = lines.try_send(line);
}

/// A receiver at an address for datagrams, and one for connections.
fn start(udp: &str, tcp: &str, lines: SyncSender<String>) -> Result<ServerHandle, Any> {
    let (of_datagrams, of_streams) = (lines.clone(), lines);
    let options = DatagramOptions { payload_bytes_max: MESSAGE_BYTES_MAX as u16, ..DatagramOptions::default() };
    let datagrams =
        EndpointListener::bind(udp)?.options(options).serve(move |_loop| Datagrams { lines: of_datagrams.clone() });
    let streams = Listener::bind(tcp)?.serve(
        || OctetCounting { message_bytes_max: MESSAGE_BYTES_MAX },
        move |mut channel| {
            let lines = of_streams.clone();
            async move {
                let from = channel.peer()?.ip().map_or_else(String::new, |peer| peer.ip().to_string());
                while let Some(message) = channel.recv().await? {
                    report(&lines, &message, &from);
                }
                Ok::<_, Any>(())
            }
        },
    );
    Ok(Server::new().listener(streams).endpoint(datagrams).run()?)
}

fn main() -> Result<(), Any> {
    run(std::env::args().nth(1))
}

fn run(address: Option<String>) -> Result<(), Any> {
    let (sender, lines) = mpsc::sync_channel(LINES_MAX);
    if let Some(address) = address {
        let _server = start(&address, &address, sender)?;
        println!("listening on {address}");
        lines.iter().for_each(|line| println!("{line}"));
        return Ok(());
    }
    let server = start("127.0.0.1:0", "127.0.0.1:0", sender)?;
    let addresses: Vec<_> =
        server.listeners().iter().flat_map(|listener| listener.addresses()).filter_map(Address::ip).collect();
    let [tcp, udp] = addresses[..] else { return Err("two addresses".into()) };
    UdpSocket::bind("127.0.0.1:0")?.send_to(b"<13>1 - ebb.example tide - - - out", udp)?;
    let first = lines.recv_timeout(Duration::from_secs(120))?;
    let mut stream = TcpStream::connect(tcp)?;
    let message = "<165>1 2026-11-27T12:00:00Z flow.example tide 7 - [tide@1 level=\"3\\\"]\"] in\nand out";
    stream.write_all(format!("{} {message}", message.len()).as_bytes())?;
    let second = lines.recv_timeout(Duration::from_secs(120))?;
    println!("{first}\n{second}");
    assert_eq!(first, "127.0.0.1 1.5 ebb.example tide: out");
    assert_eq!(second, "127.0.0.1 20.5 flow.example tide: in\\nand out");
    server.drain(Duration::from_secs(1));
    Ok(())
}

/// The longest message: RFC 5426 §3.2 wants receivers to take 2,048 bytes at least.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// Lines that wait for the printer.
const LINES_MAX: usize = 10_000;

/// Digits of a length.
const DIGITS_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use tidegate_testkit::CodecHarness;

    use super::*;

    #[test]
    fn it_checks_itself() -> Result<(), Any> {
        run(None)
    }

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        let text = "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{feff}'su root' failed";
        let message = Message::read(text.as_bytes()).expect("a message");
        assert_eq!((message.facility, message.severity, message.application), (4, 2, "su"));
        assert_eq!((message.process, message.kind, message.data, message.text), ("-", "ID47", "-", "'su root' failed"));
        let text = "<165>1 2003-10-11T22:14:15.003Z m evntslog - ID47 [a@1 b=\"x \\] y\"][c@1] An event";
        let message = Message::read(text.as_bytes()).expect("a message");
        assert_eq!((message.data, message.text), ("[a@1 b=\"x \\] y\"][c@1]", "An event"));
    }

    #[test]
    fn other_bytes_are_no_message() {
        for text in ["", "<", "<34>", "<192>1 - - - - - -", "<1>2 - - - - - -", "<+1>1 - - - - - -", "<1>1 - - - - -"] {
            assert_eq!(Message::read(text.as_bytes()), None, "{text}");
        }
        for text in ["<1>1 - - - - - x", "<1>1 - - - - - [a", "<1>1 - - - - - [a]x", "<1>1 -  - - - - -"] {
            assert_eq!(Message::read(text.as_bytes()), None, "{text}");
        }
        // A field of the head that a terminal, or a reader of lines, would take for something else.
        for text in ["<1>1 - a\nb - - - -", "<1>1 - - \u{1b}[2J - - -", "<1>1 - h\u{f6}st - - - -"] {
            assert_eq!(Message::read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Message::read(b"<1>1 - - - - - - \xff"), None);
        assert!(Message::read(b"<1>1 - - - - - -").is_some_and(|message| message.text.is_empty()));
    }

    /// `logger` of util-linux, both ways.
    #[test]
    fn logger_sends_messages() -> Result<(), Any> {
        let (sender, lines) = mpsc::sync_channel(LINES_MAX);
        let server = start("127.0.0.1:0", "127.0.0.1:0", sender)?;
        let ports: Vec<_> = server.listeners().iter().flat_map(|listener| listener.addresses()).collect();
        for (address, ways) in ports.into_iter().zip([&["--tcp", "--octet-count"][..], &["--udp"]]) {
            let port = address.ip().ok_or("an IP address")?.port().to_string();
            let mut command = std::process::Command::new("logger");
            command.args(["--rfc5424=notq", "--server", "127.0.0.1", "--port", &port, "--tag", "tide"]);
            match command.args(["--priority", "local0.notice"]).args(ways).arg("the tide is out").status() {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    let required = std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_some_and(|value| value == "1");
                    assert!(!required, "logger is required");
                    println!("skipped: logger is not installed");
                    return Ok(());
                }
                status => assert!(status?.success()),
            }
            let line = lines.recv_timeout(Duration::from_secs(120))?;
            assert!(line.starts_with("127.0.0.1 16.5 ") && line.ends_with(" tide: the tide is out"), "{line}");
        }
        server.drain(Duration::from_secs(5));
        Ok(())
    }

    /// The messages of a wire that comes in two parts, and whether it ended in an error.
    fn messages(wire: &[u8], split: usize) -> (Vec<Vec<u8>>, bool) {
        let mut harness = CodecHarness::new(OctetCounting { message_bytes_max: 20 });
        let (mut all, mut has_failed) = (Vec::new(), false);
        for part in [&wire[..split], &wire[split..]] {
            match harness.decode(part) {
                Ok(messages) => all.extend(messages.iter().map(|message| message.to_vec())),
                Err(_) => has_failed = true,
            }
        }
        (all, has_failed)
    }

    #[test]
    fn octets_are_counted_in_every_split() {
        let wire = b"3 ebb4 flow1 ~";
        for split in 0..=wire.len() {
            assert_eq!(messages(wire, split).0, [&b"ebb"[..], b"flow", b"~"].map(<[u8]>::to_vec));
        }
        for wire in [&b"x"[..], b"03 ebb", b"-1 ", b"3x", b"21 ", b"1234567"] {
            assert!(messages(wire, 0).1, "{wire:?}");
        }
        assert_eq!(messages(b"20 aaaaaaaaaaaaaaaaaaaa", 0), (vec![vec![b'a'; 20]], false));
    }
}
