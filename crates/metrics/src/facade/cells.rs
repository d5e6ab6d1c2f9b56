//! The numbers of a series, which any thread changes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use metrics::{CounterFn, GaugeFn, HistogramFn};

/// A number that only grows. It wraps around at its end.
#[derive(Debug, Default)]
pub(super) struct CounterCell(AtomicU64);

impl CounterCell {
    pub(super) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl CounterFn for CounterCell {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }
}

/// A number that goes up and down, as the bits of an `f64`.
#[derive(Debug, Default)]
pub(super) struct GaugeCell(AtomicU64);

impl GaugeCell {
    pub(super) fn value(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    fn change(&self, by: f64) {
        let changed = |bits| Some((f64::from_bits(bits) + by).to_bits());
        // The function always has a value, so the update always succeeds.
        let _ = self.0.fetch_update(Relaxed, Relaxed, changed);
    }
}

impl GaugeFn for GaugeCell {
    fn increment(&self, value: f64) {
        self.change(value);
    }

    fn decrement(&self, value: f64) {
        self.change(-value);
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }
}

/// Numbers in buckets.
#[derive(Debug)]
pub(super) struct HistogramCell {
    /// Inclusive upper bounds, ascending. The last bucket has none.
    bounds: Arc<[f64]>,
    counts: Box<[AtomicU64]>,
    sum: GaugeCell,
}

impl HistogramCell {
    pub(super) fn new(bounds: &Arc<[f64]>) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds: bounds.clone(), counts, sum: GaugeCell::default() }
    }

    /// The bounds, the last one `None`.
    pub(super) fn bounds(&self) -> impl Iterator<Item = Option<f64>> {
        self.bounds.iter().copied().map(Some).chain([None])
    }

    /// The numbers of each bucket, and the sum of all values.
    pub(super) fn snapshot(&self) -> (Vec<u64>, f64) {
        (self.counts.iter().map(|count| count.load(Relaxed)).collect(), self.sum.value())
    }
}

impl HistogramFn for HistogramCell {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        // A NaN has no bucket, and would make the sum a NaN for ever.
        if value.is_nan() {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(count as u64, Relaxed);
        self.sum.change(value * count as f64);
    }
}

/// The bounds of buckets without others: from ten microseconds to a thousand seconds, or of whatever is counted.
pub const FACADE_BUCKETS: [f64; 25] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0,
];
