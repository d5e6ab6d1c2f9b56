use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Wake;
use std::thread::Thread;
use std::time::Instant;

use super::*;

/// A minimal executor: it polls only when it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker_count = Arc::new(CountingWaker { thread: thread::current(), wakes: AtomicUsize::new(0) });
    let waker = Waker::from(waker_count.clone());
    let mut future = pin!(future);
    loop {
        let before = waker_count.wakes.load(SeqCst);
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        until(|| {
            thread::park_timeout(Duration::from_millis(100));
            waker_count.wakes.load(SeqCst) > before
        });
    }
}

struct CountingWaker {
    thread: Thread,
    wakes: AtomicUsize,
}

impl CountingWaker {
    fn new() -> (Arc<Self>, Waker) {
        let waker_count = Arc::new(Self { thread: thread::current(), wakes: AtomicUsize::new(0) });
        (waker_count.clone(), waker_count.into())
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, SeqCst);
        self.thread.unpark();
    }
}

/// Waits until `done`, for a long time if it has to be.
#[track_caller]
fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < end, "it has not come to it");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A pool with so few threads and so short a queue that a test can fill them.
fn few(threads_max: usize, waiting_max: usize) -> Arc<ThreadPool> {
    ThreadPool::new(threads_max, waiting_max, Duration::from_secs(10))
}

/// Keeps a thread busy until the sender is dropped.
fn occupy(threads: &Arc<ThreadPool>) -> (Blocking<()>, Sender<()>) {
    let (release, released): (_, Receiver<()>) = channel();
    let (done, signal) = channel();
    let job = threads.submit(move || {
        done.send(()).unwrap();
        let _ = released.recv();
    });
    signal.recv().unwrap();
    (job, release)
}

/// Sends the name of the thread that drops it.
struct Dropped(Sender<String>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().name().unwrap_or_default().to_owned());
    }
}

#[test]
fn the_result_comes_back() {
    assert_eq!(block_on(blocking(|| 6 * 7)), Ok(42));
    let name = block_on(blocking(|| thread::current().name().map(str::to_owned))).unwrap();
    assert_eq!(name.as_deref(), Some("tidegate-blocking"));
}

#[test]
fn a_panic_is_a_result_and_the_thread_goes_on() {
    let threads = few(1, 10);
    assert_eq!(block_on(threads.submit(|| panic!("on purpose"))), Err::<(), _>(BlockingError::Panicked));
    assert_eq!(block_on(threads.submit(|| 1)), Ok(1));
    assert_eq!(threads.state().threads, 1);
}

#[test]
fn dropping_the_future_of_waiting_work_cancels_and_drops_the_work() {
    let threads = few(1, 10);
    let (job, release) = occupy(&threads);
    let (done, signal) = channel();
    let dropped = Dropped(done);
    let cancelled = threads.submit(move || drop(dropped));
    drop(cancelled);
    // On this thread, and at once.
    assert_ne!(signal.try_recv().unwrap(), "tidegate-blocking");
    assert!(threads.state().waiting.is_empty());
    drop(release);
    assert_eq!(block_on(job), Ok(()));
}

#[test]
fn dropping_the_future_of_running_work_drops_the_result_on_its_thread() {
    let threads = few(1, 10);
    let (done, signal) = channel();
    let (begin, begun) = channel();
    let (release, released) = channel::<()>();
    let job = threads.submit(move || {
        begin.send(()).unwrap();
        let _ = released.recv();
        Dropped(done)
    });
    begun.recv().unwrap();
    drop(job);
    drop(release);
    assert_eq!(signal.recv().unwrap(), "tidegate-blocking");
}

#[test]
fn detached_work_runs_and_refused_work_returns_an_error() {
    let threads = few(1, 1);
    let (_job, release) = occupy(&threads);
    let (done, signal) = channel();
    assert_eq!(threads.submit(move || done.send(7).unwrap()).detach(), Ok(()));
    assert_eq!(threads.submit(|| ()).detach(), Err(BlockingError::Full));
    drop(release);
    assert_eq!(signal.recv(), Ok(7));
}

#[test]
fn too_much_work_is_refused_at_once_until_there_is_room() {
    let threads = few(2, 3);
    let busy = [occupy(&threads), occupy(&threads)];
    let mut waiting: Vec<_> = (0..3).map(|number| threads.submit(move || number)).collect();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let mut refused = threads.submit(move || count.fetch_add(1, SeqCst));
    let cx = &mut Context::from_waker(Waker::noop());
    assert_eq!(Pin::new(&mut refused).poll(cx), Poll::Ready(Err(BlockingError::Full)));
    // A cancelled job makes room for another.
    drop(waiting.remove(0));
    waiting.push(threads.submit(|| 3));
    for (job, release) in busy {
        drop(release);
        assert_eq!(block_on(job), Ok(()));
    }
    assert_eq!(waiting.into_iter().map(block_on).collect::<Vec<_>>(), [Ok(1), Ok(2), Ok(3)]);
    assert_eq!(ran.load(SeqCst), 0);
}

#[test]
fn only_the_waker_of_the_last_poll_is_woken_and_only_once() {
    let threads = few(1, 10);
    let (mut job, release) = occupy(&threads);
    let (first, second) = (CountingWaker::new(), CountingWaker::new());
    for (_, waker) in [&first, &second, &second] {
        assert!(Pin::new(&mut job).poll(&mut Context::from_waker(waker)).is_pending());
    }
    drop(release);
    until(|| second.0.wakes.load(SeqCst) > 0);
    assert_eq!(Pin::new(&mut job).poll(&mut Context::from_waker(&second.1)), Poll::Ready(Ok(())));
    // The thread is idle again.
    until(|| threads.state().idle == 1);
    assert_eq!((first.0.wakes.load(SeqCst), second.0.wakes.load(SeqCst)), (0, 1));
}

#[test]
fn a_waker_that_panics_does_not_end_the_thread() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let threads = few(1, 10);
    let (mut job, release) = occupy(&threads);
    let waker = Waker::from(Arc::new(Panics));
    assert!(Pin::new(&mut job).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(release);
    assert_eq!(block_on(threads.submit(|| 1)), Ok(1));
    assert_eq!(block_on(job), Ok(()));
}

#[test]
fn many_jobs_of_many_threads_are_all_done_once_by_few_threads() {
    const SENDERS: usize = 8;
    const JOBS: usize = 2_000;
    let threads = few(4, 100_000);
    let ran = Arc::new(AtomicUsize::new(0));
    let cancelled = AtomicUsize::new(0);
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (threads, ran, cancelled) = (&threads, &ran, &cancelled);
            scope.spawn(move || {
                let submit = |number| {
                    let ran = ran.clone();
                    threads.submit(move || {
                        ran.fetch_add(1, SeqCst);
                        (sender, number)
                    })
                };
                let jobs: Vec<_> = (0..JOBS).map(submit).collect();
                for (number, job) in jobs.into_iter().enumerate() {
                    // Some are cancelled, at any stage.
                    if number % 5 == 4 {
                        cancelled.fetch_add(1, SeqCst);
                    } else {
                        assert_eq!(block_on(job), Ok((sender, number)));
                    }
                }
            });
        }
    });
    until(|| {
        let state = threads.state();
        state.idle == state.threads
    });
    assert!(threads.state().threads <= 4);
    assert!(threads.state().waiting.is_empty());
    let (ran, cancelled) = (ran.load(SeqCst), cancelled.load(SeqCst));
    assert!((SENDERS * JOBS - cancelled..=SENDERS * JOBS).contains(&ran), "{ran}");
}

#[test]
fn threads_start_on_demand_and_end_when_idle() {
    let threads = ThreadPool::new(3, 100, Duration::from_millis(5));
    for _ in 0..3 {
        assert_eq!(threads.state().threads, 0);
        let busy = [occupy(&threads), occupy(&threads), occupy(&threads)];
        assert_eq!(threads.state().threads, 3);
        let waits = threads.submit(|| 4);
        assert_eq!(threads.state().threads, 3);
        for (job, release) in busy {
            drop(release);
            assert_eq!(block_on(job), Ok(()));
        }
        assert_eq!(block_on(waits), Ok(4));
        until(|| threads.state().threads == 0);
        assert_eq!(threads.state().idle, 0);
    }
}

#[test]
fn one_job_after_the_other_needs_one_thread() {
    let threads = few(16, 100);
    for number in 0..100 {
        assert_eq!(block_on(threads.submit(move || number)), Ok(number));
        until(|| threads.state().idle == 1);
    }
    assert_eq!(threads.state().threads, 1);
}

#[test]
#[should_panic(expected = "polled after it was ready")]
fn polling_again_after_the_result_panics() {
    let mut job = Blocking::done(Ok(1));
    let cx = &mut Context::from_waker(Waker::noop());
    assert_eq!(Pin::new(&mut job).poll(cx), Poll::Ready(Ok(1)));
    let _ = Pin::new(&mut job).poll(cx);
}
