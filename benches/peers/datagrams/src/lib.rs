//! Shared parts of the one-way measurements: 1,200 bytes a datagram, in bursts that the receiver acknowledges.
//!
//! A sender has two bursts in flight, which the receiver's socket buffer holds, so that nothing is lost.

use std::net::UdpSocket;

/// The payload of each datagram.
pub const BYTES: usize = 1200;
/// Datagrams of a burst: as many as a run of at most 64 KiB has, and a little less.
pub const BURST: usize = 48;
/// Bursts in flight.
pub const BURSTS: usize = 2;
/// The receive buffer that a program without privileges gets.
pub const RECEIVE_BUFFER_BYTES: usize = 212_992;

/// A socket at a port of the system's choice.
///
/// # Errors
/// The system's.
pub fn socket() -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    Ok(socket)
}
