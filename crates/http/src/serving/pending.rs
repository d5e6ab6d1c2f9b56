//! `PendingResponse`: a request whose function has not responded yet, and the task that polls the function.

use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_engine::ConnectionCharge;
use tidegate_engine::activity::Activity;
use tidegate_engine::task::HandlerTask;
use tidegate_http1::Interim;

use crate::endpoint::{BoxResponseFuture, InterimQueue};
use crate::middleware::MiddlewareState;
use crate::request::Request;
use crate::response::Response;
use crate::serving::refusals::panicked;
use crate::serving::stall_label::StallLabel;

/// A request whose function has not responded yet.
pub(crate) struct PendingResponse {
    pub(crate) task: HandlerTask<TaskOutput>,
    pub(crate) middleware: MiddlewareState,
    pub(crate) is_head: bool,
    /// Counts the body of the request, which the function may keep.
    pub(crate) charge: Option<Box<ConnectionCharge>>,
    /// How long the function may take.
    pub(crate) timeout: Duration,
}

/// Output of a function's task.
pub(crate) enum TaskOutput {
    Response(Response),
    /// Interim responses, which go first; the function goes on when they are sent.
    Interims(Box<(Vec<Interim>, CaughtResponse)>),
}

/// Runs a function until it responds, or has sent interim responses.
pub(crate) struct ResponseFuture {
    /// `None` once it is complete.
    caught: Option<CaughtResponse>,
    interims: Rc<InterimQueue>,
}

impl ResponseFuture {
    pub(crate) fn new(caught: CaughtResponse, interims: Rc<InterimQueue>) -> Self {
        Self { caught: Some(caught), interims }
    }
}

impl Future for ResponseFuture {
    type Output = TaskOutput;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TaskOutput> {
        let this = &mut *self;
        let Some(caught) = &mut this.caught else { return Poll::Pending };
        let polled = Pin::new(caught).poll(cx);
        let interims = this.interims.take();
        match (polled, this.caught.take()) {
            (Poll::Ready(response), Some(caught)) if !interims.is_empty() => {
                let caught = CaughtResponse { responding: Box::pin(ready(response)), ..caught };
                Poll::Ready(TaskOutput::Interims(Box::new((interims, caught))))
            }
            (Poll::Ready(response), _) => Poll::Ready(TaskOutput::Response(response)),
            (Poll::Pending, Some(caught)) if !interims.is_empty() => {
                Poll::Ready(TaskOutput::Interims(Box::new((interims, caught))))
            }
            (Poll::Pending, caught) => {
                this.caught = caught;
                Poll::Pending
            }
        }
    }
}

/// The future of a function. If it panics, the response is a 500.
pub(crate) struct CaughtResponse {
    pub(crate) responding: BoxResponseFuture,
    pub(crate) label: StallLabel,
    pub(crate) activity: Activity,
}

impl Future for CaughtResponse {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let Self { responding, label, activity } = &mut *self;
        label.during(activity, || {
            catch_unwind(AssertUnwindSafe(|| responding.as_mut().poll(cx))).unwrap_or_else(|_| Poll::Ready(panicked()))
        })
    }
}

/// Calls a function that is not async. If it panics, the response is a 500.
#[inline]
pub(crate) fn call_caught(call: &dyn Fn(Request) -> Response, request: Request) -> Response {
    catch_unwind(AssertUnwindSafe(|| call(request))).unwrap_or_else(|_| panicked())
}
