//! One way by endpoints of Tidegate. `split` sends and receives datagrams one by one in batches, `runs` by GSO and GRO.
//!
//! ```text
//! udp-way-tidegate receive runs|split
//! udp-way-tidegate send runs|split ADDRESS SECONDS      # prints `datagrams N`
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use datagrams::{BURST, BURSTS, BYTES, RECEIVE_BUFFER_BYTES};
use tidegate::codec::{Datagram, Endpoint, Transmit, Transmits};
use tidegate::sys::{DatagramOptions, Socket};
use tidegate::{Backend, Bytes, EndpointLimits, EventLoop};

/// Counts datagrams, and acknowledges each burst.
struct Receiver {
    takes_runs: bool,
    count: usize,
    acknowledgements: Vec<Transmit>,
}

impl Endpoint for Receiver {
    fn handle_datagram(&mut self, datagram: Datagram, _now: Instant) {
        self.count += datagram.payload.len() / BYTES;
        if self.count >= BURST {
            self.count -= BURST;
            self.acknowledgements.push(Transmit::response(&datagram, b"burst".to_vec()));
        }
    }

    fn poll_transmit(&mut self, _now: Instant, transmits: &mut Transmits) {
        self.acknowledgements.drain(..).for_each(|one| transmits.push(one));
    }

    fn takes_runs(&self) -> bool {
        self.takes_runs
    }
}

/// Sends a burst for each that was acknowledged.
struct Sender {
    splits: bool,
    to: SocketAddr,
    burst: Bytes,
    allowed: usize,
    sent: usize,
    until: Instant,
}

impl Endpoint for Sender {
    fn handle_datagram(&mut self, _acknowledgement: Datagram, _now: Instant) {
        self.allowed += 1;
    }

    fn poll_transmit(&mut self, now: Instant, transmits: &mut Transmits) {
        if now >= self.until {
            println!("datagrams {}", self.sent);
            std::process::exit(0);
        }
        while self.allowed > 0 {
            self.allowed -= 1;
            self.sent += BURST;
            if self.splits {
                let mut run = Transmit::new(self.burst.clone(), self.to);
                run.segment_size = NonZeroU16::new(BYTES as u16);
                transmits.push(run);
            } else {
                let datagrams = (0..BURST).map(|number| self.burst.slice(number * BYTES..(number + 1) * BYTES));
                datagrams.for_each(|bytes| transmits.push(Transmit::new(bytes, self.to)));
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let options =
        DatagramOptions { receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES), ..DatagramOptions::default() };
    match words[..] {
        ["receive", mode] => {
            let takes_runs = mode == "runs";
            let options = DatagramOptions { joins_runs: takes_runs, ..options };
            run(&options, Receiver { takes_runs, count: 0, acknowledgements: Vec::new() })
        }
        ["send", mode, address, seconds] => {
            let until = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
            let (to, burst) = (address.parse()?, Bytes::from(vec![7; BURST * BYTES]));
            run(&options, Sender { splits: mode == "runs", to, burst, allowed: BURSTS, sent: 0, until })
        }
        _ => Err("receive MODE, or send MODE ADDRESS SECONDS".into()),
    }
}

fn run(options: &DatagramOptions, endpoint: impl Endpoint + 'static) -> Result<(), Box<dyn Error>> {
    let mut event_loop = EventLoop::on(Backend::Auto)?;
    let socket = Socket::bind_datagrams("127.0.0.1:0".parse()?, options)?;
    let address = event_loop.bind_endpoint(socket, options, EndpointLimits::default(), endpoint)?;
    println!("listening on {address}");
    loop {
        event_loop.turn(None)?;
    }
}
