//! An echo of datagrams (UDP): a protocol without I/O, on a socket of each loop.
//!
//! ```text
//! cargo run --example udp_echo                              # checks itself, prints the results and exits
//! cargo run --release --example udp_echo -- 127.0.0.1:7000  # echoes until it is killed
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use tidegate::codec::{Datagram, Endpoint, Transmit, Transmits};
use tidegate::sys::DatagramOptions;
use tidegate::{Backend, DatagramChannel, EndpointLimits, EndpointListener, EventLoop, Server};

/// Echoes each datagram to its source.
#[derive(Default)]
struct Echo {
    responses: Vec<Transmit>,
}

impl Endpoint for Echo {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        // The payload is a view of the loop's memory: nothing is copied.
        self.responses.push(Transmit::response(&datagram, datagram.payload.clone()));
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        self.responses.drain(..).for_each(|response| transmits.push(response));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1).as_deref())
}

fn run(address: Option<&str>) -> Result<(), Box<dyn Error>> {
    let at = address.unwrap_or("127.0.0.1:0");
    let listener = EndpointListener::bind(at)?;
    // A socket at one address responds from there: only one at all addresses needs to know where a datagram arrived.
    let facts = at.parse::<SocketAddr>().is_ok_and(|at| at.ip().is_unspecified());
    // Datagrams up to the longest that UDP has come back whole.
    let options = DatagramOptions { payload_bytes_max: u16::MAX, fragments: true, facts, ..DatagramOptions::default() };
    let server = Server::new().endpoint(listener.options(options).serve(|_loop| Echo::default())).run()?;
    println!("listening on {}", server.address());
    if address.is_some() {
        server.wait();
        return Ok(());
    }
    let echo = server.address().ip().ok_or("the address is an IP address")?;
    check(echo)?;
    println!("a task got back {} datagrams", ask(echo, 100)?);
    server.drain(Duration::from_secs(1));
    println!("the server has drained");
    Ok(())
}

/// A client that checks the server: a blocking socket.
fn check(echo: SocketAddr) -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut response = vec![0; 65_507];
    for length in [0, 1, 1_200, 9_000, 65_507] {
        socket.send_to(&vec![b'~'; length], echo)?;
        let (received, source) = socket.recv_from(&mut response)?;
        if (received, source) != (length, echo) {
            return Err(format!("{received} bytes came back from {source} for {length}").into());
        }
        println!("{length} bytes came back");
    }
    Ok(())
}

/// A client as a task: sends some datagrams, and counts those that come back. A datagram may be lost.
fn ask(echo: SocketAddr, count: u8) -> Result<usize, Box<dyn Error>> {
    let client = async move {
        let local = "127.0.0.1:0".parse()?;
        let mut channel = DatagramChannel::bind(local, &DatagramOptions::default(), EndpointLimits::default())?;
        for number in 0..count {
            channel.send_to(vec![number], echo)?;
        }
        let mut received = 0;
        while received < usize::from(count) {
            let datagram = channel.recv_from().await?;
            received += usize::from(datagram.source == echo);
        }
        Ok::<_, Box<dyn Error>>(received)
    };
    EventLoop::on(Backend::Auto)?.block_on(client)?
}

#[test]
fn it_checks_itself() -> Result<(), Box<dyn Error>> {
    run(None)
}
