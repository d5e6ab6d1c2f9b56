//! Connecting: several addresses in turn, each with a short head start over the next (RFC 8305).
//!
//! Each attempt has a slot of its own. The connection takes the slot of the attempt that succeeds first. The other
//! attempts are closed, as are all if the future is dropped.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tidegate_codec::Pipeline;
use tidegate_codec::mux::{Mux, StreamEvent};
use tidegate_sys::{Address, Completion, Operation, Token};

use crate::channel::{Channel, Handle};
use crate::client::{Client, ConnectError, Resolve, Resolving, Target};
use crate::close_reason::CloseReason;
use crate::connection::{Connection, Link};
use crate::handler::Handler;
use crate::local::Local;
use crate::loop_core::Core;
use crate::remote::Remote;
use crate::session::{Session, SessionApplication};
use crate::slot_entry::{Disposition, SlotEntry, SlotEvent};
use crate::task::{NO_LOOP, Timer};

/// The future of [`Client::connect`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Connect<C> {
    race: Race,
    codec: Option<C>,
}

impl<C: Pipeline> Connect<C> {
    pub(crate) fn new(client: &Client, codec: C) -> Self {
        Self { race: Race::new(client), codec: Some(codec) }
    }
}

// Nothing in it is pinned.
impl<C> Unpin for Connect<C> {}

impl<C: Pipeline> Future for Connect<C> {
    type Output = Result<Channel<C>, ConnectError>;

    /// # Panics
    /// If it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(winner) = self.race.poll(cx.waker()) else { return Poll::Pending };
        let winner = winner?;
        let codec = self.codec.take().expect(AWAITED_TWICE);
        let token = self.race.install(winner, |link| Box::new(Connection::with_outbound_channel(link, codec)));
        Poll::Ready(Ok(Channel::new(Handle::new(self.race.local.clone(), token))))
    }
}

/// The future of [`Client::open_session`].
#[must_use = "a future does nothing until it is awaited"]
pub struct OpenSession<P> {
    race: Race,
    mux: Option<P>,
}

impl<P: Pipeline<In = StreamEvent, Codec: Mux>> OpenSession<P> {
    pub(crate) fn new(client: &Client, mux: P) -> Self {
        Self { race: Race::new(client), mux: Some(mux) }
    }
}

// Nothing in it is pinned.
impl<P> Unpin for OpenSession<P> {}

impl<P: Pipeline<In = StreamEvent, Codec: Mux>> Future for OpenSession<P> {
    type Output = Result<Session<P>, ConnectError>;

    /// # Panics
    /// If it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(winner) = self.race.poll(cx.waker()) else { return Poll::Pending };
        let winner = winner?;
        let mux = self.mux.take().expect(AWAITED_TWICE);
        let session = SessionApplication::of_client(self.race.client.limits.clone());
        let token = self.race.install(winner, |link| Box::new(Connection::with_application(link, mux, session)));
        Poll::Ready(Ok(Session::new(self.race.local.clone(), token)))
    }
}

impl<P> std::fmt::Debug for OpenSession<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenSession").field("attempts", &self.race.attempts).finish_non_exhaustive()
    }
}

/// The future of [`Client::connect_with`].
#[must_use = "a future does nothing until it is awaited"]
pub struct ConnectWith<C, H> {
    race: Race,
    ours: Option<(C, H)>,
}

impl<C: Pipeline, H: Handler<C>> ConnectWith<C, H> {
    pub(crate) fn new(client: &Client, codec: C, handler: H) -> Self {
        Self { race: Race::new(client), ours: Some((codec, handler)) }
    }
}

// Nothing in it is pinned.
impl<C, H> Unpin for ConnectWith<C, H> {}

impl<C: Pipeline, H: Handler<C>> Future for ConnectWith<C, H> {
    type Output = Result<Remote<H::Post>, ConnectError>;

    /// # Panics
    /// If it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(winner) = self.race.poll(cx.waker()) else { return Poll::Pending };
        let winner = winner?;
        let (codec, handler) = self.ours.take().expect(AWAITED_TWICE);
        let token = self.race.install(winner, |link| Box::new(Connection::new(link, codec, handler)));
        let remote = self.race.local.core.borrow_mut().remote(token);
        Poll::Ready(Ok(remote))
    }
}

/// The attempts that are under way, and those to come.
struct Race {
    local: Rc<Local>,
    client: Client,
    resolving: Option<Resolving>,
    addresses: VecDeque<Address>,
    attempts: Vec<(Token, Address)>,
    /// When the next address is tried; `None` means not before the present attempts have failed.
    next: Option<Instant>,
    deadline: Option<Instant>,
    timer: Timer,
    failed: Option<ConnectError>,
}

/// The attempt that succeeded.
struct Winner {
    token: Token,
    address: Address,
}

impl Race {
    fn new(client: &Client) -> Self {
        let local = Local::current().expect(NO_LOOP);
        let (resolving, addresses) = match &client.target {
            Target::Name(name, port) => (Some(client.resolver.resolve(name, *port)), VecDeque::new()),
            Target::Addresses(addresses) => (None, addresses.iter().cloned().collect()),
        };
        let now = local.now();
        Self {
            deadline: now.checked_add(client.connect_timeout),
            client: client.clone(),
            resolving,
            addresses,
            attempts: Vec::new(),
            next: Some(now),
            timer: Timer::new(local.clone()),
            failed: None,
            local,
        }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<Winner, ConnectError>> {
        if self.local.core.try_borrow_mut().is_err() {
            // A handler polls it during a dispatch: poll it again later.
            waker.wake_by_ref();
            return Poll::Pending;
        }
        if let Some(resolving) = &mut self.resolving {
            match resolving.as_mut().poll(&mut Context::from_waker(waker)) {
                Poll::Pending => return self.wait(None, waker),
                Poll::Ready(resolved) => self.resolved(resolved)?,
            }
        }
        if let Some(winner) = self.check_attempts() {
            return Poll::Ready(Ok(winner));
        }
        let now = self.local.now();
        while !self.addresses.is_empty() && (self.attempts.is_empty() || self.next.is_some_and(|next| next <= now)) {
            self.next = now.checked_add(self.client.connection_attempt_delay);
            if let Some(winner) = self.start(waker) {
                return Poll::Ready(Ok(winner));
            }
        }
        if self.attempts.is_empty() {
            return Poll::Ready(Err(self.failed.take().unwrap_or(ConnectError::NoAddress)));
        }
        self.register(waker);
        let next = self.next.filter(|_| !self.addresses.is_empty());
        self.wait(next, waker)
    }

    fn resolved(&mut self, resolved: io::Result<Vec<std::net::SocketAddr>>) -> Result<(), ConnectError> {
        self.resolving = None;
        let Target::Name(name, _) = &self.client.target else { return Ok(()) };
        let addresses = resolved.map_err(|error| ConnectError::Name(name.clone(), error))?;
        self.addresses = addresses.into_iter().map(Address::Ip).collect();
        Ok(())
    }

    /// Waits for the registered attempts, for the time of the next address, and for the deadline.
    fn wait(&mut self, next: Option<Instant>, waker: &Waker) -> Poll<Result<Winner, ConnectError>> {
        let Some(until) = [next, self.deadline].into_iter().flatten().min() else { return Poll::Pending };
        if self.timer.poll(until, waker).is_pending() {
            return Poll::Pending;
        }
        if self.deadline.is_some_and(|deadline| deadline <= self.local.now()) {
            let last = self.attempts.last().and_then(|(_, address)| address.ip());
            return Poll::Ready(Err(ConnectError::Timeout(last)));
        }
        waker.wake_by_ref();
        Poll::Pending
    }

    /// Checks the attempts: one may have succeeded, and those that failed are removed.
    fn check_attempts(&mut self) -> Option<Winner> {
        let mut core = self.local.core.borrow_mut();
        let mut winner = None;
        self.attempts.retain(|(token, address)| {
            let outcome = core.with(*token, |attempt: &mut Attempt, _| (attempt.outcome.take(), Disposition::Keep));
            match outcome.unwrap_or_else(|| Some(Err(io::ErrorKind::ConnectionAborted.into()))) {
                None => return true,
                Some(Ok(())) if winner.is_none() => winner = Some(Winner { token: *token, address: address.clone() }),
                Some(Ok(())) => close_attempt(&mut core, *token),
                Some(Err(error)) => {
                    close_attempt(&mut core, *token);
                    self.failed = Some(ConnectError::Failed(address.clone(), error));
                }
            }
            false
        });
        winner
    }

    /// Tries the next address. The attempt may succeed at once.
    fn start(&mut self, waker: &Waker) -> Option<Winner> {
        let address = self.addresses.pop_front()?;
        let mut core = self.local.core.borrow_mut();
        let Client { local, options, .. } = &self.client;
        // A local address of the other family would make every address of this family fail.
        let local = local.as_ref().filter(|local| is_same_family(local, &address));
        match core.reserve(Operation::Connect { address: &address, local, options }) {
            Ok((token, completion)) => {
                core.slots.put(token, Box::new(Attempt { outcome: None, waker: Some(waker.clone()) }));
                if matches!(completion, Some(Completion::Connected(Ok(())))) {
                    return Some(Winner { token, address });
                }
                self.attempts.push((token, address));
            }
            Err(error) => self.failed = Some(ConnectError::Failed(address, error)),
        }
        None
    }

    fn register(&self, waker: &Waker) {
        let mut core = self.local.core.borrow_mut();
        for (token, _) in &self.attempts {
            core.with(*token, |attempt: &mut Attempt, _| {
                attempt.waker = Some(waker.clone());
                ((), Disposition::Keep)
            });
        }
    }

    /// Puts the connection in the place of the attempt that succeeded.
    fn install(&mut self, winner: Winner, make: impl FnOnce(Link) -> Box<dyn SlotEntry>) -> Token {
        let mut core = self.local.core.borrow_mut();
        let settings = core.settings_of_client(&self.client.limits);
        let Winner { token, address } = winner;
        let link = Link::new(settings, &address, &core.pool);
        drop(core.slots.take(token));
        core.dispatch_entry(token, make(link), SlotEvent::Opened);
        core.notify_drain(token);
        token
    }
}

impl Drop for Race {
    /// Closes the attempts that are still under way.
    fn drop(&mut self) {
        let attempts = std::mem::take(&mut self.attempts);
        if !attempts.is_empty() {
            self.local.with_core(move |core| attempts.iter().for_each(|(token, _)| close_attempt(core, *token)));
        }
    }
}

fn close_attempt(core: &mut Core, token: Token) {
    if let Some(attempt) = core.slots.take(token) {
        core.close(token, attempt, Rc::new(CloseReason::Done), false);
    }
}

fn is_same_family(one: &Address, other: &Address) -> bool {
    match (one.ip(), other.ip()) {
        (Some(one), Some(other)) => one.is_ipv4() == other.is_ipv4(),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// The entry of a slot while the driver connects.
struct Attempt {
    outcome: Option<io::Result<()>>,
    waker: Option<Waker>,
}

impl Attempt {
    fn on_outcome(&mut self, outcome: io::Result<()>) -> Disposition {
        // A connection that was made may break before the future is polled.
        if !matches!(self.outcome, Some(Err(_))) {
            self.outcome = Some(outcome);
        }
        Disposition::Keep
    }
}

impl SlotEntry for Attempt {
    fn dispatch(&mut self, _: &mut Core, _: Token, event: SlotEvent) -> Disposition {
        let disposition = match event {
            SlotEvent::Connected(result) => self.on_outcome(result),
            SlotEvent::Failed(error) => self.on_outcome(Err(error)),
            // The future may never be polled again, and the drain waits for the attempt. A later poll finds it closed.
            SlotEvent::DrainTimeout => Disposition::close(CloseReason::Drained),
            _ => return Disposition::Keep,
        };
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        disposition
    }

    /// Wakes the future again: if the driver's last completion came late, the future has polled meanwhile, and found no
    /// outcome.
    fn on_closed(self: Box<Self>, _: &mut Core, _: Rc<CloseReason>) -> Option<Box<dyn SlotEntry>> {
        if let Some(waker) = self.waker {
            waker.wake();
        }
        None
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl<C> std::fmt::Debug for Connect<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connect").field("attempts", &self.race.attempts).finish_non_exhaustive()
    }
}

impl<C, H> std::fmt::Debug for ConnectWith<C, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectWith").field("attempts", &self.race.attempts).finish_non_exhaustive()
    }
}

const AWAITED_TWICE: &str = "a connection was awaited after it was ready";
