//! `FacadeRecorder`: metrics that an application and its crates record by the crate `metrics` (`counter!`, `gauge!`,
//! `histogram!`), as text beside our own metrics.
//!
//! **Any thread records**, so each number is an atomic that all threads share. A macro looks its metric up by the key,
//! under a lock that readers share; code on a data path keeps the handle that the macro returns.
//!
//! **The memory is bounded.** Beyond [`FACADE_SERIES_MAX`] series a new one is counted in a series of its metric whose label
//! values are all `other`; beyond as many of those it is not counted, which
//! `tidegate_application_series_refused_total` reports. Names and values of labels are cut at [`TEXT_BYTES_MAX`] bytes,
//! and a series has at most [`LABELS_MAX`] labels.
//!
//! Read next: `cells.rs`, the numbers; `names.rs`, which names are allowed.

mod cells;
mod names;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SetRecorderError, SharedString, Unit};

use crate::text::{Kind, MetricsText};
pub use cells::FACADE_BUCKETS;
use cells::{CounterCell, GaugeCell, HistogramCell};
pub use names::{LABELS_MAX, TEXT_BYTES_MAX};
use names::{Labels, labels_of, name_of, others};

/// Metrics recorded by the crate `metrics`. A clone shares them.
///
/// Names and labels become valid Prometheus names: other characters become `_`, and names that begin with `tidegate_`
/// or `process_`, which are ours, get `application_` in front. The suffix `_total` goes: the sample of a counter has it
/// anyway. A name has one kind: records under it of another kind are not counted.
///
/// ```
/// use tidegate::metrics::{FacadeRecorder, Format, MetricsText};
///
/// let recorder = FacadeRecorder::new();
/// // `recorder.install()?` for the whole process.
/// metrics::with_local_recorder(&recorder, || {
///     metrics::counter!("tides", "harbour" => "Brest").increment(2);
/// });
///
/// let mut text = MetricsText::new(Format::Prometheus);
/// recorder.write(&mut text);
/// assert!(text.finish().contains("tides_total{harbour=\"Brest\"} 2\n"));
/// ```
#[derive(Clone)]
pub struct FacadeRecorder(Arc<Registry>);

struct Registry {
    series_max: usize,
    buckets: Arc<[f64]>,
    /// The cells of keys that are counted apart, by kind.
    known: [RwLock<HashMap<Key, Cells>>; 3],
    families: Mutex<Families>,
    refused: AtomicU64,
}

#[derive(Default)]
struct Families {
    by_name: BTreeMap<String, Family>,
    help: HashMap<String, String>,
    series: usize,
    /// Those whose values are all `other`.
    series_of_others: usize,
}

struct Family {
    kind: Kind,
    series: BTreeMap<Labels, Cells>,
}

/// The numbers of one series.
#[derive(Clone)]
enum Cells {
    Counter(Arc<CounterCell>),
    Gauge(Arc<GaugeCell>),
    Histogram(Arc<HistogramCell>),
}

impl Default for FacadeRecorder {
    fn default() -> Self {
        Self::new()
    }
}

impl FacadeRecorder {
    /// Without metrics, for at most [`FACADE_SERIES_MAX`] series.
    #[must_use]
    pub fn new() -> Self {
        Self::with(FACADE_SERIES_MAX, &FACADE_BUCKETS)
    }

    /// Without metrics, for at most `series_max` series, and as many whose label values are all `other`. Each histogram
    /// has buckets with these inclusive upper bounds, sorted here; numbers that are not finite are left out.
    #[must_use]
    pub fn with(series_max: usize, buckets: &[f64]) -> Self {
        let mut buckets: Vec<_> = buckets.iter().copied().filter(|bound| bound.is_finite()).collect();
        buckets.sort_by(f64::total_cmp);
        buckets.dedup();
        Self(Arc::new(Registry {
            series_max,
            buckets: buckets.into(),
            known: Default::default(),
            families: Mutex::default(),
            refused: AtomicU64::new(0),
        }))
    }

    /// Makes it the recorder of the process: all that is recorded from now on comes here.
    ///
    /// # Errors
    /// If the process has a recorder.
    pub fn install(&self) -> Result<(), SetRecorderError<Self>> {
        metrics::set_global_recorder(self.clone())
    }

    /// Writes all metrics, in the order of their names.
    pub fn write(&self, text: &mut MetricsText) {
        let families = self.0.families();
        for (name, family) in &families.by_name {
            let help = families.help.get(name).map_or("Recorded by the application.", String::as_str);
            text.family(name, family.kind, help);
            for (labels, cells) in &family.series {
                let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                match cells {
                    Cells::Counter(counter) => text.sample(&labels, counter.value()),
                    Cells::Gauge(gauge) => text.number(&labels, gauge.value()),
                    Cells::Histogram(histogram) => {
                        let (counts, sum) = histogram.snapshot();
                        text.numbers(&labels, histogram.bounds().zip(counts), sum);
                    }
                }
            }
        }
        drop(families);
        let help = "Metrics of the application that were not counted: too many series, or a name of two kinds.";
        text.family("tidegate_application_series_refused", Kind::Counter, help);
        text.sample(&[], self.0.refused.load(Relaxed));
    }
}

impl Registry {
    fn families(&self) -> MutexGuard<'_, Families> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cells of a key; `None` if there is no room for them, or the name has another kind.
    fn cells(&self, kind: Kind, key: &Key) -> Option<Cells> {
        let known = &self.known[kind as usize];
        if let Some(cells) = known.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Some(cells.clone());
        }
        let Some((cells, is_apart)) = self.register(kind, key) else {
            self.refused.fetch_add(1, Relaxed);
            return None;
        };
        let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
        // Several keys may become one series, so the keys have a bound of their own. A key keeps its texts, so one with
        // long texts is looked up among the series each time.
        if is_apart && known.len() < self.series_max && names::is_short(key) {
            known.insert(key.clone(), cells.clone());
        }
        Some(cells)
    }

    /// The cells of a key, and whether they are its own.
    fn register(&self, kind: Kind, key: &Key) -> Option<(Cells, bool)> {
        let (name, mut labels) = (name_of(key.name()), labels_of(key.labels(), kind));
        let mut families = self.families();
        let families = &mut *families;
        let family = families.by_name.get(&name);
        if family.is_some_and(|family| family.kind != kind) {
            return None;
        }
        if let Some(cells) = family.and_then(|family| family.series.get(&labels)) {
            return Some((cells.clone(), true));
        }
        let is_apart = families.series < self.series_max;
        if !is_apart {
            labels = others(labels);
            if let Some(cells) = family.and_then(|family| family.series.get(&labels)) {
                return Some((cells.clone(), false));
            }
            if families.series_of_others >= self.series_max {
                return None;
            }
        }
        let count = if is_apart { &mut families.series } else { &mut families.series_of_others };
        *count += 1;
        let family = families.by_name.entry(name).or_insert_with(|| Family { kind, series: BTreeMap::new() });
        let cells = match kind {
            Kind::Counter => Cells::Counter(Arc::default()),
            Kind::Gauge => Cells::Gauge(Arc::default()),
            Kind::Histogram => Cells::Histogram(Arc::new(HistogramCell::new(&self.buckets))),
        };
        family.series.insert(labels, cells.clone());
        Some((cells, is_apart))
    }

    /// The first description of a name stays.
    fn describe(&self, name: &KeyName, description: &str) {
        let mut families = self.families();
        if families.help.len() < self.series_max {
            let help = names::cut(description, HELP_BYTES_MAX).to_owned();
            families.help.entry(name_of(name.as_str())).or_insert(help);
        }
    }
}

impl Recorder for FacadeRecorder {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.0.describe(&key, &description);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.0.describe(&key, &description);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.0.describe(&key, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.0.cells(Kind::Counter, key) {
            Some(Cells::Counter(counter)) => Counter::from_arc(counter),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.0.cells(Kind::Gauge, key) {
            Some(Cells::Gauge(gauge)) => Gauge::from_arc(gauge),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.0.cells(Kind::Histogram, key) {
            Some(Cells::Histogram(histogram)) => Histogram::from_arc(histogram),
            _ => Histogram::noop(),
        }
    }
}

impl fmt::Debug for FacadeRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FacadeRecorder")
    }
}

/// Series of [`FacadeRecorder::new`].
pub const FACADE_SERIES_MAX: usize = 1024;

/// The longest description of a metric that is shown whole.
const HELP_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests;
