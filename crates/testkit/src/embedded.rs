//! `Embedded`: a codec and its application, a handler or a channel, on a real event loop, without a network.
//!
//! The loop, the outbound queue, the water marks and the timers are those that serve a real connection. Only the
//! driver differs: it reads and writes byte vectors, and its clock moves only when the test advances it. Read next:
//! `wire.rs`, that driver.

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tidegate_buffer::Pool;
use tidegate_codec::Pipeline;
use tidegate_engine::task::Task;
use tidegate_engine::{Channel, Counts, EventLoop, Handler, Limits, Remote};
use tidegate_sys::Socket;

use crate::peer::Peer;
use crate::wire::{self, SharedWire, Wire};

/// A connection whose peer is the test: the test sends byte slices, reads the written bytes, and advances the clock.
///
/// Every method that causes work turns the loop until it is idle, and panics if it does not become idle.
///
/// ```
/// use std::time::Duration;
/// use tidegate::framing::Lines;
/// use tidegate::{Context, Event, Handler, Outcome, Slice};
/// use tidegate_testkit::Embedded;
///
/// /// Greets each name, and closes a connection that is silent for a minute.
/// struct Greeter;
///
/// impl Handler<Lines> for Greeter {
///     type Post = ();
///
///     fn open(&mut self, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         cx.deadline_after(Duration::from_secs(60));
///         Outcome::Continue
///     }
///
///     fn message(&mut self, name: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         let greeting = format!("hello {}", name.escape_ascii());
///         cx.send(greeting.into()).into()
///     }
///
///     fn event(&mut self, event: Event<()>, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         match event {
///             Event::Deadline | Event::ReadClosed | Event::Drain => Outcome::Close,
///             _ => Outcome::Continue,
///         }
///     }
/// }
///
/// let mut pipe = Embedded::new(Lines::default(), Greeter);
/// pipe.receive(b"gull\nte");
/// pipe.receive(b"rn\n");
/// assert_eq!(pipe.take_written(), b"hello gull\nhello tern\n");
///
/// pipe.advance(Duration::from_secs(59));
/// assert!(!pipe.is_write_closed());
/// pipe.advance(Duration::from_secs(1));
/// assert!(pipe.is_write_closed());
/// ```
#[derive(Debug)]
pub struct Embedded<P: Send + 'static> {
    event_loop: EventLoop,
    state: SharedWire,
    /// `None` if a channel serves the connection.
    remote: Option<Remote<P>>,
    pool: Pool,
}

impl Embedded<Infallible> {
    /// A newly accepted connection that a task serves through its channel, as with
    /// [`Server::serve`](tidegate_engine::Server::serve), with the default limits. The task's sleeps and deadlines
    /// follow the test's clock, which [`advance`](Embedded::advance) moves.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::framing::Lines;
    /// use tidegate::{Channel, ChannelError, task};
    /// use tidegate_testkit::Embedded;
    ///
    /// /// Answers each line a second later, and sends `goodbye` after a minute of silence.
    /// async fn patient_echo(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
    ///     loop {
    ///         match channel.recv().within(Duration::from_secs(60)).await {
    ///             Ok(Some(line)) => {
    ///                 task::sleep(Duration::from_secs(1)).await;
    ///                 channel.send(line.into())?;
    ///             }
    ///             Ok(None) => return Ok(()),
    ///             Err(ChannelError::Deadline) => {
    ///                 channel.send("goodbye".into())?;
    ///                 return Ok(());
    ///             }
    ///             Err(error) => return Err(error.into()),
    ///         }
    ///     }
    /// }
    ///
    /// let mut pipe = Embedded::serving(Lines::new(), patient_echo);
    /// pipe.receive(b"ebb\nfl");
    /// assert_eq!(pipe.take_written(), b"");
    /// pipe.advance(Duration::from_secs(1));
    /// assert_eq!(pipe.take_written(), b"ebb\n");
    ///
    /// pipe.advance(Duration::from_secs(60));
    /// assert_eq!(pipe.take_written(), b"goodbye\n");
    /// assert!(pipe.is_write_closed());
    /// ```
    #[must_use]
    pub fn serving<C, F, E>(codec: C, serve: impl FnOnce(Channel<C>) -> F + 'static) -> Self
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        Self::serving_with_limits(codec, serve, Limits::default())
    }

    /// The same with limits.
    #[must_use]
    pub fn serving_with_limits<C, F, E>(codec: C, serve: impl FnOnce(Channel<C>) -> F + 'static, limits: Limits) -> Self
    where
        C: Pipeline,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        let mut embedded = Self::without_connection(&limits);
        let mut codec = Some(codec);
        let serve = Cell::new(Some(serve));
        let listening = embedded.event_loop.serve(
            Socket::Simulated(0),
            limits,
            Arc::new(AtomicUsize::new(0)),
            move || codec.take().expect(ONE_STREAM),
            move |channel| serve.take().expect(ONE_STREAM)(channel),
        );
        listening.expect("a wire of bytes listens");
        embedded.run_until_idle();
        embedded
    }
}

impl<P: Send + 'static> Embedded<P> {
    /// A newly accepted connection, with the default limits.
    #[must_use]
    pub fn new<C: Pipeline, H: Handler<C, Post = P>>(codec: C, handler: H) -> Self {
        Self::with_limits(codec, handler, Limits::default())
    }

    /// A newly accepted connection.
    #[must_use]
    pub fn with_limits<C: Pipeline, H: Handler<C, Post = P>>(codec: C, handler: H, limits: Limits) -> Self {
        let mut embedded = Self::without_connection(&limits);
        let adopted = embedded.event_loop.adopt(Socket::Simulated(0), &wire::peer(), limits, codec, handler);
        embedded.remote = Some(adopted.expect("a wire of bytes takes any stream"));
        embedded.run_until_idle();
        embedded
    }

    fn without_connection(limits: &Limits) -> Self {
        let pool = Pool::new();
        pool.ledger().set_budget(limits.memory_max);
        let state = SharedWire::default();
        let event_loop = EventLoop::new(Box::new(Wire::new(state.clone(), &pool)), pool.clone());
        Self { event_loop, state, remote: None, pool }
    }

    /// The other end of this connection, which speaks messages: `codec` is the peer's, for example a client's.
    #[must_use]
    pub fn peer<C: Pipeline>(self, codec: C) -> Peer<P, C> {
        Peer::new(self, codec)
    }

    /// Starts a task on the loop, beside the application of the connection, and runs it until the loop is idle.
    pub fn spawn<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> Task<T> {
        let task = self.event_loop.spawn(future);
        self.run_until_idle();
        task
    }

    /// Turns the loop until it is idle: for work that the test caused without a method of this type, such as through a
    /// waker.
    pub fn run(&mut self) {
        self.run_until_idle();
    }

    /// The peer sends bytes, in one piece. Bytes wait while the connection does not receive.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.state.change(|wire| wire.inbound.extend(bytes));
        self.run_until_idle();
    }

    /// The peer sends bytes one by one.
    pub fn receive_bytewise(&mut self, bytes: &[u8]) {
        bytes.chunks(1).for_each(|byte| self.receive(byte));
    }

    /// The peer shuts down its sending side. It still reads.
    pub fn receive_fin(&mut self) {
        self.state.change(|wire| wire.peer_ended = true);
        self.run_until_idle();
    }

    /// The peer resets the connection.
    pub fn reset(&mut self) {
        self.state.change(|wire| wire.reset = true);
        self.run_until_idle();
    }

    /// From now on the peer takes at most `bytes` more, until the next call: this simulates a slow reader. Without a
    /// call the peer takes everything.
    pub fn limit_peer_reads(&mut self, bytes: usize) {
        self.state.change(|wire| wire.window = bytes);
        self.run_until_idle();
    }

    /// Of the bytes that the peer took, `bytes` are still unacknowledged as far as the driver reports: this simulates a
    /// peer that reads slowly behind large kernel buffers. Without a call the driver reports no number.
    pub fn set_unacknowledged(&mut self, bytes: u64) {
        self.state.change(|wire| wire.unread = Some(bytes));
    }

    /// Another thread posts to the handler.
    pub fn post(&mut self, post: P) {
        // The loop lives as long as `self`, and takes a million messages at once.
        let _ = self.remote().post(post);
        self.run_until_idle();
    }

    /// Advances the clock. Each deadline on the way expires at its own time.
    pub fn advance(&mut self, time: Duration) {
        let end = self.state.read(|wire| wire.now) + time;
        loop {
            // The timer wheel is precise to a millisecond. Steps of one would be exact, but slow over hours.
            let left = end.saturating_duration_since(self.state.read(|wire| wire.now));
            let step = self.state.read(|wire| wire.sleep).unwrap_or(left).max(Duration::from_millis(1)).min(left);
            if left.is_zero() {
                return;
            }
            self.state.change(|wire| wire.now += step);
            self.run_until_idle();
        }
    }

    /// The bytes written since the last call.
    pub fn take_written(&mut self) -> Vec<u8> {
        self.state.change(|wire| std::mem::take(&mut wire.outbound))
    }

    /// Whether the connection sends no more: its sending side was shut down, or it was closed.
    #[must_use]
    pub fn is_write_closed(&self) -> bool {
        self.state.read(|wire| wire.we_ended || wire.closed.is_some())
    }

    /// Whether the connection is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.read(|wire| wire.closed.is_some())
    }

    /// Whether the connection is closed, and was reset rather than ended.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.state.read(|wire| wire.closed == Some(true))
    }

    /// Whether the connection receives: it does not while it is paused, or while its outbound queue is too full.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        self.state.read(|wire| wire.receiving)
    }

    /// The server begins to drain.
    pub fn drain(&mut self, deadline: Duration) {
        self.event_loop.drain(deadline);
        self.run_until_idle();
    }

    /// Whether a drain is complete: no connection or task is left that it waits for.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.event_loop.is_drained()
    }

    /// A handle for other threads.
    ///
    /// # Panics
    /// If a channel serves the connection: a channel takes no posts.
    #[must_use]
    pub fn remote(&self) -> Remote<P> {
        self.remote.clone().expect("a handler has a remote, a channel has none")
    }

    /// The loop's counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.event_loop.counts()
    }

    /// The loop's memory; its ledger counts the connection's use.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Turns the loop until it is idle: the loop submits no operation, decodes no message, and would sleep. It does not
    /// sleep while a task is ready, so a task may take many turns.
    fn run_until_idle(&mut self) {
        let mut quiet = 0;
        for _ in 0..TURNS_MAX {
            let before = (self.state.read(|wire| wire.activity), self.counts().messages);
            self.event_loop.turn(None).expect("waiting on a wire of bytes does not fail");
            let happened = (self.state.read(|wire| wire.activity), self.counts().messages) != before;
            let busy = self.state.read(|wire| wire.sleep) == Some(Duration::ZERO);
            quiet = if happened || busy { 0 } else { quiet + 1 };
            if quiet == QUIET_TURNS {
                return;
            }
        }
        panic!("the connection has not come to rest after {TURNS_MAX} turns");
    }
}

const ONE_STREAM: &str = "a wire of bytes is one stream";

/// After this many turns without work the loop counts as idle.
const QUIET_TURNS: usize = 3;

/// Bound of the turns until the loop is idle: a handler or a task that never becomes idle is a bug of its test.
const TURNS_MAX: usize = 100_000;
