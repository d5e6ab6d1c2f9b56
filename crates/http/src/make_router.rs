//! `MakeRouter`: the closure that makes the router of each loop.

use crate::router::Router;

/// A closure that makes a router: each loop calls it once on its own thread, so it is `Send`, `Sync` and `'static`. The
/// router need not be any of that: values that the functions of a loop share, such as an `Rc`, are made inside the closure.
///
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// use tidegate::http::{MakeRouter, Router};
///
/// fn counter() -> impl MakeRouter<()> {
///     || {
///         let visits = Rc::new(Cell::new(0_u64)); // of this loop
///         Router::new().get("/", move || visits.replace(visits.get() + 1).to_string())
///     }
/// }
/// # drop(counter().make_router());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make a router for each loop",
    label = "each loop calls it on its own thread; it has to be `Fn() -> Router<S>`, `Send`, `Sync` and `'static`",
    note = "an `Rc`, a `RefCell` or a `Cell` stays on one thread: make it inside the closure, not before it",
    note = "loops share an `Arc`, a `Mutex` or an atomic number, which the closure may capture with `move`"
)]
pub trait MakeRouter<S>: Send + Sync + 'static {
    /// The router of one loop.
    fn make_router(&self) -> Router<S>;
}

#[diagnostic::do_not_recommend]
impl<S, F: Fn() -> Router<S> + Send + Sync + 'static> MakeRouter<S> for F {
    fn make_router(&self) -> Router<S> {
        self()
    }
}
