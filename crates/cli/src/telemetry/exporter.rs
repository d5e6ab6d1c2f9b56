//! The exporter: a thread with a loop of its own, which sends the spans of a queue to a collector.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::http::client::ClientLimits;
use tidegate::http::{Client, StatusCode};
use tidegate::tls::{ClientConfig, Provider};
use tidegate::{Backend, Bytes, EventLoop, task};

use super::otlp;
use super::queue::SpanQueue;
use super::settings::{ExportHeaders, TelemetrySettings};
use super::spans::FinishedSpan;

/// A collector, and how it is reached.
#[derive(Clone)]
pub(super) struct Collector {
    endpoint: String,
    service: String,
    headers: ExportHeaders,
    /// For https.
    tls: Option<ClientConfig>,
}

/// Why an export has failed.
#[derive(Debug)]
enum ExportFailure {
    /// It may succeed later: after this time, if the collector has named one.
    Temporary(String, Option<Duration>),
    Final(String),
}

/// Failures since the last line of the log.
#[derive(Default)]
struct FailureLog {
    last: Option<Instant>,
    unlogged: u64,
}

impl Collector {
    /// # Errors
    /// The certificates cannot be used.
    pub(super) fn new(settings: &TelemetrySettings) -> Result<Self, Box<dyn Error>> {
        let tls = settings.endpoint.starts_with("https:").then(|| {
            let provider = Provider::aws_lc_rs();
            let builder = match &settings.ca {
                Some(path) => ClientConfig::builder_with_root_file(&provider, path)?,
                None => ClientConfig::builder_with_platform_roots(&provider)?,
            };
            builder.build()
        });
        Ok(Self {
            endpoint: settings.endpoint.clone(),
            service: settings.service.clone(),
            headers: settings.headers.clone(),
            tls: tls.transpose()?,
        })
    }

    fn client(&self) -> Client {
        let mut limits = ClientLimits::default();
        limits.connections_max = CONNECTIONS_MAX;
        limits.connections_per_origin_max = CONNECTIONS_MAX;
        limits.collected_body_bytes_max = RESPONSE_BYTES_MAX;
        let builder = Client::builder().limits(limits).redirects(false);
        match &self.tls {
            Some(tls) => builder.tls(tls.clone()).build(),
            None => builder.build(),
        }
    }

    /// Sends a body once.
    async fn send(&self, client: &Client, body: Bytes) -> Result<(), ExportFailure> {
        let request = client.post(&self.endpoint).header("Content-Type", "application/x-protobuf");
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let sent = request.body(body).timeout(REQUEST_TIMEOUT).send().await;
        let response = sent.map_err(|error| ExportFailure::Temporary(error.to_string(), None))?;
        let status = response.status();
        let retry_after = response.header_str("retry-after").and_then(|text| text.trim().parse().ok());
        // The connection serves the next export once the body is read. Its content changes nothing.
        drop(response.bytes().await);
        match status {
            _ if status.is_success() => Ok(()),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                Err(ExportFailure::Temporary(status.to_string(), retry_after.map(Duration::from_secs)))
            }
            _ => Err(ExportFailure::Final(status.to_string())),
        }
    }

    /// Sends a batch, again after failures that may pass. Once the queue is closed it does not wait between attempts.
    async fn export(&self, client: &Client, queue: &SpanQueue, batch: &[FinishedSpan]) -> Result<(), String> {
        let body = Bytes::from(otlp::encode(&self.service, batch));
        let mut backoff = BACKOFF_MIN;
        for attempt in 1.. {
            let (error, wait) = match self.send(client, body.clone()).await {
                Ok(()) => return Ok(()),
                Err(ExportFailure::Final(error)) => return Err(error),
                Err(ExportFailure::Temporary(error, wait)) => (error, wait),
            };
            if attempt == ATTEMPTS_MAX {
                return Err(error);
            }
            tracing::debug!(subsystem = "telemetry", %error, attempt, "export failed");
            let wait = wait.unwrap_or_else(|| with_jitter(backoff)).min(BACKOFF_MAX);
            // The end of the queue ends the wait.
            if task::timeout(wait, queue.closed()).await.is_ok() {
                task::sleep(with_jitter(BACKOFF_AT_END)).await;
            }
            backoff = (2 * backoff).min(BACKOFF_MAX);
        }
        unreachable!("the last attempt returns")
    }
}

/// Starts the thread, which ends once the queue is closed and empty.
///
/// # Errors
/// The system's, if there is no thread.
pub(super) fn spawn(collector: Collector, queue: Arc<SpanQueue>) -> io::Result<()> {
    let run = move || {
        let ended = EventLoop::on(Backend::Auto).map_err(|error| error.to_string()).and_then(|mut event_loop| {
            event_loop.block_on(export_all(&collector, &queue)).map_err(|error| error.to_string())
        });
        if let Err(error) = ended {
            tracing::error!(subsystem = "telemetry", %error, "no spans are exported");
        }
        queue.end();
    };
    std::thread::Builder::new().name("tidegate-otlp".into()).spawn(run)?;
    Ok(())
}

async fn export_all(collector: &Collector, queue: &SpanQueue) {
    let client = collector.client();
    let (mut batch, mut failures) = (Vec::new(), FailureLog::default());
    loop {
        let is_last = queue.fill(&mut batch, BATCH_INTERVAL).await;
        if !batch.is_empty() {
            let exported = collector.export(&client, queue, &batch).await;
            queue.finish_batch(exported.is_ok());
            if let Err(error) = exported {
                failures.log(&error, task::now());
            }
            batch.clear();
        }
        if is_last {
            return;
        }
    }
}

impl FailureLog {
    /// Logs a failure, unless one was logged just before.
    fn log(&mut self, error: &str, now: Instant) {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < LOG_INTERVAL) {
            self.unlogged += 1;
            return;
        }
        let unlogged = std::mem::take(&mut self.unlogged);
        tracing::warn!(subsystem = "telemetry", error, unlogged, "the collector has not taken spans");
        self.last = Some(now);
    }
}

/// Half of the time to the whole of it, so that servers do not come back together.
fn with_jitter(time: Duration) -> Duration {
    let share = RandomState::new().hash_one(0) >> 33;
    time / 2 + time.mul_f64(share as f64 / (1_u64 << 31) as f64) / 2
}

/// The time in which the spans of one batch arrive.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Of one attempt.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Attempts to send one batch. Meanwhile the queue fills, and its limit holds.
const ATTEMPTS_MAX: u32 = 5;
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
const BACKOFF_AT_END: Duration = Duration::from_millis(100);

/// The exporter sends one batch at a time.
const CONNECTIONS_MAX: usize = 2;

/// A collector's response is a short message.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// A collector that is away is one line in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_between_half_of_a_time_and_the_whole() {
        let all = || (0..100).map(|_| with_jitter(Duration::from_secs(2)));
        assert!(all().all(|time| (1.0..=2.0).contains(&time.as_secs_f64())));
        assert!(all().collect::<std::collections::HashSet<_>>().len() > 1);
    }
}
