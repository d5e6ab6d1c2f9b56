//! `FuturePlace`: memory for the future of a function, which one call after the other uses.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::endpoint::BoxResponseFuture;
use crate::response::Response;

/// Memory for the futures of one function. Most futures are complete when they are polled first: then they need none of
/// their own.
pub(crate) struct FuturePlace<F>(Cell<Option<Pin<Box<Place<F>>>>>);

pin_project! {
    /// A future in its memory, until it is complete.
    struct Place<F> {
        #[pin]
        future: Option<F>,
    }
}

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
        let mut place = self.0.take().unwrap_or_else(|| Box::pin(Place { future: None }));
        place.as_mut().project().future.set(Some(future));
        match place.as_mut().poll(cx) {
            Poll::Ready(response) => {
                place.as_mut().project().future.set(None);
                self.0.set(Some(place));
                Ok(response)
            }
            // It takes the memory with it.
            Poll::Pending => Err(place),
        }
    }
}

impl<F: Future<Output = Response>> Future for Place<F> {
    type Output = Response;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        self.project().future.as_pin_mut().expect("a future is in its place until it is complete").poll(cx)
    }
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
