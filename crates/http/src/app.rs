//! `App`: shared state of one loop's connections; and `Reload`, which makes its routes anew.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_engine::activity::Activity;
use tidegate_metrics::HttpRecorder;

use crate::counting::RequestCounter;
use crate::endpoint::InterimQueue;
use crate::limits::Limits;
use crate::serving::sessions::Sessions;
use crate::table::Table;

/// Shared state of one loop's connections.
pub(crate) struct App {
    pub(crate) limits: Limits,
    /// Whether requests go on when the client ends its side, unless a router decides.
    half_close: bool,
    table: RefCell<Rc<Table>>,
    reloading: Option<ReloadSource>,
    /// Without it, HTTP/2 connections are refused.
    pub(crate) sessions: Option<Sessions>,
    /// How many connections tasks of this crate serve: so many handles of the loop are out of reach of the application.
    pub(crate) served: Rc<Cell<usize>>,
    /// The interim responses of the future that is polled.
    pub(crate) interims: Rc<InterimQueue>,
    /// The code that the loop executes now.
    pub(crate) activity: Activity,
    /// Counts requests, if they are counted.
    pub(crate) counting: Option<RequestCounter>,
}

struct ReloadSource {
    make: Box<dyn Fn() -> Table>,
    reload: Reload,
    /// The generation of the table.
    generation: Cell<u64>,
}

/// Makes the routers of a running server anew: from the next request on, each loop calls the function again that has made
/// its router. Requests in progress keep the functions that they have.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Duration;
///
/// use tidegate::http::{Reload, Router, Server};
///
/// let (reload, version) = (Reload::new(), Arc::new(AtomicU32::new(1)));
/// let router = {
///     let version = version.clone();
///     move || {
///         let version = version.load(Ordering::Relaxed);
///         Router::new().get("/", move || version.to_string())
///     }
/// };
/// let server = Server::bind("127.0.0.1:0")?.reload(&reload).start(router)?;
/// version.store(2, Ordering::Relaxed);
/// reload.reload();
/// # server.drain(Duration::ZERO);
/// # Ok::<(), tidegate::StartError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Reload(Arc<AtomicU64>);

impl Reload {
    /// A handle for servers that are started with it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has the loops make their routers anew. If that panics on a loop, the loop logs it and keeps the router that it
    /// has; so check a configuration before.
    pub fn reload(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn generation(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl App {
    pub(crate) fn new(limits: Limits, table: Table) -> Self {
        let activity = Activity::of_this_loop();
        table.label(&activity);
        let table = RefCell::new(Rc::new(table));
        let (served, interims) = <(Rc<_>, Rc<_>)>::default();
        Self {
            limits,
            half_close: false,
            table,
            reloading: None,
            sessions: None,
            served,
            interims,
            activity,
            counting: None,
        }
    }

    /// Whether requests go on when the client ends its side, unless a router decides.
    pub(crate) fn half_close(mut self, keeps: bool) -> Self {
        self.table.borrow().settle_half_close(Some(keeps));
        self.half_close = keeps;
        self
    }

    /// Counts requests from now on.
    pub(crate) fn counting(mut self, recorder: HttpRecorder) -> Self {
        self.table.borrow().count(&recorder);
        self.counting = Some(RequestCounter::new(recorder));
        self
    }

    pub(crate) fn reloading(limits: Limits, make: impl Fn() -> Table + 'static, reload: Reload) -> Self {
        let generation = Cell::new(reload.generation());
        let table = make();
        Self { reloading: Some(ReloadSource { make: Box::new(make), reload, generation }), ..Self::new(limits, table) }
    }

    /// The routes for the next request.
    #[inline]
    pub(crate) fn table(&self) -> Rc<Table> {
        if let Some(reloading) = &self.reloading
            && reloading.reload.generation() != reloading.generation.get()
        {
            self.reload(reloading);
        }
        self.table.borrow().clone()
    }

    #[cold]
    fn reload(&self, reloading: &ReloadSource) {
        reloading.generation.set(reloading.reload.generation());
        match catch_unwind(AssertUnwindSafe(|| (reloading.make)())) {
            Ok(table) => {
                table.label(&self.activity);
                table.settle_half_close(Some(self.half_close));
                if let Some(counting) = &self.counting {
                    table.count(&counting.recorder);
                }
                *self.table.borrow_mut() = Rc::new(table);
            }
            Err(_) => tracing::error!("the router could not be made anew; the loop keeps the one that it has"),
        }
    }
}
