//! The client of HTTP against servers of this crate, and against servers that break the rules.

mod bodies;
mod deadlines;
mod handle;
mod http2;
mod http2_hostile;
mod liars;
mod network;
mod pool;
mod proxies;
mod redirects;
mod support;
mod upgrades;
mod websockets;
