//! `AppOfLoop`: the one application of a loop, for all sockets of a listener there.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tidegate_http2 as http2;

use crate::app::App;
use crate::serving::sessions::Sessions;

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

/// The application of a loop, as its listener has it. The service of streams has it too, so a listener that closes lets
/// go of both.
pub(crate) struct LoopApp(Rc<App>);

impl LoopApp {
    pub(crate) fn app(&self) -> &Rc<App> {
        &self.0
    }

    pub(crate) fn new(mut app: App, config: Arc<http2::Config>) -> Self {
        app.sessions = Some(Sessions::new(config));
        Self(Rc::new(app))
    }
}

impl Drop for LoopApp {
    fn drop(&mut self) {
        if let Some(sessions) = &self.0.sessions {
            sessions.close();
        }
    }
}
