//! The hex dump in the log.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tidegate::Over;
use tidegate::bytelog::{ByteLog, ByteSink, Direction, HexLog};
use tidegate::framing::Lines;
use tidegate_testkit::{CodecHarness, Embedded};
use tracing_subscriber::filter::LevelFilter;

use crate::support::Echo;

/// Where the subscriber of a test writes.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that `act` logs at this level.
fn logged(level: LevelFilter, act: impl FnOnce()) -> Vec<String> {
    let written = Written::default();
    let to = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .without_time()
        .with_ansi(false)
        .with_writer(move || to.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, act);
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn talk(log: HexLog) {
    let mut pipe = Embedded::new(Over::new(ByteLog::new(log), Lines::new()), Echo);
    pipe.receive(b"ebb\n");
    pipe.receive(b"the tide goes out\n");
    pipe.receive_fin();
    assert_eq!(pipe.take_written(), b"ebb\nthe tide goes out\n");
}

#[test]
fn each_direction_has_lines_with_its_own_offsets() {
    let lines = logged(LevelFilter::TRACE, || talk(HexLog::new("192.0.2.7:5000")));
    let expected = [
        ("00000000  65 62 62 0a                                       |ebb.|", "in"),
        ("00000000  65 62 62 0a                                       |ebb.|", "out"),
        ("00000004  74 68 65 20 74 69 64 65  20 67 6f 65 73 20 6f 75  |the tide goes ou|", "in"),
        ("00000014  74 0a                                             |t.|", "in"),
        ("00000004  74 68 65 20 74 69 64 65  20 67 6f 65 73 20 6f 75  |the tide goes ou|", "out"),
        ("00000014  74 0a                                             |t.|", "out"),
        ("end after 22 bytes", "in"),
        ("end after 22 bytes", "out"),
    ];
    let expected = expected.map(|(line, direction)| {
        format!("TRACE tidegate::bytes: {line} connection=192.0.2.7:5000 direction=\"{direction}\"")
    });
    let lines: Vec<_> = lines.iter().map(|line| line.trim_start()).collect();
    assert_eq!(lines, expected);
}

#[test]
fn at_a_lower_level_it_is_inactive_and_logs_nothing() {
    let lines = logged(LevelFilter::DEBUG, || {
        assert!(!HexLog::new(1).is_active());
        talk(HexLog::new(1));
    });
    assert_eq!(lines, [""; 0]);
    logged(LevelFilter::TRACE, || assert!(HexLog::new(1).is_active()));
}

#[test]
fn pieces_and_connections_have_a_limit() {
    let lines = logged(LevelFilter::TRACE, || {
        let log = HexLog::new(1).piece_bytes_max(20).connection_bytes_max(40);
        let mut lines = CodecHarness::new(Over::new(ByteLog::new(log), Lines::new()));
        for _ in 0..3 {
            lines.decode(&[b'x'; 100]).unwrap();
        }
        let sink = lines.codec().filter().sink();
        assert!(!sink.is_active(), "the connection has used up its bytes");
    });
    let starts: Vec<_> = lines.iter().map(|line| line.split("tidegate::bytes: ").nth(1).unwrap()).collect();
    let starts: Vec<_> = starts.iter().map(|line| line.split(" connection=").next().unwrap()).collect();
    let expected = ["00000000", "00000010", "80 bytes more are not logged", "00000064", "00000074", "the limit of"];
    assert_eq!(starts.len(), expected.len(), "{starts:?}");
    for (line, start) in starts.iter().zip(expected) {
        assert!(line.starts_with(start), "{line} does not start with {start}");
    }
}

#[test]
fn offsets_count_bytes_that_are_not_logged() {
    let mut log = HexLog::new(1);
    log.skip(Direction::Inbound, 0x1234);
    let time = tidegate::codec::Time::new(std::time::Instant::now(), std::time::SystemTime::UNIX_EPOCH);
    let lines = logged(LevelFilter::TRACE, || log.record(Direction::Inbound, b"e", &time));
    assert!(lines[0].contains(": 00001234  65 "), "{lines:?}");
}
