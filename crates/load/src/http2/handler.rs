//! `StreamsConnection`: the handler of one connection of a load over HTTP/2.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate::codec::{DynOver, Stages};
use tidegate::tls::Tls;
use tidegate::{CloseReason, Context, Event, Handler, Outcome, Remote};

use super::codec::{Http2Codec, Http2Event, Send};
use crate::connection::Connector;
use crate::resend::DueRequest;
use crate::role::Role;
use crate::schedule::{Schedule, Waiter};
use crate::worker::Worker;

/// The handler of one connection of a load over HTTP/2.
pub(crate) struct StreamsConnection {
    worker: Rc<Worker>,
    role: Role,
    connector: Rc<Connector>,
    /// The requests in flight, by their numbers.
    requests: Vec<Option<InFlight>>,
    /// Numbers that are free.
    free: Vec<u32>,
    /// Waits of the connection for a scheduled time.
    waits: u32,
    has_deadline: bool,
    /// It is counted as an idle or never-reading connection.
    is_held: bool,
    /// Set at the first wait for a scheduled time, so only with a rate.
    remote: Option<Remote<Instant>>,
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    due: DueRequest,
    /// When it was sent first, or was due with a rate.
    begun: Instant,
    late_at: Option<Instant>,
}

type Cx<'a, P> = Context<'a, P, Instant>;

/// The requests of a load over HTTP/2, over TCP or over TLS.
pub(crate) trait StreamRequests: Stages<Codec = Http2Codec, In = Http2Event, Out = Send> {
    /// Whether the server has agreed to HTTP/2.
    fn has_agreed(&self) -> bool;
}

impl StreamRequests for DynOver<Http2Codec> {
    fn has_agreed(&self) -> bool {
        self.filter::<Tls>().is_none_or(|tls| tls.alpn() == Some(b"h2"))
    }
}

impl StreamsConnection {
    pub(crate) fn new(worker: Rc<Worker>, role: Role, connector: Rc<Connector>) -> Self {
        Self {
            worker,
            role,
            connector,
            requests: Vec::new(),
            free: Vec::new(),
            waits: 0,
            has_deadline: false,
            is_held: false,
            remote: None,
        }
    }

    fn in_flight(&self) -> usize {
        self.requests.len() - self.free.len()
    }

    fn send_request<P: StreamRequests>(&mut self, due: DueRequest, cx: &mut Cx<'_, P>) -> Outcome<P> {
        let begun = due.begun.unwrap_or_else(Instant::now);
        let number = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() as u32 - 1
        });
        let late_at = cx.now().checked_add(self.worker.timeout).filter(|_| self.role != Role::NeverRead);
        self.requests[number as usize] = Some(InFlight { due, begun, late_at });
        if !self.has_deadline && late_at.is_some() {
            self.has_deadline = true;
            cx.deadline(late_at);
        }
        cx.send(Send::Request { number, place: due.place }).into()
    }

    /// Sends requests until all streams are in use, or waits until the next one is due.
    fn fill<P: StreamRequests>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        let streams = self.worker.streams.min(cx.codec().codec().streams_max());
        let now = Instant::now();
        while self.in_flight() + (self.waits as usize) < streams as usize && !cx.codec().codec().is_ending() {
            if let Some(refused) = self.worker.refused.pop() {
                match self.send_request(refused, cx) {
                    Outcome::Continue => continue,
                    outcome => return outcome,
                }
            }
            let begun = match &self.worker.schedule {
                None => Some(now),
                Some(schedule) => schedule.take_due(now),
            };
            let Some(begun) = begun else {
                self.waits += 1;
                let remote = self.remote.get_or_insert_with(|| cx.remote());
                if let Some(schedule) = &self.worker.schedule {
                    schedule.wait_for_turn(Waiter::Handler(remote.clone()));
                }
                continue;
            };
            if self.worker.budget.take(1) == 0 {
                break;
            }
            match self.send_request(DueRequest::at(Some(begun)), cx) {
                Outcome::Continue => {}
                outcome => return outcome,
            }
        }
        if self.in_flight() == 0 && cx.codec().codec().is_ending() { Outcome::Close } else { Outcome::Continue }
    }

    /// A stream is over.
    fn remove(&mut self, number: u32) -> Option<InFlight> {
        let request = self.requests.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(request)
    }

    /// The server did not process a request (RFC 9113 §8.7): it is sent again, on the next stream that is free.
    fn on_refused(&mut self, number: u32, place: usize) {
        let Some(InFlight { due, begun, .. }) = self.remove(number) else { return };
        let again = if self.role == Role::Active { due.again(begun, place) } else { None };
        match again {
            Some(again) => {
                self.worker.exchange.stats.refused();
                self.worker.refused.push(again);
            }
            None => {
                self.worker.exchange.stats.reset();
                self.finish();
            }
        }
    }

    /// A request is over.
    fn take(&mut self, number: u32) -> Option<InFlight> {
        let request = self.remove(number)?;
        self.finish();
        Some(request)
    }

    fn finish(&self) {
        if self.role == Role::Active {
            self.worker.budget.finish(1);
        }
    }

    fn mark_held(&mut self) {
        self.is_held = true;
        self.worker.exchange.stats.held(self.role);
        self.connector.open();
    }

    /// Gives up the requests that are late, and sends others.
    fn give_up_late<P: StreamRequests>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        self.has_deadline = false;
        let (now, mut next) = (cx.now(), None::<Instant>);
        for number in 0..self.requests.len() as u32 {
            let Some(InFlight { late_at: Some(late_at), .. }) = self.requests[number as usize] else { continue };
            if late_at > now {
                next = Some(next.map_or(late_at, |next| next.min(late_at)));
                continue;
            }
            self.take(number);
            self.worker.exchange.stats.timed_out(1);
            if self.role == Role::Idle {
                return Outcome::fail("not answered in time");
            }
            if let Err(error) = cx.send(Send::Cancel(number)) {
                return Outcome::fail(error);
            }
        }
        if let Some(next) = next {
            self.has_deadline = true;
            // Not for every request that becomes late a moment later.
            cx.deadline(Some(next + LATE_TOGETHER));
        }
        if self.role == Role::Idle { Outcome::Continue } else { self.fill(cx) }
    }
}

impl<P: StreamRequests> Handler<P> for StreamsConnection {
    /// When the next request is due.
    type Post = Instant;

    fn open(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        if self.role != Role::NeverRead {
            // The server's settings have how many streams it permits; they come first.
            self.has_deadline = true;
            cx.deadline_after(self.worker.timeout);
            return Outcome::Continue;
        }
        cx.pause();
        self.worker.never_reads(cx.local().ok().and_then(|local| local.ip()), cx.peer().ip());
        self.mark_held();
        self.fill(cx)
    }

    fn message(&mut self, received: Http2Event, cx: &mut Cx<'_, P>) -> Outcome<P> {
        match received {
            Http2Event::Settings if !cx.codec().has_agreed() => {
                self.worker.exchange.stats.invalid();
                return Outcome::fail("the server has not agreed to HTTP/2 by ALPN");
            }
            Http2Event::Settings if self.role == Role::Idle => return self.send_request(DueRequest::default(), cx),
            Http2Event::Settings => {}
            Http2Event::Response { number, is_good } => {
                let Some(request) = self.take(number) else { return Outcome::Continue };
                if self.role == Role::Idle {
                    if !is_good {
                        // Its only request got no good response, so there is nothing to keep open.
                        return Outcome::Close;
                    }
                    self.connector.has_served.set(true);
                    self.mark_held();
                    return Outcome::Continue;
                }
                let after = Instant::now().saturating_duration_since(request.begun);
                self.worker.exchange.stats.count_responses(1, is_good.into(), after);
                self.connector.has_served.set(true);
            }
            Http2Event::Lost { number } => {
                self.take(number);
                if self.role == Role::Idle {
                    return Outcome::Close;
                }
            }
            Http2Event::Refused { number, place } => {
                self.on_refused(number, place);
                if self.role == Role::Idle {
                    return Outcome::Close;
                }
            }
        }
        self.fill(cx)
    }

    fn event(&mut self, event: Event<Instant>, cx: &mut Cx<'_, P>) -> Outcome<P> {
        match event {
            Event::Posted(due) => {
                self.waits -= 1;
                if cx.codec().codec().is_ending() {
                    // Another connection sends the request.
                    self.worker.schedule.iter().for_each(Schedule::give_back);
                    return self.fill(cx);
                }
                if self.worker.budget.take(1) == 0 {
                    return Outcome::Continue;
                }
                self.send_request(DueRequest::at(Some(due)), cx)
            }
            Event::Deadline if cx.codec().codec().has_settings() => self.give_up_late(cx),
            Event::Deadline => {
                self.worker.exchange.stats.timed_out(1);
                Outcome::fail("the server sent no settings in time")
            }
            event => event.by_default(cx),
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        if matches!(reason, CloseReason::LoopEnded) {
            // The load has ended. Requests in flight count as unanswered, not as errors.
            if self.role == Role::Active {
                for request in self.requests.iter().flatten() {
                    self.worker.left_waiting(1, request.begun);
                }
            }
            return;
        }
        let stats = &self.worker.exchange.stats;
        match reason {
            CloseReason::Broken(error) if self.in_flight() > 0 && !self.is_held => {
                stats.broken(error.kind() == ErrorKind::BrokenPipe);
            }
            CloseReason::WriteTimeout => stats.broken(true),
            _ => {}
        }
        if self.is_held {
            stats.lost(self.role);
        }
        if self.role == Role::Active {
            self.worker.budget.finish(self.in_flight() as u32);
        }
        self.connector.open();
    }
}

/// Requests that become late within this time are given up together.
const LATE_TOGETHER: Duration = Duration::from_millis(10);
