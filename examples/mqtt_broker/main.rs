//! An MQTT 3.1.1 broker: QoS 0 and 1, wildcards, retained messages, wills, sessions that outlive their connections.
//!
//! ```text
//! cargo run --example mqtt_broker                      # checks itself, and ends
//! cargo run --example mqtt_broker -- 127.0.0.1:1883    # serves
//! mosquitto_sub -p 1883 -t 'tides/+' -q 1 &
//! mosquitto_pub -p 1883 -t tides/brest -q 1 -m 412
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `packet.rs` | the control packets and their codec |
//! | `connection.rs` | the handler of a connection: keep-alive, packet identifiers |
//! | `sessions.rs` | sessions, retained messages, and the way of a message to its subscribers |
//! | `topics.rs` | topic filters as a tree |
//!
//! A slow subscriber misses messages of QoS 0. Those of QoS 1 wait in the backlog of its session, which has a bound, and a
//! post only wakes the connection: the mailbox of a loop holds no payload that waits for an acknowledgement.
//!
//! The broker checks no passwords, has no QoS 2, and keeps its state in memory.

#![forbid(unsafe_code)]

mod connection;
mod packet;
mod sessions;
#[cfg(test)]
mod tests;
mod topics;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate::{Server, ServerHandle, StartError};

use crate::connection::Connection;
use crate::packet::Mqtt;
use crate::sessions::Sessions;

fn start(address: &str, loops: Option<usize>) -> Result<ServerHandle, StartError> {
    let sessions = Sessions::default();
    let mut server = Server::bind(address)?;
    if let Some(loops) = loops {
        server = server.loops(loops);
    }
    server.start(move || (Mqtt::default(), Connection::new(sessions.clone())))
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(address) = std::env::args().nth(1) else { return check() };
    let server = start(&address, None)?;
    println!("listening on {}, {} loops", server.address(), server.loops());
    server.run_until_signal(Duration::from_secs(10))?;
    Ok(())
}

/// Two clients, on two loops: one subscribes, the other publishes.
fn check() -> Result<(), Box<dyn Error>> {
    let server = start("127.0.0.1:0", Some(2))?;
    let address = server.address().ip().ok_or("not an IP address")?;
    let mut gauge = client(address, b"gauge")?;
    let mut office = client(address, b"office")?;
    office.write_all(b"\x82\x0c\x00\x01\x00\x07tides/+\x01")?;
    expect(&mut office, b"\x90\x03\x00\x01\x01")?;
    gauge.write_all(b"\x32\x12\x00\x0btides/brest\x00\x07412")?;
    expect(&mut gauge, b"\x40\x02\x00\x07")?;
    expect(&mut office, b"\x32\x12\x00\x0btides/brest\x00\x01412")?;
    println!("the office has the level of brest");
    server.drain(Duration::from_secs(1));
    Ok(())
}

/// Connects with a clean session, and a keep-alive of ten seconds.
fn client(address: SocketAddr, name: &[u8]) -> Result<TcpStream, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(&connect_packet(true, 10, name))?;
    expect(&mut stream, b"\x20\x02\x00\x00")?;
    Ok(stream)
}

/// CONNECT of a client without a will. The name has at most 115 bytes.
fn connect_packet(is_clean: bool, keep_alive: u8, name: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x10, 12 + name.len() as u8, 0, 4, b'M', b'Q', b'T', b'T', 4];
    packet.extend([u8::from(is_clean) << 1, 0, keep_alive, 0, name.len() as u8]);
    packet.extend(name);
    packet
}

fn expect(stream: &mut TcpStream, packet: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut received = vec![0; packet.len()];
    stream.read_exact(&mut received)?;
    if received == packet { Ok(()) } else { Err(format!("{received:?} came in the place of {packet:?}").into()) }
}
