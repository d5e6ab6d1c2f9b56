//! `Order`: the requests of one connection that are in progress side by side, as their functions see them.
//!
//! Responses go back in the order of the requests. So the request *in turn* is the oldest one without a complete
//! response, and its response alone is sent. The memory of the others until then is bounded: see
//! [`PipelineSlot::keep`].

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The order of the requests of one connection.
pub(crate) struct Order {
    /// The number of the connection on its loop.
    client: u64,
    /// The number of the request in turn.
    turn: Cell<u32>,
    /// The futures that wait until another request is in turn.
    waiting: RefCell<Vec<Waker>>,
    /// The numbers of the requests whose responses wait in memory, with their bytes; not in order.
    kept: RefCell<VecDeque<(u32, usize)>>,
    /// The shared value of the requests' functions.
    shared: OnceCell<Rc<dyn Any>>,
}

impl Order {
    pub(crate) fn new(client: u64) -> Self {
        Self {
            client,
            turn: Cell::default(),
            waiting: RefCell::default(),
            kept: RefCell::default(),
            shared: OnceCell::new(),
        }
    }

    /// The response to the request in turn is complete: the next one is in turn.
    pub(crate) fn advance(&self) {
        let turn = self.turn.get().wrapping_add(1);
        self.turn.set(turn);
        self.kept.borrow_mut().retain(|(number, _)| *number != turn);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Whether the functions of the requests have something in common, which lasts as long as the connection.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.get().is_some()
    }

    /// The number of the request that is `behind` the one in turn by so many.
    pub(crate) fn number(&self, behind: usize) -> u32 {
        self.turn.get().wrapping_add(behind as u32)
    }
}

/// The place of a request in the order of its connection.
pub struct PipelineSlot {
    pub(crate) order: Rc<Order>,
    /// The number of the request on its connection.
    pub number: u32,
}

impl PipelineSlot {
    /// The number of the client's connection on its loop, which no connection has had for a long time before.
    #[must_use]
    pub fn client(&self) -> u64 {
        self.order.client
    }

    /// Whether the response to this request is the next one to be sent.
    #[must_use]
    pub fn is_in_turn(&self) -> bool {
        self.order.turn.get() == self.number
    }

    /// Whether this request is behind another one.
    #[must_use]
    pub fn is_behind(&self, number: u32) -> bool {
        (self.number.wrapping_sub(number) as i32) > 0
    }

    /// Waits until another request is in turn.
    pub async fn advanced(&self) {
        let turn = self.order.turn.get();
        poll_fn(|cx| {
            if self.order.turn.get() != turn {
                return Poll::Ready(());
            }
            let mut waiting = self.order.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Whether a part of the response of so many bytes may be kept in memory until the request is in turn.
    pub fn keep(&self, bytes: usize) -> bool {
        if self.is_in_turn() {
            return true;
        }
        let mut kept = self.order.kept.borrow_mut();
        let total: usize = kept.iter().map(|(_, bytes)| bytes).sum();
        if total + bytes > KEPT_BYTES_MAX {
            return false;
        }
        kept.push_back((self.number, bytes));
        true
    }

    /// The shared value of these requests' functions; of the first type that is asked for.
    #[must_use]
    pub fn shared<T: Default + 'static>(&self) -> Option<Rc<T>> {
        self.order.shared.get_or_init(|| Rc::<T>::default()).clone().downcast().ok()
    }
}

/// How many bytes of bodies wait in memory until their requests are in turn, on one connection.
const KEPT_BYTES_MAX: usize = 64 * 1024;
