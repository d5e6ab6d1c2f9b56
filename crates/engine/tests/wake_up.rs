//! No wake-up is lost, and none is unnecessary: the mailbox with every interleaving of few threads, by loom.
//!
//! The mailbox is included unchanged; only its synchronization types are loom's here. A lost wake-up leaves the loop
//! asleep for ever, which loom reports as a deadlock.
//!
//! A program of its own: the types that the mailbox imports from its crate's root are loom's in this one.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Wake as _;
use std::time::{Duration, Instant};

use loom::model::Builder;
use loom::sync::atomic::Ordering;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use tidegate_sys::{Token, Wake, Waker};

use mailbox::{LoopMessage, Mailbox, MailboxError, TaskWaker};

#[expect(dead_code, reason = "no loop delivers messages here")]
#[path = "../src/mailbox.rs"]
mod mailbox;

/// The items that the mailbox imports from the module of that name.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

/// The items that the mailbox imports from the module of that name.
mod limits {
    pub(crate) const MAILBOX_MESSAGES_MAX: usize = 2;
}

/// The items that the mailbox imports from the module of that name.
mod inspection {
    /// No test asks for connections.
    pub(crate) struct InspectRequest;
    pub(crate) struct CloseRequest;
}

#[test]
fn messages_of_a_sender_arrive_in_order_and_no_wake_up_is_lost() {
    model(|| {
        let mut test_loop = TestLoop::new();
        let mailbox = test_loop.mailbox.clone();
        let sender = thread::spawn(move || {
            assert!(mailbox.send(message(1)).is_ok());
            assert!(mailbox.send(message(2)).is_ok());
        });
        assert_eq!([test_loop.next_message(), test_loop.next_message()], [1, 2]);
        test_loop.end_with([sender]);
    });
}

#[test]
fn messages_of_two_senders_wake_a_loop_at_most_once_per_sleep() {
    model(|| {
        let mut test_loop = TestLoop::new();
        let senders = [1, 2].map(|number| {
            let mailbox = test_loop.mailbox.clone();
            thread::spawn(move || assert!(mailbox.send(message(number)).is_ok()))
        });
        assert_eq!(test_loop.next_message() + test_loop.next_message(), 3);
        test_loop.end_with(senders);
    });
}

#[test]
fn a_message_and_a_woken_task_do_not_hide_each_other() {
    model(|| {
        let mut test_loop = TestLoop::new();
        let mailbox = test_loop.mailbox.clone();
        let sender = thread::spawn(move || assert!(mailbox.send(message(1)).is_ok()));
        let mailbox = test_loop.mailbox.clone();
        let waker = thread::spawn(move || mailbox.wake(TASK));
        assert_eq!((test_loop.next_message(), test_loop.next_task()), (1, TASK));
        test_loop.end_with([sender, waker]);
    });
}

#[test]
fn a_sleep_that_times_out_gets_at_most_one_wake_up() {
    model(|| {
        let test_loop = TestLoop::new();
        assert!(test_loop.mailbox.fall_asleep(), "nothing has come");
        let wakers = [1, 2].map(|slot| {
            let mailbox = test_loop.mailbox.clone();
            thread::spawn(move || mailbox.wake(Token { slot, generation: 0 }))
        });
        test_loop.mailbox.wake_up();
        join(wakers);
        assert!(test_loop.bell.rings() <= 1);
        assert!(!test_loop.mailbox.fall_asleep(), "two tasks were woken");
    });
}

#[test]
fn a_wake_during_a_poll_is_not_lost() {
    model(|| {
        let mut test_loop = TestLoop::new();
        let waker = TaskWaker::new(test_loop.mailbox.clone(), TASK);
        // Relaxed: a thread that finds the task queued relies on the waker to publish its writes.
        let ready = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        waker.wake_by_ref();
        let other = {
            let (waker, ready) = (waker.clone(), ready.clone());
            thread::spawn(move || {
                ready.store(true, Ordering::Relaxed);
                waker.wake();
            })
        };
        loop {
            assert_eq!(test_loop.next_task(), TASK);
            waker.begin();
            if ready.load(Ordering::Relaxed) {
                break;
            }
        }
        test_loop.end_with([other]);
    });
}

#[test]
fn a_task_that_is_woken_often_is_queued_once() {
    model(|| {
        let test_loop = TestLoop::new();
        let waker = TaskWaker::new(test_loop.mailbox.clone(), TASK);
        let others = [(); 2].map(|()| {
            let waker = waker.clone();
            thread::spawn(move || waker.wake())
        });
        join(others);
        waker.wake_by_ref();
        let mut woken = Vec::new();
        test_loop.mailbox.collect_woken(&mut woken);
        assert_eq!(woken, [TASK]);
        waker.begin();
        waker.wake_by_ref();
        waker.wake_by_ref();
        woken.clear();
        test_loop.mailbox.collect_woken(&mut woken);
        assert_eq!(woken, [TASK]);
    });
}

#[test]
fn a_loop_that_has_ended_takes_no_message_and_no_wake_up() {
    model(|| {
        let test_loop = TestLoop::new();
        let waker = TaskWaker::new(test_loop.mailbox.clone(), TASK);
        let other = {
            let (waker, mailbox) = (waker.clone(), test_loop.mailbox.clone());
            thread::spawn(move || {
                waker.wake();
                mailbox.send(message(1)).is_ok()
            })
        };
        assert_eq!(test_loop.mailbox.close().map(|messages| messages.len() <= 1), Some(true));
        let was_sent = other.join().expect("it does not panic");
        // The wake-up was late, or it was in time and the loop was not asleep.
        assert_eq!(test_loop.bell.rings(), 0);
        test_loop.mailbox.fall_asleep();
        waker.begin();
        waker.wake_by_ref();
        match test_loop.mailbox.send(message(2)) {
            Err(MailboxError::Ended(message)) => assert_eq!(message.into_post::<u32>(), 2),
            _ => panic!("the loop has ended"),
        }
        assert_eq!(test_loop.bell.rings(), 0);
        assert!(test_loop.mailbox.collect().is_empty(), "sent: {was_sent}");
        let mut woken = Vec::new();
        test_loop.mailbox.collect_woken(&mut woken);
        assert!(woken.is_empty());
        waker.begin();
        waker.wake_by_ref();
        assert!(!test_loop.mailbox.has_woken(), "a refused task sets no flag");
    });
}

#[test]
fn a_loop_that_is_awake_is_not_woken() {
    model(|| {
        let test_loop = TestLoop::new();
        test_loop.mailbox.wake(TASK);
        assert!(!test_loop.mailbox.fall_asleep(), "a task was woken");
        test_loop.mailbox.wake(TASK);
        test_loop.mailbox.collect_woken(&mut Vec::new());
        assert!(test_loop.mailbox.fall_asleep());
        test_loop.mailbox.wake_up();
        test_loop.mailbox.wake(TASK);
        assert!(test_loop.mailbox.send(message(1)).is_ok());
        assert_eq!(test_loop.bell.rings(), 0);
    });
}

#[test]
fn a_full_mailbox_refuses_a_message_but_takes_a_drain() {
    model(|| {
        let test_loop = TestLoop::new();
        assert!(test_loop.mailbox.send(message(1)).is_ok() && test_loop.mailbox.send(message(2)).is_ok());
        match test_loop.mailbox.send(message(3)) {
            Err(MailboxError::Full(message)) => assert_eq!(message.into_post::<u32>(), 3),
            _ => panic!("there is no room"),
        }
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        assert!(test_loop.mailbox.send(LoopMessage::Drain(now)).is_ok());
        // Before it is read, and until it has been.
        assert!(test_loop.mailbox.is_overdue(now) && !test_loop.mailbox.is_overdue(now - second));
        assert_eq!(test_loop.mailbox.collect().len(), 3);
        assert!(!test_loop.mailbox.has_messages());
    });
}

#[test]
fn buffers_of_woken_tasks_are_exchanged_but_not_a_large_one() {
    model(|| {
        let mailbox = TestLoop::new().mailbox;
        let mut large = Vec::with_capacity(100_000);
        mailbox.collect_woken(&mut large);
        assert_eq!(large.capacity(), 0);
        let mut small = Vec::with_capacity(100);
        let place = small.as_ptr();
        mailbox.wake(TASK);
        mailbox.collect_woken(&mut small);
        assert_eq!(small, [TASK]);
        small.clear();
        mailbox.wake(TASK);
        mailbox.collect_woken(&mut small);
        assert_eq!((small.as_ptr(), small.as_slice()), (place, &[TASK][..]));
    });
}

/// A loop reduced to its mailbox and its sleep.
struct TestLoop {
    mailbox: Arc<Mailbox>,
    bell: Arc<Bell>,
    sleeps: usize,
    messages: VecDeque<LoopMessage>,
    woken: Vec<Token>,
}

impl TestLoop {
    fn new() -> Self {
        let bell = Arc::new(Bell { rung: Mutex::new((false, 0)), ringing: Condvar::new() });
        let mailbox = Mailbox::new(Waker::new(bell.clone()));
        Self { mailbox, bell, sleeps: 0, messages: VecDeque::new(), woken: Vec::new() }
    }

    fn next_message(&mut self) -> u32 {
        loop {
            if let Some(message) = self.messages.pop_front() {
                return message.into_post();
            }
            self.turn();
        }
    }

    fn next_task(&mut self) -> Token {
        loop {
            if !self.woken.is_empty() {
                return self.woken.remove(0);
            }
            self.turn();
        }
    }

    /// The steps of an event loop, in the same order.
    fn turn(&mut self) {
        if self.mailbox.fall_asleep() {
            self.sleeps += 1;
            self.bell.wait();
        }
        self.mailbox.wake_up();
        if self.mailbox.has_messages() {
            self.messages.extend(self.mailbox.collect());
        }
        if self.mailbox.has_woken() {
            let mut woken = Vec::new();
            self.mailbox.collect_woken(&mut woken);
            self.woken.append(&mut woken);
        }
    }

    /// Waits for the other threads, which may be about to wake the loop, and counts the wake-ups.
    fn end_with<const N: usize>(self, others: [thread::JoinHandle<()>; N]) {
        join(others);
        assert!(self.bell.rings() <= self.sleeps);
        assert!(self.messages.is_empty() && self.woken.is_empty(), "nothing comes twice");
    }
}

/// The driver's waker: a wake-up ends the present wait, or the next one.
struct Bell {
    /// Whether a wake-up came since the last wait, and how many in all.
    rung: Mutex<(bool, usize)>,
    ringing: Condvar,
}

impl Bell {
    fn wait(&self) {
        let mut rung = self.rung.lock().expect("no thread panics");
        while !rung.0 {
            rung = self.ringing.wait(rung).expect("no thread panics");
        }
        rung.0 = false;
    }

    fn rings(&self) -> usize {
        self.rung.lock().expect("no thread panics").1
    }
}

impl Wake for Bell {
    fn wake(&self) {
        let mut rung = self.rung.lock().expect("no thread panics");
        *rung = (true, rung.1 + 1);
        self.ringing.notify_one();
    }
}

fn join<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().expect("it does not panic");
    }
}

fn message(number: u32) -> LoopMessage {
    LoopMessage::Post { token: TASK, post: Box::new(number) }
}

/// Runs a test with every interleaving that has at most a given number of preemptions in all.
fn model(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(test);
}

/// Without a bound the tests pass as well, but take half a minute.
const PREEMPTIONS_MAX: usize = 3;

const TASK: Token = Token { slot: 7, generation: 1 };
