//! `SpanQueue`: finished spans that wait for the exporter. Loops push without waiting: spans beyond the bound are dropped and
//! counted.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate::metrics::{Kind, MetricsText};
use tidegate::task;

use super::spans::FinishedSpan;

/// The queue between the loops and one exporter.
#[derive(Default)]
pub(super) struct SpanQueue {
    state: Mutex<QueueState>,
    ended: Condvar,
}

/// The side of the queue that spans come from. Once the last clone is gone, the exporter sends the rest and ends.
#[derive(Clone)]
pub(super) struct SpanSink(Arc<SinkOwner>);

/// Closes the queue when it is dropped.
struct SinkOwner(Arc<SpanQueue>);

#[derive(Default)]
struct QueueState {
    spans: VecDeque<FinishedSpan>,
    /// Of the exporter, while it waits.
    waker: Option<Waker>,
    /// Spans that the exporter has taken, and not sent.
    in_progress: usize,
    is_closed: bool,
    has_ended: bool,
}

impl SpanSink {
    pub(super) fn new(queue: Arc<SpanQueue>) -> Self {
        Self(Arc::new(SinkOwner(queue)))
    }

    pub(super) fn push(&self, span: FinishedSpan) {
        self.0.0.push(span);
    }
}

impl Drop for SinkOwner {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl SpanQueue {
    /// Adds a span, if there is room.
    fn push(&self, span: FinishedSpan) {
        let mut state = self.lock();
        if state.has_ended || state.spans.len() >= QUEUED_SPANS_MAX {
            drop(state);
            COUNTS.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.spans.push_back(span);
        // The exporter waits for the first one, and then until there is a batch.
        let is_due = state.spans.len() == 1 || state.spans.len() >= BATCH_SPANS_MAX;
        let waker = if is_due { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The exporter ends once the queue is empty.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for spans, and moves them into an empty batch: as many as one may have, or those of `interval`. Returns
    /// whether they are the last ones.
    pub(super) async fn fill(&self, batch: &mut Vec<FinishedSpan>, interval: Duration) -> bool {
        poll_fn(|cx| self.poll_until(cx, |state| !state.spans.is_empty() || state.is_closed)).await;
        let is_whole = |state: &QueueState| state.spans.len() >= BATCH_SPANS_MAX || state.is_closed;
        // Once the time is up, the batch has the spans that are there.
        let _ = task::timeout(interval, poll_fn(|cx| self.poll_until(cx, is_whole))).await;
        let mut state = self.lock();
        let count = state.spans.len().min(BATCH_SPANS_MAX);
        batch.extend(state.spans.drain(..count));
        state.in_progress = count;
        state.is_closed && state.spans.is_empty()
    }

    /// Completes once the queue is closed.
    pub(super) async fn closed(&self) {
        poll_fn(|cx| self.poll_until(cx, |state| state.is_closed)).await;
    }

    /// The batch is over: its spans were exported, or not.
    pub(super) fn finish_batch(&self, is_exported: bool) {
        let spans = std::mem::take(&mut self.lock().in_progress) as u64;
        let count = if is_exported { &COUNTS.exported } else { &COUNTS.failed };
        count.fetch_add(spans, Ordering::Relaxed);
    }

    /// The exporter has ended.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        let dropped = std::mem::take(&mut state.spans);
        drop(state);
        COUNTS.dropped.fetch_add(dropped.len() as u64, Ordering::Relaxed);
        self.ended.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Waits until the exporter has ended. Returns the spans that are left at the deadline.
    pub(super) fn wait_for_end(&self, deadline: Instant) -> usize {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.ended.wait_timeout_while(self.lock(), left, |state| !state.has_ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.has_ended { 0 } else { state.spans.len() + state.in_progress }
    }

    fn poll_until(&self, cx: &mut Context<'_>, is_met: impl Fn(&QueueState) -> bool) -> Poll<()> {
        let mut state = self.lock();
        if is_met(&state) {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts of spans, of all exporters.
#[derive(Debug)]
pub(super) struct SpanCounts {
    exported: AtomicU64,
    /// The queue was full.
    dropped: AtomicU64,
    /// The collector did not take them.
    failed: AtomicU64,
}

impl SpanCounts {
    pub(super) fn write(&self, text: &mut MetricsText) {
        text.family("tidegate_spans_exported", Kind::Counter, "Spans that the collector has taken.");
        text.sample(&[], self.exported.load(Ordering::Relaxed));
        text.family("tidegate_spans_lost", Kind::Counter, "Spans that the collector has not got.");
        text.sample(&[("reason", "queue")], self.dropped.load(Ordering::Relaxed));
        text.sample(&[("reason", "collector")], self.failed.load(Ordering::Relaxed));
    }
}

pub(super) static COUNTS: SpanCounts =
    SpanCounts { exported: AtomicU64::new(0), dropped: AtomicU64::new(0), failed: AtomicU64::new(0) };

/// Finished spans in memory while the collector is slow; each has some 1 KiB, and 20 KiB at most.
const QUEUED_SPANS_MAX: usize = 2048;

/// Spans of one export.
const BATCH_SPANS_MAX: usize = 512;
