//! The cost of a burst of posts: one use of the driver's waker if the loop sleeps, none if it is awake. And of a burst
//! of deadlines: several turns, and no sleep between them.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate_buffer::Pool;
use tidegate_codec::Slice;
use tidegate_codec::framing::Lines;
use tidegate_engine::{Context, Event, EventLoop, Handler, Limits, Outcome, Remote};
use tidegate_sys::{Address, Class, Completion, Driver, Operation, Side, Socket, Token, Wake, Waker};

/// Fewer posts than a loop delivers in one turn, but for the time that a turn may take.
const POSTS: usize = 1_000;

#[test]
fn a_burst_of_posts_to_a_sleeping_loop_wakes_it_once() {
    let bed = Bed::default();
    let (mut event_loop, remote, posted) = event_loop(&bed);
    bed.meanwhile.set(Some(Box::new(move || {
        let sender = std::thread::spawn(move || (0..POSTS).for_each(|_| remote.post(()).expect("the loop is there")));
        sender.join().expect("it does not panic");
    })));
    turns_until_all_are_posted(&mut event_loop, &posted);
    assert_eq!((posted.get(), bed.bell.0.load(Ordering::Relaxed)), (POSTS, 1));
}

#[test]
fn a_burst_of_posts_to_an_awake_loop_is_read_without_a_wake_up() {
    let bed = Bed::default();
    let (mut event_loop, remote, posted) = event_loop(&bed);
    // The loop sleeps once before, and wakes up by itself.
    event_loop.turn(None).expect("waiting does not fail");
    assert_eq!(bed.sleeps.get(), 1);
    (0..POSTS).for_each(|_| remote.post(()).expect("the loop is there"));
    turns_until_all_are_posted(&mut event_loop, &posted);
    assert_eq!((posted.get(), bed.bell.0.load(Ordering::Relaxed)), (POSTS, 0));
    assert_eq!(bed.sleeps.get(), 1, "posts were there");
}

#[test]
fn a_burst_of_deadlines_takes_several_turns_and_no_sleep() {
    const CONNECTIONS: usize = 5_000;
    let (bed, start) = (Bed::default(), Instant::now());
    bed.now.set(Some(start));
    let mut event_loop = EventLoop::new(Box::new(bed.clone()), Pool::new());
    let (unnamed, noted) = (Address::Unix(PathBuf::new()), Rc::<Cell<usize>>::default());
    for number in 0..CONNECTIONS {
        // Some deadlines are due together, and some one after the other; the burst finds all of them due.
        let after = Duration::from_millis(if number % 2 == 0 { 70 } else { number as u64 % 64 });
        event_loop
            .adopt(
                Socket::Simulated(0),
                &unnamed,
                Limits::default(),
                Lines::new(),
                Clock { after, noted: noted.clone() },
            )
            .expect("the driver takes it");
    }
    bed.now.set(Some(start + Duration::from_millis(75)));
    let mut turns = 0;
    while noted.get() < CONNECTIONS {
        let before = noted.get();
        event_loop.turn(None).expect("waiting does not fail");
        turns += 1;
        assert!(noted.get() > before && noted.get() - before <= 1024, "{} in one turn", noted.get() - before);
    }
    // Before the first turn, the loop had not read the clock.
    assert!(turns >= CONNECTIONS.div_ceil(1024));
    assert_eq!(bed.sleeps.get(), 1);
}

#[test]
fn the_memory_of_bursts_goes_back_at_most_once_a_second_and_the_loop_wakes_up_for_it() {
    const KEPT: usize = 256 * 1024;
    let (bed, pool, start) = (Bed::default(), Pool::new(), Instant::now());
    bed.now.set(Some(start));
    let mut event_loop = EventLoop::new(Box::new(bed.clone()), pool.clone());
    let mut turn = || {
        event_loop.turn(None).expect("waiting does not fail");
        (pool.spare_bytes(), bed.timeout.get())
    };
    let mut burst = || {
        let segments: Vec<_> = (0..500).map(|_| pool.segment()).collect();
        assert_eq!(turn(), (0, None));
        drop(segments);
        turn()
    };
    assert_eq!(burst(), (KEPT / 2, None), "the first one goes back at once");
    bed.now.set(Some(start + Duration::from_millis(300)));
    burst();
    let (kept, timeout) = burst();
    let wait = timeout.expect("the loop wakes up by itself");
    assert!(kept == KEPT && wait <= Duration::from_secs(1), "{kept} bytes, {wait:?}");
    bed.now.set(Some(start + Duration::from_millis(300) + wait));
    // The first turn reads the clock.
    turn();
    assert_eq!(turn(), (KEPT / 2, None));
}

/// Counts its deadlines.
struct Clock {
    after: Duration,
    noted: Rc<Cell<usize>>,
}

impl Handler<Lines> for Clock {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        cx.deadline_after(self.after);
        Outcome::Continue
    }

    fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        unreachable!("nothing is received")
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        if let Event::Deadline = event {
            self.noted.set(self.noted.get() + 1);
        }
        Outcome::Continue
    }
}

/// One turn, or a few on a machine that is too slow for one. The driver never sleeps between them.
fn turns_until_all_are_posted(event_loop: &mut EventLoop, posted: &Cell<usize>) {
    for _ in 0..POSTS {
        event_loop.turn(None).expect("waiting does not fail");
        if posted.get() == POSTS {
            return;
        }
    }
}

/// A loop with one connection, a remote to post to it, and the number of its posts.
fn event_loop(bed: &Bed) -> (EventLoop, Remote<()>, Rc<Cell<usize>>) {
    let mut event_loop = EventLoop::new(Box::new(bed.clone()), Pool::new());
    let (unnamed, posted) = (Address::Unix(PathBuf::new()), Rc::default());
    let counter = Counter(Rc::clone(&posted));
    let remote = event_loop
        .adopt(Socket::Simulated(0), &unnamed, Limits::default(), Lines::new(), counter)
        .expect("the driver takes it");
    (event_loop, remote, posted)
}

/// Counts its posts.
struct Counter(Rc<Cell<usize>>);

impl Handler<Lines> for Counter {
    type Post = ();

    fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        unreachable!("nothing is received")
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
        if let Event::Posted(()) = event {
            self.0.set(self.0.get() + 1);
        }
        Outcome::Continue
    }
}

/// A driver that only sleeps.
#[derive(Clone, Default)]
struct Bed {
    bell: Arc<Bell>,
    sleeps: Rc<Cell<usize>>,
    /// Runs while it sleeps for the first time.
    meanwhile: Rc<Cell<Option<Meanwhile>>>,
    /// How long it was to sleep at most.
    timeout: Rc<Cell<Option<Duration>>>,
    /// Its time, if that is not the system's.
    now: Rc<Cell<Option<Instant>>>,
}

type Meanwhile = Box<dyn FnOnce()>;

/// Counts its wake-ups.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Driver for Bed {
    fn name(&self) -> &'static str {
        "bed"
    }

    fn waker(&self) -> Waker {
        Waker::new(self.bell.clone())
    }

    fn submit(&mut self, _: Token, operation: Operation<'_>) -> Option<Completion> {
        matches!(operation, Operation::Close { .. }).then_some(Completion::Closed)
    }

    fn now(&self) -> Instant {
        self.now.get().unwrap_or_else(Instant::now)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.timeout.set(timeout);
        if timeout != Some(Duration::ZERO) {
            self.sleeps.set(self.sleeps.get() + 1);
            if let Some(meanwhile) = self.meanwhile.take() {
                meanwhile();
            }
        }
        Ok(())
    }

    fn next(&mut self, _: Class) -> Option<(Token, Completion)> {
        None
    }

    fn has_ready(&self) -> bool {
        false
    }

    fn pause_receives(&mut self, _: bool) {}

    fn address(&self, _: Token, _: Side) -> io::Result<Address> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
