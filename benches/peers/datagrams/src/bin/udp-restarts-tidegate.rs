//! Restarts under load: one server after the other takes over the sockets of the one before, over a control socket, while clients
//! send at a steady rate. Prints `restarts N`, `datagrams N`, `lost N` and `a_second N`.
//!
//! ```text
//! udp-restarts-tidegate RESTARTS A_SECOND
//! ```

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::codec::{Datagram, Endpoint, Transmit, Transmits};
use tidegate::sys::DatagramOptions;
use tidegate::{EndpointListener, Server, ServerHandle};

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
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [restarts, a_second] = &arguments[..] else { return Err("RESTARTS A_SECOND".into()) };
    let (restarts, a_second): (u32, u32) = (restarts.parse()?, a_second.parse()?);
    let folder = std::env::temp_dir().join(format!("udp-restarts-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let control = folder.join("control.sock");
    let start = || -> Result<ServerHandle, Box<dyn Error>> {
        let options = DatagramOptions { receive_buffer_bytes: Some(4 << 20), ..DatagramOptions::default() };
        let echo = EndpointListener::bind("127.0.0.1:0")?.options(options).serve(|_loop| Echo::default());
        Ok(Server::new().loops(2).takeover(&control).endpoint(echo).run()?)
    };
    let mut server = start()?;
    let address = server.address().ip().ok_or("an IP address")?;
    let over = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let over = over.clone();
            thread::spawn(move || client(address, a_second / CLIENTS, &over))
        })
        .collect();
    for _ in 0..restarts {
        let next = start()?;
        server.drain(Duration::from_secs(10));
        server = next;
        thread::sleep(BETWEEN);
    }
    over.store(true, Relaxed);
    let (mut sent, mut lost) = (0, 0);
    for client in clients {
        let counts = client.join().map_err(|_| "a client has panicked")?;
        (sent, lost) = (sent + counts.0, lost + counts.1);
    }
    let seconds = began.elapsed().as_secs_f64();
    server.drain(Duration::from_secs(10));
    std::fs::remove_dir_all(&folder)?;
    println!("restarts {restarts}\ndatagrams {sent}\nlost {lost}\na_second {:.0}", sent as f64 / seconds);
    Ok(())
}

/// Sends bursts at a steady rate, and counts the datagrams that were sent, and those that did not come back.
fn client(address: SocketAddr, a_second: u32, over: &AtomicBool) -> (u64, u64) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(address).expect("a peer");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("an option");
    let (mut sent, mut lost) = (0_u64, 0_u64);
    let pause = Duration::from_secs(1) * BURST / a_second;
    let mut next = Instant::now();
    while !over.load(Relaxed) {
        let first = sent;
        for _ in 0..BURST {
            socket.send(&sent.to_ne_bytes()).expect("room");
            sent += 1;
        }
        let mut missing = u64::from(BURST);
        let mut bytes = [0; 8];
        while missing > 0 {
            match socket.recv(&mut bytes) {
                Ok(_) if u64::from_ne_bytes(bytes) >= first => missing -= 1,
                Ok(_) => {}
                Err(_) => {
                    lost += missing;
                    break;
                }
            }
        }
        next += pause;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    (sent, lost)
}

const CLIENTS: u32 = 4;
const BURST: u32 = 25;
const BETWEEN: Duration = Duration::from_millis(20);
