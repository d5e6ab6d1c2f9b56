//! HTTP requests, by route, method and status class.
//!
//! Each loop has a recorder, and each recorder its own cells for each route and method, which only that loop writes.
//! The list of cells is locked when a route gets its first request of a method, and when the metrics are read.
//!
//! **The clock is read once for several requests.** Of requests that are answered in the turn in which they came, the
//! first of a turn is timed, and then every sixteenth; it counts for those of its route since the last timed one.
//! Requests that wait are timed each. So the histogram of a route may lack a few of its last requests.

use std::cell::{self, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_http1::{Method, Refusals};

use crate::cell::Cell;
use crate::exemplars::{Exemplar, ExemplarSlots, Exemplars, TraceIds, slot_of};
use crate::histogram::{Histogram, LatencySnapshot};
use crate::text::{Kind, MetricsText};

/// The requests of a server, on all its loops. A clone is the same.
///
/// ```
/// use std::time::Instant;
///
/// use tidegate::http1::Method;
/// use tidegate::metrics::{HttpMetrics, HttpRecorder};
///
/// let metrics = HttpMetrics::new();
/// // On the thread of each loop:
/// let route = HttpRecorder::new(&metrics).route("/tides/{harbour}");
/// let now = Instant::now();
/// route.record(Method::Get, 404, now, now);
///
/// let seen = metrics.snapshot();
/// assert_eq!((&*seen[0].route, seen[0].method, seen[0].statuses), ("/tides/{harbour}", "GET", [0, 0, 0, 1, 0]));
/// ```
#[derive(Clone, Default)]
pub struct HttpMetrics {
    loops: Arc<Mutex<Vec<LoopSeries>>>,
    refusals: Refusals,
}

/// The series of one loop.
type LoopSeries = Arc<Mutex<Vec<Arc<Series>>>>;

/// Requests of one route and method, on one loop.
struct Series {
    route: Arc<str>,
    method: &'static str,
    statuses: [Cell; CLASSES],
    latency: Histogram,
    exemplars: Exemplars,
    /// Requests since the last one that was timed.
    not_timed: Cell,
}

/// The requests of a route and a method on all loops.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HttpSnapshot {
    /// The pattern of the route; empty for requests that no route matched, and those that the codec has refused.
    pub route: Arc<str>,
    /// The method; `other` for one that HTTP does not define, and for a request that the codec has refused.
    pub method: &'static str,
    /// Responses by class of their status, from 1xx to 5xx.
    pub statuses: [u64; CLASSES],
    /// The time from the head of a request to the head of its response.
    pub latency: LatencySnapshot,
    exemplars: ExemplarSlots,
}

impl HttpSnapshot {
    /// Requests whose traces are recorded: the latest one of each bucket that [`HttpMetrics::write`] writes.
    pub fn exemplars(&self) -> impl Iterator<Item = &Exemplar> {
        self.exemplars.iter().flatten()
    }
}

impl HttpMetrics {
    /// Metrics without requests.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where codecs count the requests that they refuse. These have neither a route nor a known method, and no latency.
    /// The configuration of `tidegate::http` uses it; that of a codec is given it by
    /// [`count_refusals`](tidegate_http1::Config::count_refusals).
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// The requests so far, in the order of their routes and methods.
    #[must_use]
    pub fn snapshot(&self) -> Vec<HttpSnapshot> {
        let mut sums = Sums::new();
        let loops = lock(&self.loops).clone();
        for series in loops {
            for series in lock(&series).iter() {
                let sum = sum_of(&mut sums, &series.route, series.method);
                for (sum, more) in sum.statuses.iter_mut().zip(&series.statuses) {
                    *sum = sum.wrapping_add(more.value());
                }
                sum.latency.merge(&series.latency.snapshot());
                series.exemplars.merge_into(&mut sum.exemplars);
            }
        }
        let refused = self.refusals.counts();
        if refused != [0; CLASSES] {
            let sum = sum_of(&mut sums, &"".into(), OTHER);
            for (sum, more) in sum.statuses.iter_mut().zip(refused) {
                *sum = sum.wrapping_add(more);
            }
        }
        sums.into_values().collect()
    }

    /// Writes the requests so far: `tidegate_http_requests_total`, by route, method and class of status, and the
    /// histogram `tidegate_http_request_duration_seconds`, by route and method. In OpenMetrics its buckets have exemplars:
    /// the latest request of each whose trace is recorded.
    pub fn write(&self, text: &mut MetricsText) {
        let all = self.snapshot();
        text.family("tidegate_http_requests", Kind::Counter, "Requests that got a response.");
        for series in &all {
            for (class, count) in CLASS_NAMES.iter().zip(series.statuses) {
                if count > 0 {
                    let labels = [("route", &*series.route), ("method", series.method), ("status", *class)];
                    text.sample(&labels, count);
                }
            }
        }
        let help = "Time from the head of a request to the head of its response.";
        text.family("tidegate_http_request_duration_seconds", Kind::Histogram, help);
        for series in &all {
            let labels = [("route", &*series.route), ("method", series.method)];
            let bounds =
                series.latency.buckets().iter().enumerate().map(|(at, count)| (LatencySnapshot::bound(at), *count));
            // Every other bound: a power of two.
            text.histogram_with(
                &labels,
                bounds,
                series.latency.sum(),
                |at| at % 2 == 0,
                |at| series.exemplars[slot_of(at)],
            );
        }
    }
}

type Sums = BTreeMap<(Arc<str>, &'static str), HttpSnapshot>;

fn sum_of<'a>(sums: &'a mut Sums, route: &Arc<str>, method: &'static str) -> &'a mut HttpSnapshot {
    sums.entry((route.clone(), method)).or_insert_with(|| HttpSnapshot {
        route: route.clone(),
        method,
        statuses: [0; CLASSES],
        latency: LatencySnapshot::default(),
        exemplars: ExemplarSlots::default(),
    })
}

impl fmt::Debug for HttpMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpMetrics")
    }
}

/// Records the requests of one loop, on its thread.
#[derive(Clone)]
pub struct HttpRecorder(Rc<Recorder>);

struct Recorder {
    series: LoopSeries,
    routes: RefCell<HashMap<Arc<str>, Rc<RouteMetrics>>>,
    timing: Rc<Timing>,
}

/// Which requests are timed.
#[derive(Default)]
struct Timing {
    turn: cell::Cell<Option<Instant>>,
    in_turn: cell::Cell<u32>,
}

impl HttpRecorder {
    /// A recorder for the loop of this thread.
    #[must_use]
    pub fn new(metrics: &HttpMetrics) -> Self {
        let series = LoopSeries::default();
        lock(&metrics.loops).push(series.clone());
        Self(Rc::new(Recorder { series, routes: RefCell::default(), timing: Rc::default() }))
    }

    /// The counter of a route's requests: the same for the same text. An empty text is for requests without a route.
    /// Texts of peers must not be routes.
    #[must_use]
    pub fn route(&self, route: &str) -> Rc<RouteMetrics> {
        let mut routes = self.0.routes.borrow_mut();
        if let Some(known) = routes.get(route) {
            return known.clone();
        }
        let route: Arc<str> = if routes.len() < ROUTES_MAX { route.into() } else { OTHER.into() };
        let made = || {
            let (series, timing) = (self.0.series.clone(), self.0.timing.clone());
            Rc::new(RouteMetrics { route: route.clone(), series, timing, by_method: Default::default() })
        };
        routes.entry(route.clone()).or_insert_with(made).clone()
    }
}

impl fmt::Debug for HttpRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpRecorder")
    }
}

/// Counts the requests of one route on one loop.
pub struct RouteMetrics {
    route: Arc<str>,
    series: LoopSeries,
    timing: Rc<Timing>,
    by_method: [OnceCell<Arc<Series>>; METHODS.len()],
}

impl RouteMetrics {
    /// A request was answered: its head arrived at `began`, and the loop's turn began at `turn`, both by the loop's
    /// clock.
    #[inline]
    pub fn record(&self, method: Method, status: u16, began: Instant, turn: Instant) {
        self.record_traced(method, status, began, turn, || None);
    }

    /// The same for a request whose trace may be recorded: `trace` has its ids then, and it becomes an exemplar of the
    /// histogram. It is asked for a request that is timed.
    #[inline]
    pub fn record_traced(
        &self,
        method: Method,
        status: u16,
        began: Instant,
        turn: Instant,
        trace: impl FnOnce() -> Option<TraceIds>,
    ) {
        let series = self.by_method[method as usize].get_or_init(|| self.new_series(method));
        let class = usize::from(status / 100).clamp(1, CLASSES) - 1;
        series.statuses[class].add(1);
        if began == turn && !self.timing.is_due(turn) {
            return series.not_timed.add(1);
        }
        let count = if began == turn { 1 + series.not_timed.replace(0) } else { 1 };
        let took = Instant::now().saturating_duration_since(began);
        series.latency.add(took, count);
        if let Some(ids) = trace() {
            series.exemplars.add(Exemplar::now(ids, took));
        }
    }

    #[cold]
    fn new_series(&self, method: Method) -> Arc<Series> {
        let mut all = lock(&self.series);
        let route = if all.len() < SERIES_MAX { self.route.clone() } else { OTHER.into() };
        let method = METHODS[method as usize];
        let known = all.iter().find(|series| series.route == route && series.method == method);
        if let Some(known) = known {
            return known.clone();
        }
        let series = Arc::new(Series {
            route,
            method,
            statuses: Default::default(),
            latency: Histogram::default(),
            exemplars: Exemplars::default(),
            not_timed: Cell::default(),
        });
        all.push(series.clone());
        series
    }
}

impl Timing {
    /// Whether a request that is answered in the turn in which it came is timed.
    #[inline]
    fn is_due(&self, turn: Instant) -> bool {
        if self.turn.get() != Some(turn) {
            self.turn.set(Some(turn));
            self.in_turn.set(1);
            return true;
        }
        let number = self.in_turn.get();
        self.in_turn.set(number.wrapping_add(1));
        number.is_multiple_of(TIMED_EVERY)
    }
}

impl fmt::Debug for RouteMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RouteMetrics").field(&self.route).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pairs of route and method that one loop counts apart, and a few more for the route `other`; each takes 500 bytes.
pub const SERIES_MAX: usize = 1024;

/// Routes that one loop knows.
const ROUTES_MAX: usize = SERIES_MAX;

/// How many requests of one turn there are to one whose time is measured.
const TIMED_EVERY: u32 = 16;

/// The route of requests beyond the bounds.
const OTHER: &str = "other";

const CLASSES: usize = 5;
const CLASS_NAMES: [&str; CLASSES] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// In the order of [`Method`].
const METHODS: [&str; 10] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", OTHER];

const _: () = assert!(Method::Extension as usize == METHODS.len() - 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_of_all_loops_are_summed() {
        let metrics = HttpMetrics::new();
        for _ in 0..2 {
            let route = HttpRecorder::new(&metrics).route("/");
            let now = Instant::now();
            for status in [200, 204, 301, 404, 500, 99, 1000] {
                route.record(Method::Post, status, now, now);
            }
        }
        let all = metrics.snapshot();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].method, all[0].statuses), ("POST", [2, 4, 2, 2, 4]));
    }

    #[test]
    fn every_request_is_in_the_histogram_up_to_the_last_few_of_a_turn() {
        let metrics = HttpMetrics::new();
        let route = HttpRecorder::new(&metrics).route("/");
        let turn = Instant::now();
        for _ in 0..1000 {
            route.record(Method::Get, 200, turn, turn);
        }
        let counted = metrics.snapshot()[0].latency.count();
        assert!((985..=1000).contains(&counted), "{counted}");
        // The first of the next turn is timed, and counts for the remaining ones.
        let next = turn + std::time::Duration::from_nanos(1);
        route.record(Method::Get, 200, next, next);
        assert_eq!(metrics.snapshot()[0].latency.count(), 1001);
        // One that has waited counts for itself.
        route.record(Method::Get, 200, turn, next);
        assert_eq!(metrics.snapshot()[0].latency.count(), 1002);
    }

    #[test]
    fn a_recorded_trace_is_an_exemplar_in_openmetrics_alone() {
        let metrics = HttpMetrics::new();
        let route = HttpRecorder::new(&metrics).route("/");
        let began = Instant::now();
        let turn = began + std::time::Duration::from_nanos(1);
        route.record_traced(Method::Get, 200, began, turn, || None);
        assert_eq!(metrics.snapshot()[0].exemplars().count(), 0);
        let ids = TraceIds { trace: [1; 16], span: [2; 8] };
        route.record_traced(Method::Get, 200, began, turn, || Some(ids));
        assert_eq!(metrics.snapshot()[0].exemplars().map(Exemplar::ids).collect::<Vec<_>>(), [ids]);
        let text = |format| {
            let mut text = MetricsText::new(format);
            metrics.write(&mut text);
            text.finish()
        };
        let open = text(crate::Format::OpenMetrics);
        let lines: Vec<_> = open.lines().filter(|line| line.contains(" # {trace_id=\"0101")).collect();
        assert_eq!(lines.len(), 1, "{open}");
        assert!(lines[0].starts_with("tidegate_http_request_duration_seconds_bucket{route=\"/\""), "{open}");
        assert!(!text(crate::Format::Prometheus).contains("trace_id"));
    }

    #[test]
    fn routes_beyond_the_bound_share_one_name() {
        let metrics = HttpMetrics::new();
        let recorder = HttpRecorder::new(&metrics);
        let now = Instant::now();
        for number in 0..2 * SERIES_MAX {
            let route = recorder.route(&format!("/{number}"));
            for method in [Method::Get, Method::Post, Method::Extension] {
                route.record(method, 200, now, now);
            }
        }
        let all = metrics.snapshot();
        assert!(all.len() <= SERIES_MAX + METHODS.len(), "{}", all.len());
        let total: u64 = all.iter().flat_map(|series| series.statuses).sum();
        assert_eq!(total, 6 * SERIES_MAX as u64, "none is lost");
        assert!(all.iter().any(|series| &*series.route == OTHER));
    }
}
