//! `HttpHandler`: the state of a connection that no task serves.

use std::rc::Rc;

use tidegate_sys::Address;

use crate::app::App;
use crate::middleware::MiddlewareState;
use crate::request::AnyState;
use crate::serving::buffered::{BufferedRequest, CollectedRequest};
use crate::serving::pending::PendingResponse;
use crate::serving::pipeline::RequestPipeline;
use crate::table::MakeState;

/// The application of a connection while nothing of it needs a task; see
/// [`Config::connections`](crate::Config::connections).
pub struct HttpHandler {
    pub(crate) app: Rc<App>,
    pub(crate) rare: Option<Box<RareState>>,
}

/// Optional state, boxed to keep most connections small. Its large parts are boxed as well, since a connection that waits
/// for a function has neither.
#[derive(Default)]
pub(crate) struct RareState {
    pub(crate) collected: Option<Box<CollectedRequest>>,
    pub(crate) buffered: Option<Box<BufferedRequest>>,
    pub(crate) pending: Option<PendingResponse>,
    /// The requests behind the pending one.
    pub(crate) pipeline: Option<Box<RequestPipeline>>,
    state: Option<AnyState>,
}

impl RareState {
    fn is_empty(&self) -> bool {
        let Self { collected, buffered, pending, pipeline, state } = self;
        collected.is_none() && buffered.is_none() && pending.is_none() && pipeline.is_none() && state.is_none()
    }

    /// The state that the router makes for each connection, and the pipelined requests, for a task.
    pub(crate) fn for_task(&mut self) -> (Option<AnyState>, Option<Box<RequestPipeline>>) {
        (self.state.clone(), self.pipeline.take())
    }
}

impl HttpHandler {
    pub(crate) fn new(app: Rc<App>) -> Self {
        Self { app, rare: None }
    }

    /// The handler of a connection that has served requests, and perhaps has others in progress.
    pub(crate) fn with_state(app: Rc<App>, state: Option<AnyState>, pipeline: Option<Box<RequestPipeline>>) -> Self {
        let rare = RareState { state, pipeline, ..RareState::default() };
        Self { app, rare: if rare.is_empty() { None } else { Some(Box::new(rare)) } }
    }

    pub(crate) fn collected(&mut self) -> Option<&mut CollectedRequest> {
        self.rare.as_mut()?.collected.as_deref_mut()
    }

    pub(crate) fn buffered(&mut self) -> Option<&mut BufferedRequest> {
        self.rare.as_mut()?.buffered.as_deref_mut()
    }

    pub(crate) fn take_collected(&mut self) -> Option<Box<CollectedRequest>> {
        self.take_of_rare(|rare| rare.collected.take())
    }

    pub(crate) fn take_buffered(&mut self) -> Option<Box<BufferedRequest>> {
        self.take_of_rare(|rare| rare.buffered.take())
    }

    pub(crate) fn take_pending(&mut self) -> Option<PendingResponse> {
        self.take_of_rare(|rare| rare.pending.take())
    }

    /// The middleware of the request whose body is being received.
    #[cold]
    pub(crate) fn inbound_middleware(&mut self) -> Option<&mut MiddlewareState> {
        let rare = self.rare.as_mut()?;
        match (&mut rare.collected, &mut rare.buffered) {
            (Some(collected), _) => Some(&mut collected.middleware),
            (None, Some(buffered)) => Some(&mut buffered.middleware),
            (None, None) => None,
        }
    }

    /// Takes a value out of the rare state.
    pub(crate) fn take_of_rare<T>(&mut self, take: impl FnOnce(&mut RareState) -> Option<T>) -> Option<T> {
        let rare = self.rare.as_mut()?;
        let taken = take(rare);
        if rare.is_empty() {
            self.rare = None;
        }
        taken
    }

    /// The state of the connection, which the first request makes.
    #[inline(never)]
    pub(crate) fn state(&mut self, make: &MakeState, client: &Address) -> AnyState {
        self.rare.get_or_insert_default().state.get_or_insert_with(|| make(client)).clone()
    }

    /// Whether the response to a request is pending, so that the next request is behind it.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.pending.is_some())
    }

    #[inline]
    pub(crate) fn has_pipeline(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.pipeline.is_some())
    }
}

impl std::fmt::Debug for HttpHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpHandler").field("has_rare_state", &self.rare.is_some()).finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<HttpHandler>() <= 16);
