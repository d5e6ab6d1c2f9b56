//! `LoadConnection`: the handler of one connection of a load.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use tidegate::codec::Stages;
use tidegate::{CloseReason, Context, Event, Handler, Outcome, Remote};

use super::pipeline::{Batch, Responses};
use super::role::Role;
use super::schedule::Waiter;
use super::worker::Worker;

/// The handler of one connection of a load.
pub(crate) struct LoadConnection {
    worker: Rc<Worker>,
    role: Role,
    connector: Rc<Connector>,
    /// When the requests in flight were sent, or were due with a rate.
    begun: Instant,
    owed: u32,
    /// The server closes the connection before it answers the rest.
    is_announced: bool,
    /// It is counted as an idle or never-reading connection.
    is_held: bool,
    /// The handshake of its WebSocket, or the first commands of Redis, are not complete.
    is_opening: bool,
    /// Set at the first wait for a scheduled time, so only with a rate.
    remote: Option<Remote<Instant>>,
}

type Cx<'a, P> = Context<'a, P, Instant>;

/// The requests of a load, or the messages of a WebSocket, over TCP or over TLS.
pub(crate) trait Requests: Stages<In = Responses, Out = Batch> {}

impl<P: Stages<In = Responses, Out = Batch>> Requests for P {}

impl LoadConnection {
    pub(crate) fn new(worker: Rc<Worker>, role: Role, connector: Rc<Connector>) -> Self {
        Self {
            worker,
            role,
            connector,
            begun: Instant::now(),
            owed: 0,
            is_announced: false,
            is_held: false,
            is_opening: false,
            remote: None,
        }
    }

    fn send_batch<P: Requests>(&mut self, batch: Batch, begun: Instant, cx: &mut Cx<'_, P>) -> Outcome<P> {
        self.begun = begun;
        self.owed = match batch {
            Batch::Opening => 0,
            Batch::One => 1,
            Batch::Run(count) => count,
        };
        if self.role != Role::NeverRead {
            cx.deadline_after(self.worker.timeout);
        }
        cx.send(batch).into()
    }

    /// Sends as many requests as are pipelined, or as are left.
    fn send_run<P: Requests>(&mut self, begun: Instant, cx: &mut Cx<'_, P>) -> Outcome<P> {
        match self.worker.budget.take(self.worker.depth) {
            0 => {
                self.owed = 0;
                cx.deadline(None);
                Outcome::Continue
            }
            count => self.send_batch(Batch::Run(count), begun, cx),
        }
    }

    /// All requests are answered: sends the next ones, or waits until they are due.
    fn continue_load<P: Requests>(&mut self, now: Instant, cx: &mut Cx<'_, P>) -> Outcome<P> {
        let Some(schedule) = &self.worker.schedule else { return self.send_run(now, cx) };
        if let Some(due) = schedule.take_due(now) {
            return self.send_run(due, cx);
        }
        let remote = self.remote.get_or_insert_with(|| cx.remote());
        schedule.wait_for_turn(Waiter::Handler(remote.clone()));
        Outcome::Continue
    }

    fn mark_held(&mut self) {
        self.is_held = true;
        self.worker.exchange.stats.held(self.role);
        self.connector.open();
    }
}

impl<P: Requests> Handler<P> for LoadConnection {
    /// When the next requests are due.
    type Post = Instant;

    fn open(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        if self.worker.traffic.opens() {
            self.is_opening = true;
            return self.send_batch(Batch::Opening, Instant::now(), cx);
        }
        self.begin(cx)
    }

    fn message(&mut self, responses: Responses, cx: &mut Cx<'_, P>) -> Outcome<P> {
        if std::mem::take(&mut self.is_opening) {
            cx.deadline(None);
            if self.role == Role::Listener {
                self.worker.exchange.stats.opened();
            }
            return self.begin(cx);
        }
        self.answered(responses, cx)
    }

    fn event(&mut self, event: Event<Instant>, cx: &mut Cx<'_, P>) -> Outcome<P> {
        match event {
            Event::Posted(due) => self.send_run(due, cx),
            Event::Deadline if self.owed > 0 || self.is_opening => {
                self.worker.exchange.stats.timed_out(self.owed.max(1));
                self.worker.budget.finish(self.owed);
                (self.owed, self.is_opening) = (0, false);
                Outcome::fail("not answered in time")
            }
            Event::Deadline => Outcome::Continue,
            event => event.by_default(cx),
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        if matches!(reason, CloseReason::LoopEnded) {
            // The load has ended. Requests in flight count as unanswered, not as errors.
            if self.role == Role::Active && self.owed > 0 {
                self.worker.left_waiting(self.owed, self.begun);
            }
            return;
        }
        let stats = &self.worker.exchange.stats;
        match reason {
            CloseReason::Broken(error) if (self.owed > 0 || self.role == Role::Listener) && !self.is_held => {
                stats.broken(error.kind() == ErrorKind::BrokenPipe);
            }
            CloseReason::WriteTimeout => stats.broken(true),
            _ => {}
        }
        if self.is_held {
            stats.lost(self.role);
        }
        if self.is_announced {
            self.worker.budget.give_back(self.owed);
        } else {
            self.worker.budget.finish(self.owed);
        }
        self.owed = 0;
        self.connector.open();
    }
}

impl LoadConnection {
    /// The connection can send requests.
    fn begin<P: Requests>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        match self.role {
            Role::Listener => {
                self.connector.has_served.set(true);
                Outcome::Continue
            }
            Role::Active => self.continue_load(Instant::now(), cx),
            Role::Idle => self.send_batch(Batch::One, Instant::now(), cx),
            Role::NeverRead => {
                cx.pause();
                self.worker.never_reads(cx.local().ok().and_then(|local| local.ip()), cx.peer().ip());
                self.mark_held();
                self.send_run(Instant::now(), cx)
            }
        }
    }

    fn answered<P: Requests>(&mut self, responses: Responses, cx: &mut Cx<'_, P>) -> Outcome<P> {
        let now = Instant::now();
        self.owed -= responses.all;
        if self.role == Role::Idle {
            if responses.good > 0 {
                self.connector.has_served.set(true);
                self.mark_held();
                return Outcome::Continue;
            }
            // Its only request got no good response, so there is nothing to keep open.
            return Outcome::Close;
        }
        // The codec has counted the broadcasts.
        if !self.worker.exchange.broadcasts {
            let after = now.saturating_duration_since(self.begun);
            self.worker.exchange.stats.count_responses(responses.all, responses.good, after);
        }
        self.worker.budget.finish(responses.all);
        self.connector.has_served.set(true);
        self.is_announced = cx.codec().status().is_finished;
        // After `Connection: close` the next requests go out on a new connection.
        if self.owed > 0 || self.is_announced { Outcome::Continue } else { self.continue_load(now, cx) }
    }
}

/// Where a task waits until its connection is set up as idle or never-reading, or has closed.
#[derive(Default)]
pub(crate) struct Connector {
    is_open: Cell<bool>,
    /// A response has arrived on this connection.
    pub(crate) has_served: Cell<bool>,
    waiting: Cell<Option<Waker>>,
}

impl Connector {
    pub(crate) fn open(&self) {
        self.is_open.set(true);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    pub(crate) async fn pass(&self) {
        poll_fn(|cx| {
            if self.is_open.get() {
                return Poll::Ready(());
            }
            self.waiting.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}
