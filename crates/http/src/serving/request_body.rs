//! The bodies of requests that the handler collects or buffers: their pieces, their ends, and calling the function then.

use std::rc::Rc;

use tidegate_buffer::Slice;
use tidegate_engine::{Context, Outcome};
use tidegate_http_message::Body;
use tidegate_http_message::body::BodyCollector;
use tidegate_http_message::slices::LONG_BODY_BYTES;
use tidegate_http1::{Outgoing, Trailers};

use crate::codec::HttpCodec;
use crate::endpoint::{Call, Endpoint};
use crate::middleware::MiddlewareState;
use crate::request::Request;
use crate::response::Response;
use crate::serving::begin::{RouteRefusal, is_head};
use crate::serving::buffered::{BufferedRequest, CollectedRequest};
use crate::serving::handler::HttpHandler;
use crate::serving::refusals::too_long;
use crate::serving::task::{PartialBody, TaskInput};

impl HttpHandler {
    /// Begins to collect the body of a request.
    #[inline(never)]
    pub(crate) fn collect<C: HttpCodec>(
        &mut self,
        request: Request,
        endpoint: Rc<Endpoint>,
        middleware: MiddlewareState,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let (length, bytes_max) = (request.content_length(), endpoint.collected_body_bytes_max(&self.app.limits));
        if request.announced_length().is_some_and(|length| length > bytes_max as u64) {
            return self.respond_instead(*RouteRefusal::new(too_long(), &endpoint), request, middleware, cx);
        }
        if request.has_decoding() {
            // A few bytes may become many: a task decodes them in slices.
            return self.take_over(TaskInput::request(request.detach(), endpoint, middleware));
        }
        if request.head().expects_continue()
            && let Err(error) = cx.send(Outgoing::Continue)
        {
            return Outcome::fail(error);
        }
        cx.deadline_after(self.app.limits.receive_timeout);
        self.rare.get_or_insert_default().collected = Some(Box::new(CollectedRequest {
            request: request.detach(),
            endpoint,
            middleware,
            body: BodyCollector::new(bytes_max).charged_to(Some(cx.account())),
            whole: Body::empty(),
            length,
        }));
        Outcome::Continue
    }

    #[inline(never)]
    pub(crate) fn on_data<C: HttpCodec>(&mut self, data: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        let Some(collected) = self.collected() else { return self.on_buffered_data(data) };
        let is_async = !matches!(collected.endpoint.call, Call::Sync(_));
        if collected.length == Some(data.len() as u64) && !is_async {
            // The end follows at once, and the function does not outlive it.
            collected.whole = data.into();
            return Outcome::Continue;
        }
        match collected.body.add(&data) {
            Ok(()) => Outcome::Continue,
            Err(_) => self.abandon(too_long(), cx),
        }
    }

    #[inline(never)]
    pub(crate) fn on_end<C: HttpCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        if let Some(buffered) = self.take_buffered() {
            return self.on_buffered_end(*buffered, cx);
        }
        let Some(collected) = self.take_collected() else { return Outcome::Continue };
        cx.deadline(None);
        let CollectedRequest { mut request, endpoint, middleware, body, whole, .. } = *collected;
        request.set_body(match body.into_bytes() {
            bytes if bytes.is_empty() => whole,
            bytes => bytes.into(),
        });
        if request.body().collected().len() > LONG_BODY_BYTES {
            return self.take_over(TaskInput::complete(request, endpoint, middleware));
        }
        let is_head = is_head(&request);
        match &endpoint.call {
            Call::Sync(call) => self.call_sync(&endpoint, call, request, &middleware, cx),
            Call::Async(call) if self.may_poll(cx) => self.poll(&endpoint, call, request, middleware, is_head, cx),
            Call::Async(_) | Call::Polled(_) | Call::Interim(_) => {
                self.take_over(TaskInput::complete(request, endpoint, middleware))
            }
        }
    }

    /// Only a task keeps the trailers of a request.
    #[cold]
    pub(crate) fn on_trailers<C: HttpCodec>(&mut self, trailers: Trailers) -> Outcome<C> {
        let Some(buffered) = self.take_buffered() else { return Outcome::Continue };
        let BufferedRequest { request, endpoint, middleware, body, .. } = *buffered;
        let partial = PartialBody { pieces: body.into_pieces(), trailers: Some(trailers.detach()) };
        self.take_over(TaskInput::partial(request.detach(), endpoint, middleware, partial))
    }

    /// A piece of the body of a request that is held.
    #[inline(never)]
    fn on_buffered_data<C: HttpCodec>(&mut self, data: Slice) -> Outcome<C> {
        let Some(buffered) = self.buffered() else { return Outcome::Continue };
        if buffered.push(data) { Outcome::Continue } else { self.hand_on_buffered() }
    }

    /// Calls the function of a request whose body is complete.
    #[inline(never)]
    fn on_buffered_end<C: HttpCodec>(&mut self, buffered: BufferedRequest, cx: &mut Context<'_, C>) -> Outcome<C> {
        let BufferedRequest { mut request, endpoint, middleware, body, .. } = buffered;
        match &endpoint.call {
            Call::Polled(call) if self.may_poll(cx) => {
                return self.poll_at_once(&endpoint, call, (request, body.into_view()), middleware, cx);
            }
            _ => request.set_body(body.into_body()),
        }
        match &endpoint.call {
            Call::Async(call) if self.may_poll(cx) => {
                let is_head = is_head(&request);
                self.poll(&endpoint, call, request.detach(), middleware, is_head, cx)
            }
            _ => self.take_over(TaskInput::complete(request.detach(), endpoint, middleware)),
        }
    }

    /// Gives a request with an incomplete body to a task, with the received part.
    #[inline(never)]
    pub(crate) fn hand_on_buffered<C: HttpCodec>(&mut self) -> Outcome<C> {
        let Some(buffered) = self.take_buffered() else { return Outcome::Continue };
        let BufferedRequest { request, endpoint, middleware, body, .. } = *buffered;
        let partial = PartialBody { pieces: body.into_pieces(), trailers: None };
        self.take_over(TaskInput::partial(request.detach(), endpoint, middleware, partial))
    }

    /// Answers a request whose body is not complete.
    #[cold]
    pub(crate) fn abandon<C: HttpCodec>(&mut self, response: Response, cx: &mut Context<'_, C>) -> Outcome<C> {
        let Some(collected) = self.take_collected() else { return Outcome::Continue };
        cx.deadline(None);
        let CollectedRequest { request, endpoint, middleware, .. } = *collected;
        self.respond_instead(*RouteRefusal::new(response, &endpoint), request, middleware, cx)
    }
}
