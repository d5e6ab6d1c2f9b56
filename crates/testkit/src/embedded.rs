//! `Embedded`: a codec and its application, a handler or a channel, on a real event loop, without a network.
//!
//! The loop, the outbound queue, the water marks and the timers are those that serve a real connection; only the
//! driver is made of byte vectors, and its clock stands still until it is moved. Read next: `wire.rs`, that driver.

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tidegate_buffer::Pool;
use tidegate_codec::Codec;
use tidegate_engine::task::Task;
use tidegate_engine::{Channel, Counts, EventLoop, Handler, Limits, Remote};
use tidegate_sys::Socket;

use crate::wire::{State, Wire, peer};

/// A connection whose peer is the test: it sends byte slices, looks at what was written, and moves the time.
///
/// Whatever makes something happen turns the loop until it has come to rest, and panics if it does not.
///
/// ```
/// use std::time::Duration;
/// use tidegate_codec::framing::Lines;
/// use tidegate_codec::Slice;
/// use tidegate_engine::{Context, Event, Handler, Outcome};
/// use tidegate_testkit::Embedded;
///
/// /// Greets, and hangs up on who stays silent for a minute.
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
/// assert_eq!(pipe.written(), b"hello gull\nhello tern\n");
///
/// pipe.advance(Duration::from_secs(59));
/// assert!(!pipe.is_ended());
/// pipe.advance(Duration::from_secs(1));
/// assert!(pipe.is_ended());
/// ```
#[derive(Debug)]
pub struct Embedded<P: Send + 'static> {
    event_loop: EventLoop,
    state: State,
    /// `None` if a channel is served.
    remote: Option<Remote<P>>,
    pool: Pool,
}

impl Embedded<Infallible> {
    /// A connection that has just been accepted and is served by a task with its channel, as by
    /// [`Server::serve`](tidegate_engine::Server::serve), with the default limits. The task sees the test's time:
    /// [`advance`](Embedded::advance) moves its sleeps and deadlines.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_codec::framing::Lines;
    /// use tidegate_engine::{Channel, ChannelError, task};
    /// use tidegate_testkit::Embedded;
    ///
    /// /// Answers each line a second later, and says goodbye to who stays silent for a minute.
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
    /// assert_eq!(pipe.written(), b"");
    /// pipe.advance(Duration::from_secs(1));
    /// assert_eq!(pipe.written(), b"ebb\n");
    ///
    /// pipe.advance(Duration::from_secs(60));
    /// assert_eq!(pipe.written(), b"goodbye\n");
    /// assert!(pipe.is_ended());
    /// ```
    #[must_use]
    pub fn serving<C, F, E>(codec: C, serve: impl FnOnce(Channel<C>) -> F + 'static) -> Self
    where
        C: Codec,
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error>> + 'static,
    {
        Self::serving_with_limits(codec, serve, Limits::default())
    }

    /// The same with limits.
    #[must_use]
    pub fn serving_with_limits<C, F, E>(codec: C, serve: impl FnOnce(Channel<C>) -> F + 'static, limits: Limits) -> Self
    where
        C: Codec,
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
    /// A connection that has just been accepted, with the default limits.
    #[must_use]
    pub fn new<C: Codec, H: Handler<C, Post = P>>(codec: C, handler: H) -> Self {
        Self::with_limits(codec, handler, Limits::default())
    }

    /// A connection that has just been accepted.
    #[must_use]
    pub fn with_limits<C: Codec, H: Handler<C, Post = P>>(codec: C, handler: H, limits: Limits) -> Self {
        let mut embedded = Self::without_connection(&limits);
        let adopted = embedded.event_loop.adopt(Socket::Simulated(0), &peer(), limits, codec, handler);
        embedded.remote = Some(adopted.expect("a wire of bytes takes any stream"));
        embedded.run_until_idle();
        embedded
    }

    fn without_connection(limits: &Limits) -> Self {
        let pool = Pool::new();
        pool.ledger().set_budget(limits.memory_max);
        let state = State::default();
        let event_loop = EventLoop::new(Box::new(Wire::new(state.clone(), &pool)), pool.clone());
        Self { event_loop, state, remote: None, pool }
    }

    /// Starts a task on the loop, beside whatever serves the connection, and lets it run.
    pub fn spawn<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> Task<T> {
        let task = self.event_loop.spawn(future);
        self.run_until_idle();
        task
    }

    /// Lets the loop run until it has come to rest: after something was done to it that it was not told of, such as a
    /// waker used by the test.
    pub fn run(&mut self) {
        self.run_until_idle();
    }

    /// The peer sends bytes, in one piece. What the connection does not want to receive yet waits.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.state.change(|wire| wire.inbound.extend(bytes));
        self.run_until_idle();
    }

    /// The peer sends bytes one by one.
    pub fn receive_bytewise(&mut self, bytes: &[u8]) {
        bytes.chunks(1).for_each(|byte| self.receive(byte));
    }

    /// The peer shuts down its sending side. It still reads.
    pub fn end(&mut self) {
        self.state.change(|wire| wire.peer_ended = true);
        self.run_until_idle();
    }

    /// The peer resets the connection.
    pub fn reset(&mut self) {
        self.state.change(|wire| wire.reset = true);
        self.run_until_idle();
    }

    /// From now on the peer takes only so many bytes more, until this is called again: how a slow reader is played. At
    /// first it takes everything.
    pub fn take_at_most(&mut self, bytes: usize) {
        self.state.change(|wire| wire.window = bytes);
        self.run_until_idle();
    }

    /// Of the bytes that the peer took, so many still lie unread in its kernel: how a peer is played that reads too
    /// slowly for the connection to notice. At first nothing is known about it.
    pub fn leave_unread(&mut self, bytes: u64) {
        self.state.change(|wire| wire.unread = Some(bytes));
    }

    /// Another thread posts to the handler.
    pub fn post(&mut self, post: P) {
        // The loop lives as long as `self`, and takes a million letters at once.
        let _ = self.remote().post(post);
        self.run_until_idle();
    }

    /// Time passes. Whatever is due on the way happens when it is due.
    pub fn advance(&mut self, time: Duration) {
        let end = self.state.read(|wire| wire.now) + time;
        loop {
            // The wheel's precision is a millisecond; steps of one would be exact, and slow for hours.
            let left = end.saturating_duration_since(self.state.read(|wire| wire.now));
            let step = self.state.read(|wire| wire.sleep).unwrap_or(left).max(Duration::from_millis(1)).min(left);
            if left.is_zero() {
                return;
            }
            self.state.change(|wire| wire.now += step);
            self.run_until_idle();
        }
    }

    /// What was written since this was last asked.
    pub fn written(&mut self) -> Vec<u8> {
        self.state.change(|wire| std::mem::take(&mut wire.outbound))
    }

    /// Whether our side sends no more: it was shut down or closed.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.state.read(|wire| wire.we_ended || wire.closed.is_some())
    }

    /// Whether the connection is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.read(|wire| wire.closed.is_some())
    }

    /// Whether the connection is gone, and was cut off rather than ended.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.state.read(|wire| wire.closed == Some(true))
    }

    /// Whether the connection wants to receive: it does not while it is paused, or its outbound queue is too full.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        self.state.read(|wire| wire.receiving)
    }

    /// The server begins to drain.
    pub fn drain(&mut self, deadline: Duration) {
        self.event_loop.drain(deadline);
        self.run_until_idle();
    }

    /// Whether a drain has come to its end: nobody is left whom it waits for.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.event_loop.is_drained()
    }

    /// A handle for other threads.
    ///
    /// # Panics
    /// If a channel is served: nothing can be posted to that.
    #[must_use]
    pub fn remote(&self) -> Remote<P> {
        self.remote.clone().expect("a handler has a remote, a channel has none")
    }

    /// What the loop has counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.event_loop.counts()
    }

    /// The loop's memory; its ledger says what the connection holds.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Turns the loop until nothing happens any more: nothing is asked of the driver, no message is decoded, and the
    /// loop would sleep. It would not while there is a task to run, so a task may take many turns.
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

/// After so many turns in which nothing happened it has come to rest.
const QUIET_TURNS: usize = 3;

/// A handler or a task that keeps itself busy for ever is a bug of its test.
const TURNS_MAX: usize = 100_000;
