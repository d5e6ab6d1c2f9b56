//! `StartBarrier`: a barrier. All threads of a load begin at the same moment: when each has its event loop and its idle
//! connections. The measured time starts then.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

use super::cpu_time::cpu_time;
use super::results::CpuTime;

/// The barrier at which all threads of a load begin.
#[derive(Debug, Default)]
pub(crate) struct StartBarrier(Mutex<BarrierState>);

#[derive(Debug, Default)]
struct BarrierState {
    /// Runners that are not ready.
    preparing: usize,
    begun: Option<LoadStart>,
    waiting: Vec<Waker>,
}

/// When the load began, and the CPU time of the process until then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadStart {
    pub(crate) at: Instant,
    pub(crate) cpu: CpuTime,
}

impl StartBarrier {
    /// Creates `count` runners that wait for each other. A dropped runner counts as ready.
    pub(crate) fn runners(self: &Arc<Self>, count: usize) -> Vec<Runner> {
        self.state().preparing = count;
        (0..count).map(|_| Runner(self.clone())).collect()
    }

    /// When the load began, or `None` before that.
    pub(crate) fn begun(&self) -> Option<LoadStart> {
        self.state().begun
    }

    async fn shot(&self) -> Instant {
        poll_fn(|cx| {
            let mut state = self.state();
            if let Some(begun) = state.begun {
                return Poll::Ready(begun.at);
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, BarrierState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One participant of the barrier.
#[derive(Debug)]
pub(crate) struct Runner(Arc<StartBarrier>);

impl Runner {
    /// Waits until all other runners are ready, and returns the time of the start.
    pub(crate) async fn ready(self) -> Instant {
        let start = self.0.clone();
        drop(self);
        start.shot().await
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.preparing -= 1;
        if state.preparing == 0 {
            let cpu = cpu_time();
            state.begun = Some(LoadStart { at: Instant::now(), cpu });
            state.waiting.drain(..).for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Context;

    use super::*;

    #[test]
    fn all_runners_start_at_one_instant_and_a_dropped_one_delays_none() {
        let start = Arc::new(StartBarrier::default());
        let mut runners = start.runners(3);
        let gone = runners.pop();
        let mut ready: Vec<_> = runners.into_iter().map(|runner| Box::pin(runner.ready())).collect();
        let mut cx = Context::from_waker(Waker::noop());
        for runner in &mut ready {
            assert!(runner.as_mut().poll(&mut cx).is_pending());
        }
        assert!(start.begun().is_none());
        drop(gone);
        let begun = start.begun().expect("all are ready").at;
        for runner in &mut ready {
            assert_eq!(runner.as_mut().poll(&mut cx), Poll::Ready(begun));
        }
    }
}
