//! `FuturePlace`: memory for the future of a function, which one call after the other uses.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::endpoint::BoxResponseFuture;
use crate::response::Response;

/// Memory for the futures of one function. Most futures are complete when they are polled first: then they need none of
/// their own.
pub(crate) struct FuturePlace<F>(Cell<Option<Pin<Box<Option<F>>>>>);

impl<F> Default for FuturePlace<F> {
    fn default() -> Self {
        Self(Cell::new(None))
    }
}

impl<F: Future<Output = Response> + 'static> FuturePlace<F> {
    /// Polls a future once. One that is not complete takes the memory with it.
    #[inline]
    pub(crate) fn poll(&self, future: F, cx: &mut Context<'_>) -> Result<Response, BoxResponseFuture> {
        // A function that is called while it is polled finds no memory here.
        let mut place = self.0.take().unwrap_or_else(|| Box::pin(None));
        place.as_mut().set(Some(future));
        match poll_in(&mut place, cx) {
            Poll::Ready(response) => {
                place.as_mut().set(None);
                self.0.set(Some(place));
                Ok(response)
            }
            Poll::Pending => Err(Box::pin(Waiting(place))),
        }
    }
}

/// A future that is not complete.
struct Waiting<F>(Pin<Box<Option<F>>>);

impl<F: Future<Output = Response>> Future for Waiting<F> {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        poll_in(&mut self.0, cx)
    }
}

#[inline]
fn poll_in<F: Future<Output = Response>>(place: &mut Pin<Box<Option<F>>>, cx: &mut Context<'_>) -> Poll<Response> {
    place.as_mut().as_pin_mut().expect("a future is in its place until it is complete").poll(cx)
}

#[cfg(test)]
mod tests {
    use std::future::{poll_fn, ready};
    use std::rc::Rc;
    use std::task::Waker;

    use super::*;

    fn no_waker() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn the_memory_of_a_complete_future_serves_the_next_one() {
        let place = FuturePlace::default();
        let address = |place: &FuturePlace<_>| {
            let kept = place.0.take();
            let address = kept.as_ref().map(|kept| std::ptr::from_ref(&**kept).addr());
            place.0.set(kept);
            address
        };
        assert!(place.poll(ready(Response::new()), &mut no_waker()).is_ok());
        let first = address(&place);
        assert!(first.is_some() && place.poll(ready(Response::new()), &mut no_waker()).is_ok());
        assert_eq!(address(&place), first);
    }

    #[test]
    fn a_future_that_waits_keeps_its_memory_and_what_it_owns_is_dropped_with_it() {
        let (place, owned) = (FuturePlace::default(), Rc::new(()));
        let waits = |polls: u32| {
            let (mut left, owned) = (polls, owned.clone());
            poll_fn(move |_| {
                let _ = &owned;
                left -= 1;
                if left == 0 { Poll::Ready(Response::new()) } else { Poll::Pending }
            })
        };
        let [Err(mut first), Err(second)] = [2, 9].map(|polls| place.poll(waits(polls), &mut no_waker())) else {
            panic!("they wait");
        };
        assert!(first.as_mut().poll(&mut no_waker()).is_ready());
        drop((first, second));
        assert!(place.poll(waits(1), &mut no_waker()).is_ok());
        assert_eq!(Rc::strong_count(&owned), 1);
    }
}
