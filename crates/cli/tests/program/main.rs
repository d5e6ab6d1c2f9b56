//! End-to-end tests of the program, as a child process.
//!
//! All connections use loopback, with ports that the kernel chooses, or Unix sockets in a temporary directory. No test
//! asserts durations; [`PATIENCE`](support::program::PATIENCE) bounds every wait. Read first: `support/`.
//!
//! A program of its own: the crate has no library, so these are its only tests, and CI repeats them on epoll.

mod acme;
mod admin;
mod authentication;
mod backends;
mod backplane;
mod bad_input;
mod breaks;
mod byte_logs;
mod chat;
mod clients;
mod configuration;
mod connect_udp;
mod connections;
mod crowds;
mod dns_takeover;
#[cfg(feature = "experiment")]
mod experiment;
mod faults;
mod faults_on_uring;
mod forwarding;
mod gateway_keys;
mod gateway_reloads;
mod guide;
mod http3;
mod limits;
mod load;
mod load_held;
mod load_http2;
mod load_http3;
mod load_websocket;
mod logs;
mod manual;
mod memory;
mod panics;
mod process;
mod proxy;
mod proxy_protocol;
mod rates;
mod rates_over_tls;
mod serve;
mod service;
mod signals;
mod sites;
mod support;
mod suspension;
mod takeover;
mod takeover_http3;
mod telemetry;
mod tls;
mod trusted_proxies;
