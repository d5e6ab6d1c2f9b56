//! Tasks, on real loops: their order, their ends, their timers, and their log lines.

#![forbid(unsafe_code)]

#[path = "../support/journal.rs"]
mod journal;

mod ends;
mod fairness;
mod log;
mod order;
mod support;
mod time;
