//! Metrics of a server: the counts of its loops, and the HTTP requests that they answer.
//!
//! **Recording takes no lock.** Each number is a [`Cell`] that one loop writes and any thread reads: adding to it is a
//! load and a store, without a bus lock, and a reader sums the cells of all loops. Numbers that are read together may
//! be a few requests apart.
//!
//! **The memory is bounded.** A route is a label only if a router has it, a method only if HTTP defines it: a peer
//! cannot make labels. Beyond [`SERIES_MAX`] pairs of route and method a loop counts requests under the route `other`.
//!
//! | to | use |
//! |---|---|
//! | record requests in an HTTP application | `Config::metrics` of `tidegate::http`, with [`HttpMetrics`] |
//! | record requests in a handler of one's own | [`HttpRecorder`] |
//! | show metrics that the application records by the crate `metrics` | `FacadeRecorder`, by the feature `metrics-facade` |
//! | write all of it as text | [`write_server`], [`HttpMetrics::write`], [`write_upstreams`], [`MetricsText`] |
//!
//! Read next: `cell.rs`, then `requests.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `cell.rs` | `Cell`, a number that one thread writes |
//! | `exemplars.rs` | `Exemplar`: a request whose trace is recorded, beside the bucket that counts it |
//! | `histogram.rs` | `Histogram`, `SharedHistogram`: times in fixed buckets |
//! | `requests.rs` | `HttpMetrics`, `HttpRecorder`: requests by route, method and status |
//! | `server.rs` | the counts of a server as metrics |
//! | `upstreams.rs` | `UpstreamGroup`, `UpstreamSnapshot`: the upstreams of a gateway as metrics |
//! | `process.rs` | the memory of the process |
//! | `facade/` | `FacadeRecorder`: metrics that an application records by the crate `metrics`; its numbers (`cells.rs`), allowed names (`names.rs`) |
//! | `text.rs` | `MetricsText`: the formats of Prometheus and OpenMetrics, and which one a scraper gets |

#![forbid(unsafe_code)]

mod cell;
mod exemplars;
#[cfg(feature = "facade")]
mod facade;
mod histogram;
mod process;
mod requests;
mod server;
mod text;
mod upstreams;

pub use cell::Cell;
pub use exemplars::{Exemplar, TraceIds};
#[cfg(feature = "facade")]
pub use facade::{FACADE_BUCKETS, FACADE_SERIES_MAX, FacadeRecorder, LABELS_MAX, TEXT_BYTES_MAX};
pub use histogram::{Histogram, LATENCY_BUCKETS, LatencySnapshot, SharedHistogram};
pub use process::write_process;
pub use requests::{HttpMetrics, HttpRecorder, HttpSnapshot, RouteMetrics, SERIES_MAX};
pub use server::{closed_by_cause, write_server};
pub use text::{Format, Kind, MetricsText};
pub use upstreams::{QueueSnapshot, UpstreamGroup, UpstreamSnapshot, UpstreamState, write_upstreams};
