//! The task that serves a connection while something of it needs one: a body that is received or sent piece by piece, or
//! a function that cannot begin within a dispatch. It takes the connection over from its handler, and returns it when no
//! request is left.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_buffer::Slice;
use tidegate_codec::work;
use tidegate_engine::{ChannelError, Outcome, task};
use tidegate_http_message::BodyError;
use tidegate_http_message::Upgrade;
use tidegate_http_message::body::{self, Body, BodyCollector, BodyKind, BodyWriter, ReceivedBody};
use tidegate_http_message::exchange::Exchange;
use tidegate_http_message::slices::{LONG_BODY_BYTES, PARSING_NANOS};
use tidegate_http_message::watched::WatchedExchange;
use tidegate_http1::{Incoming, Outgoing, RequestHead, Status, Trailers};
use tidegate_sys::Address;

use crate::app::App;
use crate::codec::HttpCodec;
use crate::endpoint::{Call, Endpoint, InterimWriter};
use crate::extract::BodyUse;
use crate::middleware::{self, MiddlewareState, respond_in_place};
use crate::request::{AnyState, Request};
use crate::response::{IntoResponse, Message, Response, Source};
use crate::route_limits::BytesLeft;
use crate::serving::begin::{RouteMatch, RouteRefusal, is_head};
use crate::serving::exchanges::{Exchanges, Inbound, TimeoutKind};
use crate::serving::handler::HttpHandler;
use crate::serving::pending::{CaughtResponse, call_caught};
use crate::serving::pipeline::RequestPipeline;
use crate::serving::refusals::{NOT_A_TUNNEL, late_response, panicked};
use crate::serving::retained::Framing;
use crate::serving::stall_label::StallLabel;
use crate::tls_info::TlsInfo;

/// The first work of a task.
pub(crate) enum TaskInput {
    /// A request whose function is called.
    Request(Box<PendingRequest>),
    /// A response whose body is sent; whether the request was a HEAD.
    Respond(Message, bool),
    /// The end of a response, once there is room for it.
    Finish(Outgoing),
}

/// A request whose function is called.
pub(crate) struct PendingRequest {
    request: Request,
    endpoint: Rc<Endpoint>,
    middleware: MiddlewareState,
    inbound: RequestBody,
}

/// The received part of an incomplete body.
#[derive(Default)]
pub(crate) struct PartialBody {
    pub(crate) pieces: VecDeque<Slice>,
    pub(crate) trailers: Option<Trailers>,
}

/// The received part of a request body.
enum RequestBody {
    /// A part of it, and more follows.
    Partial(PartialBody),
    /// All of it; the request has it.
    Complete,
}

impl TaskInput {
    pub(crate) fn request(request: Request, endpoint: Rc<Endpoint>, middleware: MiddlewareState) -> Self {
        Self::partial(request, endpoint, middleware, PartialBody::default())
    }

    /// A request whose body has begun.
    pub(crate) fn partial(
        request: Request,
        endpoint: Rc<Endpoint>,
        middleware: MiddlewareState,
        partial: PartialBody,
    ) -> Self {
        Self::Request(Box::new(PendingRequest {
            request,
            endpoint,
            middleware,
            inbound: RequestBody::Partial(partial),
        }))
    }

    /// A request that has its body.
    pub(crate) fn complete(request: Request, endpoint: Rc<Endpoint>, middleware: MiddlewareState) -> Self {
        Self::Request(Box::new(PendingRequest { request, endpoint, middleware, inbound: RequestBody::Complete }))
    }
}

/// The outcome of a handler that gives its connection to a task.
pub(crate) fn take_over<C: HttpCodec>(
    app: Rc<App>,
    state: Option<AnyState>,
    pipeline: Option<Box<RequestPipeline>>,
    work: TaskInput,
) -> Outcome<C> {
    Outcome::into_channel(move |channel| {
        let exchanges: Rc<dyn ErasedConnection> = Rc::new(Exchanges::<C>::new(channel, app.served.clone()));
        serve(exchanges, app, state, pipeline, work)
    })
}

/// Serves a connection until no request is left, and gives it back to a handler then; at once if requests `behind` the one
/// in turn are in progress.
async fn serve(
    exchanges: Rc<dyn ErasedConnection>,
    app: Rc<App>,
    state: Option<AnyState>,
    pipeline: Option<Box<RequestPipeline>>,
    work: TaskInput,
) -> Result<(), ServeError> {
    let mut serving = ConnectionTask { exchanges: exchanges.clone(), app: app.clone(), state };
    let mut next = Some(work);
    while let Some(work) = next {
        let upgrade = match work {
            TaskInput::Request(pending) => serving.handle(*pending).await?,
            TaskInput::Respond(message, is_head) => {
                let number = serving.exchanges.begin(Inbound::Nothing, Framing::default());
                serving.send(message, number, is_head).await?
            }
            TaskInput::Finish(message) => {
                let number = exchanges.begin(Inbound::Nothing, Framing::default());
                poll_fn(|cx| exchanges.poll_ready(number, cx)).await?;
                exchanges.send(number, message)?;
                None
            }
        };
        if let Some(upgrade) = upgrade {
            return exchanges.leave_http(*upgrade);
        }
        if pipeline.is_some() {
            break;
        }
        next = match poll_fn(|cx| Poll::Ready(exchanges.poll_recv(cx))).await {
            Poll::Ready(Ok(Some(Incoming::Head(head)))) => Some(serving.begin(head)),
            // The rest of a body that nothing reads: the codec skips it.
            Poll::Ready(Ok(Some(_))) | Poll::Pending => None,
            Poll::Ready(Ok(None)) => return Ok(()),
            Poll::Ready(Err(error)) => {
                if let ChannelError::Closed(reason) = &error
                    && let Some(refusal) = middleware::refusal_of(reason)
                {
                    let peer = exchanges.client().0.unwrap_or_else(crate::request::unknown_peer);
                    middleware::refused(&app.table().middleware, refusal, peer);
                }
                return Err(error.into());
            }
        };
    }
    exchanges.return_to_handler(HttpHandler::with_state(app, serving.state.take(), pipeline))
}

/// The exchanges of a connection, without its type: the code that serves them is compiled once.
trait ErasedConnection: Exchange {
    fn begin(&self, inbound: Inbound, framing: Framing) -> u32;
    fn deadline(&self, receive_timeout: Duration, request_timeout: Duration) -> (Instant, TimeoutKind);
    fn has_ended(&self) -> bool;
    fn ask_for_body(&self, number: u32) -> Result<(), BodyError>;
    fn has_late(&self) -> bool;
    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>>;
    fn has_failed(&self) -> bool;
    fn keep_half_closed(&self);
    fn refused(&self) -> Option<Status>;
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<ChannelError>;
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>>;

    /// The client, if it is known, and whether the connection is encrypted.
    fn client(&self) -> (Option<Address>, bool);

    /// The parameters of the TLS connection, if it is one.
    fn tls_info(&self) -> Option<TlsInfo>;

    /// Ends the exchanges, and the connection.
    fn end(&self);

    /// Gives the connection to a handler.
    fn return_to_handler(&self, handler: HttpHandler) -> Result<(), ServeError>;

    /// Passes the connection on to another protocol, after the response that announces it.
    fn leave_http(&self, upgrade: Upgrade) -> Result<(), ServeError>;
}

impl<C: HttpCodec> ErasedConnection for Exchanges<C> {
    fn begin(&self, inbound: Inbound, framing: Framing) -> u32 {
        self.begin(inbound, framing)
    }

    fn deadline(&self, receive_timeout: Duration, request_timeout: Duration) -> (Instant, TimeoutKind) {
        self.deadline(receive_timeout, request_timeout)
    }

    fn has_ended(&self) -> bool {
        self.has_ended()
    }

    fn ask_for_body(&self, number: u32) -> Result<(), BodyError> {
        self.ask_for_body(number)
    }

    fn has_late(&self) -> bool {
        self.has_late()
    }

    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        self.poll_recv(cx)
    }

    fn has_failed(&self) -> bool {
        self.has_failed()
    }

    fn keep_half_closed(&self) {
        self.keep_half_closed();
    }

    fn refused(&self) -> Option<Status> {
        self.refused()
    }

    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<ChannelError> {
        self.poll_gone(cx)
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.poll_room(cx)
    }

    fn client(&self) -> (Option<Address>, bool) {
        let client = self.with(|channel| {
            let reported = channel.with_codec(|codec| (codec.reported_peer(), codec.is_secure())).ok();
            let (reported, is_secure) = reported.unwrap_or_default();
            (reported.or_else(|| channel.peer().ok()), is_secure)
        });
        client.unwrap_or_default()
    }

    fn tls_info(&self) -> Option<TlsInfo> {
        self.with(|channel| channel.with_codec(|codec| codec.tls_info()).ok()).flatten().flatten()
    }

    fn end(&self) {
        drop(self.take());
    }

    fn return_to_handler(&self, handler: HttpHandler) -> Result<(), ServeError> {
        Ok(self.take().map_or(Ok(()), |channel| channel.into_handler(handler))?)
    }

    fn leave_http(&self, upgrade: Upgrade) -> Result<(), ServeError> {
        let Some(mut channel) = self.take() else { return Ok(()) };
        if !channel.with_codec(|codec| codec.has_left_http())? {
            return Err(ServeError(NOT_A_TUNNEL.into()));
        }
        Ok(channel.switch_by(upgrade.into_switch().after(C::into_filters))?)
    }
}

/// Why a task ends before its connection is idle.
#[derive(Debug)]
pub(crate) struct ServeError(Box<dyn std::error::Error>);

impl From<ChannelError> for ServeError {
    fn from(error: ChannelError) -> Self {
        Self(Box::new(error))
    }
}

impl From<BodyError> for ServeError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Closed(reason) => Self(Box::new(ChannelError::Closed(reason))),
            other => Self(Box::new(other)),
        }
    }
}

impl From<ServeError> for Box<dyn std::error::Error> {
    fn from(error: ServeError) -> Self {
        error.0
    }
}

struct ConnectionTask {
    exchanges: Rc<dyn ErasedConnection>,
    app: Rc<App>,
    /// The state of the connection.
    state: Option<AnyState>,
}

/// The connection ends with its task, also while the application keeps a body or a writer of it.
impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.exchanges.end();
    }
}

impl ConnectionTask {
    /// Begins a request that has arrived.
    fn begin(&mut self, head: RequestHead) -> TaskInput {
        let table = self.app.table();
        let route =
            RouteMatch::of(&table, &head, || self.exchanges.client().0.unwrap_or_else(crate::request::unknown_peer));
        if route.keeps_half_closed() {
            self.exchanges.keep_half_closed();
        }
        let (peer, is_secure) = self.exchanges.client();
        let peer = peer.unwrap_or_else(crate::request::unknown_peer);
        let state = table.connection_state.as_ref().map(|make| self.state.get_or_insert_with(|| make(&peer)).clone());
        let tls = || self.exchanges.tls_info();
        let (mut request, routed) = route.into_request(head, (peer, is_secure));
        let mut middleware = MiddlewareState::default();
        match routed.begin(&self.app, (&mut request, &mut middleware), state, task::now(), tls) {
            Ok(endpoint) => TaskInput::request(request, endpoint.clone(), middleware),
            Err(refusal) => match refusal.into_function(&mut request) {
                Ok(endpoint) => TaskInput::request(request, endpoint, middleware),
                Err(mut response) => {
                    middleware.after(&mut response);
                    TaskInput::Respond(response.into_message(), is_head(&request))
                }
            },
        }
    }

    /// Calls the function of a request, and sends its response.
    async fn handle(&self, pending: PendingRequest) -> Result<Option<Box<Upgrade>>, ServeError> {
        let PendingRequest { mut request, endpoint, mut middleware, inbound } = pending;
        let (inbound, partial) = match inbound {
            RequestBody::Complete => (Inbound::Nothing, PartialBody::default()),
            RequestBody::Partial(partial) if !request.head().has_body() => (Inbound::Nothing, partial),
            RequestBody::Partial(partial) if request.head().expects_continue() => (Inbound::AwaitsContinue, partial),
            RequestBody::Partial(partial) => (Inbound::Body, partial),
        };
        let number = self.exchanges.begin(inbound, Framing::of(request.header("content-type")));
        let is_head = is_head(&request);
        if inbound != Inbound::Nothing && !request.is_refused() {
            let decoder = request.take_decoder();
            let length = if decoder.is_some() { None } else { request.content_length() };
            let mut exchange: Rc<dyn Exchange> = self.exchanges.clone();
            if let Some(bytes_max) = endpoint.body_bytes_max() {
                let first: usize = partial.pieces.iter().map(Slice::len).sum();
                let bytes_left = BytesLeft::new(bytes_max.saturating_sub(first as u64));
                exchange = Rc::new(WatchedExchange::new(exchange, bytes_left));
            }
            if endpoint.collects_late {
                request.set_collected_body_bytes_max(endpoint.collected_body_bytes_max(&self.app.limits));
            }
            request.set_body(Body::from(BodyKind::Received(ReceivedBody {
                exchange,
                number,
                length,
                first_pieces: (!partial.pieces.is_empty()).then(|| Box::new(partial.pieces)),
                has_ended: false,
                trailers: partial.trailers,
                decoder,
            })));
        }
        self.count_whole(request.body(), number);
        let mut response = match self.respond_in_time(request, &endpoint, number).await {
            Ok(response) => response,
            Err(error) => {
                // If the codec has refused the body, it has responded.
                if let Some(status) = self.exchanges.refused() {
                    middleware.forget_count();
                    middleware.after(&mut Response::of_error(status));
                }
                return Err(error);
            }
        };
        if self.exchanges.has_failed() {
            // If the codec has refused the body, it has responded.
            middleware.forget_count();
            if let Some(status) = self.exchanges.refused() {
                response = Response::of_error(status).close();
            }
        }
        middleware.after(&mut response);
        response.drop_forbidden_body();
        self.send(response.into_message(), number, is_head).await
    }

    /// The response of the function, or that of a limit.
    async fn respond_in_time(
        &self,
        mut request: Request,
        endpoint: &Rc<Endpoint>,
        number: u32,
    ) -> Result<Response, ServeError> {
        if endpoint.body == BodyUse::Collected
            && !request.body().is_whole()
            && let Err(refusal) = self.collect_in_time(&mut request, endpoint, number).await?
            && let Err(response) = refusal.into_function(&mut request)
        {
            return Ok(response);
        }
        let mut responding = pin!(Some(self.respond(request, endpoint, number)));
        let future = responding.as_mut().as_pin_mut().expect("it is dropped below");
        match self.within_time(future, endpoint.timeout(&self.app.limits)).await? {
            Ok(response) => response,
            Err(timeout) => Ok(respond_in_place(late_response(timeout), || responding.set(None))),
        }
    }

    /// The output of a future, or the kind of the timeout.
    async fn within_time<F: Future>(
        &self,
        mut future: Pin<&mut F>,
        request_timeout: Duration,
    ) -> Result<Result<F::Output, TimeoutKind>, ChannelError> {
        // Most functions need no timer.
        if let Poll::Ready(output) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
            return Ok(Ok(output));
        }
        let receive_timeout = self.app.limits.receive_timeout;
        loop {
            let (at, _) = self.exchanges.deadline(receive_timeout, request_timeout);
            let left = at.saturating_duration_since(task::now());
            if let Ok(output) = task::timeout(left, self.until_gone(future.as_mut())).await {
                return output.map(Ok);
            }
            // Pieces of the body that came meanwhile move the deadline.
            let (at, timeout) = self.exchanges.deadline(receive_timeout, request_timeout);
            if at <= task::now() {
                return Ok(Err(timeout));
            }
        }
    }

    async fn respond(&self, request: Request, endpoint: &Endpoint, number: u32) -> Result<Response, ServeError> {
        if endpoint.body == BodyUse::Collected {
            parse_in_turn(&request).await;
        }
        let (label, activity) = (StallLabel::new(endpoint, request.head()), &self.app.activity);
        match &endpoint.call {
            Call::Sync(call) => Ok(label.during(activity, || call_caught(call, request))),
            Call::Async(_) | Call::Polled(_) => {
                let mut request = Some(request);
                let polled = poll_fn(|cx| {
                    let mut request = request.take().expect("it is polled once");
                    let call = || match &endpoint.call {
                        Call::Polled(call) => {
                            let body = request.take_body();
                            call(request, body, cx)
                        }
                        Call::Async(call) => call(request, cx),
                        Call::Sync(_) | Call::Interim(_) => unreachable!("the arms beside this one are theirs"),
                    };
                    Poll::Ready(label.during(activity, || catch_unwind(AssertUnwindSafe(call))))
                });
                match polled.await {
                    Ok(Ok(response)) => Ok(response),
                    Ok(Err(responding)) => Ok(CaughtResponse { responding, label, activity: activity.clone() }.await),
                    Err(_) => Ok(panicked()),
                }
            }
            Call::Interim(call) => {
                let interims = InterimWriter::Exchange { exchange: self.exchanges.clone(), number };
                match catch_unwind(AssertUnwindSafe(|| (call.call)(request, interims))) {
                    Ok(responding) => Ok(CaughtResponse { responding, label, activity: activity.clone() }.await),
                    Err(_) => Ok(panicked()),
                }
            }
        }
    }

    /// Collects the body of a request. The error is the refusal of one that is too long, malformed or late.
    async fn collect_in_time(
        &self,
        request: &mut Request,
        endpoint: &Rc<Endpoint>,
        number: u32,
    ) -> Result<Result<(), Box<RouteRefusal>>, ServeError> {
        let limits = &self.app.limits;
        let collected = {
            let collecting = pin!(self.collect(request.body_mut(), number, endpoint.collected_body_bytes_max(limits)));
            self.within_time(collecting, endpoint.timeout(limits)).await?
        };
        let response = match collected {
            Ok(Ok(body)) => {
                request.set_body(body);
                return Ok(Ok(()));
            }
            Ok(Err(error @ (BodyError::TooLong | BodyError::Undecodable))) => error.into_response(),
            Ok(Err(error)) => return Err(error.into()),
            Err(timeout) => late_response(timeout),
        };
        Ok(Err(RouteRefusal::new(response, endpoint)))
    }

    async fn collect(&self, body: &mut Body, number: u32, bytes_max: usize) -> Result<Body, BodyError> {
        if body.length().is_some_and(|length| length > bytes_max as u64) {
            return Err(BodyError::TooLong);
        }
        let mut collected = BodyCollector::new(bytes_max).charged_to(body.account());
        while let Some(piece) = body.next().await.transpose()? {
            collected.add(&piece)?;
        }
        let (bytes, charge) = collected.into_parts();
        if let Some(charge) = charge {
            self.exchanges.keep(number, *charge);
        }
        Ok(bytes.into())
    }

    /// A body that is in memory counts as memory of the connection until the exchange is over.
    fn count_whole(&self, body: &Body, number: u32) {
        let bytes = body.memory_bytes();
        let Some(account) = (bytes > 0).then(|| self.exchanges.account(number)).flatten() else { return };
        if let Some(charge) = body::charge(&account, bytes) {
            self.exchanges.keep(number, *charge);
        }
    }

    /// Runs a future until the connection is gone.
    async fn until_gone<F: Future + ?Sized>(&self, mut future: Pin<&mut F>) -> Result<F::Output, ChannelError> {
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => self.exchanges.poll_gone(cx).map(Err),
        })
        .await
    }

    /// Sends a response: its head and its body. Returns the upgrade for which the connection leaves HTTP, if any.
    async fn send(&self, message: Message, number: u32, is_head: bool) -> Result<Option<Box<Upgrade>>, ServeError> {
        let exchanges = &self.exchanges;
        let (head, source) = match message {
            Message::Whole(message) => {
                poll_fn(|cx| exchanges.poll_ready(number, cx)).await?;
                exchanges.send(number, message)?;
                return Ok(None);
            }
            Message::Upgrade(head, upgrade) => {
                poll_fn(|cx| exchanges.poll_ready(number, cx)).await?;
                exchanges.send(number, head)?;
                return Ok(Some(upgrade));
            }
            Message::Head(head, source) => (head, source),
        };
        if is_head {
            exchanges.send(number, head)?;
        } else {
            match source {
                Source::Received(received) => {
                    self.pass_on(head, Body::from(BodyKind::Received(received)), number).await?;
                }
                Source::WithTrailers(ready) => {
                    exchanges.send(number, head)?;
                    let writer = BodyWriter::new(exchanges.clone(), number);
                    self.until_gone(pin!(ready.write(writer))).await?.map_err(ServeError)?;
                }
                Source::Produced(produced) => {
                    // A body that is still there is one that the producer reads: `100 Continue` comes before the head.
                    if Rc::strong_count(exchanges) > EXCHANGES_OF_THE_TASK {
                        exchanges.ask_for_body(number)?;
                    }
                    exchanges.send(number, head)?;
                    let writer = BodyWriter::new(exchanges.clone(), number);
                    let mut producing = (produced.produce)(writer);
                    self.until_gone(producing.as_mut()).await?.map_err(ServeError)?;
                }
            }
        }
        if !exchanges.has_ended() {
            exchanges.send(number, Outgoing::End)?;
        }
        if exchanges.has_late() {
            poll_fn(|cx| exchanges.poll_room(cx)).await?;
        }
        Ok(None)
    }

    /// Sends the body of a request as that of the response. The head waits for the first piece: a peer that expects
    /// `100 Continue` has to receive that before.
    async fn pass_on(&self, head: Outgoing, mut body: Body, number: u32) -> Result<(), ServeError> {
        let mut next = match body.next().await.transpose() {
            Err(error @ (BodyError::TooLong | BodyError::Undecodable)) => {
                let Message::Whole(refusal) = error.into_response().into_message() else { return Ok(()) };
                self.exchanges.send(number, refusal)?;
                return Ok(());
            }
            next => next?,
        };
        self.exchanges.send(number, head)?;
        while let Some(piece) = next {
            poll_fn(|cx| self.exchanges.poll_ready(number, cx)).await?;
            self.exchanges.send(number, Outgoing::Data(piece.into_body()))?;
            next = body.next().await.transpose()?;
        }
        Ok(())
    }
}

/// A function parses its body within its call, which cannot be divided. Those of long bodies are called one at a time, with
/// other connections in between.
async fn parse_in_turn(request: &Request) {
    let bytes = request.body().collected().len();
    if bytes > LONG_BODY_BYTES {
        task::long_work().await;
        work::add(bytes as u64 * PARSING_NANOS);
    }
}

/// How many references to the exchanges the task itself has: that of `serve`, and that of `ConnectionTask`.
const EXCHANGES_OF_THE_TASK: usize = 2;
