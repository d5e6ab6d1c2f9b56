//! Timers: the deadline of a handler, and a task that sleeps.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::Slice;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Context, Event, Handler, Limits, Outcome, task};
use tidegate_sys::Socket;

use crate::counted::count_this;
use crate::turns::wired;
use crate::wire::address;

/// The deadline of each connection is armed, postponed, moved forward, and fires: three turns, in two of which the
/// connection receives a byte.
pub(crate) fn deadline(rounds: usize) {
    let (mut event_loop, peer) = wired(vec![b'x'], 0);
    let fired = Rc::new(Cell::new(0));
    for number in 0..MANY {
        let stream = Socket::Simulated(number as u64);
        let patient = Patient { ask: Ask::Later, fired: fired.clone() };
        event_loop.adopt(stream, &address(), Limits::default(), Raw, patient).expect("it takes any stream");
    }
    event_loop.turn(None).expect("nothing fails on a wire");
    for _ in 0..rounds {
        // Two turns with input, and then the last deadline fires.
        for deliveries in [true, true, false] {
            peer.pass(SOON);
            if deliveries {
                peer.deliver();
            }
            count_this(|| event_loop.turn(None)).expect("nothing fails on a wire");
        }
    }
    assert_eq!(fired.get(), rounds * MANY, "each deadline fires in each round");
}

/// Sets its deadline as a typical protocol does.
struct Patient {
    ask: Ask,
    fired: Rc<Cell<usize>>,
}

/// The deadline that it sets on the next byte.
enum Ask {
    Later,
    Sooner,
}

impl Handler<Raw> for Patient {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        cx.deadline_after(LATE);
        Outcome::Continue
    }

    fn message(&mut self, _: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        self.ask = match self.ask {
            Ask::Later => {
                cx.deadline_after(2 * LATE);
                Ask::Sooner
            }
            Ask::Sooner => {
                cx.deadline_after(SOON);
                Ask::Later
            }
        };
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        match event {
            Event::Deadline => {
                self.fired.set(self.fired.get() + 1);
                cx.deadline_after(LATE);
                Outcome::Continue
            }
            other => other.by_default(cx),
        }
    }
}

/// A task that sleeps, wakes, and sleeps again.
pub(crate) fn sleep(rounds: usize) {
    let (mut event_loop, peer) = wired(Vec::new(), 0);
    let slept = Rc::new(Cell::new(0));
    for _ in 0..MANY {
        let slept = slept.clone();
        drop(event_loop.spawn(async move {
            loop {
                task::sleep(SOON).await;
                slept.set(slept.get() + 1);
            }
        }));
    }
    event_loop.turn(None).expect("nothing fails on a wire");
    for _ in 0..rounds {
        peer.pass(SOON);
        count_this(|| event_loop.turn(None)).expect("nothing fails on a wire");
    }
    assert_eq!(slept.get(), rounds * MANY, "each task wakes in each turn");
}

/// The number of connections or tasks in a turn.
pub(crate) const MANY: usize = 64;

const SOON: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_secs(10);
