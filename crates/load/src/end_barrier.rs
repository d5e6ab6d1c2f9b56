//! `EndBarrier`: no thread of a load closes its connections before all threads have stopped sending. A message that one
//! thread publishes reaches the subscribers of the others then.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The barrier at which all threads of a load end.
#[derive(Debug, Default)]
pub(crate) struct EndBarrier {
    /// Threads that may still send.
    sending: Mutex<usize>,
    none_sends: Condvar,
}

impl EndBarrier {
    /// Creates `count` participants that wait for each other. A dropped one has stopped.
    pub(crate) fn participants(count: usize) -> Vec<EndOfThread> {
        let barrier = Arc::new(Self { sending: Mutex::new(count), ..Self::default() });
        (0..count).map(|_| EndOfThread(barrier.clone())).collect()
    }
}

/// One participant of the barrier.
#[derive(Debug)]
pub(crate) struct EndOfThread(Arc<EndBarrier>);

impl EndOfThread {
    /// Blocks until all other participants have stopped as well.
    pub(crate) fn wait(self) {
        let barrier = self.0.clone();
        drop(self);
        let sending = barrier.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = barrier.none_sends.wait_while(sending, |sending| *sending > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for EndOfThread {
    fn drop(&mut self) {
        let mut sending = self.0.sending.lock().unwrap_or_else(PoisonError::into_inner);
        *sending -= 1;
        if *sending == 0 {
            self.0.none_sends.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_thread_goes_on_before_all_have_stopped_and_a_dropped_one_delays_none() {
        let mut participants = EndBarrier::participants(4);
        drop(participants.pop());
        let stopped = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for participant in participants {
                scope.spawn(|| {
                    stopped.fetch_add(1, Ordering::SeqCst);
                    participant.wait();
                    assert_eq!(stopped.load(Ordering::SeqCst), 3);
                });
            }
        });
    }
}
