//! Tasks, on real loops: their order, their ends, their timers, and their log lines.

mod ends;
mod fairness;
mod log;
mod order;
mod support;
mod time;
