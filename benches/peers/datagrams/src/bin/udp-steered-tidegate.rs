//! An echo of two loops, whose datagrams have the number of their loop in the first byte. `steered`: the kernel reads it, so
//! each datagram comes to its loop. `hashed`: the kernel chooses by addresses, so half of them are forwarded.
//!
//! ```text
//! udp-steered-tidegate steered|hashed
//! ```

use std::error::Error;
use std::time::Instant;

use tidegate::codec::{Datagram, Endpoint, Transmit, Transmits};
use tidegate::sys::{DatagramOptions, Socket, Steering};
use tidegate::{EndpointListener, Server};

#[derive(Default)]
struct Echo(Vec<Transmit>);

impl Endpoint for Echo {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        self.0.push(Transmit::response(&datagram, datagram.payload.clone()));
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        self.0.drain(..).for_each(|response| transmits.push(response));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let is_steered = match std::env::args().nth(1).as_deref() {
        Some("steered") => true,
        Some("hashed") => false,
        _ => return Err("steered|hashed".into()),
    };
    let steering = Steering { only_if: None, xor_offset: None, offset: 0, mask: 1 };
    let options = DatagramOptions { steering: Some(steering), ..DatagramOptions::default() };
    let listener = EndpointListener::bind("127.0.0.1:0")?.options(options);
    let server = Server::new().loops(2).endpoint(listener.serve(|_loop| Echo::default())).run()?;
    if !is_steered {
        let address = server.address().ip().ok_or("an IP address")?;
        let share = DatagramOptions { reuse_port: true, ..DatagramOptions::default() };
        Socket::bind_datagrams(address, &share)?.steer_by_hash()?;
    }
    println!("listening on {}", server.address());
    server.wait();
    Ok(())
}
