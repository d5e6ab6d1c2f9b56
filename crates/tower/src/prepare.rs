//! Axum routers before they serve.
//!
//! A router keeps the layers of its routes beside their functions until it gets its state, and without one it makes the
//! layered services anew for each request. A layer with a state of its own, such as tower's `ConcurrencyLimit`,
//! `RateLimit` or `Buffer`, would limit nothing. `axum::serve` gives the state once for each connection; here it is
//! given once, and the clones for the loops share the state that layers share between clones.

use std::any::Any;
use std::convert::Infallible;
use std::mem;

use ::axum::Router;
use ::axum::routing::MethodRouter;

/// Makes the layers of a service, if it is a router that lacks its state.
pub(crate) fn make_layers(service: &mut dyn Any) {
    if let Some(router) = service.downcast_mut::<Router>() {
        *router = mem::take(router).with_state(());
    } else if let Some(router) = service.downcast_mut::<MethodRouter<(), Infallible>>() {
        *router = mem::take(router).with_state(());
    }
}
