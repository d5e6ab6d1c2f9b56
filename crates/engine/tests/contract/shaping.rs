//! Shaped connections move everything, and nothing faster than their rate.
//!
//! How long it takes is compared with the rate from below only: a loop may always be late.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_engine::{Event, Limits, Outcome, Rate, Shaping};
use tidegate_sys::Address;

use crate::caller::Caller;
use crate::echo::pattern;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Site, Stage};

const BYTES: usize = 200_000;
const BURST: u64 = 20_000;

/// More than any receive brings.
const RECEIVE_BYTES: usize = 64 * 1024;

/// A rate at which the bytes take so many units.
fn rate(stage: &Stage, units: u32) -> Rate {
    let bytes = BYTES as f64 / stage.units(units).as_secs_f64();
    Rate::per_second(bytes as u64).burst(BURST)
}

/// The time in which a rate admits so many bytes.
fn time_of(rate: Rate, bytes: usize) -> Duration {
    let bytes = (bytes as u64).saturating_sub(rate.burst_bytes());
    Duration::from_secs_f64(bytes as f64 / rate.bytes_per_second() as f64)
}

fn limits(shaping: Shaping) -> Limits {
    Limits { shaping, water: tidegate_buffer::WaterMarks::new(1 << 40, 1), ..Limits::default() }
}

/// The beginning and the end of something.
type Span = Rc<Cell<Option<(Instant, Instant)>>>;

/// A server that sends all bytes after the first message, and notes when they have left.
fn sends<S: Stack>(stage: &Stage, server: &Site, shaping: Shaping, closes: bool) -> (Address, Rc<RefCell<Vec<Span>>>) {
    let spans = Rc::<RefCell<Vec<Span>>>::default();
    let noted = spans.clone();
    let to = stage.listen(server, limits(shaping), S::server, move || {
        let span = Span::default();
        noted.borrow_mut().push(span.clone());
        move |call: Call, cx: &mut Cx<'_, S::Codec>| match call {
            Call::Open => {
                span.set(Some((cx.now(), cx.now())));
                Outcome::Continue
            }
            Call::Message(_) => {
                match cx.send(pattern(BYTES).into()) {
                    Ok(position) => cx.watch(position),
                    Err(error) => return Outcome::fail(error),
                }
                if closes { Outcome::Close } else { Outcome::Continue }
            }
            Call::Event(Event::Flushed) => {
                span.set(span.get().map(|(begun, _)| (begun, cx.now())));
                Outcome::Continue
            }
            call => call.by_default(cx),
        }
    });
    (to, spans)
}

fn took(span: &Span) -> Duration {
    let (begun, ended) = span.get().expect("it has begun");
    ended - begun
}

pub(crate) fn a_connection_sends_all_and_no_faster_than_its_rate<S: Stack>(stage: &Stage) {
    let (server, rate) = (stage.server(), rate(stage, 4));
    let (to, spans) = sends::<S>(stage, &server, Shaping { send: Some(rate), ..Shaping::default() }, false);
    let caller = Caller::<S>::new(stage, &to);
    caller.say(b"!");
    stage.until("everything has come", || caller.has_received(BYTES));
    stage.until("it is flushed", || took(&spans.borrow()[0]) > Duration::ZERO);
    let (took, least) = (took(&spans.borrow()[0]), time_of(rate, BYTES));
    assert!(took >= least, "{took:?}, but the rate allows {least:?}");
    caller.end(stage);
    assert!(caller.all_received(stage) == pattern(BYTES), "other bytes arrived");
}

pub(crate) fn a_connection_receives_all_and_no_faster_than_its_rate<S: Stack>(stage: &Stage) {
    let (server, rate) = (stage.server(), rate(stage, 4));
    let (span, received) = (Span::default(), Rc::<RefCell<Vec<u8>>>::default());
    let (noted, kept) = (span.clone(), received.clone());
    let shaping = Shaping { receive: Some(rate), ..Shaping::default() };
    let to = stage.listen(&server, limits(shaping), S::server, move || {
        let (span, received) = (noted.clone(), kept.clone());
        move |call: Call, cx: &mut Cx<'_, S::Codec>| match call {
            Call::Open => {
                span.set(Some((cx.now(), cx.now())));
                Outcome::Continue
            }
            Call::Message(bytes) => {
                received.borrow_mut().extend_from_slice(&bytes);
                span.set(span.get().map(|(begun, _)| (begun, cx.now())));
                Outcome::Continue
            }
            call => call.by_default(cx),
        }
    });
    let caller = Caller::<S>::new(stage, &to);
    caller.say(&pattern(BYTES));
    stage.until("everything has come", || received.borrow().len() == BYTES);
    let (took, least) = (took(&span), time_of(rate, BYTES - RECEIVE_BYTES));
    assert!(took >= least, "{took:?}, but the rate allows {least:?}");
    assert!(*received.borrow() == pattern(BYTES), "other bytes arrived");
    caller.end(stage);
    caller.all_received(stage);
}

pub(crate) fn connections_of_a_loop_share_a_rate_and_none_starves<S: Stack>(stage: &Stage) {
    let (server, rate) = (stage.server(), rate(stage, 2));
    let (to, spans) = sends::<S>(stage, &server, Shaping { loop_send: Some(rate), ..Shaping::default() }, false);
    let callers: Vec<_> = (0..3).map(|_| Caller::<S>::new(stage, &to)).collect();
    callers.iter().for_each(|caller| caller.say(b"!"));
    for caller in &callers {
        stage.until("everything has come", || caller.has_received(BYTES));
    }
    stage.until("all is flushed", || spans.borrow().iter().all(|span| took(span) > Duration::ZERO));
    let begun = spans.borrow().iter().filter_map(|span| span.get()).map(|(begun, _)| begun).min();
    let ended = spans.borrow().iter().filter_map(|span| span.get()).map(|(_, ended)| ended).max();
    let (took, least) = (ended.zip(begun).map(|(ended, begun)| ended - begun), time_of(rate, 3 * BYTES));
    assert!(took >= Some(least), "{took:?}, but the rate allows {least:?}");
    for caller in callers {
        caller.end(stage);
        assert!(caller.all_received(stage) == pattern(BYTES), "other bytes arrived");
    }
}

pub(crate) fn a_connection_that_closes_sends_the_rest<S: Stack>(stage: &Stage) {
    let (server, rate) = (stage.server(), rate(stage, 2));
    let shaping = Shaping { send: Some(rate), receive: Some(rate.burst(100)), ..Shaping::default() };
    let (to, _) = sends::<S>(stage, &server, shaping, true);
    let caller = Caller::<S>::new(stage, &to);
    caller.say(b"!");
    assert!(caller.all_received(stage) == pattern(BYTES), "other bytes arrived");
    caller.end(stage);
    stage.until("the server is done", || server.counts().closed_done == 1);
}

pub(crate) fn a_reset_ends_a_connection_that_waits<S: Stack>(stage: &Stage) {
    let server = stage.server();
    let slow = Rate::per_second(1).burst(100);
    let shaping = Shaping { send: Some(slow), receive: Some(slow), loop_send: Some(slow), ..Shaping::default() };
    let (to, spans) = sends::<S>(stage, &server, shaping, false);
    let caller = Caller::<S>::new(stage, &to);
    caller.say(b"!");
    stage.until("it is open", || spans.borrow().len() == 1 && server.counts().connections == 1);
    caller.close();
    server.with(|event_loop| event_loop.drain(Duration::ZERO));
    stage.until("it is gone", || server.counts().connections == 0);
}
