//! From a request to its response: a connection, the request on it, its head; again where that is safe.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::Method;
use tidegate_engine::{CloseReason, task};
use tidegate_http_message::BodyError;
use tidegate_http_message::body::{Body, BodyKind, BodyWriter};
use tidegate_http_message::exchange::Exchange;
use tidegate_http_message::percent;
use tidegate_http_upstream::{
    Checkout, ClientExchange, Connected, Connection, ExchangeFailure, ForwardProxy, Lease, Origin, Retry, SharedHandle,
    UpstreamError, basic_credentials, is_idempotent,
};
use tidegate_http1::client::Outgoing;
use tidegate_http1::{self as http1, ResponseHead, Status, StreamedRequest};

use super::core::ClientCore;
use super::error::{ClientError, Phase};
use super::redirect::{self, RedirectStep};
use super::request::{Request, RequestBuilder, set_field};
use super::response::Response;
use super::uri::{origin_form, origin_of, userinfo};

impl RequestBuilder {
    /// Sends the request, and waits for the head of its response. The body of the request is sent meanwhile. Dropping the
    /// future closes the connection that the request is on.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Panics
    /// If no event loop runs on this thread.
    pub async fn send(self) -> Result<Response, ClientError> {
        send(&self.client, self.request?).await
    }
}

/// Sends a request until it has a response, or until it must not be sent again.
async fn send(client: &Rc<ClientCore>, mut request: Request) -> Result<Response, ClientError> {
    let limits = &client.limits;
    let timeout = request.timeout.or(limits.request_timeout);
    let deadline = timeout.and_then(|timeout| task::now().checked_add(timeout));
    if let Some(userinfo) = userinfo(&request.uri) {
        let (name, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
        let decode = |text| percent::decode(text).ok_or(ClientError::Uri);
        let credentials = basic_credentials(&decode(name)?, &decode(password)?);
        set_field(&mut request.fields, "Authorization", &credentials)?;
    }
    // Another protocol on an HTTP/2 stream needs extended CONNECT (RFC 8441).
    let needs_http1 = request.upgrade.is_some() || request.method == Method::CONNECT;
    let tunnels = request.tunnels;
    let origin = Origin { tunnels, ..origin_of(&request.uri, request.at.take())? };
    let mut origin = within(deadline, client.route_to(origin, needs_http1)).await?;
    request.was_whole = matches!(request.body.kind(), BodyKind::Whole(_));
    let mut redirects = client.redirects;
    redirects.follows = request.redirects.unwrap_or(redirects.follows);
    let mut followed = 0;
    loop {
        let (exchange, head) = send_on(client, &origin, &mut request, deadline).await?;
        client.learn_alternatives(&origin, &head);
        let uri = request.uri.clone();
        #[cfg_attr(not(feature = "compress"), expect(unused_mut, reason = "only decompression changes a response"))]
        let mut response = Response::new(head, uri, exchange, limits.collected_body_bytes_max);
        #[cfg(feature = "cookies")]
        client.keep_cookies(&origin, response.uri(), response.head());
        #[cfg(feature = "compress")]
        if let Some(limits) = client.decompression {
            response.decompress(limits);
        }
        match redirect::follow(redirects, &mut request, &origin, response.head())? {
            RedirectStep::Done => return Ok(response),
            RedirectStep::Follow(_) if followed >= limits.redirects_max => return Err(ClientError::TooManyRedirects),
            RedirectStep::Follow(target) => origin = within(deadline, client.route_to(target, needs_http1)).await?,
        }
        followed += 1;
    }
}

/// Sends a request to an origin: on a connection of the pool, and again on another one where that is safe.
async fn send_on(
    client: &ClientCore,
    origin: &Rc<Origin>,
    request: &mut Request,
    deadline: Option<Instant>,
) -> Result<(Rc<dyn ClientExchange>, ResponseHead), ClientError> {
    let (mut retries, mut origin, mut may_be_early) = (0, origin.clone(), may_be_early(request));
    loop {
        let opened = within(deadline, open(client, &origin, may_be_early)).await?;
        let Opened { exchange, is_reused, is_early, alternative } = opened;
        let in_flight = InFlight(Some(exchange.clone()));
        set_head_deadline(&*exchange, request, deadline);
        let is_replayable = matches!(request.body.kind(), BodyKind::Whole(_));
        match attempt(client, &origin, &exchange, request).await {
            Ok(head) if is_replayable && wants_other_form(request, is_early, &head) => {
                in_flight.disarm();
                exchange.abandon();
                (may_be_early, request.expects_continue) = (false, false);
            }
            Ok(head) => {
                in_flight.disarm();
                exchange.set_deadline(deadline);
                if !on_answer(client, &origin, alternative.as_ref(), &head) || !is_replayable {
                    return Ok((exchange, head));
                }
                exchange.abandon();
                origin = without_alternative(&origin);
            }
            Err(Stop::Failed(failure))
                if is_lost(client, &origin, alternative.as_ref(), &failure)
                    && is_replayable
                    && retries < client.limits.retries_max
                    && is_idempotent(request.method.as_str())
                    && matches!(failure, ExchangeFailure::Closed { .. }) =>
            {
                retries += 1;
                origin = without_alternative(&origin);
            }
            Err(Stop::Failed(ExchangeFailure::Closed { retry, .. }))
                if is_replayable
                    // A server that refuses early data has processed nothing of it: that is no try.
                    && (is_early || retries < client.limits.retries_max)
                    && (retry == Retry::Always
                        || retry == Retry::IfIdempotent && is_reused && is_idempotent(request.method.as_str())
                        || retry == Retry::ByHttp1 && origin.may_share()) =>
            {
                retries += u32::from(!is_early);
                may_be_early &= !is_early;
                origin = client.rerouted(&origin);
                if retry == Retry::ByHttp1 {
                    origin = by_http1(&origin);
                }
            }
            Err(Stop::Failed(failure)) => return Err(error_of(failure, deadline)),
            Err(Stop::Error(error)) => return Err(error),
        }
    }
}

/// Whether a server refuses the form of a request, which may succeed in another one.
fn wants_other_form(request: &Request, is_early: bool, head: &ResponseHead) -> bool {
    match head.status() {
        // It does not risk to process a copy: after the handshake there is none (RFC 8470 §5.2).
        Status::TOO_EARLY => is_early,
        // Some server on the way knows no expectations (RFC 9110 §10.1.1).
        Status::EXPECTATION_FAILED => request.expects_continue,
        _ => false,
    }
}

/// Whether an attacker may send copies of a request: then it need not wait for the handshake (RFC 8470 §4).
fn may_be_early(request: &Request) -> bool {
    let is_safe = matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_empty = matches!(request.body.kind(), BodyKind::Whole(body) if body.is_empty());
    is_safe && is_empty && request.upgrade.is_none()
}

fn by_http1(origin: &Origin) -> Rc<Origin> {
    Rc::new(Origin { may_be_http2: false, is_http3: false, alternative: None, ..origin.clone() })
}

fn without_alternative(origin: &Origin) -> Rc<Origin> {
    Rc::new(Origin { alternative: None, ..origin.clone() })
}

/// A response has come. Returns whether the alternative of the origin says that it does not serve that origin: it rests,
/// so that no further request is sent to it (RFC 7838 §6).
fn on_answer(client: &ClientCore, origin: &Origin, alternative: Option<&SharedHandle>, head: &ResponseHead) -> bool {
    let Some(connection) = alternative else { return false };
    let is_misdirected = head.status() == Status::MISDIRECTED_REQUEST;
    connection.session().set_answered();
    client.on_alternative_answered(origin, is_misdirected);
    if is_misdirected {
        connection.retire();
    }
    is_misdirected
}

/// Whether a request has failed since the connection to the alternative of its origin is of no use: it has ended before it
/// has answered anything, or does not answer in time (RFC 7838 §2.4). QUIC rests then.
fn is_lost(
    client: &ClientCore,
    origin: &Origin,
    alternative: Option<&SharedHandle>,
    failure: &ExchangeFailure,
) -> bool {
    let Some(connection) = alternative else { return false };
    match failure {
        ExchangeFailure::Misuse(_) => return false,
        // That is an answer.
        ExchangeFailure::Closed { reason, .. }
            if matches!(**reason, CloseReason::StreamReset { by_peer: true, .. }) =>
        {
            connection.session().set_answered();
        }
        _ => {}
    }
    if connection.session().has_answered() {
        return false;
    }
    client.on_alternative_lost(origin);
    connection.retire();
    true
}

/// An exchange on a connection.
struct Opened {
    exchange: Rc<dyn ClientExchange>,
    /// The connection was there before.
    is_reused: bool,
    /// The handshake of the connection is not complete.
    is_early: bool,
    /// The connection, if it is one to the alternative of the origin.
    alternative: Option<SharedHandle>,
}

/// An exchange on a connection.
async fn open(client: &ClientCore, origin: &Rc<Origin>, may_be_early: bool) -> Result<Opened, ClientError> {
    let limits = &client.limits;
    for _ in 0..CHECKOUTS_MAX {
        let checkout = task::timeout(limits.pool_timeout, client.pool.check_out(origin)).await;
        let (stream, is_reused) = match checkout.map_err(|_| ClientError::Timeout(Phase::Pool))?? {
            Checkout::Reused(connection, lease) => return Ok(Opened::http1(connection, lease, true)),
            Checkout::Stream(stream) => (stream, true),
            Checkout::Connect(mut lease) => {
                // Another request may have lost the race while this one has waited.
                let to = client.rerouted(origin);
                match connect(client, &to).await? {
                    Connected::Http1(connection) => {
                        client.on_alternative_lost(&to);
                        client.pool.chose_http1(&mut lease);
                        return Ok(Opened::http1(connection, lease, false));
                    }
                    Connected::Session(session) => {
                        if !session.is_http3() {
                            client.on_alternative_lost(&to);
                        }
                        (client.pool.share(lease, session), false)
                    }
                }
            }
        };
        let connection = stream.connection();
        if !may_be_early {
            // One that has failed takes no stream.
            let confirmed = task::timeout(limits.connect_timeout, connection.session().confirmed()).await;
            confirmed.map_err(|_| ClientError::Timeout(Phase::Connect))?;
        }
        let is_early = !connection.session().is_confirmed();
        let alternative = (origin.alternative.is_some() && connection.session().is_http3()).then_some(connection);
        // The connection may have ended since.
        let begun = task::timeout(limits.pool_timeout, stream.begin()).await;
        if let Some(exchange) = begun.map_err(|_| ClientError::Timeout(Phase::Pool))? {
            return Ok(Opened { exchange, is_reused, is_early, alternative });
        }
        if alternative.is_some_and(|connection| !connection.session().has_answered()) {
            client.on_alternative_lost(origin);
        }
    }
    Err(ClientError::Closed(Rc::new(CloseReason::Done)))
}

/// Connects to an origin: at the endpoint of its records, and at the origin itself if that fails (RFC 9460 §3), or has not
/// answered after a head start. The first connection counts; the endpoint rests unless it is that of the endpoint.
///
/// The future is boxed here: a crate compiles the async functions that it waits for, and each crate with a client would
/// compile the connections of all pipelines with this one.
#[inline(never)]
fn connect<'a>(client: &'a ClientCore, origin: &'a Origin) -> Pin<Box<dyn Future<Output = ConnectResult> + 'a>> {
    Box::pin(connect_to_first(client, origin))
}

type ConnectResult = Result<Connected<Box<dyn Connection>>, UpstreamError>;

async fn connect_to_first(client: &ClientCore, origin: &Origin) -> ConnectResult {
    let target = origin.target(&*client.resolver);
    let mut at_endpoint = pin!(client.connector.connect(&target));
    if origin.endpoint.is_none() {
        return at_endpoint.await;
    }
    let mut endpoint_failed = match task::timeout(ENDPOINT_HEAD_START, at_endpoint.as_mut()).await {
        Ok(Ok(connected)) => return Ok(connected),
        Ok(Err(_)) => true,
        Err(_) => false,
    };
    let itself = Origin { endpoint: None, alternative: None, ..origin.clone() };
    let target = itself.target(&*client.resolver);
    let mut at_itself = pin!(client.connector.connect(&target));
    let mut error = None;
    let (connected, is_at_endpoint) = poll_fn(|cx| {
        if !endpoint_failed && let Poll::Ready(connected) = at_endpoint.as_mut().poll(cx) {
            match connected {
                Ok(connected) => return Poll::Ready((Ok(connected), true)),
                Err(_) => endpoint_failed = true,
            }
        }
        if error.is_none()
            && let Poll::Ready(connected) = at_itself.as_mut().poll(cx)
        {
            match connected {
                Ok(connected) => return Poll::Ready((Ok(connected), false)),
                Err(failure) => error = Some(failure),
            }
        }
        match error.take_if(|_| endpoint_failed) {
            Some(failure) => Poll::Ready((Err(failure), false)),
            None => Poll::Pending,
        }
    })
    .await;
    if !is_at_endpoint {
        client.on_endpoint_lost(origin);
    }
    connected
}

impl Opened {
    fn http1(connection: Box<dyn Connection>, lease: Lease, is_reused: bool) -> Self {
        Self { exchange: connection.begin(lease), is_reused, is_early: false, alternative: None }
    }
}

/// Why an attempt has no response.
enum Stop {
    /// The exchange has failed.
    Failed(ExchangeFailure),
    /// The request itself is at fault: it is not sent again.
    Error(ClientError),
}

impl<E: Into<ClientError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Sends a request on a connection, and receives the head of its response.
async fn attempt(
    client: &ClientCore,
    origin: &Origin,
    exchange: &Rc<dyn ClientExchange>,
    request: &mut Request,
) -> Result<ResponseHead, Stop> {
    let host = request.host.clone().unwrap_or_else(|| origin.host_field());
    let target = match request.method {
        Method::CONNECT => origin.authority(),
        _ if origin.forwarder().is_some() => format!("http://{host}{}", origin_form(&request.uri)),
        _ => origin_form(&request.uri),
    };
    let mut fields = request.fields.clone();
    client.add_fields(&mut fields, origin, &request.uri)?;
    if let Some(authorization) = origin.forwarder().and_then(ForwardProxy::authorization) {
        set_field(&mut fields, "Proxy-Authorization", &authorization)?;
    }
    let (outgoing, upload) = match request.body.kind() {
        BodyKind::Whole(body) if !request.expects_continue || body.is_empty() => {
            let whole = http1::Request::extension(request.method.as_str(), &target)?;
            let mut whole = whole.fields(fields).body(body.clone());
            if request.method != Method::CONNECT {
                whole = whole.host(&host)?;
            }
            if let Some(protocol) = &request.upgrade {
                whole = whole.upgrade_to(protocol)?;
            }
            (Outgoing::Request(whole), None)
        }
        _ => {
            let head = StreamedRequest::extension(request.method.as_str(), &target)?;
            let mut head = head.host(&host)?.fields(fields);
            if let Some(length) = request.body.length() {
                head = head.length(length);
            }
            if request.expects_continue {
                head = head.expect_continue();
            }
            let body = match request.body.kind() {
                BodyKind::Whole(body) => Body::from(BodyKind::Whole(body.clone())),
                _ => std::mem::take(&mut request.body),
            };
            (Outgoing::Head(head), Some(upload(exchange.clone(), body)))
        }
    };
    let mut outgoing = Some(outgoing);
    poll_fn(|cx| exchange.poll_send(&mut outgoing, cx)).await.map_err(Stop::Failed)?;
    match upload {
        None => loop {
            let head = poll_fn(|cx| exchange.poll_head(cx)).await.map_err(Stop::Failed)?;
            if !head.status().is_interim() {
                return Ok(head);
            }
        },
        Some(upload) => exchange_bodies(client, exchange, Box::pin(upload), request.expects_continue).await,
    }
}

/// Sends the body of a request until the head of its response is there. A task sends the rest of the body, unless the
/// response refuses it.
async fn exchange_bodies(
    client: &ClientCore,
    exchange: &Rc<dyn ClientExchange>,
    upload: Pin<Box<impl Future<Output = Result<(), ClientError>> + 'static>>,
    expects_continue: bool,
) -> Result<ResponseHead, Stop> {
    let mut upload = Some(upload);
    let mut waits = expects_continue.then(|| task::sleep(client.limits.continue_timeout));
    let head = poll_fn(|cx| {
        if waits.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(cx).is_ready()) {
            waits = None;
        }
        if waits.is_none()
            && let Some(sending) = &mut upload
            && let Poll::Ready(sent) = sending.as_mut().poll(cx)
        {
            upload = None;
            sent?;
        }
        match exchange.poll_head(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(head)) if head.status().is_interim() => {
                if head.status() == Status::CONTINUE {
                    waits = None;
                }
                // Another turn: the body, or the next head.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(head) => Poll::Ready(head.map_err(Stop::Failed)),
        }
    })
    .await?;
    if let Some(upload) = upload {
        if waits.is_some() || head.status().code() >= 400 {
            drop(upload);
            exchange.give_up_sending();
        } else {
            let exchange = exchange.clone();
            drop(task::spawn(async move {
                if upload.await.is_err() {
                    exchange.reset();
                }
            }));
        }
    }
    Ok(head)
}

/// Sends the body of a request. Where the connection takes no more of it, that is no error: the response has the reason.
async fn upload(exchange: Rc<dyn ClientExchange>, body: Body) -> Result<(), ClientError> {
    match produce(&exchange, body).await {
        Ok(()) => {
            let _: Result<(), BodyError> = poll_fn(|cx| exchange.poll_finish(cx)).await;
            Ok(())
        }
        Err(_) if exchange.has_write_failed() => Ok(()),
        Err(error) => {
            exchange.reset();
            Err(ClientError::RequestBody(error))
        }
    }
}

async fn produce(exchange: &Rc<dyn ClientExchange>, body: Body) -> Result<(), Box<dyn Error>> {
    let exchange: Rc<dyn Exchange> = exchange.clone();
    let writer = BodyWriter::new(exchange, 0);
    match body.into_kind() {
        BodyKind::Whole(body) => {
            writer.send(http1::Outgoing::Data(body)).await?;
        }
        BodyKind::Received(received) => {
            let mut body = Body::from(BodyKind::Received(received));
            while let Some(piece) = body.next().await.transpose()? {
                writer.write(piece).await?;
            }
        }
        BodyKind::WithTrailers(ready) => ready.write(writer).await?,
        BodyKind::Produced(produced) => (produced.produce)(writer).await?,
        BodyKind::Upgrade(_) => return Err(BodyError::Unreadable.into()),
    }
    Ok(())
}

/// While the head has not come, dropping the future of a request closes its connection.
struct InFlight(Option<Rc<dyn ClientExchange>>);

impl InFlight {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(exchange) = &self.0 {
            exchange.reset();
        }
    }
}

fn set_head_deadline(exchange: &dyn ClientExchange, request: &Request, deadline: Option<Instant>) {
    let head = request.head_timeout.and_then(|timeout| task::now().checked_add(timeout));
    exchange.set_deadline([head, deadline].into_iter().flatten().min());
}

/// Runs a future up to a deadline.
async fn within<T>(
    deadline: Option<Instant>,
    future: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let Some(deadline) = deadline else { return future.await };
    let left = deadline.saturating_duration_since(task::now());
    task::timeout(left, future).await.unwrap_or(Err(ClientError::Timeout(Phase::Request)))
}

fn error_of(failure: ExchangeFailure, deadline: Option<Instant>) -> ClientError {
    match failure {
        ExchangeFailure::Closed { reason, .. } => ClientError::Closed(reason),
        ExchangeFailure::Deadline if deadline.is_some_and(|deadline| deadline <= task::now()) => {
            ClientError::Timeout(Phase::Request)
        }
        ExchangeFailure::Deadline => ClientError::Timeout(Phase::Head),
        ExchangeFailure::Misuse(text) => ClientError::RequestBody(text.into()),
    }
}

/// How many connections in a row may end between the pool and the request.
const CHECKOUTS_MAX: u32 = 8;

/// How long the endpoint of a record has for a connection before the origin itself is tried as well.
const ENDPOINT_HEAD_START: Duration = Duration::from_secs(1);
