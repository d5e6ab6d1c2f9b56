//! `Choice`: several functions for one path. A request gets the first whose condition it meets.

use std::fmt;
use std::rc::Rc;

use tidegate_http1::{RequestHead, Status};
use tidegate_sys::Address;

use crate::endpoint::{Call, Endpoint, RequestFunction};
use crate::extract::BodyUse;
use crate::middleware;
use crate::response::Response;
use crate::router::Router;

/// Functions with conditions beyond the path: a field, the query, the network of the client. A request gets the first
/// function whose condition it meets; one that meets none is answered with 404.
///
/// ```
/// use tidegate::http::{Choice, Router};
///
/// let canary = Router::new().fallback(|| "the next version");
/// let rest = Router::new().fallback(|| "the version of today");
/// let choice = Choice::new().when(|head, _| head.header("x-canary").is_some(), canary).otherwise(rest);
/// let router = Router::new().any("/", choice);
/// # drop(router);
/// ```
#[derive(Default)]
#[must_use = "a choice does nothing until a router has it"]
pub struct Choice {
    arms: Vec<Arm>,
}

/// A function with its condition.
pub(crate) struct Arm {
    /// `None` is met by each request.
    condition: Option<Rc<Condition>>,
    pub(crate) endpoint: Rc<Endpoint>,
}

/// Whether a request with this head, from this client, gets a function.
type Condition = dyn Fn(&RequestHead, &Address) -> bool;

/// Marks a [`Choice`] as a function.
#[derive(Debug)]
pub struct WithChoice;

impl Choice {
    /// Without functions: each request is answered with 404.
    pub fn new() -> Self {
        Self::default()
    }

    /// The [fallback](Router::fallback) of `router`, with its middleware, for requests that meet a condition: their head,
    /// and the address of the client. The condition is asked in the dispatch of the connection, and must not block.
    ///
    /// # Panics
    /// If the router has no fallback.
    pub fn when(self, condition: impl Fn(&RequestHead, &Address) -> bool + 'static, router: Router) -> Self {
        self.and(Some(Rc::new(condition)), router)
    }

    /// The [fallback](Router::fallback) of `router`, with its middleware, for each request that met no condition before.
    ///
    /// # Panics
    /// If the router has no fallback.
    pub fn otherwise(self, router: Router) -> Self {
        self.and(None, router)
    }

    fn and(mut self, condition: Option<Rc<Condition>>, router: Router) -> Self {
        let endpoint = router.into_table().into_fallback();
        self.arms.push(Arm { condition, endpoint: endpoint.expect("a router of a choice has a fallback") });
        self
    }
}

impl Arm {
    /// The same condition, and the function within middleware.
    pub(crate) fn around(&self, list: &middleware::MiddlewareList) -> Self {
        let endpoint = Rc::new(middleware::around(self.endpoint.clone(), list.clone()));
        Self { condition: self.condition.clone(), endpoint }
    }
}

impl Endpoint {
    /// The function that a request gets: this one, unless it has arms.
    #[inline]
    pub(crate) fn choose<'e>(self: &'e Rc<Self>, head: &RequestHead, client: impl FnOnce() -> Address) -> &'e Rc<Self> {
        if self.arms.is_empty() { self } else { self.choose_arm(head, &client()) }
    }

    #[inline(never)]
    fn choose_arm<'e>(self: &'e Rc<Self>, head: &RequestHead, client: &Address) -> &'e Rc<Self> {
        let is_met = |arm: &&Arm| arm.condition.as_ref().is_none_or(|condition| condition(head, client));
        self.arms.iter().find(is_met).map_or(self, |arm| &arm.endpoint)
    }
}

impl<S> RequestFunction<S, WithChoice> for Choice {
    fn into_endpoint(self, _: Rc<S>) -> Endpoint {
        let nothing = Call::Sync(Box::new(|_| Response::of_error(Status::NOT_FOUND)));
        // Paths have to be matched as a gateway's, if one of the functions is one.
        let is_gateway = self.arms.iter().any(|arm| arm.endpoint.is_gateway);
        Endpoint { is_gateway, arms: self.arms.into(), ..Endpoint::new(nothing, BodyUse::Collected) }
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choice").field("functions", &self.arms.len()).finish()
    }
}
