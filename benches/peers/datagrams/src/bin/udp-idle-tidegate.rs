//! Idle endpoints of Tidegate, so many on one loop, each with a socket. The resident memory is their cost.
//!
//! ```text
//! udp-idle-tidegate COUNT
//! ```

use std::error::Error;
use std::time::Instant;

use tidegate::codec::{Datagram, Endpoint, Transmits};
use tidegate::sys::{DatagramOptions, Socket};
use tidegate::{Backend, EndpointLimits, EventLoop};

struct Silent;

impl Endpoint for Silent {
    fn handle_datagram(&mut self, _datagram: Datagram, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant, _transmits: &mut Transmits) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let count: usize = std::env::args().nth(1).ok_or("COUNT")?.parse()?;
    let mut event_loop = EventLoop::on(Backend::Auto)?;
    let options = DatagramOptions::default();
    let mut first = None;
    for _ in 0..count {
        let socket = Socket::bind_datagrams("127.0.0.1:0".parse()?, &options)?;
        let address = event_loop.bind_endpoint(socket, &options, EndpointLimits::default(), Silent)?;
        first.get_or_insert(address);
    }
    println!("listening on {}", first.ok_or("no endpoint")?);
    loop {
        event_loop.turn(None)?;
    }
}
