//! Deadlines fire once, at the time they were last set to and not earlier, also many at the same time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_codec::framing::Lines;
use tidegate_engine::{Channel, ChannelError, Client, Deadlines, Event, Limits, Outcome, task};
use tidegate_sys::Address;

use crate::echo::{echo, pattern};
use crate::journal::Journal;
use crate::stack::Stack;
use crate::stage::{Call, Cx, LATE, Served, Site, Stage};

/// When a deadline was set, and when it fired.
#[derive(Clone, Default)]
struct Times(Rc<RefCell<(Option<Instant>, Vec<Instant>)>>, Rc<Cell<Option<Instant>>>);

impl Times {
    fn begin(&self, at: Instant) {
        self.0.borrow_mut().0.get_or_insert(at);
    }

    fn come(&self, at: Instant) {
        self.0.borrow_mut().1.push(at);
    }

    fn count(&self) -> usize {
        self.0.borrow().1.len()
    }

    /// How long after the beginning each deadline fired.
    fn after(&self) -> Vec<Duration> {
        self.0.borrow().1.iter().map(|at| self.since_begin(*at)).collect()
    }

    fn since_begin(&self, at: Instant) -> Duration {
        at.duration_since(self.0.borrow().0.expect("it has begun"))
    }
}

/// Has a connection set deadlines in `open` and at a message. Waits until so many have fired, and then a while for more.
/// Returns when they fired.
fn deadlines<S: Stack>(
    stage: &Stage,
    expected: usize,
    first: impl Fn(&mut Cx<'_, S::Codec>) + 'static,
    second: impl Fn(&mut Cx<'_, S::Codec>) + 'static,
) -> Vec<Duration> {
    deadlines_within::<S>(stage, expected, Duration::MAX, stage.units(8), first, second).expect("it is in time")
}

/// The same, where the message has to come within a time, and others are awaited for another. `None` if the message was
/// late: where time goes by itself, a machine that runs other programs may delay it.
fn deadlines_within<S: Stack>(
    stage: &Stage,
    expected: usize,
    within: Duration,
    rest: Duration,
    first: impl Fn(&mut Cx<'_, S::Codec>) + 'static,
    second: impl Fn(&mut Cx<'_, S::Codec>) + 'static,
) -> Option<Vec<Duration>> {
    let (server, raw_peer, times) = (stage.server(), stage.raw_peer(), Times::default());
    let noted = times.clone();
    let to = stage.listen_noting::<S>(&server, Limits::default(), &Journal::default(), move |call, cx| {
        match call {
            Call::Open => {
                noted.begin(cx.now());
                first(cx);
            }
            Call::Message(_) => {
                noted.1.set(Some(cx.now()));
                second(cx);
            }
            Call::Event(Event::Deadline) => noted.come(cx.now()),
            call => return call.by_default(cx),
        }
        Outcome::Continue
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    stage.rest(stage.units(1) / 10);
    raw_peer.send(end, &S::encoded(b"!"));
    stage.until("the message has come", || times.1.get().is_some());
    if times.since_begin(times.1.get()?) >= within {
        assert!(stage.is_real(), "virtual time delays no message");
        return None;
    }
    stage.until("the deadlines have fired", || times.count() >= expected);
    stage.rest(rest);
    Some(times.after())
}

/// The first result of these scenarios, with deadlines after more and more units.
fn first_in_time<T>(scenario: impl Fn(u32) -> Option<T>) -> T {
    [6, 60, 600].into_iter().find_map(scenario).expect("the message is in time")
}

/// A deadline fires once, not early, and not much later.
fn assert_in_time(stage: &Stage, times: &[Duration], at: u32) {
    let most = stage.units(at) + stage.delay_max();
    assert!(matches!(times, [time] if (stage.units(at)..most).contains(time)), "{times:?}, not at {at} units");
}

pub(crate) fn come_once_and_in_time<S: Stack>(stage: &Stage) {
    let unit = stage.units(1);
    let times = deadlines::<S>(stage, 1, move |cx| cx.deadline_after(unit), |_| {});
    assert_in_time(stage, &times, 1);
}

pub(crate) fn are_moved_back<S: Stack>(stage: &Stage) {
    let (times, at) = first_in_time(|units| {
        let (first, second) = (stage.units(units), stage.units(units + 1));
        let times = deadlines_within::<S>(
            stage,
            1,
            first,
            stage.units(8),
            move |cx| cx.deadline_after(first),
            move |cx| {
                let at = cx.now() + second;
                cx.deadline(Some(at));
            },
        );
        times.map(|times| (times, units + 1))
    });
    assert_in_time(stage, &times, at);
}

pub(crate) fn are_moved_ahead<S: Stack>(stage: &Stage) {
    let unit = stage.units(1);
    let times = deadlines::<S>(stage, 1, |cx| cx.deadline_after(2 * LATE), move |cx| cx.deadline_after(unit));
    assert_in_time(stage, &times, 1);
}

pub(crate) fn are_taken_back<S: Stack>(stage: &Stage) {
    let times = first_in_time(|units| {
        let (at, rest) = (stage.units(units), stage.units(units + 2));
        deadlines_within::<S>(stage, 0, at, rest, move |cx| cx.deadline_after(at), |cx| cx.deadline(None))
    });
    assert!(times.is_empty(), "{times:?}");
}

/// One of them sets the next.
pub(crate) fn follow_one_another<S: Stack>(stage: &Stage) {
    let (server, raw_peer, times) = (stage.server(), stage.raw_peer(), Times::default());
    let (noted, pause) = (times.clone(), stage.units(1) / 6);
    let to = stage.listen_noting::<S>(&server, Limits::default(), &Journal::default(), move |call, cx| match call {
        Call::Open => {
            noted.begin(cx.now());
            cx.deadline_after(pause);
            Outcome::Continue
        }
        Call::Event(Event::Deadline) => {
            noted.come(cx.now());
            cx.deadline_after(pause);
            if noted.count() == 5 { Outcome::Close } else { Outcome::Continue }
        }
        call => call.by_default(cx),
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended == 1));
    let times = times.after();
    assert_eq!(times.len(), 5);
    for (index, time) in times.into_iter().enumerate() {
        assert!(time >= pause * (index as u32 + 1), "the {index}th after {time:?}");
    }
}

/// Many idle connections all have their deadline at about the same time.
pub(crate) fn of_many_come_together<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let early = Rc::new(Cell::new(0));
    let (count, unit) = (5 * stage.many(), stage.units(1));
    let wrong = early.clone();
    let to = stage.listen(&server, Limits::default(), S::server, move || {
        let (wrong, mut at) = (wrong.clone(), None);
        move |call: Call, cx: &mut Cx<'_, S::Codec>| match call {
            Call::Open => {
                at = Some(cx.now() + unit);
                cx.deadline(at);
                Outcome::Continue
            }
            Call::Event(Event::Deadline) => {
                wrong.set(wrong.get() + usize::from(at.is_none_or(|at| cx.now() < at)));
                match cx.send("!".into()) {
                    Ok(_) => Outcome::Continue,
                    Err(error) => Outcome::fail(error),
                }
            }
            call => call.by_default(cx),
        }
    });
    let ends: Vec<_> = (0..count).map(|_| raw_peer.connect(&to)).collect();
    for end in &ends {
        raw_peer.receive(*end, true);
        raw_peer.send(*end, &S::hello());
    }
    let answered = |end: &usize| raw_peer.inspect(*end, |seen| S::decoded(&seen.received) == b"!");
    stage.until("each deadline has fired", || ends.iter().all(answered));
    stage.rest(unit);
    assert!(ends.iter().all(answered), "a deadline fired twice");
    assert_eq!(early.get(), 0, "deadlines that came too early");
}

/// A connection with much pending output and a peer that does not read gets its deadlines.
pub(crate) fn fire_on_unwritable_connections<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let (much, pause, seen) = (stage.much(), stage.units(1) / 2, journal.clone());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| match call {
        Call::Open => {
            cx.deadline_after(pause);
            cx.send(pattern(much).into()).into()
        }
        Call::Event(Event::Deadline) => {
            seen.note(if cx.is_writable() { "writable" } else { "unwritable" });
            Outcome::Continue
        }
        call => call.by_default(cx),
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    raw_peer.receive(end, false);
    stage.until("the deadline has come", || journal.count("Deadline") == 1);
    assert_eq!(journal.count("unwritable"), 1);
    stage.rest(stage.units(1));
    assert_eq!(journal.count("Deadline"), 1);
}

pub(crate) fn of_channels_lose_nothing<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let unit = stage.units(1);
    let times = Times::default();
    let noted = times.clone();
    let serve = move |mut channel: Channel<S::Codec>| {
        let noted = noted.clone();
        async move {
            noted.begin(task::now());
            let within = channel.recv().within(unit / 2).await;
            expect(matches!(within, Err(ChannelError::Deadline)), "it waits only so long")?;
            noted.come(task::now());
            channel.set_deadline_after(unit / 2);
            for _ in 0..2 {
                expect(matches!(channel.recv().await, Err(ChannelError::Deadline)), "it fails until it is taken back")?;
            }
            noted.come(task::now());
            channel.set_deadline(None);
            channel.send("!".into())?;
            let message = channel.recv().await?.ok_or("the message that it waited for is lost")?;
            channel.send(message.into())?;
            Served::Ok(())
        }
    };
    let to = stage.serve(&server, Limits::default(), S::server, serve);
    let end = stage.connect::<S>(&raw_peer, &to);
    stage.until("both have come", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"!"));
    raw_peer.send(end, &S::encoded(b"?"));
    stage.until("it is answered", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"!?"));
    let after = times.after();
    assert!(after[0] >= unit / 2 && after[1] >= unit && after[1] < unit + stage.delay_max(), "{after:?}");
    assert_eq!(server.counts().closed_failed, 0);
}

pub(crate) fn of_tasks_come_in_their_order<S: Stack>(stage: &Stage) {
    let (server, client, unit) = (stage.server(), stage.client(), stage.units(1));
    let woken = Rc::new(RefCell::new(Vec::new()));
    let naps: [u32; 6] = [5, 1, 4, 0, 6, 2];
    let sleepers: Vec<_> = naps
        .into_iter()
        .map(|nap| {
            let woken = woken.clone();
            stage.start(&client, async move {
                let begun = task::now();
                task::sleep(unit * nap).await;
                woken.borrow_mut().push(nap);
                task::now() - begun >= unit * nap
            })
        })
        .collect();
    // A sleep that is dropped does not affect the others. It is long: a loop that is late would find both to be over.
    let dropped = stage.start(&client, async move { task::timeout(unit / 3, task::sleep(unit * 1000)).await.is_err() });
    assert!(sleepers.iter().all(|sleeper| stage.outcome(sleeper)), "one slept less than it wanted");
    assert!(stage.outcome(&dropped), "a sleep ended early");
    assert_eq!(*woken.borrow(), [0, 1, 2, 4, 5, 6]);
    // A task that waits for something else as well.
    let to = stage.serve(&server, Limits::default(), S::server, |mut channel: Channel<S::Codec>| async move {
        task::sleep(Duration::from_millis(1)).await;
        channel.send("ebb".into())?;
        Served::Ok(())
    });
    let started = stage.start(&client, async move {
        let mut channel = Client::at(to).connect(S::client()).await?;
        let mut come = Vec::new();
        while let Some(bytes) = task::timeout(unit * 100, channel.recv()).await?? {
            come.extend_from_slice(&bytes);
        }
        Ok::<_, Box<dyn std::error::Error>>(come)
    });
    assert_eq!(stage.outcome(&started).expect("it comes in time"), b"ebb");
}

fn expect(is_so: bool, what: &'static str) -> Result<(), &'static str> {
    if is_so { Ok(()) } else { Err(what) }
}

/// Listens with deadlines of the peer.
fn listen_with<S: Stack>(stage: &Stage, site: &Site, deadlines: Deadlines) -> Address {
    let limits = Limits { deadlines, ..Limits::default() };
    stage.listen(site, limits, S::server, || echo::<S>)
}

/// One peer is silent, the other sends all the time.
pub(crate) fn of_idle_peers_end_them_in_good_order<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let deadlines = Deadlines { idle_timeout: Some(stage.units(1)), ..Deadlines::default() };
    let to = listen_with::<S>(stage, &server, deadlines);
    let [silent, busy] = [stage.connect::<S>(&raw_peer, &to), stage.connect::<S>(&raw_peer, &to)];
    let mut sent = 0;
    while raw_peer.inspect(silent, |seen| seen.ended == 0) {
        raw_peer.send(busy, &S::encoded(b"e"));
        sent += 1;
        // In real time both are silent while this thread does not run.
        stage.until("it is answered, or too late", || {
            let is_answered = raw_peer.inspect(busy, |seen| S::decoded(&seen.received).len() == sent);
            is_answered || stage.is_real() && raw_peer.inspect(silent, |seen| seen.ended > 0)
        });
        stage.rest(stage.units(1) / 20);
        assert!(sent < 10_000, "the silent peer is not ended");
    }
    assert!(raw_peer.inspect(silent, |seen| seen.failed.is_empty()), "it ends in good order");
    stage.send_goodbye::<S>(&raw_peer, silent);
    stage.until("the silent one is closed", || server.counts().closed_idle_timeout == 1);
    if !stage.is_real() {
        // In real time this thread may not have run for a while.
        assert_eq!(raw_peer.inspect(busy, |seen| seen.ended), 0);
    }
    raw_peer.close(busy, true);
}

/// A peer sends a message that never ends, a byte at a time.
pub(crate) fn of_slow_messages_end_their_peers<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let deadlines = Deadlines { read_timeout: Some(stage.units(1)), read_rate_min: 1_000_000, ..Deadlines::default() };
    let limits = Limits { deadlines, ..Limits::default() };
    let act = || |call: Call, cx: &mut Cx<'_, S::With<Lines>>| call.by_default(cx);
    let to = stage.listen(&server, limits, || S::server_with(Lines::new()), act);
    let end = stage.connect::<S>(&raw_peer, &to);
    let mut sent = 0;
    while server.counts().closed_read_timeout == 0 {
        if raw_peer.inspect(end, |seen| seen.ended + seen.failed.len() == 0) {
            raw_peer.send(end, &S::encoded(b"-"));
        } else {
            raw_peer.close(end, false);
        }
        stage.rest(stage.units(1) / 20);
        sent += 1;
        assert!(sent < 10_000, "the slow peer is not ended");
    }
}

/// A peer never begins the handshake, or sends a part of it.
pub(crate) fn of_handshakes_reset_their_peers<S: Stack>(stage: &Stage) {
    if !S::FILTERED {
        return;
    }
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let deadlines = Deadlines { handshake_timeout: Some(stage.units(1)), ..Deadlines::default() };
    let to = listen_with::<S>(stage, &server, deadlines);
    // In real time the handshake of a good peer may take too long.
    let is_served = |end, messages: &[u8]| raw_peer.inspect(end, |seen| S::decoded(&seen.received) == messages);
    let mut late = 0;
    let good = loop {
        let good = stage.connect::<S>(&raw_peer, &to);
        raw_peer.send(good, &S::encoded(b"ebb"));
        let is_late = || raw_peer.inspect(good, |seen| !seen.failed.is_empty());
        stage.until("it is served, or late", || is_served(good, b"ebb") || is_late());
        if is_served(good, b"ebb") {
            break good;
        }
        assert!(stage.is_real());
        late += 1;
    };
    for bytes in [0, 2] {
        let end = raw_peer.connect_bare(&to);
        raw_peer.receive(end, true);
        raw_peer.send(end, &S::handshake_start()[..bytes]);
        stage.until("it is reset", || raw_peer.inspect(end, |seen| !seen.failed.is_empty()));
    }
    raw_peer.send(good, &S::encoded(b" and flow"));
    stage.until("the other is served", || is_served(good, b"ebb and flow"));
    stage.until("both are counted", || server.counts().closed_handshake_timeout == 2 + late);
}

/// One connection ends when it drains, the other does not.
pub(crate) fn of_age_drain_connections_and_end_them<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let age = Some(stage.units(1));
    // The grace is longer than a busy machine delays the end of the one that ends.
    let deadlines = Deadlines { age_max: age, age_grace: stage.units(3), ..Deadlines::default() };
    let limits = Limits { deadlines, ..Limits::default() };
    let has_drained = Cell::new(false);
    let to = stage.listen_noting::<S>(&server, limits, &journal, move |call, cx| match call {
        Call::Event(Event::Drain) if has_drained.replace(true) => Outcome::Continue,
        Call::Event(Event::Drain) => Outcome::Close,
        call => call.by_default(cx),
    });
    let ends = [stage.connect::<S>(&raw_peer, &to), stage.connect::<S>(&raw_peer, &to)];
    stage.until("one ends in good order", || ends.iter().any(|end| raw_peer.inspect(*end, |seen| seen.ended > 0)));
    stage.until("both are notified", || journal.count("Drain") == 2);
    for end in ends {
        stage.until("it has ended", || raw_peer.inspect(end, |seen| seen.ended + seen.failed.len() > 0));
        raw_peer.close(end, false);
    }
    stage.until("both are closed", || server.counts().connections == 0);
    let counts = server.counts();
    assert_eq!(counts.closed_age_timeout, 1, "{counts:?}");
}
