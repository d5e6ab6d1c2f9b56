//! `Http3Requests` and `RequestHandler`: the requests of one connection of a load over HTTP/3. A task opens their streams.
//!
//! Each request is a stream with a handler of its own. A handler that is done wakes the task, which opens as many streams as
//! are free by then: one turn for all responses of a pass of the loop.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use tidegate::codec::mux::OpenError;
use tidegate::engine::SessionError;
use tidegate::http3::ErrorCode;
use tidegate::quic::{Connection, ConnectionError, Direction};
use tidegate::{CloseReason, Context, Event, Handler, Outcome, task};

use super::client::{Http3Client, OfQuic};
use super::codec::{Http3Codec, Http3Response, SendRequest};
use crate::connection::Connector;
use crate::request::Http3Request;
use crate::resend::DueRequest;
use crate::role::Role;
use crate::schedule::{Schedule, TakesTurn, Waiter};
use crate::worker::Worker;

/// The requests of one connection.
pub(crate) struct Http3Requests {
    worker: Rc<Worker>,
    client: Rc<Http3Client>,
    role: Role,
    connector: Rc<Connector>,
    /// The requests, which are sent in turn.
    requests: Rc<[Rc<Http3Request>]>,
    /// The place of the next one.
    next: Cell<usize>,
    in_flight: Cell<u32>,
    /// Waits for a scheduled time.
    waits: Cell<u32>,
    /// Requests that are to be sent.
    due: RefCell<VecDeque<DueRequest>>,
    /// Requests that the end of the connection has cut off.
    cut_off: Cell<u32>,
    /// It is counted as an idle or never-reading connection.
    is_held: Cell<bool>,
    /// No further request is sent.
    is_ending: Cell<bool>,
    has_goaway: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// An open connection. Its drop removes it from those of the worker, which waits for their end, even if its task has
/// panicked.
struct OpenConnection {
    worker: Rc<Worker>,
    number: u64,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.worker.remove_http3(self.number);
    }
}

/// Why a connection is not used any more.
enum End {
    /// By this side: the load is over, or the server has sent GOAWAY and all responses.
    Done,
    Lost(ConnectionError),
}

impl Http3Requests {
    /// Connects, and lets a task send requests.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(crate) async fn connect(
        worker: &Rc<Worker>,
        (client, requests): (&Rc<Http3Client>, &Rc<[Rc<Http3Request>]>),
        source: Option<IpAddr>,
        (role, connector): (Role, Rc<Connector>),
    ) -> Result<(), String> {
        let connection = client.connect(role, source).await?;
        let next = (worker.exchange.next_connection() % requests.len() as u64) as usize;
        let own = Rc::new(Self {
            worker: worker.clone(),
            client: client.clone(),
            role,
            connector,
            requests: requests.clone(),
            next: Cell::new(next),
            in_flight: Cell::default(),
            waits: Cell::default(),
            due: RefCell::default(),
            cut_off: Cell::default(),
            is_held: Cell::default(),
            is_ending: Cell::default(),
            has_goaway: Cell::default(),
            waker: Cell::default(),
        });
        let open = OpenConnection { number: worker.add_http3(own.clone()), worker: worker.clone() };
        task::spawn(async move {
            own.serve(connection).await;
            drop(open);
            own.connector.open();
        });
        Ok(())
    }

    async fn serve(self: &Rc<Self>, connection: Connection<OfQuic>) {
        if self.role == Role::NeverRead {
            self.mark_held();
        }
        let end = self.run(&connection).await;
        self.is_ending.set(true);
        self.give_back();
        if self.worker.has_ended() {
            // The server is not left with connections that it takes for open.
            return connection.close(ErrorCode::NO_ERROR.0, "");
        }
        if self.is_held.get() {
            self.worker.exchange.stats.lost(self.role);
        } else if let End::Lost(error) = &end
            && (self.cut_off.get() > 0 || !self.connector.has_served.get())
        {
            let stats = &self.worker.exchange.stats;
            match error {
                ConnectionError::ClosedByPeer { code, .. } if *code == ErrorCode::NO_ERROR.0 => stats.closed(),
                _ => stats.broken(false),
            }
        }
    }

    /// Sends requests until the connection is over.
    async fn run(self: &Rc<Self>, connection: &Connection<OfQuic>) -> End {
        let mut closed = pin!(connection.closed());
        poll_fn(|cx| {
            self.waker.set(Some(cx.waker().clone()));
            if self.worker.has_ended() {
                return Poll::Ready(End::Done);
            }
            if let Poll::Ready(error) = closed.as_mut().poll(cx) {
                return Poll::Ready(End::Lost(error));
            }
            self.look_for_goaway(connection);
            if self.fill(connection, cx).is_err() {
                self.is_ending.set(true);
            }
            let is_done = self.is_ending.get() && self.in_flight.get() == 0;
            if is_done { Poll::Ready(End::Done) } else { Poll::Pending }
        })
        .await
    }

    /// Counts a GOAWAY of the server. No request is sent behind it.
    fn look_for_goaway(&self, connection: &Connection<OfQuic>) {
        let number = connection.number();
        if !self.has_goaway.get() && connection.with(|endpoint, _| endpoint.peer_goaway(number).is_some()) == Ok(true) {
            self.has_goaway.set(true);
            self.is_ending.set(true);
            self.worker.exchange.stats.goaway();
        }
    }

    /// Sends requests until all streams are in use, or waits until the next one is due.
    fn fill(self: &Rc<Self>, connection: &Connection<OfQuic>, cx: &std::task::Context<'_>) -> Result<(), SessionError> {
        let now = Instant::now();
        while !self.is_ending.get() {
            let next = self.due.borrow_mut().pop_front();
            let Some(due) = next else { if self.take_next(now) { continue } else { break } };
            match self.open(connection, due, now) {
                Ok(()) => {}
                Err(error) => {
                    self.due.borrow_mut().push_front(due);
                    if error != SessionError::Open(OpenError::Full) {
                        return Err(error);
                    }
                    // Its turn comes when the server allows one more.
                    connection.register(cx);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes the next request to send, or waits for its time. Returns whether there may be more to do.
    fn take_next(self: &Rc<Self>, now: Instant) -> bool {
        if self.role == Role::Idle {
            // One request, on which the rest depends.
            let is_first = self.in_flight.get() == 0 && !self.is_held.get();
            if is_first {
                self.due.borrow_mut().push_back(DueRequest::default());
            }
            return is_first;
        }
        if self.in_flight.get() + self.waits.get() >= self.worker.streams {
            return false;
        }
        if let Some(refused) = self.worker.refused.pop() {
            self.due.borrow_mut().push_back(refused);
            return true;
        }
        let due = match &self.worker.schedule {
            None => None,
            Some(schedule) => match schedule.take_due(now) {
                None => {
                    self.waits.set(self.waits.get() + 1);
                    schedule.wait_for_turn(Waiter::Task(Rc::<Self>::downgrade(self)));
                    return true;
                }
                due => due,
            },
        };
        let is_left = self.worker.budget.take(1) > 0;
        if is_left {
            self.due.borrow_mut().push_back(DueRequest::at(due));
        }
        is_left
    }

    fn open(
        self: &Rc<Self>,
        connection: &Connection<OfQuic>,
        due: DueRequest,
        now: Instant,
    ) -> Result<(), SessionError> {
        let place = due.place.unwrap_or_else(|| self.next.get());
        let codec = self.client.codec(self.worker.exchange.clone(), self.requests[place].clone());
        let handler = RequestHandler::new(self.clone(), InFlight { due, begun: due.begun.unwrap_or(now), place });
        let in_flight = self.in_flight.get();
        // First: the handler may end at once. One that is not used is dropped, and its end is not reported.
        self.in_flight.set(in_flight + 1);
        match connection.open_handler(Direction::Bidirectional, codec, handler) {
            Ok(_) => {
                if due.place.is_none() {
                    self.next.set((place + 1) % self.requests.len());
                }
                Ok(())
            }
            Err(error) => {
                self.in_flight.set(in_flight);
                Err(error)
            }
        }
    }

    /// The requests that were not sent are left for other connections.
    fn give_back(&self) {
        for due in self.due.take() {
            if due.is_again() {
                self.worker.refused.push(due);
                continue;
            }
            if self.role == Role::Active {
                self.worker.budget.give_back(1);
            }
            if due.begun.is_some() {
                self.worker.schedule.iter().for_each(Schedule::give_back);
            }
        }
    }

    /// Lets the task of the connection look again.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn mark_held(&self) {
        self.is_held.set(true);
        self.worker.exchange.stats.held(self.role);
        self.connector.open();
    }

    /// A response is complete.
    fn on_response(&self, is_good: bool, begun: Instant) {
        if self.role == Role::Idle {
            if is_good {
                self.connector.has_served.set(true);
                self.mark_held();
            } else {
                // Its only request got no good response, so there is nothing to keep open.
                self.is_ending.set(true);
            }
        } else {
            let after = Instant::now().saturating_duration_since(begun);
            self.worker.exchange.stats.count_responses(1, is_good.into(), after);
            self.connector.has_served.set(true);
        }
        self.end_request();
    }

    /// A response does not come in time.
    fn on_late(&self) {
        self.worker.exchange.stats.timed_out(1);
    }

    /// A request has no response.
    fn on_lost(&self, reason: &CloseReason, request: InFlight) {
        let is_end = self.worker.has_ended() || matches!(reason, CloseReason::LoopEnded);
        match reason {
            // The load has ended. Requests in flight count as unanswered, not as errors.
            _ if is_end && self.role == Role::Active => self.worker.left_waiting(1, request.begun),
            _ if is_end => {}
            CloseReason::StreamReset { by_peer: true, code }
                if *code == ErrorCode::REQUEST_REJECTED.0 && self.send_again(request) =>
            {
                return;
            }
            CloseReason::StreamReset { by_peer: true, .. } => self.worker.exchange.stats.reset(),
            CloseReason::Broken(_) => self.cut_off.set(self.cut_off.get() + 1),
            CloseReason::WriteTimeout => self.worker.exchange.stats.broken(true),
            _ => {}
        }
        if self.role == Role::Idle {
            self.is_ending.set(true);
        }
        self.end_request();
    }

    /// The server did not process a request (RFC 9114 §4.1.1, §5.2): another connection sends it again. This one takes no
    /// further request, since GOAWAY can be behind the reset of a stream. Returns whether it is sent again.
    fn send_again(&self, InFlight { due, begun, place }: InFlight) -> bool {
        let again = if self.role == Role::Active { due.again(begun, place) } else { None };
        let Some(again) = again else { return false };
        self.worker.exchange.stats.refused();
        self.worker.refused.push(again);
        self.is_ending.set(true);
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
        self.wake();
        true
    }

    fn end_request(&self) {
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
        if self.role == Role::Active {
            self.worker.budget.finish(1);
        }
        self.wake();
    }
}

impl TakesTurn for Http3Requests {
    fn post(&self, due: Instant) -> bool {
        self.waits.set(self.waits.get().saturating_sub(1));
        if self.is_ending.get() {
            return false;
        }
        if self.worker.budget.take(1) > 0 {
            self.due.borrow_mut().push_back(DueRequest::at(Some(due)));
            self.wake();
        }
        true
    }
}

impl fmt::Debug for Http3Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http3Requests").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

/// A request on its stream.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    due: DueRequest,
    /// When it was sent first, or was due with a rate.
    begun: Instant,
    /// The place in the list of requests.
    place: usize,
}

/// The handler of one request, on its stream.
struct RequestHandler {
    requests: Rc<Http3Requests>,
    request: InFlight,
    is_answered: bool,
}

impl RequestHandler {
    fn new(requests: Rc<Http3Requests>, request: InFlight) -> Self {
        Self { requests, request, is_answered: false }
    }
}

impl Handler<Http3Codec> for RequestHandler {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Http3Codec>) -> Outcome<Http3Codec> {
        if self.requests.role == Role::NeverRead {
            cx.pause();
        } else {
            cx.deadline_after(self.requests.worker.timeout);
        }
        if let Err(error) = cx.send(SendRequest) {
            return Outcome::fail(error);
        }
        cx.shutdown_write();
        Outcome::Continue
    }

    fn message(&mut self, response: Http3Response, _: &mut Context<'_, Http3Codec>) -> Outcome<Http3Codec> {
        self.is_answered = true;
        self.requests.on_response(response.is_good, self.request.begun);
        Outcome::Close
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Http3Codec>) -> Outcome<Http3Codec> {
        match event {
            Event::Deadline => {
                self.requests.on_late();
                Outcome::Reset(ErrorCode::REQUEST_CANCELLED.0)
            }
            event => event.by_default(cx),
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        if !self.is_answered {
            self.requests.on_lost(reason, self.request);
        }
    }
}
