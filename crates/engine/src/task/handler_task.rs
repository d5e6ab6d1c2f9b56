//! `HandlerTask`: a future that a handler waits for, while it stays the application of its connection.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tidegate_sys::Token;

use super::{ServingGuard, Tasks};
use crate::local::Local;
use crate::slot_entry::SlotEvent;

/// A future that a handler waits for, made by [`Context::spawn`](crate::Context::spawn). When it is complete, the handler
/// gets [`Event::TaskFinished`](crate::Event::TaskFinished). Dropping this drops the future, as soon as no dispatch is under
/// way.
#[must_use = "dropping it drops its future"]
pub struct HandlerTask<T> {
    tasks: Rc<Tasks>,
    token: Token,
    output: Rc<Cell<OutputState<T>>>,
}

enum OutputState<T> {
    Running,
    /// Boxed: a task may wait for long, and has no output meanwhile.
    Finished(Box<T>),
    Taken,
}

impl<T: 'static> HandlerTask<T> {
    pub(crate) fn new(tasks: &Rc<Tasks>, connection: Token, future: impl Future<Output = T> + 'static) -> Self {
        let output = Rc::new(Cell::new(OutputState::Running));
        let serving = ServingGuard::of(tasks);
        let token = tasks.spawn(Box::pin(HandlerFuture { future, connection, output: output.clone(), serving }));
        Self { tasks: tasks.clone(), token, output }
    }
}

impl<T> HandlerTask<T> {
    /// Whether the future is complete, or has panicked. A handler that waits for several futures finds by this which one
    /// is meant by an event.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let state = self.output.replace(OutputState::Taken);
        let is_running = matches!(state, OutputState::Running);
        self.output.set(state);
        !is_running
    }

    /// The output of the future, once, if it is complete. There is none if the future has panicked.
    #[must_use]
    pub fn take_output(&mut self) -> Option<T> {
        match self.output.replace(OutputState::Taken) {
            OutputState::Finished(output) => Some(*output),
            state @ (OutputState::Running | OutputState::Taken) => {
                self.output.set(state);
                None
            }
        }
    }
}

impl<T> HandlerTask<T> {
    /// Drops the future before this returns. A task may call this, and a handler may not: within a dispatch the future would
    /// find the handles that it has to be busy.
    #[doc(hidden)]
    pub fn cancel(self) {
        if matches!(self.output.replace(OutputState::Taken), OutputState::Running) {
            self.tasks.cancel(self.token);
        }
    }
}

impl<T> Drop for HandlerTask<T> {
    fn drop(&mut self) {
        if matches!(self.output.replace(OutputState::Taken), OutputState::Running) {
            let token = self.token;
            // Within a dispatch the future would find the handles that it has to be busy.
            self.tasks.defer(move || {
                if let Some(local) = Local::current() {
                    local.tasks.cancel(token);
                }
            });
        }
    }
}

impl<T> fmt::Debug for HandlerTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerTask").field("token", &self.token).finish_non_exhaustive()
    }
}

pin_project! {
    /// Runs a future, and notifies the connection when it is complete.
    struct HandlerFuture<F: Future> {
        #[pin]
        future: F,
        connection: Token,
        output: Rc<Cell<OutputState<F::Output>>>,
        serving: ServingGuard,
    }
}

impl<F: Future> Future for HandlerFuture<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let polled = catch_unwind(AssertUnwindSafe(|| this.future.poll(cx)));
        if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        let is_awaited = matches!(this.output.replace(OutputState::Taken), OutputState::Running);
        let panic = match polled {
            Ok(Poll::Ready(output)) if is_awaited => {
                this.output.set(OutputState::Finished(Box::new(output)));
                None
            }
            Ok(_) => None,
            Err(panic) => Some(panic),
        };
        if is_awaited && let Some(local) = Local::current() {
            local.core.borrow_mut().dispatch(*this.connection, SlotEvent::TaskFinished);
        }
        // The loop logs and counts it.
        panic.map_or(Poll::Ready(()), |panic| resume_unwind(panic))
    }
}
