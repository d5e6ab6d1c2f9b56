//! `HttpHandler`: the application of a connection while nothing of it needs a task.
//!
//! It answers requests for functions that are not async, with bodies in memory or of files. Everything else goes to a
//! task (`task.rs`), which takes the connection over and returns it when it is idle again. So a connection has the
//! memory of a task only while a task has something to do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use tidegate_engine::{Context, Event, Handler, Outcome};
use tidegate_http1::{Incoming, Outgoing, RequestHead, Status};
use tidegate_sys::Address;

use crate::app::App;
use crate::body::{Body, Collected};
use crate::codec::HttpCodec;
use crate::endpoint::{BodyUse, Call, Endpoint};
use crate::middleware::{self, Passed};
use crate::request::Request;
use crate::response::{IntoResponse, Message, Response};
use crate::router::Found;
use crate::task::{self, Work};

/// The application of a connection while nothing of it needs a task; see
/// [`Config::connections`](crate::Config::connections).
pub struct HttpHandler {
    app: Rc<App>,
    collecting: Option<Box<Collecting>>,
}

/// A request whose body is collected.
struct Collecting {
    request: Request,
    endpoint: Rc<Endpoint>,
    passed: Passed,
    body: Collected,
    /// The body, if it came in one piece.
    whole: Body,
    length: Option<u64>,
}

impl HttpHandler {
    pub(crate) fn new(app: Rc<App>) -> Self {
        Self { app, collecting: None }
    }

    #[inline]
    fn on_head<C: HttpCodec>(&mut self, head: RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
        let (peer, is_secure) = (peer(cx), cx.codec().is_secure());
        let table = self.app.table();
        let table = table.of_host(&head);
        let found = table.find(&head);
        let (endpoint, route) = match found {
            Found::Endpoint(endpoint, route) => (Ok(endpoint), route),
            Found::Response(response) => (Err(response), None),
        };
        let mut request = Request::new(head, peer, is_secure, route);
        let (passed, result) = middleware::before(&table.middleware, &mut request, cx.now());
        let endpoint = match (result, endpoint) {
            (Ok(()), Ok(endpoint)) => endpoint,
            (Ok(()), Err(response)) | (Err(response), _) => {
                return self.respond(response, &passed, is_head(&request), cx);
            }
        };
        match &endpoint.call {
            Call::Sync(call) if !request.head().has_body() || endpoint.body == BodyUse::Unused => {
                let is_head = is_head(&request);
                let response = call_caught(call, request);
                self.respond(response, &passed, is_head, cx)
            }
            Call::Sync(_) => {
                let endpoint = endpoint.clone();
                self.collect(request, endpoint, passed, cx)
            }
            Call::Async(_) => {
                let work = Work::request(request.detach(), endpoint.clone(), passed);
                task::take_over(self.app.clone(), work)
            }
        }
    }

    /// Begins to collect the body of a request.
    #[inline(never)]
    fn collect<C: HttpCodec>(
        &mut self,
        request: Request,
        endpoint: Rc<Endpoint>,
        passed: Passed,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let (length, bytes_max) = (request.content_length(), self.app.limits.collected_body_bytes_max);
        if length.is_some_and(|length| length > bytes_max as u64) {
            return self.respond(too_long(), &passed, is_head(&request), cx);
        }
        if request.head().expects_continue()
            && let Err(error) = cx.send(Outgoing::Continue)
        {
            return Outcome::fail(error);
        }
        cx.deadline_after(self.app.limits.receive_timeout);
        self.collecting = Some(Box::new(Collecting {
            request: request.detach(),
            endpoint,
            passed,
            body: Collected::new(bytes_max),
            whole: Body::empty(),
            length,
        }));
        Outcome::Continue
    }

    #[inline(never)]
    fn on_data<C: HttpCodec>(&mut self, data: tidegate_buffer::Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        let Some(collecting) = &mut self.collecting else { return Outcome::Continue };
        if collecting.length == Some(data.len() as u64) {
            // The end follows at once.
            collecting.whole = data.into();
            return Outcome::Continue;
        }
        match collecting.body.add(&data) {
            Ok(()) => Outcome::Continue,
            Err(_) => self.abandon(too_long(), cx),
        }
    }

    #[inline(never)]
    fn on_end<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        let Some(collecting) = self.collecting.take() else { return Outcome::Continue };
        cx.deadline(None);
        let Collecting { mut request, endpoint, passed, body, whole, .. } = *collecting;
        request.set_body(match body.into_bytes() {
            bytes if bytes.is_empty() => whole,
            bytes => bytes.into(),
        });
        let Call::Sync(call) = &endpoint.call else { return Outcome::Continue };
        let is_head = is_head(&request);
        let response = match request.decode_collected(self.app.limits.collected_body_bytes_max) {
            Ok(()) => call_caught(call, request),
            Err(error) => error.into_response(),
        };
        self.respond(response, &passed, is_head, cx)
    }

    /// Answers a request whose body is not complete.
    #[cold]
    fn abandon<C: HttpCodec>(&mut self, response: Response, cx: &mut Context<'_, C>) -> Outcome<C> {
        let Some(collecting) = self.collecting.take() else { return Outcome::Continue };
        cx.deadline(None);
        self.respond(response, &collecting.passed, is_head(&collecting.request), cx)
    }

    #[inline]
    fn respond<C: HttpCodec>(
        &self,
        mut response: Response,
        passed: &Passed,
        is_head: bool,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        passed.after(&mut response);
        match response.into_message() {
            Message::Whole(message) => match cx.send(message) {
                Ok(_) => Outcome::Continue,
                Err(error) => Outcome::fail(error),
            },
            message @ Message::Head(..) => task::take_over(self.app.clone(), Work::Respond(message, is_head)),
        }
    }
}

impl<C: HttpCodec> Handler<C> for HttpHandler {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, C>) -> Outcome<C> {
        match message {
            Incoming::Head(head) => self.on_head(head, cx),
            Incoming::Data(data) => self.on_data(data, cx),
            Incoming::End => self.on_end(cx),
            Incoming::Trailers(_) => Outcome::Continue,
        }
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        match event {
            Event::Deadline => self.abandon(Response::of_error(Status::REQUEST_TIMEOUT).close(), cx),
            _ => Outcome::Continue,
        }
    }
}

/// Calls a function that is not async. If it panics, the response is a 500.
#[inline]
pub(crate) fn call_caught(call: &dyn Fn(Request) -> Response, request: Request) -> Response {
    catch_unwind(AssertUnwindSafe(|| call(request))).unwrap_or_else(|_| panicked())
}

/// The response of a function that has panicked. The panic hook has printed the panic itself.
#[cold]
pub(crate) fn panicked() -> Response {
    tracing::error!("a function panicked while it handled a request; the response is a 500");
    Response::of_error(Status::INTERNAL_SERVER_ERROR).close()
}

/// The address of the client.
pub(crate) fn peer<C: HttpCodec>(cx: &Context<'_, C>) -> Address {
    cx.codec().reported_peer().unwrap_or_else(|| cx.peer())
}

pub(crate) fn is_head(request: &Request) -> bool {
    request.head().method() == tidegate_http1::Method::Head
}

pub(crate) fn too_long() -> Response {
    Response::of_error(Status::CONTENT_TOO_LARGE).close()
}

impl std::fmt::Debug for HttpHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpHandler").field("is_collecting", &self.collecting.is_some()).finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<HttpHandler>() <= 16);
