//! Traces for a collector of OpenTelemetry: `--otlp`, and the key `telemetry` of the file.
//!
//! `RequestSpans` makes a span of `tracing` for each request that `sampler.rs` chooses, and the gateway one for each attempt
//! at an upstream. `spans.rs` is the layer that collects them, `queue.rs` holds finished spans, `exporter.rs` sends them on
//! a thread of its own, `otlp.rs` encodes them. `settings.rs` has the flags. Without settings nothing of it is there.
//!
//! The exporters of a process are in one table: the end of the program waits for all of them, those of a configuration
//! before the present one too.

mod exporter;
mod otlp;
mod queue;
mod sampler;
mod settings;
mod spans;

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use tidegate::http::RequestSpans;
use tidegate::metrics::MetricsText;

use self::exporter::Collector;
use self::queue::{SpanQueue, SpanSink};
use self::sampler::Sampler;
pub(crate) use self::settings::{ExportHeaders, TelemetryOptions, TelemetrySettings, endpoint};
pub(crate) use self::spans::{SpanLayer, is_request_span};

/// The traces of a configuration.
pub(crate) struct Telemetry {
    settings: TelemetrySettings,
    sampler: Sampler,
    collector: Collector,
    queue: Arc<SpanQueue>,
    /// Spans of requests in progress have clones.
    sink: SpanSink,
    start: Once,
}

impl Telemetry {
    /// Traces by these settings. No span is exported before [`start`](Self::start).
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub(crate) fn open(settings: &TelemetrySettings) -> Result<Arc<Self>, Box<dyn Error>> {
        let collector = Collector::new(settings).map_err(|error| format!("telemetry: {error}"))?;
        let sampler = Sampler::new(settings);
        let queue = Arc::<SpanQueue>::default();
        let sink = SpanSink::new(queue.clone());
        Ok(Arc::new(Self { settings: settings.clone(), sampler, collector, queue, sink, start: Once::new() }))
    }

    /// Whether it has these settings.
    pub(crate) fn is_of(&self, settings: &TelemetrySettings) -> bool {
        self.settings == *settings
    }

    /// Exports from now on. Further calls do nothing.
    ///
    /// # Errors
    /// The system's, if there is no thread.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        let mut started = Ok(());
        self.start.call_once(|| {
            started = exporter::spawn(self.collector.clone(), self.queue.clone());
            if started.is_ok() {
                queues().push(self.queue.clone());
            }
        });
        started
    }

    /// The middleware of one loop.
    pub(crate) fn request_spans(self: &Arc<Self>) -> RequestSpans {
        let (sampling, sink) = (self.clone(), self.sink.clone());
        RequestSpans::new()
            .sample(move |request, trace| sampling.sampler.chooses(request, trace))
            .link(move |span, context| spans::link(span, context, &sink))
    }
}

/// Waits until the spans so far are exported, for a moment at most: the program ends.
pub(crate) fn flush() {
    let deadline = Instant::now() + FLUSH_MAX;
    let all = std::mem::take(&mut *queues());
    all.iter().for_each(|queue| queue.close());
    let left: usize = all.iter().map(|queue| queue.wait_for_end(deadline)).sum();
    if left > 0 {
        tracing::warn!(subsystem = "telemetry", spans = left, "the program ends before its spans are exported");
    }
}

/// Writes the counts of spans, if some are exported.
pub(crate) fn write_metrics(text: &mut MetricsText) {
    if !queues().is_empty() {
        queue::COUNTS.write(text);
    }
}

fn queues() -> MutexGuard<'static, Vec<Arc<SpanQueue>>> {
    let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    queues.retain(|queue| !queue.has_ended());
    queues
}

static QUEUES: Mutex<Vec<Arc<SpanQueue>>> = Mutex::new(Vec::new());

/// How long the end of the program waits for the collector.
const FLUSH_MAX: Duration = Duration::from_secs(5);
