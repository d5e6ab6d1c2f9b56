//! What is beneath the loops of a scenario.

mod epoll;
mod simulator;

pub(crate) use self::epoll::Epoll;
pub(crate) use self::simulator::Simulator;
