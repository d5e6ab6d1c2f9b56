//! What is beneath the loops of a scenario.

mod loopback;
mod simulator;

pub(crate) use self::loopback::Loopback;
pub(crate) use self::simulator::Simulator;
