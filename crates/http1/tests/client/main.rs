//! The client's role: requests out, responses in.

mod contract;
mod refused;
mod requests;
mod responses;
mod stage;
mod time;
