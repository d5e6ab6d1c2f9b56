//! `AppOfLoop`: the one application of a loop, for all sockets of a listener there.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::server::LoopApp;

/// The application of a loop, which its TCP listener and its UDP sockets share.
#[derive(Clone)]
pub(crate) struct AppOfLoop(Arc<MakeApp>);

type MakeApp = dyn Fn() -> LoopApp + Send + Sync;

thread_local! {
    /// The applications of this thread's loop, each with the function that has made it.
    static APPS: RefCell<Vec<(Arc<MakeApp>, Weak<LoopApp>)>> = const { RefCell::new(Vec::new()) };
}

impl AppOfLoop {
    pub(crate) fn new(make: impl Fn() -> LoopApp + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// That of the loop on this thread, made by the first call.
    pub(crate) fn get(&self) -> Rc<LoopApp> {
        let is_same = |other: &Arc<MakeApp>| Arc::as_ptr(other).cast::<()>() == Arc::as_ptr(&self.0).cast();
        let known = APPS.with_borrow_mut(|apps| {
            apps.retain(|(_, app)| app.strong_count() > 0);
            apps.iter().find(|(make, _)| is_same(make)).and_then(|(_, app)| app.upgrade())
        });
        known.unwrap_or_else(|| {
            let app = Rc::new((self.0)());
            APPS.with_borrow_mut(|apps| apps.push((self.0.clone(), Rc::downgrade(&app))));
            app
        })
    }
}
