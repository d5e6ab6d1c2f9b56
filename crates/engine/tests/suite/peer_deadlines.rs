//! Deadlines of peers, in virtual time: each alone, against the others, and with a slow peer of each kind.

use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_codec::{Over, Slice};
use tidegate_engine::{Channel, Context, Deadlines, Event, Handler, Limits, Outcome};
use tidegate_testkit::Embedded;
use tidegate_testkit::filters::ToyTls;

/// Echoes lines; `busy` is not answered, `slack` lifts the deadlines, `tight` sets an idle one of a second.
struct Echo;

impl Handler<Lines> for Echo {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        match &*line {
            b"busy" => return Outcome::Continue,
            b"pause" => cx.pause(),
            b"slack" => cx.set_deadlines(Deadlines::default()),
            b"tight" => cx.set_deadlines(Deadlines { idle_timeout: Some(SECOND), ..Deadlines::default() }),
            _ => {}
        }
        cx.send(line.into()).into()
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        match event {
            // It goes on until its peer ends.
            Event::Drain => cx.send("drained".into()).into(),
            event => event.by_default(cx),
        }
    }
}

/// Echoes lines behind a filter with a handshake.
struct Filtered;

impl Handler<Over<ToyTls, Lines>> for Filtered {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Over<ToyTls, Lines>>) -> Outcome<Over<ToyTls, Lines>> {
        cx.send(line.into()).into()
    }
}

fn limits(deadlines: Deadlines) -> Limits {
    Limits { deadlines, ..Limits::default() }
}

fn echo(deadlines: Deadlines) -> Embedded<()> {
    Embedded::with_limits(Lines::new(), Echo, limits(deadlines))
}

fn filtered(deadlines: Deadlines) -> Embedded<()> {
    Embedded::with_limits(Over::new(ToyTls::server(KEY), Lines::new()), Filtered, limits(deadlines))
}

fn idle() -> Deadlines {
    Deadlines { idle_timeout: Some(10 * SECOND), ..Deadlines::default() }
}

fn read(rate: u32) -> Deadlines {
    Deadlines { read_timeout: Some(10 * SECOND), read_rate_min: rate, ..Deadlines::default() }
}

fn aged() -> Deadlines {
    Deadlines { age_max: Some(100 * SECOND), age_grace: 7 * SECOND, ..Deadlines::default() }
}

#[test]
fn the_longest_deadlines_never_come() {
    let never = Some(Duration::MAX);
    let deadlines = Deadlines {
        idle_timeout: never,
        read_timeout: never,
        read_rate_min: u32::MAX,
        handshake_timeout: never,
        age_max: never,
        age_grace: Duration::MAX,
    };
    let mut pipes = [echo(deadlines), filtered(deadlines)];
    pipes[0].receive(b"a part of");
    for pipe in &mut pipes {
        // A deadline is at most twelve days away.
        (0..40).for_each(|_| pipe.advance(24 * 3_600 * SECOND));
        assert!(!pipe.is_write_closed());
    }
    pipes[0].receive(b" a line\n");
    assert_eq!(pipes[0].take_written(), b"a part of a line\n");
}

#[test]
fn deadlines_of_more_than_twelve_days_come_in_their_time() {
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    let days = |count: u32| Some(DAY * count);
    let none = Deadlines { handshake_timeout: None, ..Deadlines::default() };
    let closes_at = |mut pipe: Embedded<()>, until: u32| {
        for hour in 0..until {
            if pipe.is_write_closed() || pipe.is_closed() {
                return hour;
            }
            pipe.advance(Duration::from_secs(3_600));
        }
        panic!("it goes on for {until} hours");
    };
    for (time, hours) in [(12, 288), (13, 312), (40, 960), (100, 2_400)] {
        let idle = Deadlines { idle_timeout: days(time), ..none };
        // A tick is a millisecond, and a check an hour.
        let in_time = hours..=hours + 1;
        let idle_for = closes_at(echo(idle), 3_000);
        assert!(in_time.contains(&idle_for), "idle for {time} days: {idle_for} hours");
        // A byte after 20 days begins the time anew.
        let mut pipe = echo(idle);
        let before = if time > 20 { 20 } else { 7 };
        (0..before).for_each(|_| pipe.advance(DAY));
        pipe.receive(b"x");
        let idle_for = closes_at(pipe, 3_000);
        assert!(in_time.contains(&idle_for), "idle for {time} days: {idle_for} hours");

        let mut pipe = echo(Deadlines { read_timeout: days(time), ..none });
        pipe.receive(b"a part");
        let reads_for = closes_at(pipe, 3_000);
        assert!(in_time.contains(&reads_for), "reads for {time} days: {reads_for} hours");

        let pipe = filtered(Deadlines { handshake_timeout: days(time), ..none });
        let shakes_for = closes_at(pipe, 3_000);
        assert!(in_time.contains(&shakes_for), "the handshake lasts for {time} days: {shakes_for} hours");

        // Give or take a tenth, and an hour.
        let old = closes_at(echo(Deadlines { age_max: days(time), age_grace: SECOND, ..none }), 3_000);
        assert!((hours * 9 / 10..=hours * 11 / 10 + 1).contains(&old), "age of {time} days: {old} hours");
    }
    let old = closes_at(echo(Deadlines { age_max: Some(SECOND), age_grace: DAY * 40, ..none }), 3_000);
    assert!((960..=962).contains(&old), "a grace of 40 days: {old} hours");
}

#[test]
fn a_silent_connection_closes_in_good_order_at_its_idle_deadline() {
    let mut pipe = echo(idle());
    pipe.advance(Duration::from_millis(9_990));
    assert!(!pipe.is_write_closed());
    pipe.advance(Duration::from_millis(20));
    assert!(pipe.is_write_closed() && !pipe.is_reset());
    pipe.receive_fin();
    assert!(pipe.is_closed());
    assert_eq!((pipe.counts().closed_idle_timeout, pipe.counts().closed_done), (1, 0));
}

#[test]
fn bytes_in_either_direction_begin_the_idle_time_anew() {
    let mut pipe = echo(idle());
    for _ in 0..5 {
        pipe.advance(9 * SECOND);
        // A part of a message counts: only the idle deadline is set.
        pipe.receive(b"x");
    }
    // The peer takes bytes one second, sends nothing, and is not idle.
    pipe.limit_peer_reads(2);
    pipe.receive(&[b'y'; 20]);
    pipe.receive(b"\n");
    for _ in 0..5 {
        pipe.advance(9 * SECOND);
        assert!(!pipe.is_write_closed());
        pipe.limit_peer_reads(2);
    }
    pipe.limit_peer_reads(1_000);
    pipe.advance(11 * SECOND);
    assert!(pipe.is_write_closed());
}

#[test]
fn no_deadline_ends_a_connection_that_has_none() {
    let mut pipe = echo(Deadlines::default());
    pipe.receive(b"eb");
    (0..30).for_each(|_| pipe.advance(24 * 3600 * SECOND));
    pipe.receive(b"b\n");
    assert_eq!(pipe.take_written(), b"ebb\n");
}

#[test]
fn a_message_that_comes_byte_by_byte_is_late() {
    let mut pipe = echo(read(10));
    pipe.receive(b"ebb\n");
    // The time between messages does not count.
    pipe.advance(1_000 * SECOND);
    pipe.receive(b"f");
    for _ in 0..9 {
        pipe.advance(SECOND);
        pipe.receive(b"l");
    }
    assert!(!pipe.is_write_closed());
    pipe.advance(SECOND + MILLISECOND);
    assert!(pipe.is_write_closed());
    pipe.receive_fin();
    assert_eq!((pipe.is_closed(), pipe.counts().closed_read_timeout), (true, 1));
}

#[test]
fn a_long_message_at_the_least_rate_is_not_late() {
    let mut pipe = echo(read(10));
    pipe.receive(b"-");
    for _ in 0..100 {
        pipe.advance(SECOND);
        pipe.receive(b"-----------");
    }
    pipe.receive(b"\n");
    assert_eq!(pipe.take_written().len(), 1_102);
    // Then it stops in the middle of the next one.
    pipe.receive(b"-");
    pipe.advance(10 * SECOND + MILLISECOND);
    assert!(pipe.is_write_closed());
}

#[test]
fn one_byte_in_time_is_enough_at_a_rate_of_none() {
    let mut pipe = echo(read(0));
    pipe.receive(b"-");
    for _ in 0..20 {
        pipe.advance(9 * SECOND);
        pipe.receive(b"-");
    }
    assert!(!pipe.is_write_closed());
    pipe.advance(21 * SECOND);
    assert!(pipe.is_write_closed());
}

#[test]
fn short_messages_that_overlap_their_receives_are_not_late() {
    let mut pipe = echo(read(240));
    pipe.receive(b"eb");
    for _ in 0..20 {
        pipe.advance(6 * SECOND);
        pipe.receive(b"b\neb");
    }
    assert!(!pipe.is_write_closed());
    assert_eq!(pipe.take_written().len(), 80);
}

#[test]
fn the_peer_is_not_late_while_the_application_wants_no_message() {
    let mut pipe = echo(read(240));
    pipe.receive(b"pause\neb");
    pipe.advance(1_000 * SECOND);
    assert!(!pipe.is_write_closed());
}

#[test]
fn a_handshake_that_does_not_end_is_reset() {
    let hello = ToyTls::client_wire(KEY, b"", 1);
    for pieces in 0..3 {
        let mut pipe = filtered(Deadlines::default());
        for piece in 0..pieces {
            pipe.advance(20 * SECOND);
            pipe.receive(&hello[piece..=piece]);
        }
        pipe.advance((59 - 20 * pieces as u32) * SECOND);
        assert!(!pipe.is_closed());
        pipe.advance(SECOND + MILLISECOND);
        assert!(pipe.is_closed() && pipe.is_reset());
        assert_eq!(pipe.counts().closed_handshake_timeout, 1);
    }
}

#[test]
fn a_handshake_in_time_leaves_no_deadline() {
    let wire = ToyTls::client_wire(KEY, b"ebb\n", 100);
    let mut pipe = filtered(Deadlines::default());
    pipe.advance(59 * SECOND);
    pipe.receive(&wire[..4]);
    pipe.advance(10_000 * SECOND);
    assert!(!pipe.is_closed());
    let mut pipe = filtered(Deadlines { handshake_timeout: None, ..Deadlines::default() });
    pipe.advance(10_000 * SECOND);
    assert!(!pipe.is_closed());
}

#[test]
fn a_record_that_comes_byte_by_byte_is_late() {
    let wire = ToyTls::client_wire(KEY, &[b'-'; 500], 500);
    let mut pipe = filtered(read(10));
    pipe.receive(&wire[..4]);
    pipe.advance(100 * SECOND);
    for byte in &wire[4..13] {
        pipe.receive(&[*byte]);
        pipe.advance(SECOND);
    }
    assert!(!pipe.is_write_closed());
    pipe.advance(SECOND + MILLISECOND);
    assert_eq!(pipe.counts().closed_read_timeout + u64::from(pipe.is_write_closed()), 1);
}

#[test]
fn a_connection_drains_at_its_age_and_closes_after_its_grace() {
    let mut pipe = echo(aged());
    let mut seconds = 0;
    while pipe.take_written().is_empty() {
        pipe.advance(SECOND);
        seconds += 1;
    }
    assert!((90..=111).contains(&seconds), "{seconds} s");
    // It is served within its grace.
    pipe.receive(b"ebb\n");
    pipe.advance(6 * SECOND);
    assert_eq!(pipe.take_written(), b"ebb\n");
    assert!(!pipe.is_write_closed());
    pipe.advance(SECOND + MILLISECOND);
    assert!(pipe.is_closed());
    assert_eq!(pipe.counts().closed_age_timeout, 1);
}

#[test]
fn a_channel_drains_at_its_age() {
    let serve = |mut channel: Channel<Lines>| async move {
        while let Some(line) = channel.recv().await? {
            channel.send(line.into()).expect("there is room");
        }
        channel.send("bye".into()).expect("there is room");
        Ok::<_, tidegate_engine::ChannelError>(())
    };
    let mut pipe = Embedded::serving_with_limits(Lines::new(), serve, limits(aged()));
    pipe.receive(b"ebb\n");
    pipe.advance(89 * SECOND);
    assert_eq!((pipe.take_written(), pipe.is_write_closed()), (b"ebb\n".to_vec(), false));
    pipe.advance(22 * SECOND);
    assert_eq!((pipe.take_written(), pipe.is_write_closed()), (b"bye\n".to_vec(), true));
    pipe.receive_fin();
    assert_eq!((pipe.counts().closed_done, pipe.counts().closed_age_timeout), (1, 0));
}

#[test]
fn the_soonest_deadline_decides() {
    let all = Deadlines { idle_timeout: Some(20 * SECOND), ..read(10) };
    let late = |deadlines: Deadlines, act: fn(&mut Embedded<()>)| {
        let mut pipe = echo(deadlines);
        act(&mut pipe);
        (0..40).for_each(|_| pipe.advance(SECOND));
        pipe.receive_fin();
        let counts = pipe.counts();
        [counts.closed_idle_timeout, counts.closed_read_timeout, counts.closed_age_timeout, counts.closed_write_timeout]
    };
    assert_eq!(late(all, |_| {}), [1, 0, 0, 0]);
    assert_eq!(late(all, |pipe| pipe.receive(b"e")), [0, 1, 0, 0]);
    let read_later = Deadlines { read_timeout: Some(30 * SECOND), ..all };
    assert_eq!(late(read_later, |pipe| pipe.receive(b"e")), [1, 0, 0, 0]);
    let old = Deadlines { age_max: Some(5 * SECOND), age_grace: 5 * SECOND, ..all };
    assert_eq!(late(old, |_| {}), [0, 0, 1, 0]);
    // The reason stays that of the deadline, however the close ends.
    let stuck = |pipe: &mut Embedded<()>| {
        pipe.limit_peer_reads(0);
        pipe.receive(b"ebb\n");
        (0..4).for_each(|_| pipe.advance(40 * SECOND));
    };
    assert_eq!(late(Deadlines { idle_timeout: Some(20 * SECOND), ..Deadlines::default() }, stuck), [1, 0, 0, 0]);
    assert_eq!(late(read(10), stuck), [0, 0, 0, 1]);
}

#[test]
fn a_connection_may_change_its_deadlines() {
    let mut pipe = echo(idle());
    pipe.receive(b"slack\n");
    pipe.advance(1_000 * SECOND);
    assert!(!pipe.is_write_closed());
    pipe.receive(b"tight\n");
    pipe.advance(SECOND - MILLISECOND);
    assert!(!pipe.is_write_closed());
    pipe.advance(2 * MILLISECOND);
    assert!(pipe.is_write_closed());
}

#[test]
fn a_channel_may_change_its_deadlines() {
    let serve = |mut channel: Channel<Lines>| async move {
        channel.set_deadlines(Deadlines { idle_timeout: Some(5 * SECOND), ..Deadlines::default() });
        let _ = channel.recv().await;
        Ok::<_, tidegate_engine::ChannelError>(())
    };
    let mut pipe = Embedded::serving_with_limits(Lines::new(), serve, Limits::default());
    pipe.advance(5 * SECOND - MILLISECOND);
    assert!(!pipe.is_write_closed());
    pipe.advance(2 * MILLISECOND);
    assert!(pipe.is_write_closed());
}

const KEY: u8 = 7;
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
