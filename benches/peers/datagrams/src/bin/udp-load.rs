//! A load for echoes of datagrams: so many flows, each a socket of its own, with so many datagrams at a time on each.
//!
//! ```text
//! udp-load ADDRESS FLOWS AT_A_TIME SECONDS
//! ```
//!
//! Prints `datagrams N` and `lost N`. A wrong echo is a panic.

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [address, flows, depth, seconds] = &arguments[..] else {
        return Err("ADDRESS FLOWS AT_A_TIME SECONDS".into());
    };
    let (address, depth): (SocketAddr, usize) = (address.parse()?, depth.parse()?);
    let sockets = (0..flows.parse()?).map(|_| flow(address)).collect::<Result<Vec<_>, _>>()?;
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    let (mut echoed, mut lost) = (0_u64, 0_u64);
    let (mut number, mut buffer) = (0_u64, [0; 128]);
    while Instant::now() < until {
        let first = number;
        for socket in &sockets {
            for _ in 0..depth {
                let mut payload = [0; BYTES];
                payload[..8].copy_from_slice(&number.to_ne_bytes());
                number += 1;
                socket.send(&payload)?;
            }
        }
        for socket in &sockets {
            let mut missing = depth;
            while missing > 0 {
                let Ok(length) = socket.recv(&mut buffer) else {
                    lost += missing as u64;
                    break;
                };
                assert_eq!(length, BYTES);
                let mut head = [0; 8];
                head.copy_from_slice(&buffer[..8]);
                // A late one of an earlier pass was counted as lost.
                if u64::from_ne_bytes(head) >= first {
                    (missing, echoed) = (missing - 1, echoed + 1);
                }
            }
        }
    }
    println!("datagrams {echoed}\nlost {lost}");
    Ok(())
}

fn flow(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    Ok(socket)
}

const BYTES: usize = 64;
