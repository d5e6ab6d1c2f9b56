//! The client's role: requests out, responses in.

mod contract;
mod refused;
mod requests;
mod responses;
#[path = "support/client.rs"]
mod support;
mod time;
