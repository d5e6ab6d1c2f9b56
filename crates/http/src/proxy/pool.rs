//! `Pool`: the idle connections of one loop to its upstreams.
//!
//! A connection that waits here is read from: one that its upstream closes, or that receives bytes which answer nothing,
//! leaves the pool at once. One task waits for all of them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use tidegate_engine::task;

use super::connection::Connection;

pub(super) struct Pool {
    /// By the id of the upstream; the one that was used last is at the end.
    idle: RefCell<HashMap<u64, Vec<Box<dyn Connection>>>>,
    /// Of the task that waits for idle connections; `None` before it runs.
    keeper: RefCell<Option<Waker>>,
    has_keeper: Cell<bool>,
    per_upstream_max: usize,
}

impl Pool {
    pub(super) fn new(per_upstream_max: usize) -> Rc<Self> {
        Rc::new(Self {
            idle: RefCell::default(),
            keeper: RefCell::default(),
            has_keeper: Cell::new(false),
            per_upstream_max,
        })
    }

    /// A connection that the upstream has not closed, as far as the loop knows.
    pub(super) fn take(&self, upstream: u64) -> Option<Box<dyn Connection>> {
        // Every round takes one out.
        loop {
            let mut connection = self.idle.borrow_mut().get_mut(&upstream)?.pop()?;
            let is_idle = connection.poll_recv(&mut Context::from_waker(Waker::noop())).is_pending();
            if is_idle && connection.is_reusable() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose exchange is complete, if it takes another request.
    pub(super) fn put(self: &Rc<Self>, upstream: u64, mut connection: Box<dyn Connection>) {
        if self.per_upstream_max == 0 || !connection.is_reusable() {
            return;
        }
        connection.set_deadline_after(None);
        if let Some(waker) = &*self.keeper.borrow()
            && connection.poll_recv(&mut Context::from_waker(waker)).is_ready()
        {
            return;
        }
        self.start_keeper();
        let mut idle = self.idle.borrow_mut();
        let connections = idle.entry(upstream).or_default();
        if connections.len() >= self.per_upstream_max {
            // The one that was idle for longest.
            drop(connections.remove(0));
        }
        connections.push(connection);
    }

    /// Drops the connections to upstreams that are no longer in use.
    pub(super) fn retain(&self, is_in_use: impl Fn(u64) -> bool) {
        self.idle.borrow_mut().retain(|upstream, _| is_in_use(*upstream));
    }

    fn start_keeper(self: &Rc<Self>) {
        if !self.has_keeper.replace(true) {
            let pool = Rc::downgrade(self);
            drop(task::spawn(poll_fn(move |cx| keep(&pool, cx))));
        }
    }
}

/// Drops the connections that are no longer idle, and waits for the others.
fn keep(pool: &Weak<Pool>, cx: &mut Context<'_>) -> Poll<()> {
    let Some(pool) = pool.upgrade() else { return Poll::Ready(()) };
    *pool.keeper.borrow_mut() = Some(cx.waker().clone());
    for connections in pool.idle.borrow_mut().values_mut() {
        connections.retain_mut(|connection| connection.poll_recv(cx).is_pending());
    }
    Poll::Pending
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.wake();
        }
    }
}
