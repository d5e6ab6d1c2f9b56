//! `CopyUpstreams`: the way of a request's copy, to the upstreams of a mirror.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use tidegate_http::{Request, gateway};

use super::forward::{LoopUpstreams, RequestContext};
use super::mirror::{CopySender, Mirror};
use super::options::Options;
use super::request_head::ForwardPlan;
use super::upload::Upload;

/// The upstreams that get copies of requests.
pub(super) struct CopyUpstreams {
    upstreams: Rc<LoopUpstreams>,
    options: Rc<Options>,
}

impl CopyUpstreams {
    /// Those of a mirror, for the copies of requests with some settings.
    pub(super) fn new(mirror: &Mirror, options: &Options) -> Self {
        let upstreams = LoopUpstreams::of_loop(&mirror.settings().upstreams.0);
        Self { upstreams, options: Rc::new(options.of_copies()) }
    }

    /// Sends a copy of a request, and drops the response. Nothing of it is an error of a client.
    async fn send(&self, request: Request, body: Vec<u8>) {
        let Self { upstreams, options } = self;
        let interims = gateway::no_interims();
        let Ok(mut plan) = ForwardPlan::of(&request, options) else { return };
        plan.has_body &= !(body.is_empty() && plan.may_be_without_body(request.head()));
        let Some(mut admission) = upstreams.cancellations.admit(None).await else { return };
        let mut upload =
            if plan.has_body { Upload::new(body.into(), options.clone(), None) } else { Upload::nothing() };
        upstreams.shared.budget.earn();
        let context = RequestContext {
            preference: upstreams.preference(&request, options),
            note: None,
            request: &request,
            plan: &plan,
            options,
            interims: &interims,
        };
        let mut answer = None;
        if upstreams.try_upstreams(&context, &mut upload, &mut admission, &mut answer).await.is_ok()
            && let Some(answer) = answer
        {
            answer.discard(upload, admission, &upstreams.pool, options).await;
        }
    }
}

impl CopySender for CopyUpstreams {
    fn send_copy(&self, request: Request, body: Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(self.send(request, body))
    }
}
