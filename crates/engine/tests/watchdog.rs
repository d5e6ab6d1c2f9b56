//! A handler that does not yield: it is counted and logged while it still blocks its loop, and once more when it
//! returns.
//!
//! A program of its own: the test collects the log lines of the process, and counts those of stalled loops.

#![forbid(unsafe_code)]

use std::fmt::{Debug, Write as _};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_codec::Slice;
use tidegate_codec::framing::Lines;
use tidegate_engine::activity::Activity;
use tidegate_engine::{Context, Handler, Outcome, Server};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Longer than the time from which on a turn is slow.
const SLOW: Duration = Duration::from_millis(150);

/// The logged lines.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Collect;

impl Subscriber for Collect {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

/// Blocks its thread until the test releases it, or has failed.
struct Stuck(Receiver<()>);

impl Handler<Lines> for Stuck {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let activity = Activity::of_this_loop();
        activity.begin(activity.label(&format!("line {}", line.escape_ascii())));
        match &*line {
            b"hang" => {
                let _ = self.0.recv();
            }
            b"slow" => std::thread::sleep(SLOW),
            _ => {}
        }
        activity.end();
        cx.send(line.into()).into()
    }
}

#[test]
fn only_a_handler_that_blocks_is_logged_and_counted_as_stalled() {
    let _ = tracing::subscriber::set_global_default(Collect);
    let quiet = Server::bind("127.0.0.1:0").unwrap().loops(1).start(|| (Lines::new(), Stuck(channel().1))).unwrap();
    let (release, released) = channel();
    let released = Mutex::new(Some(released));
    let make = move || (Lines::new(), Stuck(released.lock().unwrap().take().expect("one connection")));
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2).start(make).unwrap();
    let mut client = TcpStream::connect(server.address().ip().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"ebb\n").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(server.counts().iter().map(|counts| counts.stalls).sum::<u64>(), 0);

    client.write_all(b"hang\n").unwrap();
    until(|| server.counts().iter().any(|counts| counts.stalls > 0));
    let stuck = server.counts().iter().position(|counts| counts.stalls > 0).unwrap();
    // It still hangs: that turn has not ended, and does not count as slow yet.
    let slow_before = server.counts()[stuck].slow_turns;
    until(|| lines_with("loop stalled").len() == 1);
    let line = &lines_with("loop stalled")[0];
    assert!(line.starts_with("ERROR") && line.contains(&format!("event_loop={stuck}")), "{line}");

    release.send(()).unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    until(|| server.counts()[stuck].slow_turns > slow_before);
    let slow = lines_with("slow turn");
    assert!(slow.iter().any(|line| line.starts_with("WARN") && line.contains("slow turn")), "{slow:?}");
    assert!(server.counts()[stuck].longest_turn >= Duration::from_secs(1));

    // One line for that turn, and none for another loop.
    assert_eq!(server.counts()[stuck].stalls, 1);
    assert_eq!(server.counts()[1 - stuck].stalls, 0);
    assert_eq!(quiet.counts()[0].stalls, 0);
    assert_eq!(lines_with("loop stalled").len(), 1);
}

#[test]
fn a_call_that_holds_its_loop_is_named_when_its_turn_has_ended() {
    let _ = tracing::subscriber::set_global_default(Collect);
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(|| (Lines::new(), Stuck(channel().1))).unwrap();
    let mut client = TcpStream::connect(server.address().ip().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"slow\n").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    until(|| lines_with("slow turn").iter().any(|line| line.starts_with("WARN") && line.contains("line slow")));
    // After a slow turn the loop measures: the longest call is named, and not the last one.
    client.write_all(b"slow\nebb\n").unwrap();
    client.read_exact(&mut [0; 9]).unwrap();
    until(|| lines_with("slow turn").iter().any(|line| line.contains("longest_call=\"line slow\"")));
}

fn lines_with(text: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| line.contains(text)).cloned().collect()
}

/// Waits until `done`, for a long time if it has to be.
#[track_caller]
fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "it has not come to it");
        std::thread::sleep(Duration::from_millis(2));
    }
}

const PATIENCE: Duration = Duration::from_secs(120);
