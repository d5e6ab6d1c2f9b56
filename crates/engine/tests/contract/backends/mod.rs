//! The test backends: a real kernel and a simulated network.

mod injected;
mod loopback;
mod simulator;

pub(crate) use self::loopback::{KERNEL_BUFFER_BYTES, Loopback};
pub(crate) use self::simulator::Simulator;
